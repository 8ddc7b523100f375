"""What dynamic programming over ideals rests on: parts, what is left out, and sharing out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placewright.analysis.contracted import contracted_graph
from placewright.planners.invocation.ideals.listing import ideals_of
from placewright.planners.invocation.ideals.passes import completed, parts_of, whole_parts_of
from placewright.planners.invocation.ideals.search import ranks
from placewright.planners.invocation.ideals.sharing import shared_out
from placewright.solving import solve
from tests.bounds.invocation.test_chain import forks, problem_of


def fork_problem(widths, times, memory=np.inf):
    graph = forks(widths)
    seconds = np.asarray(times, dtype=float)[:, None] * np.ones(2)
    return problem_of(graph, seconds, np.full(2, memory), 0.0)


def test_ideals_of_a_fork_by_level():
    """An op, two that read it, and one that joins them: the first and the last are cut nodes."""
    problem = fork_problem([2], np.ones(4))
    found = ideals_of(problem, np.ones(4), 100)
    assert found is not None
    assert found.count == 6
    assert found.level.tolist() == [0, 1, 1, 1, 1, 2]
    assert found.local
    assert found.steps.nodes.tolist() == [1, 1, 2, 1, 1]
    assert ideals_of(problem, np.ones(4), 5) is None
    turned, order = found.backwards()
    assert turned.holds.sum(axis=1).tolist() == [0, 1, 2, 2, 3, 4]
    assert sorted(order.tolist()) == list(range(5))
    assert turned.steps.nodes.tolist() == found.steps.nodes[order].tolist()


def test_ops_without_time_at_the_ends_are_left_out_and_placed_by_what_is_beside_them():
    """Ops 0 and 3 take no time: the first goes where it is read, the last where it reads."""
    problem = fork_problem([2], [0.0, 1.0, 2.0, 0.0])
    (part,) = parts_of(problem)
    assert part.ops.tolist() == [1, 2]
    (whole,) = whole_parts_of(problem)
    assert whole.ops.tolist() == [0, 1, 2, 3]
    device = np.array([-1, 0, 0, -1])
    rank = np.array([[1, 0], [0, 0]])
    found = completed(problem, device, rank)
    assert found is not None
    assert found.tolist() == [0, 0, 0, 0]
    assert solve(problem, "ideal-dp").status == "optimal"


def test_ops_left_out_need_room():
    problem = fork_problem([2], [0.0, 1.0, 2.0, 0.0], memory=1.0)
    assert completed(problem, np.array([-1, 0, 1, -1]), np.array([[1, 2], [0, 0]])) is None


def test_an_op_that_takes_no_time_between_two_that_do_stays():
    problem = fork_problem([1], [1.0, 0.0, 1.0])
    assert [part.ops.tolist() for part in parts_of(problem)] == [[0, 1, 2]]


def test_devices_in_the_order_in_which_they_may_be_done():
    problem = fork_problem([2], np.ones(4))
    assert ranks(problem, np.array([1, 0, 0, 0])).tolist() == [2, 1]
    with_cpu = replace(problem, is_cpu=np.array([False, True]))
    assert ranks(with_cpu, np.array([1, 0, 1, 0])).tolist() == [1, 0]


def test_parts_that_hang_together_are_shared_out_so_that_the_last_ends_first():
    problem = fork_problem([4], [1.0, 3.0, 2.0, 2.0, 1.0, 1.0])
    graph = contracted_graph(problem)
    time = problem.op_time
    node = graph.op_node[[1, 2, 3, 4]]
    by_node = np.zeros((graph.node_count, 2))
    by_node[graph.op_node] = time
    chosen = shared_out(graph, node, (0, 1), by_node)
    load = [sum(by_node[each, d] for each, d in chosen.items() if d == device) for device in (0, 1)]
    assert sorted(load) == [4.0, 4.0]
