"""Ops that overfill a device, what is sent away for them, and all of it taken back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.budget import Budget
from placewright.errors import InfeasibleError
from placewright.kernels.invocation import search as kernel
from placewright.planners.invocation.search import first_slots
from placewright.planners.invocation.starts import LinearSearch
from placewright.planners.invocation.walk import Walk
from tests.strategies.invocation import tight_invocation_problems


def device_of(walk):
    return walk.state.op_slot // (2 * walk.problem.options.subgraphs)


def recounted(walk):
    return np.bincount(device_of(walk), walk.problem.op_memory, walk.problem.device_count)


def bring(walk, unit, device):
    """Move all ops of a unit, as the first moves of a change; how many."""
    ops = np.flatnonzero(walk.problem.op_unit == unit)
    for k, op in enumerate(ops.tolist()):
        slot = int(walk.state.op_slot[op])
        walk.scratch.moved[k], walk.scratch.old_slot[k] = op, slot
        put(walk, op, slot % (2 * walk.problem.options.subgraphs), device)
    return len(ops)


def put(walk, op, number, device):
    memory, state = walk.problem.op_memory[op], walk.state
    per_device = 2 * walk.problem.options.subgraphs
    state.used[state.op_slot[op] // per_device] -= memory
    state.used[device] += memory
    state.op_slot[op] = device * per_device + number


@given(tight_invocation_problems(8), st.data(), st.integers(0, 99))
def test_units_stay_together_books_are_kept_and_all_can_be_taken_back(problem, data, seed):
    try:
        search = LinearSearch(problem, np.random.default_rng(seed), Budget())
        walk = Walk(search, first_slots(search, "some"), 1)
    except InfeasibleError:
        return
    if not len(walk.space.movable):
        return
    before = walk.state.op_slot.copy()
    unit = problem.op_unit[data.draw(st.sampled_from(walk.space.movable.tolist()))]
    count = first = bring(walk, unit, data.draw(st.integers(0, problem.device_count - 1)))
    over = (walk.state.used > problem.device_memory)[device_of(walk)[walk.scratch.moved[:count]]]
    count = kernel.make_room(
        walk.network, walk.atoms, walk.space, walk.state, walk.scratch, walk.rng, count
    )
    assert count >= first
    assert over.any() or count == first
    assert walk.state.used == pytest.approx(recounted(walk))
    for each in range(problem.unit_count):
        assert len(np.unique(device_of(walk)[problem.op_unit == each])) == 1
    ways = walk.state.op_slot // problem.options.subgraphs % 2
    assert ways.tolist() == problem.is_backward.astype(int).tolist()
    for k in reversed(range(count)):
        walk.state.op_slot[walk.scratch.moved[k]] = walk.scratch.old_slot[k]
    assert walk.state.op_slot.tolist() == before.tolist()
