"""Nodes that move to full devices and what makes room for them, against a twin of lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.kernels.throughput import ejection, loads
from placewright.planners.throughput.board import boards
from placewright.planners.throughput.row_cuts import rows
from tests.naive.pipeline_ejection import Ejection
from tests.strategies.throughput import throughput_problems

ANY = throughput_problems(contiguous=None, replicate=False, max_ops=10)


def on_a_board(problem, data):
    """A board, a drawn split along a row (empty: in none), and devices with hardly more room."""
    board = boards(problem)[0]
    row = rows(board)[0] if problem.options.contiguous else np.zeros(0, dtype=np.int32)
    count, devices = board.graph.node_count, problem.device_count
    drawn = st.lists(st.integers(0, devices - 1), min_size=count, max_size=count)
    at = np.array(data.draw(drawn), dtype=np.int32)
    if len(row):
        at[board.orders(1, 0)[0]] = row[np.sort(at)]
    spare = st.lists(st.sampled_from([0.0, 0.0, 1.0, 3.0]), min_size=devices, max_size=devices)
    used = np.bincount(at, board.graph.memory, devices)
    problem = problem.with_device_memory(used + data.draw(spare))
    return boards(problem)[0], at, row


def rings(state):
    found = []
    for first in state.first_on.tolist():
        ring, node = [], first
        while node >= 0 and node not in ring:
            ring.append(node)
            node = int(state.next_on[node])
        found.append(ring)
    return found


def in_row(graph, at, rank):
    return len(rank) == 0 or (rank[at[graph.edge_source]] <= rank[at[graph.edge_target]]).all()


@given(problem=ANY, data=st.data(), seed=st.integers(0, 99))
def test_room_is_made_as_by_the_twin_and_all_can_be_taken_back(problem, data, seed):
    board, at, row = on_a_board(problem, data)
    graph, arrays = board.graph, board.arrays
    rank = np.argsort(row).astype(np.int32)
    state = board.loads(at)
    moved, origins = np.empty(256, dtype=np.int32), np.empty(256, dtype=np.int32)
    mark = np.zeros(graph.node_count, dtype=np.int64)
    node = data.draw(st.integers(0, graph.node_count - 1))
    target = data.draw(st.integers(0, board.problem.device_count - 1))
    twin = Ejection(graph, board.problem, at, rings(state), row, np.random.default_rng(seed))
    before = in_row(graph, at, rank)
    moved[0], origins[0], mark[node] = node, at[node], 1
    loads.move(arrays, state, np.int64(node), np.int64(target))
    twin.move(node, target)
    kept = in_row(graph, state.node_device, rank)
    count = ejection.make_room(
        arrays, state, rank, row, np.random.default_rng(seed), moved, origins, 1, mark, 1
    )
    twin.make_room()
    assert state.node_device.tolist() == twin.at
    assert list(zip(moved[:count].tolist(), origins[:count].tolist(), strict=True)) == twin.moves
    assert ejection.has_room(arrays, state, moved, count) == (not twin.overfull())
    assert rings(state) == twin.rings
    assert before and (not kept or in_row(graph, state.node_device, rank))
    for k in reversed(range(count)):
        loads.move(arrays, state, np.int64(moved[k]), np.int64(origins[k]))
    loads.restore(state)
    assert state.node_device.tolist() == at.tolist()
    used = np.bincount(at, graph.memory, board.problem.device_count)
    assert state.used == pytest.approx(used)
