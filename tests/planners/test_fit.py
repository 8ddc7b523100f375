"""Room for all units: the search for any fit, and planners that are told what to place first."""

import numpy as np
import pytest
from hypothesis import given

from placewright import planners
from placewright.budget import Budget
from placewright.errors import InfeasibleError
from placewright.formulations.fit import fit, unit_fit
from placewright.planners.base import NoRoomError
from placewright.planners.first_placed import FirstPlaced
from tests.naive.fit import anything_fits
from tests.planners.judging import judged
from tests.strategies import problems, tight

TIGHT = tight(problems(10, 4))
SEARCHING = {
    "annealing": {"iterations": "30"},
    "one-plus-one-ea": {"iterations": "30"},
    "local-search": {"iterations": "30"},
    "multilevel": {"iterations": "30"},
    "lns": {"iterations": "2"},
    "region-moves": {},
    "metis": {},
    "scotch": {},
    "cp-sat": {},
}


@given(problem=TIGHT)
def test_a_fit_is_found_where_brute_force_finds_one(problem):
    try:
        device = unit_fit(problem)
    except InfeasibleError as error:
        assert "as is proved" in str(error)
        assert not anything_fits(problem)
        return
    assert np.isfinite(problem.unit_time[np.arange(problem.unit_count), device]).all()
    used = np.bincount(device, problem.unit_memory, problem.device_count)
    assert (used <= problem.device_memory).all()


def test_fractions_of_bytes_that_fit_exactly_are_found():
    alone = np.ones((1, 1), dtype=bool)
    assert fit(np.array([0.1, 0.2]), [alone] * 2, np.array([0.3])) == [0, 0]
    with pytest.raises(InfeasibleError):
        fit(np.array([0.1, 0.2]), [alone] * 2, np.array([0.2999999]))


def test_a_unit_on_several_devices_takes_room_on_each():
    either = np.array([[True, True, False], [False, False, True]])
    assert fit(np.array([2.0, 2.0]), [either, either], np.array([3.0, 2.0, 9.0])) in (
        [0, 1],
        [1, 0],
        [1, 1],
    )
    with pytest.raises(InfeasibleError):
        fit(np.array([2.0, 2.0]), [either, either], np.array([3.0, 2.0, 1.0]))


@pytest.mark.parametrize("name", SEARCHING)
@given(problem=TIGHT)
def test_no_planner_refuses_what_fits(name, problem):
    if name in ("metis", "scotch"):
        pytest.importorskip({"metis": "pymetis", "scotch": "pyscotch"}[name])
    judged(problem, planners.create(name, SEARCHING[name], "latency"))


@given(problem=TIGHT)
def test_what_is_placed_first_fits_and_in_the_end_is_everything(problem):
    """Whatever unit a planner complains of, again and again: here always the last."""
    first = FirstPlaced(problem, Budget())
    last = problem.unit_count - 1
    with pytest.raises(InfeasibleError) as refused:
        for number in range(10):
            first.after(NoRoomError(f"no room, {number}", last))
            placed = np.full(problem.unit_count, -1)
            placed[list(first.device)] = list(first.device.values())
            assert (problem.free_memory(placed) >= 0).all()
    if anything_fits(problem):
        assert len(first.device) == problem.unit_count
        assert str(refused.value) == "no room, 0"
    else:
        assert "as is proved" in str(refused.value)
