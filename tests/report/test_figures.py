"""Figures for papers: which there are, how wide, the same again, and what is refused."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from placewright.errors import FormatError, InputError, MissingExtraError, VerificationError
from placewright.plan import History
from placewright.report.figures import writing
from placewright.report.figures.writing import figures
from placewright.solving import solve
from tests.builders import small
from tests.report.html.plans import QUICK, plan_for, with_names

needs_matplotlib = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@needs_matplotlib
@pytest.mark.parametrize("objective", QUICK)
def test_a_plan_of_every_objective_is_drawn_as_svg_and_png(objective, tmp_path):
    made = figures(plan_for(objective), tmp_path / "new")
    figure = ["gantt", *(["memory"] if objective == "latency" else [])]
    assert names(tmp_path / "new") == sorted(
        f"{name}.{kind}" for name in figure for kind in ("png", "svg")
    )
    assert sorted(path.name for path in made) == names(tmp_path / "new")


@needs_matplotlib
def test_figures_are_as_wide_as_a_column_and_name_the_devices(tmp_path):
    plan = plan_for("latency")
    figures(plan, tmp_path / "new")
    width, _ = struct.unpack(">II", (tmp_path / "new/gantt.png").read_bytes()[16:24])
    assert width == 1050  # 3.5 in of 300 dots
    svg = (tmp_path / "new/gantt.svg").read_text("utf-8")
    assert re.search(r'width="252pt"', svg)
    for name in plan.problem.device_names:
        assert name in svg


@needs_matplotlib
def test_several_plans_are_compared_and_those_with_a_history_converge(tmp_path):
    one = plan_for("latency")
    history = History([0.0, 0.1, 1.0], [np.inf, 2 * one.value, one.value], np.zeros(3))
    two = replace(solve(one.problem, "single-device"), history=history)
    figures([one, two], tmp_path / "new")
    stems = {name.partition(".")[0] for name in names(tmp_path / "new")}
    assert stems == {
        "gantt-1",
        "gantt-2",
        "memory-1",
        "memory-2",
        "convergence",
        "comparison",
        "pareto",
    }
    assert "single-device" in (tmp_path / "new/comparison.svg").read_text("utf-8")


@needs_matplotlib
def test_the_same_plan_gives_the_same_files(tmp_path):
    for folder in ("one", "two"):
        figures(plan_for("throughput"), tmp_path / folder)
    for name in names(tmp_path / "one"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@needs_matplotlib
def test_names_that_look_like_formulas_or_markup_are_text(tmp_path):
    figures(with_names("$\\frac{a", "b"), tmp_path / "new")
    assert "$\\frac{a" in (tmp_path / "new/gantt.svg").read_text("utf-8")
    figures(with_names("<b>&</b>", "b"), tmp_path / "other")
    assert "&lt;b&gt;" in (tmp_path / "other/gantt.svg").read_text("utf-8")


@needs_matplotlib
def test_a_folder_with_files_in_it_and_a_wrong_plan_leave_nothing(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    with pytest.raises(FormatError, match="name a new folder"):
        figures(plan_for("latency"), tmp_path / "full")
    wrong = replace(plan_for("latency"), value=1e-9)
    with pytest.raises(VerificationError):
        figures(wrong, tmp_path / "new")
    assert names(tmp_path) == ["full"]


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="figures"):
        figures(plan_for("latency"), tmp_path / "new")
    assert names(tmp_path) == []


@needs_matplotlib
def test_plans_on_different_numbers_of_devices_have_a_front(tmp_path):
    one = solve(plan_for("latency").problem, "single-device")
    figures([one, plan_for("latency")], tmp_path / "new")
    svg = (tmp_path / "new/pareto.svg").read_text("utf-8")
    assert "devices used" in svg and "single-device" in svg


@needs_matplotlib
def test_only_plans_that_no_other_beats_are_on_the_front():
    from placewright.report.figures.pareto import _front

    dots = [(2, 3.0), (1, 5.0), (3, 3.0), (1, 4.0), (4, 1.0)]
    assert _front(dots) == [(1, 4.0), (2, 3.0), (4, 1.0)]


def run_file(plan, folder, **seconds):
    """A run of `plan` in which ops take what is said."""
    steps = {name: [] for name in ("rank", "kind", "name", "start", "finish")}
    for name, took in seconds.items():
        for column, value in zip(steps, (0, "op", name, 1.0, 1.0 + took), strict=True):
            steps[column].append(value)
    path = folder / "run.json"
    devices = list(plan.problem.device_names)
    path.write_text(json.dumps({"measured": 1.0, "rank_devices": devices, "step_times": steps}))
    return path


@needs_matplotlib
def test_a_run_is_drawn_against_what_was_planned(tmp_path):
    plan = solve(small(op_pinned=[0, 1, 1, 0], op_time=[[1, 9], [9, 4], [9, 0], [1, 9]]), "heft")
    figures(plan, tmp_path / "new", run_file(plan, tmp_path, a=1.25, b=8.0, c=1.0, d=0.0))
    svg = (tmp_path / "new/errors.svg").read_text("utf-8")
    assert "2 ops, costs off by 35% (median)" in svg  # a by a fifth, b by a half; c and d take 0
    assert "planned (s)" in svg and "measured (s)" in svg and "math" not in svg


@needs_matplotlib
def test_a_run_of_another_plan_or_objective_is_refused_and_nothing_drawn(tmp_path):
    plan = plan_for("latency")
    with pytest.raises(InputError, match="the run has no op of the plan"):
        figures(plan, tmp_path / "new", run_file(plan, tmp_path, other=1.0))
    with pytest.raises(InputError, match="the plan is for throughput"):
        figures(plan_for("throughput"), tmp_path / "new", run_file(plan, tmp_path, a=1.0))
    with pytest.raises(InputError, match="give that plan alone"):
        figures([plan, plan], tmp_path / "new", run_file(plan, tmp_path, a=1.0))
    assert not (tmp_path / "new").exists()
