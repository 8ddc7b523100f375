"""Tables for the terminal, as a terminal of so many columns shows them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from placewright.objectives import OBJECTIVES
from placewright.planning import make_problem
from placewright.report.device_table import device_table
from placewright.report.fitted_table import NOTE as MORE_COLUMNS
from placewright.report.fitted_table import short_name
from placewright.report.terminal import ComparisonTable
from placewright.solving import Comparison, compare
from placewright.units import format_bytes, format_seconds
from tests.report.html.plans import plan_for, with_names

NOTE = "load and memory of each device: in a wider terminal, or with --wide"


def shown(lines: list[Comparison], width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(ComparisonTable(lines, "title"))
    return console.file.getvalue().splitlines()


@pytest.fixture(scope="module")
def lines() -> list[Comparison]:
    """Of planners on four devices; one of them has no plan."""
    problem, _ = make_problem("zoo:gpt2?layers=1", "moirai-inter-server")
    found = compare(problem, ["single-device", "heft", "memory-fill"])
    return [*found, Comparison("met", None, "it is Tuesday")]


def test_a_wide_terminal_shows_what_each_device_does(lines):
    wide = shown(lines, 200)
    assert all(name in "".join(wide[1:5]) for name in ("rtx2080ti", "t4", "p4", "rtx3060ti"))
    assert sum("MiB" in line or "KiB" in line for line in wide) == 3
    assert NOTE not in wide


def test_a_narrow_terminal_leaves_the_devices_out_and_says_so(lines):
    narrow = shown(lines, 80)
    assert narrow[-1] == NOTE
    assert not any("rtx" in line or "…" in line for line in narrow)
    rows = [line for line in narrow if line.startswith("│")]
    assert [row.split()[1] for row in rows] == ["single-device", "heft", "memory-fill", "met"]
    for row, line in zip(rows, lines, strict=True):  # a planner a line, its figures whole
        assert line.plan is None or f"{line.plan.gap:.1%}" in row
    assert all(len(line) <= 80 for line in narrow)


def test_the_devices_are_shown_as_soon_as_they_fit(lines):
    whole = max(map(len, shown(lines, 200)))
    assert NOTE not in shown(lines, whole)
    assert NOTE in shown(lines, whole - 1)


def test_a_cluster_of_any_size_is_shown_where_it_fits():
    problem, _ = make_problem("zoo:gpt2?layers=1", "diviml-six-nodes")
    found = compare(problem, ["single-device"])
    assert problem.device_count == 24
    assert NOTE in shown(found, 140)
    assert NOTE not in shown(found, 1000)


def table_of(plan, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(device_table(plan))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_figures_of_devices_are_whole_in_80_characters(objective):
    plan = plan_for(objective)
    narrow, wide = table_of(plan, 80), table_of(plan, 300)
    assert narrow[-1] == MORE_COLUMNS
    assert MORE_COLUMNS not in wide
    assert all(len(line) <= 80 and "…" not in line for line in narrow)
    titles = wide[2].replace("┃", " ").split()
    shown = narrow[2].replace("┃", " ").split()
    assert {"device", "load", "busy", "memory", "blocks"} <= set(shown) < set(titles)
    for d, name in enumerate(plan.problem.device_names):
        row = next(line for line in narrow if line.startswith(f"│ {name} "))
        assert format_seconds(float(plan.device_load[d])) in row
        assert format_bytes(float(plan.device_memory[d])) in row


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_device_its_load_and_its_blocks_can_be_read_in_40_characters(objective):
    plan = plan_for(objective)
    table = table_of(plan, 40)
    assert all(len(line) <= 40 and "…" not in line for line in table)
    assert table[2].replace("┃", " ").split() == ["device", "load", "blocks"]
    for d, name in enumerate(plan.problem.device_names):
        row = next(line for line in table if line.startswith(f"│ {name} "))
        assert format_seconds(float(plan.device_load[d])) in row


def test_columns_come_back_as_the_terminal_widens():
    plan = plan_for("latency")
    counts = [table_of(plan, width)[2].count("┃") for width in range(60, 160)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_a_name_of_any_length_leaves_the_other_columns_whole():
    name = "node" * 75 + "1"
    plan = with_names(name)
    for width in (80, 140):
        table = table_of(plan, width)
        assert all(len(line) <= width for line in table)
        titles = next(line for line in table if line.startswith("┃"))
        assert {"device", "load", "busy", "memory"} <= set(titles.split())
        for seconds in plan.device_load:
            assert any(format_seconds(float(seconds)) in line for line in table)
    assert any(line.startswith(f"│ {short_name(name)} ") for line in table_of(plan, 140))


def test_a_short_name_stays_a_long_one_keeps_its_end_and_none_commands_a_terminal():
    assert short_name("a" * 32) == "a" * 32
    assert short_name("a" * 32 + "7") == "a" * 20 + "…" + "a" * 10 + "7"
    assert short_name("語" * 17) == "語" * 10 + "…" + "語" * 5
    assert short_name("a\x1b[31m") == "a\\x1b[31m"


def test_without_any_plan_there_is_no_device_to_speak_of():
    assert NOTE not in shown([Comparison("met", None, "it is Tuesday")], 80)
    assert NOTE not in shown([Comparison("met", None, "it is Tuesday")], 20)
