"""The insertion kernel and the ranks against their naive twins."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.common.ranks import upward_ranks
from placewright.kernels.latency.insertion import insertion_schedule
from tests import naive
from tests.strategies import TIMES, problems


@given(st.data())
def test_kernel_inserts_exactly_as_its_twin(data):
    problem = data.draw(problems())
    insertion = data.draw(st.booleans())
    unit_device = np.full(problem.unit_count, -1, dtype=np.int32)
    order = problem.topological_order.copy()  # writable, as planners' orders are
    op_start, op_finish = np.zeros(problem.op_count), np.zeros(problem.op_count)
    edge_start, edge_finish = np.empty(problem.edge_count), np.empty(problem.edge_count)
    expected = naive.insertion_schedule(problem, order, unit_device, insertion=insertion)
    failed = insertion_schedule(
        arrays_of(problem), order, problem.op_unit, unit_device, problem.unit_memory,
        np.isfinite(problem.unit_time), problem.device_memory.copy(), insertion,
        op_start, op_finish, edge_start, edge_finish,
    )  # fmt: skip
    assert failed == expected[4]
    if failed < 0:
        assert unit_device.tolist() == expected[0]
        assert op_start.tolist() == [expected[1][op] for op in range(problem.op_count)]
        assert {e: t for e, t in enumerate(edge_start) if t >= 0} == expected[3]


@given(st.data())
def test_ranks_are_longest_paths(data):
    problem = data.draw(problems())
    draw = lambda size: np.array(data.draw(st.lists(TIMES, min_size=size, max_size=size)))  # noqa: E731
    op_weight, edge_weight = draw(problem.op_count), draw(problem.edge_count)
    rank = upward_ranks(op_weight, edge_weight, problem.topological_order, arrays_of(problem))
    assert rank.tolist() == naive.upward_ranks(problem, op_weight, edge_weight)
