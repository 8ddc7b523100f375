"""torchrun's summary of a failed job names the rank at fault, and has its sentence."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from torch.distributed.elastic.multiprocessing.errors import (
    ChildFailedError,
    ProcessFailure,
)

from placewright.cluster import Cluster, Device, Link
from placewright.errors import ExecutionError, OptionError
from placewright.planning import plan as make_plan
from placewright.runtime.torchrun_summary import (
    errors_told_to_torchrun,
    tell_torchrun,
)

FILE = "TORCHELASTIC_ERROR_FILE"
ROOT = Path(__file__).resolve().parents[2]


def failure(rank: int, file: Path) -> ProcessFailure:
    """What torchrun knows of a process that has ended with exit code 5."""
    return ProcessFailure(local_rank=rank, pid=1, exitcode=5, error_file=str(file))


def root_cause(error: ChildFailedError) -> str:
    return str(error).partition("Root Cause")[2]


def test_the_summary_has_the_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILE, str(tmp_path / "error.json"))
    with pytest.raises(OptionError), errors_told_to_torchrun():
        raise OptionError("the plan uses 3 devices; start 3")
    error = ChildFailedError("placewright", {0: failure(0, tmp_path / "error.json")})
    assert "traceback : the plan uses 3 devices; start 3\n" in root_cause(error)


def test_the_cause_is_the_rank_at_fault_and_none_that_lost_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1e9)
    failures = {}
    for rank, sentence in enumerate(["rank 0 lost another rank", "rank 1 failed in op 'add'"]):
        file = tmp_path / f"{rank}.json"
        monkeypatch.setenv(FILE, str(file))
        tell_torchrun(sentence, is_cause=rank == 1)
        failures[rank] = failure(rank, file)
    found = root_cause(ChildFailedError("placewright", failures))
    assert "rank 1 failed in op 'add'" in found
    assert "rank 0 lost" not in found


def test_what_is_told_first_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILE, str(tmp_path / "error.json"))
    with pytest.raises(ExecutionError), errors_told_to_torchrun():
        tell_torchrun("first", is_cause=False)
        raise ExecutionError("second")
    assert failure(0, tmp_path / "error.json").message["message"] == "first"  # type: ignore[index]


def test_without_torchrun_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FILE, raising=False)
    monkeypatch.chdir(tmp_path)
    tell_torchrun("nobody asks")
    monkeypatch.setenv(FILE, str(tmp_path / "not" / "there.json"))
    tell_torchrun("nowhere to write")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_torchrun_ends_with_the_sentence_of_the_rank_at_fault(tmp_path: Path) -> None:
    devices = tuple(Device(name, "EPYC 7763", "host", memory=1e9) for name in ("a", "b"))
    cluster = Cluster("two", devices, (Link("a", "b", 1e9),))
    source = "torch:tests.runtime.models:stumbling"
    plan = make_plan(source, cluster, planner="getf", pinned={"stumble": "b", "linear": "a"})
    plan.save(tmp_path / "plan.json")
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "--no-python", sys.executable, "-m", "placewright",
        "run", str(tmp_path / "plan.json"), "--launcher", "torchrun",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 1
    last = done.stderr.partition("Root Cause")[2]
    assert "rank      : 1 (local_rank: 1)" in last
    assert "exitcode  : 5" in last
    assert "traceback : rank 1 failed in op 'stumble': ValueError: out of cheese\n" in last
