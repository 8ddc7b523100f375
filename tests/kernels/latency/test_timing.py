"""The timing kernel against its naive twin."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placewright.kernels.common.arrays import NOT_SENT, arrays_of
from placewright.kernels.latency.timing import repeat_timing, time_sequence
from tests import naive
from tests.strategies import placements, problems, sequences


@given(st.data())
def test_kernel_times_a_random_sequence_exactly_as_its_twin(data):
    problem = data.draw(problems())
    device = data.draw(placements(problem))
    sequence = data.draw(sequences(problem))
    n, edges = problem.op_count, problem.edge_count
    op_start, op_finish, op_ready = np.empty(n), np.empty(n), np.empty(n)
    edge_start, edge_finish = np.empty(edges), np.empty(edges)
    arrays = arrays_of(problem)
    lent = (op_ready, op_finish, edge_finish)
    free = (np.empty(problem.device_count), np.empty(arrays.channel_count))
    makespan = time_sequence(arrays, device, sequence, *lent, *free, op_start, edge_start)
    starts, finishes, sent, there = naive.time_sequence(problem, device, sequence.tolist())
    assert op_start.tolist() == [starts[op] for op in range(problem.op_count)]
    assert op_finish.tolist() == [finishes[op] for op in range(problem.op_count)]
    assert edge_start.tolist() == [sent.get(e, NOT_SENT) for e in range(problem.edge_count)]
    crossing = device[problem.edge_producer] != device[problem.consumers]
    for edge in np.flatnonzero(crossing):
        assert edge_finish[edge] == there[edge]
    assert makespan == max(finishes.values())
    nothing = np.empty(0)
    again = time_sequence(arrays, device, sequence, *lent, *free, nothing, nothing)
    assert again == makespan  # without recording, as search calls it
    assert repeat_timing(arrays, device, sequence, 2) == makespan
