"""A run beside its plan, as a person and as a program reads it."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from placewright.plan import Plan
from placewright.report.running import run_record, step_records, step_tables, worst_ops_table
from placewright.runtime.results import RunReport
from placewright.runtime.tuning.comparison import compare_run
from placewright.solving import solve
from tests.runtime.simulated import simulated_run
from tests.runtime.test_comparison import two_devices


@pytest.fixture(scope="module")
def plan() -> Plan:
    return solve(two_devices(), "heft")


@pytest.fixture(scope="module")
def report(plan: Plan) -> RunReport:
    """Of a machine on which b takes three times, d half, as long as planned."""
    truth = replace(plan.problem, op_time=[[1, 9], [9, 12], [9, 6], [0.5, 9]])
    return simulated_run(plan, truth)


def shown(*tables: object) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=140)
    for table in tables:
        console.print(table)
    lines = console.file.getvalue().splitlines()
    return [line.strip("│ ").split("│") for line in lines if line.startswith("│")]


def test_the_ops_that_lost_most_come_first_and_faster_ones_not_at_all(
    plan: Plan, report: RunReport
) -> None:
    worst, total = shown(worst_ops_table(plan, compare_run(plan, report)))
    assert [cell.strip() for cell in worst] == [
        "b", "op", "y", "4.000 s", "12.000 s", "3.00", "8.000 s",
    ]  # fmt: skip
    assert [cell.strip() for cell in total] == [
        "all 4 measured", "", "", "12.000 s", "19.500 s", "1.62", "7.500 s",
    ]  # fmt: skip


def test_the_table_of_ops_stays_short(plan: Plan) -> None:
    truth = replace(plan.problem, op_time=plan.problem.op_time * 2)
    found = compare_run(plan, simulated_run(plan, truth))
    names = [row[0].strip() for row in shown(worst_ops_table(plan, found, limit=2))]
    assert names == ["c", "b", "all 4 measured"]


def test_each_device_has_a_line(plan: Plan, report: RunReport) -> None:
    tables = list(step_tables(plan, report))
    rows = [[cell.strip() for cell in row] for row in shown(tables[1])]
    assert [row[:4] for row in rows] == [
        ["x", "2.000 s", "1.500 s", "0.75"],
        ["y", "10.000 s", "18.000 s", "1.80"],
    ]


def test_a_run_without_steps_has_neither_tables_nor_records_of_them(
    plan: Plan, report: RunReport
) -> None:
    without = replace(report, passes=())
    assert list(step_tables(plan, without)) == []
    assert step_records(plan, without) == {}
    assert run_record(plan, without)["measured"] == report.measured


def test_the_record_holds_every_op_and_transfer_and_the_plan(plan: Plan, report: RunReport) -> None:
    record = json.loads(json.dumps(run_record(plan, report, "plan.json"), allow_nan=False))
    assert [(op["name"], op["device"], op["ratio"]) for op in record["ops"]] == [
        ("a", "x", 1.0), ("b", "y", 3.0), ("c", "y", 1.0), ("d", "x", 0.5),
    ]  # fmt: skip
    assert record["transfers"][0] == {
        "name": "a", "source": "x", "target": "y", "bytes": 8.0, "planned": 8.5, "measured": 8.5,
        "ratio": 1.0, "awaited": True,
    }  # fmt: skip
    assert [each["device"] for each in record["rank_times"]] == ["x", "y"]
    assert record["devices"][0]["name"] == "x"  # the plan's
    assert record["rank_devices"] == ["x", "y"]
    assert (record["plan"], record["predicted"], "steps" in record) == (
        "plan.json", plan.value, False,
    )  # fmt: skip


def test_names_are_shown_as_they_are(plan: Plan, report: RunReport) -> None:
    odd = replace(plan.problem, op_names=("a", "[red]b", "c", "d"))
    steps = tuple(
        replace(step, name="[red]b") if step.name == "b" else step for step in report.steps
    )
    again = replace(plan, problem=odd)
    table = worst_ops_table(again, compare_run(again, replace(report, passes=(steps,))))
    assert shown(table)[0][0].strip() == "[red]b"
