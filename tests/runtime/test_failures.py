"""When a run on real processes fails, it says why, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
psutil = pytest.importorskip("psutil")

from placewright.errors import ExecutionError  # noqa: E402
from placewright.runtime import RunOptions, execute  # noqa: E402
from placewright.runtime.pipelined.reference import SingleProcess  # noqa: E402
from tests.runtime import models  # noqa: E402
from tests.runtime.pipelined.programs import case_of  # noqa: E402
from tests.runtime.processes import left_in, workers_of  # noqa: E402
from tests.runtime.programs import split  # noqa: E402

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("temporary")]
ROOT = Path(__file__).resolve().parents[2]
HERE = "tests.runtime.models"
ENDED_WITHIN = 30.0


def once_running(action: Callable[[Any], None]) -> Callable[[str, float], None]:
    """A progress function that calls `action` on one rank's process when two ranks are running.

    Each says that it loads, connects and runs; a moment later it is in its ops.
    """
    said: list[float] = []

    def progress(_what: str, done: float) -> None:
        said.extend([done] if done >= 0.2 else [])
        if len(said) == 6:
            time.sleep(1)
            first, _ = workers_of(psutil.Process())
            action(first)

    return progress


def test_an_exception_in_a_rank_ends_all_and_is_told() -> None:
    device_of = {"linear": 0, "stumble": 1, "linear_1": 0, "relu": 0}
    with pytest.raises(ExecutionError) as caught:
        execute(f"torch:{HERE}:stumbling", device_of, 2)
    assert str(caught.value) == "rank 1 failed in op 'stumble': ValueError: out of cheese"


@pytest.mark.parametrize("slow", [0, 1])
def test_a_killed_rank_ends_all_and_is_told(slow: int) -> None:
    """Rank 0 is killed: in an op while rank 1 waits for it, and the other way round."""
    killed: list[float] = []

    def kill(process: Any) -> None:
        killed.append(time.monotonic())
        process.send_signal(signal.SIGKILL)

    device_of = {"linear": 0, "dawdle": slow, "linear_1": 1 - slow, "relu": 0}
    with pytest.raises(
        ExecutionError, match=r"^rank 0 was ended by SIGKILL while running its ops; .*memory$"
    ):
        execute(f"torch:{HERE}:dawdling", device_of, 2, on_progress=once_running(kill))
    assert time.monotonic() - killed[0] < ENDED_WITHIN


def test_what_the_single_process_raises_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks are threads here, and the run is compared with the main one."""

    def alone() -> bool:
        return threading.current_thread() is threading.main_thread()

    device_of, made = split("stumbling"), case_of(models.stumbling)
    monkeypatch.setattr(models, "_on_a_rank", alone)
    said = "^the single process that the run is compared with failed"
    with pytest.raises(ExecutionError, match=rf"{said}: ValueError: out of cheese$"):
        execute(f"torch:{HERE}:stumbling", device_of, 2, options=RunOptions(launcher="local"))
    with pytest.raises(ExecutionError, match=rf"{said} in op 'stumble': ValueError: out of c"):
        SingleProcess(made.executable).results(1)


def test_a_stuck_rank_ends_all_after_the_timeout() -> None:
    with pytest.raises(ExecutionError, match=r"is stuck .* for 5 s; give a longer timeout"):
        execute(f"torch:{HERE}:dawdling", split("dawdling"), 2, options=RunOptions(timeout=5))


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(ExecutionError, match="set TMPDIR to a directory with room for"):
        execute(f"torch:{HERE}:chain", split("chain"), 2)


# Exports the model once; for each directory that it reads a line of, a process of its own, made of
# this one, runs it. Says its id, when the ranks are running, and how it ended.
STARTER = textwrap.dedent(
    """
    import os, sys
    from placewright.runtime.execution import Assignment, run_assignments
    from tests.runtime.models import dawdling
    from tests.runtime.programs import case_of
    case = case_of(*dawdling())
    assignment = Assignment({"linear": 0, "dawdle": 0, "linear_1": 1, "relu": 1})
    def progress(what, done):
        if done >= 0.2:
            print("running", flush=True)
    for line in sys.stdin:
        if process := os.fork():
            print(process, flush=True)
            print("ended", os.waitpid(process, 0)[1], flush=True)
        else:
            os.environ["TMPDIR"] = line.strip()
            modules = ["tests.runtime.models"]
            run_assignments(
                case.program, case.values, [assignment], 2, on_progress=progress, modules=modules
            )
    """
)


@pytest.fixture(scope="module")
def starter() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # Nothing has threads yet that a process made of this one would lack.
        env={**os.environ, "DAWDLE_SECONDS": "60", "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ranks_end_with_the_process_that_started_them(
    number: int, temporary: Path, starter: subprocess.Popen[str]
) -> None:
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdin.write(f"{temporary}\n")
    starter.stdin.flush()
    parent = psutil.Process(int(starter.stdout.readline()))
    try:
        assert starter.stdout.readline() == "running\n"
        workers = workers_of(parent)
        assert len(workers) == 2
        parent.send_signal(number)
        parent.wait(ENDED_WITHIN)
        _, alive = psutil.wait_procs(workers, timeout=ENDED_WITHIN)
        assert alive == []
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent.kill()
    said = next(line for line in starter.stdout if line != "running\n")
    status = int(said.removeprefix("ended "))
    if number == signal.SIGKILL:  # nobody was left to take the files away
        for folder in left_in(temporary):
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
    if number == signal.SIGTERM:
        assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGTERM
