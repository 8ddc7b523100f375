"""What the terminal shows: one line if asked, gaps as bars, colours only where wanted."""

from __future__ import annotations

import io
import re
import sys

import pytest
from rich.console import Console

from placewright.cli.gaps import WIDTH, Gaps
from placewright.cli.output import console, progress
from placewright.portfolio.events import Event
from placewright.solving import solve
from tests.builders import chain
from tests.cli.running import run

LINE = r"latency [\d.]+ .s, lower bound [\d.]+ .s, gap [\d.]+%, . of 2 devices"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_quiet_prints_the_answer_in_one_line(tmp_path):
    path = tmp_path / "plan.json"
    done = run("plan", "zoo:gpt2?layers=1", "-c", "4090+3060", "-p", "heft", "-q", "-o", path)
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(LINE + r"; written to .*\n", done.out)
    better = run("improve", path, "-p", "heft", "--quiet")
    assert better.code == 0
    assert better.out.count("\n") == 1


def test_a_pipe_gets_one_line_and_whole_tables_if_asked(tmp_path):
    asked = ("zoo:gpt2?layers=2", "-c", "4090+3060", "-p", "heft")
    piped, wide = run("plan", *asked), run("plan", *asked, "--wide")
    assert re.fullmatch(LINE + "\n", piped.out)
    assert {"device", "kind", "capacity", "blocks"} <= set(wide.out.split())
    assert piped.out.split(", lower")[0] in wide.out


def test_a_pipe_gets_varying_costs_and_an_engine_in_the_same_line(tmp_path):
    path = tmp_path / "plan.json"
    noise = run("plan", "zoo:gpt2?layers=1", "-c", "2x3090", "-p", "heft", "--cost-noise", "0.1")
    assert re.fullmatch(LINE + r"; with costs varying by 10%: .*\n", noise.out)
    engine = run(
        "plan", "zoo:gpt2?layers=2", "-c", "2x3090", "--for", "accelerate", "--time-limit", 0,
        "-o", path,
    )  # fmt: skip
    assert re.fullmatch(LINE + r"; 1 stage of accelerate; written to .*\n", engine.out)


def test_a_terminal_gets_tables(monkeypatch):
    monkeypatch.setattr("tests.cli.running.io.StringIO", Terminal)
    monkeypatch.setenv("COLUMNS", "80")
    done = run("plan", "zoo:gpt2?layers=1", "-c", "4090+3060", "-p", "heft")
    rows = [line for line in done.out.splitlines() if line.startswith(("┏", "│"))]
    assert len(rows) > 2
    assert all(len(line) == len(rows[0]) <= 80 for line in rows)


def test_json_beside_quiet_is_json():
    done = run("plan", "zoo:gpt2?layers=1", "-c", "4090+3060", "-p", "heft", "-q", "--json")
    assert done.json["objective"] == "latency"


@pytest.mark.parametrize("other", [("--cost-noise", "0.1"), ("--for", "vllm")])
def test_quiet_is_for_one_run_of_a_model(other):
    done = run("plan", "zoo:gpt2?layers=1", "-c", "2x3090", "-q", *other)
    assert done.code == 2
    assert "--quiet is for one run of a model" in done.err


def test_bars_fall_as_the_gap_does_and_the_last_ones_are_shown():
    gaps = Gaps()
    assert gaps.line == ""
    for gap in (1.0, 0.5, 0.25, 0.0):
        gaps.add(gap)
    assert gaps.line == "█▅▃▁"
    for _ in range(2 * WIDTH):
        gaps.add(0.1)
    assert gaps.line == "█" * WIDTH


def test_no_gap_at_all_is_the_lowest_bar():
    gaps = Gaps()
    gaps.add(0.0)
    gaps.add(0.0)
    assert gaps.line == "▁▁"


def test_gaps_are_those_of_events_with_a_plan():
    gaps = Gaps()
    for kind, value in (("bound", None), ("plan", 4.0), ("bound", 4.0), ("failure", 4.0)):
        gaps.hear(Event(kind, 0.0, value, 1.0, "someone"))
    assert gaps.seen == [0.75, 0.75]


def test_the_bars_are_behind_the_progress_of_planning(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    gaps = Gaps()
    with progress(gaps=gaps) as on_progress:
        gaps.add(0.8)
        gaps.add(0.1)
        on_progress("heft [gap] 10%", 0.5)
    assert "█▂" in terminal.getvalue()
    assert "heft [gap] 10%" in terminal.getvalue()


def test_where_colours_are_not_wanted_there_are_none(monkeypatch):
    from placewright.report.device_table import device_table

    table = device_table(solve(chain([1.0], [8.0, 8.0]), "heft"))
    colours = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    for wanted in (True, False):
        monkeypatch.delenv("NO_COLOR", raising=False)
        if not wanted:
            monkeypatch.setenv("NO_COLOR", "1")
        terminal = Terminal()
        shown = type(console())(file=terminal, force_terminal=True, color_system="truecolor")
        assert isinstance(shown, Console)
        shown.print(table)
        shown.print("[red]red[/red]")
        assert bool(colours.search(terminal.getvalue())) == wanted


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (("planners",), ("single-device", "module-annealing")),
        (("zoo",), ("llama-13b", "vocabulary=50257")),
        (("cluster", "list"), ("moirai-inter-server",)),
        (("cluster", "kinds"), ("360.0 GB/s",)),
        (("cluster", "show", "4090+3060"), ("rtx4090", "22.4 GiB", "12.5 GB/s")),
        (("cluster", "show", "8xA100"), ("gpu7", "routes: in a wider terminal")),
        (
            ("compare", "zoo:gpt2?layers=1", "-c", "4090+3060", "--planners", "single-device"),
            ("single-device *", "gap"),
        ),
    ],
)
def test_lists_can_be_read_in_40_characters(command, names, monkeypatch):
    monkeypatch.setattr("placewright.cli.output.PIPED_WIDTH", 40)
    found = run(*command)
    assert found.code == 0
    lines = found.out.splitlines()
    assert all(len(line) <= 40 and "…" not in line for line in lines)
    folded = " ".join(found.out.split())
    assert all(name in folded for name in names)
