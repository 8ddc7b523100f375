"""Nodes that take no time join a neighbour, and the best split stays what it was."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given, settings

from placewright.analysis.contracted import contracted_graph, directions
from placewright.analysis.reductions.free_nodes import joined
from placewright.analysis.reductions.reading import Reading
from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError
from placewright.planners.throughput.ideal_dp import IdealDP
from placewright.planners.throughput.ideal_search import MOST_IDEALS, Search
from placewright.planners.throughput.stages import stage_tables
from placewright.simulate.throughput import loads
from placewright.solving import solve
from tests.builders import row_of_ops
from tests.naive.throughput import best_split, is_contiguous
from tests.strategies.throughput import with_free_ops


def best_of(graphs):
    """The least value of a chain of ideals of the graphs, and its placement."""
    search = Search(Budget(), MOST_IDEALS, no_progress)
    search.run([stage_tables(graph) for graph in graphs])
    if search.best is None:
        return math.inf, None
    return search.best.value, search.best.placement()


def near(value):
    return pytest.approx(value, rel=1e-8, abs=1e-12)


@given(with_free_ops())
@settings(max_examples=50)
def test_no_best_split_is_lost(problem):
    graphs = directions(problem)
    readings = [Reading.of(graph) for graph in graphs]
    joins = sum(
        one.node_count - reading.exact.node_count
        for one, reading in zip(graphs, readings, strict=True)
    )
    event(f"{joins} joined")
    value, placement = best_of([reading.exact for reading in readings])
    assert value == near(best_split(problem)[0])
    if placement is not None:
        assert loads(problem, placement).value == near(value)
        assert is_contiguous(problem, placement.device)


@given(with_free_ops())
@settings(max_examples=40)
def test_with_their_bytes_they_plan_and_without_them_they_bound(problem):
    readings = [Reading.of(graph) for graph in directions(problem)]
    best, _ = best_split(problem)
    least, _ = best_of([reading.light for reading in readings])
    value, placement = best_of([reading.merged for reading in readings])
    event("some bytes matter" if least < value * (1 - 1e-9) else "no bytes matter")
    assert least <= best * (1 + 1e-9) or math.isinf(best)
    assert value >= best * (1 - 1e-9)
    if placement is not None:
        used = np.bincount(placement.device, problem.op_memory, problem.device_count)
        assert placement.replicas or (used <= problem.device_memory * (1 + 1e-9)).all()


@given(with_free_ops())
@settings(max_examples=50)
def test_the_planner_proves_the_best_split_whatever_takes_no_time(problem):
    best, _ = best_split(problem)
    try:
        plan = solve(problem, IdealDP())
    except InfeasibleError:
        assert math.isinf(best)
        return
    assert plan.value == near(best)
    assert plan.lower_bound == near(best)


def test_a_row_of_free_ops_joins_what_it_hangs_on():
    problem = row_of_ops([1.0, 0.0, 0.0, 2.0, 0.0])
    graph = joined(contracted_graph(problem), np.ones(5, dtype=bool))
    assert graph.node_count == 2
    assert sorted(graph.time[0, :, 0].tolist()) == [1.0, 2.0]


def test_an_op_that_makes_more_than_it_reads_stays_apart_from_its_producer():
    problem = row_of_ops([1.0, 0.0, 2.0])
    grows = replace(problem, tensor_bytes=np.array([1.0, 5.0]))
    graph = joined(contracted_graph(grows), np.ones(3, dtype=bool))
    assert graph.op_node.tolist() == [0, 1, 1]
    shrinks = replace(problem, tensor_bytes=np.array([5.0, 1.0]))
    graph = joined(contracted_graph(shrinks), np.ones(3, dtype=bool))
    assert graph.op_node.tolist() == [0, 0, 1]


def test_an_op_that_cannot_run_beside_its_neighbour_stays_apart():
    problem = row_of_ops([1.0, 0.0])
    other = replace(problem, op_time=np.array([[1.0, 1.0], [0.0, np.inf]]))
    graph = contracted_graph(other)
    assert joined(graph, np.ones(2, dtype=bool)) is graph


def test_bytes_join_only_where_memory_is_slack():
    problem = row_of_ops([1.0, 0.0])
    keeps = replace(problem, op_memory=np.array([1.0, 3.0]))
    tight = keeps.with_device_memory(np.full(2, 3.0))
    assert Reading.of(contracted_graph(keeps)).exact.node_count == 1
    reading = Reading.of(contracted_graph(tight))
    assert (reading.exact.node_count, reading.merged.node_count) == (2, 1)
    assert (reading.merged.memory.tolist(), reading.light.memory.tolist()) == ([4.0], [1.0])
