"""A run as it is printed, traced and kept in the store."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from placewright.cli.run_results import Uses, use_results
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.roofline import CostOptions
from placewright.errors import OptionError
from placewright.importers import Imported
from placewright.plan import Plan
from placewright.planning import plan as make_plan
from placewright.runtime.tuning import calibrate
from tests.runtime.layered import imported, layered, really, two_cpus
from tests.runtime.simulated import simulated_run

PATH = Path("plan.json")


@pytest.fixture(scope="module")
def plan() -> Plan:
    made = imported(layered())
    return make_plan(made, two_cpus(), planner="local-search", costs=CostOptions(profiles=None))


def used(plan: Plan, capsys: pytest.CaptureFixture[str], uses: Uses, *, json: bool) -> str:
    report = simulated_run(plan, really(plan.problem))
    use_results(plan, report, PATH, uses, json=json)
    return capsys.readouterr().out


def test_a_run_is_printed_with_the_ops_that_lost_most(
    plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    out = used(plan, capsys, Uses(), json=False)
    order = ["predicted", "ops that lost most time", "devices", "waiting"]
    assert [out.index(text) for text in order] == sorted(out.index(text) for text in order)


def test_the_record_has_ops_and_transfers(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(used(plan, capsys, Uses(), json=True))
    assert len(record["ops"]) == plan.problem.op_count
    assert record["plan"] == "plan.json"
    assert {"trace", "calibration"}.isdisjoint(record)


def test_a_trace_is_written_and_the_store_filled(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded: list[str] = []

    def load(source: str, *, training: bool) -> Imported:
        loaded.append(source)
        return imported(layered())

    monkeypatch.setattr(calibrate, "load", load)
    uses = Uses(tmp_path / "trace.json", True, tmp_path / "profiles.sqlite")
    record = json.loads(used(plan, capsys, uses, json=True))
    assert record["trace"] == str(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    assert record["calibration"]["kept"] > 0
    assert loaded == ["torch:models:layered"]
    with ProfileStore(tmp_path / "profiles.sqlite", writable=False) as store:
        assert {entry.method for _, entry in store.entries()} == {"run"}
    out = used(plan, capsys, uses, json=False)
    assert "calibrated: " in out and f"trace written to {tmp_path / 'trace.json'}" in out


def test_a_run_that_teaches_nothing_is_printed_all_the_same(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = replace(simulated_run(plan, plan.problem), rank_threads=(9, 9))
    uses = Uses(calibrate=True, profiles=tmp_path / "profiles.sqlite")
    with pytest.raises(OptionError, match="ran with 9 threads"):
        use_results(plan, report, PATH, uses, json=False)
    assert "measured" in capsys.readouterr().out


def test_a_store_without_calibration_is_refused() -> None:
    with pytest.raises(OptionError, match="--profiles is the store of --calibrate; add it"):
        Uses(profiles=Path("profiles.sqlite"))
