"""Changes that overfill a device and what makes room for them, against a twin of lists."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placewright.budget import Budget
from placewright.kernels.batch import changes, ejection
from placewright.planners.batch.splits import splits_of
from placewright.planners.batch.walk import Walk
from tests.naive.batch_ejection import Ejection
from tests.strategies.batch import batch_problems, rows_of

SIZES = st.sampled_from([1.0, 2.0, 3.0, 5.0, 7.0, 0.0])
SPARE = st.sampled_from([0.0, 0.0, 1.0, 4.0])
FEW = 4  # of a unit's splits: those over fewest devices, which leave room to other units


@st.composite
def walks(draw):
    """Rows on devices that have room for them and hardly more; ops keep whole bytes."""
    problem = draw(batch_problems(max_ops=12, memory=False).filter(lambda each: each.op_count > 3))
    n, d = problem.op_count, problem.device_count
    problem = replace(problem, op_memory=np.array(draw(st.lists(SIZES, min_size=n, max_size=n))))
    rows = draw(rows_of(problem, FEW))
    kept = (rows[:, :, None] == np.arange(d)).any(axis=1) * problem.unit_memory[:, None]
    spare = np.array(draw(st.lists(SPARE, min_size=d, max_size=d)))
    problem = problem.with_device_memory(kept.sum(axis=0) + spare)
    return Walk(problem, Budget(), 0, np.inf, rows)


def changed(walk, rng):
    """Split one to three units at random; how many are split in another way now."""
    made, lent, splits = 0, walk.borrowed, splits_of(walk.problem)
    for unit in rng.permutation(walk.problem.unit_count)[: rng.integers(1, 4)].tolist():
        split = rng.choice(splits.of(unit))
        lent.row[:] = rng.permutation(np.repeat(np.arange(len(split)), split))
        made = changes.change(walk.batches, walk.state, lent, made, unit)
    return made


@given(walk=walks(), seed=st.integers(0, 99))
def test_room_is_made_as_by_the_twin_and_all_can_be_taken_back(walk, seed):
    problem, state, lent = walk.problem, walk.state, walk.borrowed
    shared = walk.batches, walk.space, state, lent
    for step in range(6):
        before, free = state.rows.copy(), state.free.copy()
        twin = Ejection(problem, before.tolist(), state.op_at.tolist(), np.random.default_rng(seed))
        made = changed(walk, np.random.default_rng(seed + step))
        for unit in lent.undo_unit[:made].tolist():
            assert twin.put(unit, state.rows[unit].tolist())
        twin.make_room()
        made = ejection.make_room(*shared, np.random.default_rng(seed), made)
        assert state.rows.tolist() == twin.rows
        assert lent.undo_unit[:made].tolist() == [unit for unit, _ in twin.changes]
        assert lent.undo_row[:made].tolist() == [row for _, row in twin.changes]
        assert changes.has_room(state) == (not twin.overfull())
        assert state.free.tolist() == [twin.free(d) for d in range(problem.device_count)]
        assert len(set(lent.undo_unit[:made].tolist())) == made and not lent.changed.any()
        if changes.has_room(state) and made % 2:
            continue  # from there the next time
        changes.take_back(walk.batches, state, lent, made)
        assert state.rows.tolist() == before.tolist() and state.free.tolist() == free.tolist()
