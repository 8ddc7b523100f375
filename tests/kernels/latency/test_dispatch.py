"""List scheduling forwards in time, against its naive twin and the timing of its sequence."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.dispatch import dispatch, floor_of
from placewright.plan import Placement
from placewright.simulate.latency import dispatch_placement, time_placement
from tests.naive.dispatch import dispatch as naive_dispatch
from tests.strategies import problems


@st.composite
def dispatches(draw):
    """A problem, a device for each op of those it may be on, and ranks."""
    problem = draw(problems())
    device = np.array(
        [
            draw(st.sampled_from(np.flatnonzero(np.isfinite(times)).tolist()))
            for times in problem.op_time
        ],
        dtype=np.int32,
    )
    rank = np.array(draw(st.permutations(range(problem.op_count))), dtype=np.int64)
    return problem, device, rank


@given(dispatches())
def test_it_is_its_naive_twin_and_its_sequence_takes_no_longer(case):
    problem, device, rank = case
    arrays = arrays_of(problem)
    sequence = np.empty(problem.op_count + problem.edge_count, dtype=np.int32)
    makespan = dispatch(arrays, device, rank, floor_of(arrays), sequence)
    expected, items = naive_dispatch(problem, device, rank.tolist())
    assert makespan == expected
    assert sequence.tolist() == items
    timed = time_placement(problem, Placement(device, sequence)).makespan
    assert timed <= makespan * (1 + 1e-12)


@given(dispatches())
def test_the_floor_may_be_used_again(case):
    problem, device, rank = case
    arrays = arrays_of(problem)
    floor = floor_of(arrays)
    sequence = np.empty(problem.op_count + problem.edge_count, dtype=np.int32)
    once = dispatch(arrays, device, rank, floor, sequence)
    assert dispatch(arrays, device, rank[::-1].copy(), floor, sequence) >= 0.0
    assert dispatch(arrays, device, rank, floor, sequence) == once


@given(dispatches())
def test_without_ranks_ops_go_in_topological_order(case):
    problem, device, _ = case
    rank = np.empty(problem.op_count, dtype=np.int64)
    rank[problem.topological_order] = np.arange(problem.op_count)
    given_ranks = dispatch_placement(problem, device, rank).sequence
    assert dispatch_placement(problem, device).sequence.tolist() == given_ranks.tolist()
