"""What a calibration and a tuning say of themselves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from placewright.costs.profiles.store import ProfileStore
from placewright.report.tuning import (
    calibration_lines,
    calibration_record,
    round_records,
    rounds_table,
)
from placewright.runtime.tuning.calibrate import CalibrationReport
from placewright.runtime.tuning.link_correction import LinkCorrection
from placewright.runtime.tuning.tuning import TuneOptions, Tuning, tune
from tests.report.test_running import shown
from tests.runtime.layered import imported, layered, two_cpus
from tests.runtime.test_tuning import Machine

LINK = LinkCorrection("cpu0", "cpu1", 5, 3e-4, float("inf"), 1e-5, 2.0**30)
DONE = CalibrationReport(
    4, 1, 18, ("relu", "linear"), 1e-3, 2e-3, 0.5, 0.1, (LINK,), {"gpu": "ran elsewhere"}
)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuning:
    asked = TuneOptions(rounds=4, planner="local-search", measure_first=False)
    folder: Path = tmp_path_factory.mktemp("report")
    with ProfileStore(folder / "profiles.sqlite") as store:
        return tune(imported(layered()), two_cpus(), store, asked, run=Machine(slower=30.0))


def test_a_calibration_says_what_it_kept_and_what_not() -> None:
    assert list(calibration_lines(DONE)) == [
        "calibrated: 4 distinct ops kept (1 new), from 18 samples; the plan's times were 50% off "
        "(median), 1.000 ms instead of 2.000 ms in all",
        "link cpu0 – cpu1: 10.000 µs and 1.1 GB/s planned, 300.000 µs and unlimited seen "
        "(corrected by 5 transfers)",
        "set aside, as few samples were far from what was measured before: relu and linear",
        "nothing is kept of device 'gpu', which ran elsewhere",
    ]


def test_a_disturbed_run_is_told_of() -> None:
    lines = list(calibration_lines(replace(DONE, noise=0.8)))
    assert lines[1].startswith("the clocked calls differ by 80%, so other work was in the way")


def test_the_record_of_a_calibration_is_json_of_all_of_it() -> None:
    record = json.loads(json.dumps(calibration_record(DONE), allow_nan=False))
    assert record["links"][0]["bandwidth"] is None
    assert (record["kept"], record["noise"], record["left_out"]) == (
        4,
        0.1,
        {"gpu": "ran elsewhere"},
    )


def test_each_round_has_a_line_and_a_record(tuned: Tuning) -> None:
    rows = [[cell.strip() for cell in row] for row in shown(rounds_table(tuned.rounds))]
    assert [row[0] for row in rows] == [str(each.number) for each in tuned.rounds]
    assert [row[-1] for row in rows] == ["yes", "no", "yes", "yes"]
    records = json.loads(json.dumps(round_records(tuned.rounds), allow_nan=False))
    assert [each["measured"] for each in records] == [each.measured for each in tuned.rounds]
    assert records[0]["error"] > records[-1]["error"]
    assert records[0]["calibration"]["new"] > 0
