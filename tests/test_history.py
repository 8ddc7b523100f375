"""How planning went: kept with a plan, in its file, and thinned."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.errors import FormatError, GraphError
from placewright.plan import MOST_EVENTS, History, Plan
from placewright.planning import improve, plan, plan_problem
from placewright.solving import solve
from placewright.whatif.robust import robust_plan
from tests.builders import chain, judged

NO_TIME = 1e-9  # seconds: the members that need none are asked all the same


def one(count: int = 3, value: float = 5.0) -> History:
    steps = np.arange(count, dtype=float)
    return History(steps, value + count - steps, steps / count)


def test_a_plan_of_auto_keeps_how_it_came_about_and_the_end_is_the_plan():
    found = plan_problem(judged(), time_limit=NO_TIME)
    history = found.history
    assert history.value[-1] == found.value
    assert history.lower_bound[-1] == found.lower_bound
    finite = history.value[np.isfinite(history.value)]
    assert (np.diff(finite) <= 0).all()
    assert (np.diff(history.lower_bound) >= 0).all()


def test_a_plan_that_does_not_depend_on_the_clock_keeps_none():
    found = plan_problem(judged(), planner_options={"iterations": "1"})
    assert found.history is None
    assert solve(judged(), "heft").history is None


def test_a_file_keeps_the_history_to_the_last_bit(tmp_path):
    history = History([0.0, 0.1, 0.2], [math.inf, 9.0, 7.0], [1.0, 1.0, 2.0])
    found = replace(solve(judged(), "heft"), history=history)
    found.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json").history
    for name in ("seconds", "value", "lower_bound"):
        assert getattr(again, name).tolist() == getattr(history, name).tolist()


def test_a_file_without_history_is_read_as_before(tmp_path):
    found = solve(judged(), "heft")
    document = found.to_document()
    assert "history" not in document
    assert Plan.from_document(document).history is None


@pytest.mark.parametrize(
    "entry",
    [
        {"seconds": [0.0], "value": [1.0, 2.0], "lower_bound": [0.0]},
        {"seconds": [1.0, 0.0], "value": [1.0, 1.0], "lower_bound": [0.0, 0.0]},
        {"seconds": [0.0], "value": ["x"], "lower_bound": [0.0]},
        {"seconds": [0.0], "value": [1.0]},
    ],
)
def test_a_history_that_cannot_be_is_refused_with_its_name(entry):
    document = solve(judged(), "heft").to_document() | {"history": entry}
    with pytest.raises(FormatError, match="history"):
        Plan.from_document(document, "plan.json")


def test_a_history_of_columns_that_differ_is_no_history():
    with pytest.raises(GraphError, match="differ in length"):
        History([0.0], [1.0, 2.0], [0.0])


@given(st.integers(2, 1000), st.integers(2, 50))
def test_a_thinned_history_keeps_its_ends(count, most):
    history = one(count)
    thin = history.thinned(most)
    assert len(thin) == min(count, most)
    for name in ("seconds", "value", "lower_bound"):
        column, kept = getattr(history, name), getattr(thin, name)
        assert (kept[0], kept[-1]) == (column[0], column[-1])


def test_what_is_thinned_out_is_what_brought_least():
    history = History(np.arange(5.0), [9.0, 8.9, 5.0, 4.9, 4.8], np.zeros(5))
    assert history.thinned(3).value.tolist() == [9.0, 5.0, 4.8]


def test_planning_on_goes_on_in_the_history():
    first, later = one(3, 5.0), one(2, 6.0)
    both = first.then(later)
    assert both.seconds.tolist() == [0.0, 1.0, 2.0, 2.0, 3.0]
    assert both.value.tolist() == [8.0, 7.0, 6.0, 6.0, 6.0]
    assert len(first.then(one(500)).seconds) == MOST_EVENTS


def test_improve_goes_on_in_the_history():
    found = plan_problem(judged(), time_limit=NO_TIME)
    better = improve(found, time_limit=NO_TIME)
    assert len(better.history) > len(found.history)
    assert better.history.value[-1] == better.value


def test_a_plan_made_robust_has_the_history_of_no_other():
    start = plan("zoo:gpt2?layers=1", "4090+3060", planner="single-device")
    start = replace(start, history=one())
    found = robust_plan(start, 0.3, iterations=200)
    assert (found.plan.history is None) == found.improved


def test_the_page_has_the_history(tmp_path):
    from tests.report.html.pages import written

    history = History([0.0, 0.1], [math.inf, 9.0], [1.0, 1.0])
    with_it = replace(solve(chain([1.0], [8.0, 8.0]), "heft"), history=history)
    [page] = written(tmp_path, with_it).data["plans"]
    assert page["convergence"] == {
        "seconds": [0.0, 0.1],
        "value": [None, 9.0],
        "bound": [1.0, 1.0],
    }
