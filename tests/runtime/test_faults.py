"""Runs that fail, again and again: one sentence each, exit code 5, and nothing is left behind.

``FAULTS`` is how often each fault is repeated in a slow run.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("psutil")

from placewright.cluster import Cluster, Device, Link  # noqa: E402
from placewright.errors import ExecutionError  # noqa: E402
from placewright.planning import plan as make_plan  # noqa: E402
from placewright.runtime.stages import compiled  # noqa: E402
from placewright.runtime.values import Values  # noqa: E402
from tests.cli.running import compile_kernels  # noqa: E402
from tests.cli.running import run as run_command  # noqa: E402
from tests.interrupting import interrupted_after  # noqa: E402
from tests.runtime.faults import (  # noqa: E402
    DAWDLING,
    GROWING,
    blow_at,
    dawdling_case,
    growing_case,
    nothing_left,
    repeated,
    run,
)

SLOW_COUNT = int(os.environ.get("FAULTS", "50"))
pytestmark = [pytest.mark.timeout(300 + 60 * SLOW_COUNT)]
ENDED_WITHIN = 10.0
MIB = 1 << 20
DOING = r"(starting|loading its weights|connecting to the other ranks|running its ops)"
MANY = pytest.param(SLOW_COUNT, marks=pytest.mark.slow)


def failure(*arguments: Any, **options: Any) -> str:
    """The sentence of a run that fails; it is one line."""
    with pytest.raises(ExecutionError) as caught:
        run(*arguments, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("count", [MANY])
def test_a_rank_killed_at_any_moment_is_named(count: int, temporary: Path) -> None:
    case = dawdling_case()

    def once(number: int) -> None:
        draw, rank = random.Random(number), number % 2
        with nothing_left(temporary):
            thread, when = blow_at(rank, signal.SIGKILL, draw.uniform(0, 8))
            told = failure(case, DAWDLING)
            ended = time.monotonic()
            thread.join()
        assert re.match(rf"rank {rank} was ended by SIGKILL while {DOING}; ", told), told
        assert ended - when[0] < ENDED_WITHIN

    repeated(count, once)


@pytest.mark.parametrize("count", [MANY])
def test_a_rank_stopped_at_any_moment_is_named(count: int, temporary: Path) -> None:
    case = dawdling_case()

    def once(number: int) -> None:
        draw, rank = random.Random(number), number % 2
        with nothing_left(temporary):
            thread, _ = blow_at(rank, signal.SIGSTOP, draw.uniform(0, 8))
            told = failure(case, DAWDLING, timeout=8)
            thread.join()
        assert re.match(rf"rank {rank} was stopped by a signal while {DOING}; ", told), told

    repeated(count, once)


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize(
    ("device_of", "limits", "words"),
    [
        (GROWING, (400 * MIB, 64 * MIB), "rank 1 ran out of memory in op 'repeat': 128.0 MiB more"),
        (GROWING, (400 * MIB, 200 * MIB), "rank 1 ran out of memory in op 'relu': 128.0 MiB more"),
        ({**GROWING, "relu": 0}, (64 * MIB, 400 * MIB),
         "rank 0 ran out of memory in receiving the output of op 'repeat': 128.0 MiB more"),
    ],
)  # fmt: skip
def test_a_rank_without_memory_says_in_which_op(
    device_of: dict[str, int], limits: tuple[float, ...], words: str, count: int, temporary: Path
) -> None:
    case = growing_case(1 << 21)

    def once(_: int) -> None:
        with nothing_left(temporary):
            told = failure(case, device_of, memory_limits=limits)
        assert told == f"{words} are not there; put less on its device"

    repeated(count, once)


@pytest.mark.parametrize("count", [1, MANY])
def test_weights_that_do_not_fit_are_told(count: int, temporary: Path) -> None:
    case = dawdling_case()

    def once(_: int) -> None:
        with nothing_left(temporary):
            told = failure(case, DAWDLING, memory_limits=(400 * MIB, 0))
        assert re.match(r"rank 1 ran out of memory while loading its weights: ", told), told

    repeated(count, once)


@pytest.fixture
def small_disk(temporary: Path) -> Iterator[Path]:
    """TMPDIR with room for 256 KiB."""
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(temporary)], capture_output=True
    )
    if made.returncode:
        pytest.skip("file systems cannot be mounted here")
    yield temporary
    subprocess.run(["umount", str(temporary)], check=True)


@pytest.mark.parametrize("count", [1, MANY])
def test_a_disk_too_small_for_the_outputs_is_told(count: int, small_disk: Path) -> None:
    case = growing_case(1 << 14)

    def once(_: int) -> None:
        with nothing_left(small_disk):
            told = failure(case, GROWING)
        assert re.fullmatch(
            r"rank 1 failed: .*rank-1\.outputs\.pt: cannot be written \(.*\); if the disk is full, "
            r"set TMPDIR to a directory with room for 1\.0 MiB",
            told,
        ), told

    repeated(count, once)


@pytest.mark.parametrize("count", [1, MANY])
def test_a_disk_too_small_for_the_inputs_is_told(count: int, small_disk: Path) -> None:
    case = growing_case(1)
    large = torch.ones(2, 1 << 20)
    inputs = dict.fromkeys(case.values.inputs, large)
    values = Values(case.values.weights, inputs)
    large_case = type(case)(case.program, values, case.ops, case.expected)

    def once(_: int) -> None:
        with nothing_left(small_disk):
            told = failure(large_case, GROWING)
        assert "set TMPDIR to a directory with room for 8.0 MiB" in told

    repeated(count, once)


@pytest.mark.parametrize("count", [MANY])
def test_ctrl_c_at_any_moment_ends_all(count: int, temporary: Path) -> None:
    case = dawdling_case()

    def once(number: int) -> None:
        after = random.Random(number).uniform(0, 8)
        with nothing_left(temporary), pytest.raises(KeyboardInterrupt), interrupted_after(after):
            run(case, DAWDLING)
            pytest.fail("it went on")

    repeated(count, once)


@pytest.mark.parametrize(
    ("launcher", "count"),
    [
        ("local", 3),
        pytest.param("local", SLOW_COUNT, marks=pytest.mark.slow),
        ("processes", 1),
        pytest.param("processes", SLOW_COUNT, marks=pytest.mark.slow),
    ],
)
def test_nan_in_the_inputs_is_passed_on(launcher: str, count: int, temporary: Path) -> None:
    case = growing_case(2)
    inputs = {name: value.clone() for name, value in case.values.inputs.items()}
    for value in inputs.values():
        value[0, 0] = float("nan")
    case = type(case)(case.program, Values(case.values.weights, inputs), case.ops, case.expected)

    def once(_: int) -> None:
        with nothing_left(temporary):
            report = run(case, GROWING, launcher=launcher)
        ((output,),) = report.results
        assert report.max_abs_difference == 0.0
        assert output.isnan().any(1).tolist() == [True, False] * 2

    repeated(count, once)


@pytest.mark.parametrize("count", [3, MANY])
def test_threads_end_together_when_one_fails(
    count: int, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise RuntimeError("can't allocate memory: you tried to allocate 9216 bytes.")

    def once(_: int) -> None:
        before = threading.active_count()
        with nothing_left(temporary):
            told = failure(case, GROWING, launcher="local")
        assert told.startswith("rank 1 ran out of memory in op 'relu': 9.0 KiB more are not there")
        assert threading.active_count() == before

    case, found = growing_case(2), compiled.function_of
    monkeypatch.setattr(
        compiled, "function_of", lambda name: full if "relu" in name else found(name)
    )
    repeated(count, once)


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    """Of a model that takes 128 MiB twice, on two devices of 200 MiB."""
    compile_kernels()  # which may open what stays open until Python ends
    cpus = tuple(Device(name, "EPYC 7763", "host", memory=200 * MIB) for name in ("left", "right"))
    cluster = Cluster("pair", cpus, (Link("left", "right", 1e9),))
    plan = make_plan("torch:tests.runtime.faults:growing", cluster, planner="single-device")
    plan.save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def test_a_run_beyond_the_limit_of_memory_ends_with_exit_code_5(
    plan_file: Path, temporary: Path
) -> None:
    with nothing_left(temporary):
        result = run_command("run", plan_file, "--limit-memory", "--repeats", 1)
    assert (result.code, result.out) == (5, "")
    assert result.err.splitlines()[-1] == (
        "placewright: rank 0 ran out of memory in op 'relu': 128.0 MiB more are not there; "
        "put less on its device"
    )


def test_a_killed_rank_ends_the_command_with_exit_code_5(plan_file: Path, temporary: Path) -> None:
    with nothing_left(temporary):
        thread, _ = blow_at(0, signal.SIGKILL, 0.5, ranks=1)
        result = run_command("run", plan_file, "--repeats", 100)
        thread.join()
    assert result.code == 5
    assert re.match(r"placewright: rank 0 was ended by SIGKILL while", result.err.splitlines()[-1])


def as_rank_of_torchrun(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """This process is the only rank of a run that meets at a port of this host."""
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


def told_when_joining(monkeypatch: pytest.MonkeyPatch, plan_file: Path, port: int) -> str:
    """What a rank says that fails to join the others at a port of this host."""
    as_rank_of_torchrun(monkeypatch, port)
    result = run_command("run", plan_file, "--launcher", "torchrun", "--timeout", 1)
    assert result.code == 5
    return result.err


def test_an_interface_that_is_not_there_is_bad_input(
    plan_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank_of_torchrun(monkeypatch, 1)
    result = run_command("run", plan_file, "--launcher", "torchrun", "--interface", "nowhere0")
    assert result.code == 2
    assert "this host has no network interface 'nowhere0', only lo" in result.err


@pytest.mark.parametrize("count", [1, MANY])
def test_a_port_where_nobody_answers_is_told(
    count: int, plan_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once(_: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        told = told_when_joining(monkeypatch, plan_file, port)
        assert f"placewright: nobody answered at 127.0.0.1:{port} for 1 s; " in told

    repeated(count, once)


@pytest.mark.parametrize("count", [1, MANY])
def test_a_port_that_something_else_has_taken_is_told(
    count: int, plan_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once(_: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            told = told_when_joining(monkeypatch, plan_file, port)
        assert f"placewright: what listens at 127.0.0.1:{port} is neither torchrun nor" in told

    repeated(count, once)
