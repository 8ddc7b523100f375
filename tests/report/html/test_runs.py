"""A run beside its plan: its steps are on the page, and another plan's run is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import placewright
from placewright.errors import FormatError, InputError
from placewright.report.running import run_record
from placewright.solving import solve
from tests.cli.running import run as command
from tests.report.html.pages import Parts
from tests.report.html.plans import plan_for
from tests.report.html.test_document import slices
from tests.runtime.simulated import simulated_run
from tests.runtime.test_comparison import two_devices

MEASURED, WAITING = 5, 6


@pytest.fixture
def plan():
    return solve(two_devices(), "heft")


@pytest.fixture
def report(plan):
    """Of a machine on which b takes three times as long as planned."""
    return simulated_run(plan, replace(plan.problem, op_time=[[1, 9], [9, 12], [9, 6], [1, 9]]))


@pytest.fixture
def run_file(plan, report, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run_record(plan, report)), "utf-8")
    return path


def test_the_steps_of_a_run_are_under_those_planned(plan, report, run_file, tmp_path):
    placewright.report(plan, tmp_path / "page.html", run=run_file)
    [page] = Parts((tmp_path / "page.html").read_text("utf-8")).data["plans"]
    op = {name: k for k, name in enumerate(plan.problem.op_names)}
    expected = [
        (f"{report.devices[step.rank]}, measured", kind, step.start, step.finish, op[step.name], 0)
        for step in report.steps
        for kind in [{"op": MEASURED, "wait": WAITING}.get(step.kind)]
        if kind
    ]
    found = [row for row in slices(page["timeline"]) if row[1] in (MEASURED, WAITING)]
    assert expected
    assert sorted(found) == sorted(expected)
    tracks = [track["name"] for track in page["timeline"]["tracks"]]
    assert tracks[:4] == ["x", "x, measured", "y", "y, measured"]


def test_what_was_planned_stays_as_it_is(plan, run_file, tmp_path):
    placewright.report(plan, tmp_path / "alone.html")
    placewright.report(plan, tmp_path / "both.html", run=run_file)
    alone, both = (
        slices(Parts((tmp_path / name).read_text("utf-8")).data["plans"][0]["timeline"])
        for name in ("alone.html", "both.html")
    )
    assert sorted(alone) == sorted(row for row in both if row[1] < MEASURED)


def test_the_command_takes_a_run(plan, run_file, tmp_path):
    plan.save(tmp_path / "plan.json")
    out = tmp_path / "page.html"
    done = command("report", tmp_path / "plan.json", "--run", run_file, "-o", out, "--json")
    assert done.code == 0
    assert done.json == {
        "path": str(out),
        "bytes": out.stat().st_size,
        "plans": [str(tmp_path / "plan.json")],
        "run": str(run_file),
        "figures": [],
    }


def test_the_run_of_another_plan_is_refused(run_file, tmp_path):
    with pytest.raises(InputError, match="give the plan that was run"):
        placewright.report(plan_for("latency"), tmp_path / "page.html", run=run_file)


def test_a_run_beside_a_pipeline_is_refused(run_file, tmp_path):
    with pytest.raises(InputError, match="only of plans for latency"):
        placewright.report(plan_for("throughput"), tmp_path / "page.html", run=run_file)
    (tmp_path / "pipeline.json").write_text('{"measured": 1.0, "schedule": "gpipe"}', "utf-8")
    with pytest.raises(InputError, match="only of plans for latency"):
        placewright.report(
            plan_for("throughput"), tmp_path / "page.html", run=tmp_path / "pipeline.json"
        )


def test_a_run_beside_several_plans_is_refused(plan, run_file, tmp_path):
    with pytest.raises(InputError, match="give that plan alone"):
        placewright.report([plan, plan], tmp_path / "page.html", run=run_file)


@pytest.mark.parametrize(
    "broken",
    [
        [],
        {},
        {"measured": 1.0, "rank_devices": ["x"], "step_times": {}},
        {
            "measured": 1.0,
            "rank_devices": ["x"],
            "step_times": {"rank": [1], "kind": ["op"], "name": ["a"], "start": [0], "finish": [1]},
        },
        {
            "measured": 1.0,
            "rank_devices": ["x"],
            "step_times": {"rank": [0], "kind": ["op"], "name": ["a"], "start": [2], "finish": [1]},
        },
    ],
)
def test_a_file_without_steps_is_named(plan, tmp_path, broken):
    (tmp_path / "run.json").write_text(json.dumps(broken), "utf-8")
    with pytest.raises(FormatError, match=r"run\.json: has no steps"):
        placewright.report(plan, tmp_path / "page.html", run=tmp_path / "run.json")
    assert not (tmp_path / "page.html").exists()


def test_a_run_with_ops_that_the_plan_lacks_is_refused(plan, run_file, tmp_path):
    document = json.loads(run_file.read_text("utf-8"))
    steps = document["step_times"]
    kinds, names = steps["kind"], steps["name"]
    names[kinds.index("op")] = "elsewhere"
    run_file.write_text(json.dumps(document), "utf-8")
    with pytest.raises(InputError, match="op 'elsewhere' that the plan lacks; give the plan that"):
        placewright.report(plan, tmp_path / "page.html", run=run_file)


def test_a_run_of_another_placement_is_refused(plan, run_file, tmp_path):
    document = json.loads(run_file.read_text("utf-8"))
    devices = document["rank_devices"]
    assert len(devices) == 2
    document["rank_devices"] = devices[::-1]
    run_file.write_text(json.dumps(document), "utf-8")
    with pytest.raises(InputError, match=r"op '.+' on '.+', and the plan on '.+'; give the plan"):
        placewright.report(plan, tmp_path / "page.html", run=run_file)


def test_a_report_does_not_replace_what_it_is_of(plan, run_file, tmp_path):
    file = tmp_path / "plan.json"
    plan.save(file)
    for path, run in ((file, None), (run_file, run_file)):
        before = path.read_bytes()
        with pytest.raises(InputError, match="is what the report is of; give another file"):
            placewright.report(file, path, run=run)
        assert path.read_bytes() == before
