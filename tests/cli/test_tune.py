"""``placewright tune``, on simulated times and once for real on two cores of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("psutil")

from placewright import runtime
from placewright.cluster import Cluster, CpuRun, Device, Link
from placewright.costs.detect import cpu_kind
from placewright.costs.machine import examine
from placewright.costs.profiles.store import ProfileStore
from placewright.plan import Plan
from placewright.runtime.results import RunReport
from placewright.verify import verify
from tests.cli.running import run
from tests.runtime.conftest import temporary  # noqa: F401
from tests.runtime.simulated import simulated_run

SOURCE = "torch:tests.costs.profiles.models:two_layers"
QUICK = ("-p", "heft", "--repeats", 2)


@pytest.fixture
def cores() -> list[int]:
    found = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0, 1]
    if len(found) < 2:
        pytest.skip("there is one core")
    return found[:2]


@pytest.fixture
def here(tmp_path: Path, cores: list[int]) -> Iterator[Path]:
    """A folder with the cluster of two cores in it."""
    figures = {"memory": 4e9, "peak_flops": {"fp32": 1e10}, "memory_bandwidth": 1e10}
    kind = cpu_kind(examine().processor)
    devices = tuple(
        Device(f"cpu{k}", kind, run=CpuRun((core,)), **figures)  # type: ignore[arg-type]
        for k, core in enumerate(cores)
    )
    link = Link("cpu0", "cpu1", 1e9, latency=1e-5, duplex="half", channel="memory")
    Cluster("two", devices, (link,), routing="direct").save(tmp_path / "two.yaml")
    yield tmp_path


def tune(here: Path, *arguments: object) -> Any:
    named = ("-c", here / "two.yaml", "-o", here / "plan.json", "--profiles", here / "p.sqlite")
    return run("tune", SOURCE, *named, *QUICK, *arguments)


def times(*measured: float) -> Any:
    """In the place of `run_plan`: runs that take what was planned, reported as these."""
    left = list(measured)

    def run_plan(plan: Plan, options: Any = None, *, on_progress: Any = None) -> RunReport:
        return replace(simulated_run(plan, plan.problem), measured=left.pop(0))

    return run_plan


@pytest.mark.slow
def test_tune_writes_a_verified_plan_and_leaves_what_it_measured_in_the_store(
    here: Path,
    temporary: Path,  # noqa: F811
) -> None:
    done = tune(here, "--rounds", 2, "--json")
    assert done.code == 0, done.err
    assert verify(Plan.load(here / "plan.json")).ok
    record = done.json
    assert 1 <= len(record["rounds"]) <= 2
    assert record["measured"] == min(each["measured"] for each in record["rounds"])
    assert record["value"] == record["predicted"] == Plan.load(here / "plan.json").value
    assert record["plan"] == str(here / "plan.json")
    with ProfileStore(here / "p.sqlite", writable=False) as store:
        methods = {entry.method for _, entry in store.entries()}
    assert "run" in methods


def test_the_table_has_a_line_for_each_round(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "run_plan", times(2.0, 1.0))
    done = tune(here)
    assert done.code == 0, done.err
    assert "│     1 │" in done.out and "│     2 │" in done.out and "│     3 │" not in done.out
    assert "calibrated: " in done.out and f"written to {here / 'plan.json'}" in done.out


def test_the_record_has_the_kept_plan_and_every_round(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "run_plan", times(2.0, 1.0))
    record = tune(here, "--json").json
    assert [each["measured"] for each in record["rounds"]] == [2.0, 1.0]
    assert (record["measured"], record["round"], record["predicted"]) == (1.0, 2, record["value"])
    assert record["value"] == Plan.load(here / "plan.json").value
    assert record["rounds"][0]["calibration"]["kept"] > 0


def test_a_plan_is_kept_as_soon_as_it_was_run(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = times(1.0)

    def run_plan(plan: Plan, options: Any = None, *, on_progress: Any = None) -> RunReport:
        if (here / "plan.json").exists():
            raise KeyboardInterrupt
        return first(plan)

    monkeypatch.setattr(runtime, "run_plan", run_plan)
    assert tune(here).code == 130
    assert verify(Plan.load(here / "plan.json")).ok


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rounds", 0), "--rounds"),
        (("-c", "2x3090"), "no device of cluster '2x3090' says what it is on this machine"),
        (("-p", "ideal-dp"), "ideal-dp"),
    ],
)
def test_what_cannot_be_tuned_is_said(here: Path, arguments: Any, said: str) -> None:
    done = tune(here, *arguments)
    assert done.code == 2
    assert said in done.err
    assert not (here / "plan.json").exists()


def test_a_source_without_a_program_is_refused(here: Path) -> None:
    done = run("tune", "zoo:gpt2?layers=1", "-c", here / "two.yaml", "-o", here / "plan.json")
    assert (done.code, "zoo:gpt2" in done.err) == (2, True)
