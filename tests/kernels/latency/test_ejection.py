"""Changes that overfill a device and what makes room for them, against a twin of lists."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placewright.budget import Budget, no_progress
from placewright.kernels.latency import ejection, moves, order_moves
from placewright.planners.latency.search.refining import Refinement, refined
from placewright.simulate.latency import schedule_placement
from tests.builders import chain
from tests.naive.ejection import Ejection
from tests.strategies import placements, problems

SIZES = st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0, 7.0])


@st.composite
def refinements(draw):
    """A schedule on devices that have room for it and hardly more; ops keep whole bytes."""
    problem = draw(problems(max_ops=14, memory=False))
    n, d = problem.op_count, problem.device_count
    kept = np.array(draw(st.lists(SIZES, min_size=n, max_size=n)))
    device = draw(placements(problem))
    spare = draw(st.lists(st.sampled_from([0.0, 0.0, 1.0, 4.0]), min_size=d, max_size=d))
    problem = replace(problem, op_memory=kept)
    problem = problem.with_device_memory(np.bincount(device, kept, d) + spare)
    return Refinement(problem, draw(st.integers(0, 99)), schedule_placement(problem, device))


def changed(refinement):
    """Make a random change of devices; how many units it changed."""
    r, t = refinement, refinement.timeline
    op = r.rng.integers(r.problem.op_count, dtype=np.int32)  # as units name their ops
    return order_moves.redevice(r.arrays, r.space, r.structure, t, r.rng, op)


@given(refinement=refinements(), seed=st.integers(0, 99))
def test_room_is_made_as_by_the_twin_and_all_can_be_taken_back(refinement, seed):
    r, t = refinement, refinement.timeline
    for _ in range(6):
        before, free = t.unit_device.copy(), t.free.copy()
        count = changed(r)
        twin = Ejection(
            r.problem, before.tolist(), t.sequence.tolist(), np.random.default_rng(seed)
        )
        for unit in t.undo_unit[:count].tolist():
            twin.put(unit, int(t.unit_device[unit]))
        twin.make_room()
        count = ejection.make_room(r.space, t, t, np.random.default_rng(seed), count)
        assert t.unit_device.tolist() == twin.at
        assert t.undo_unit[:count].tolist() == [unit for unit, _ in twin.changes]
        assert moves.fits(t, t, count) == (not twin.overfull())
        assert t.free.tolist() == [twin.free(d) for d in range(r.problem.device_count)]
        assert len(set(t.undo_unit[:count].tolist())) == count and not t.changed.any()
        if moves.fits(t, t, count) and count % 2:
            continue  # from there the next time
        moves.take_back(r.space, t, t, count)
        assert t.unit_device.tolist() == before.tolist() and t.free.tolist() == free.tolist()


def test_units_of_full_devices_change_places():
    """Each device is fast for what the other one has, and no two ops that may change places
    are of the same size."""
    fast = np.arange(6) < 3
    time = np.stack([np.where(fast, 1.0, 10.0), np.where(fast, 10.0, 1.0)], axis=1)
    problem = replace(chain([1, 4, 5, 2, 2, 6], [10, 10]), op_time=time)
    start = schedule_placement(problem, np.array([1, 1, 1, 0, 0, 0], dtype=np.int32))
    found, _ = refined(problem, start, Budget(), 3_000, 0, no_progress)
    assert found.device.tolist() == [0, 0, 0, 1, 1, 1]
