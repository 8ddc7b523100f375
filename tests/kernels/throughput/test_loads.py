"""The incremental evaluator of throughput against its naive twin, `simulate.throughput`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.analysis.contracted import unit_graph
from placewright.kernels.throughput import loads as kernel
from placewright.kernels.throughput.annealing import anneal
from placewright.kernels.throughput.descent import descend
from placewright.plan import Placement
from placewright.simulate import evaluate
from tests.naive.max_load import least_after_one_move
from tests.strategies.throughput import pipelines


def value_of(problem, unit_device):
    return evaluate(problem, Placement(unit_device[problem.op_unit])).value


def random_devices(draw, problem):
    """A device per unit that allows it, or None where some unit has none."""
    allowed = unit_graph(problem).allowed
    if not allowed.any(axis=1).all():
        return None
    choices = [st.sampled_from(np.flatnonzero(row).tolist()) for row in allowed]
    return np.array(draw(st.tuples(*choices)), dtype=np.int32)


@given(st.data())
def test_the_kernel_agrees_with_the_evaluator_after_every_move(data):
    problem = data.draw(pipelines(8, 4))
    start, goal = (random_devices(data.draw, problem) for _ in range(2))
    if start is None:
        return
    arrays = unit_graph(problem).arrays
    state = unit_graph(problem).loads(start)
    assert kernel.value(state) == pytest.approx(value_of(problem, start))
    for unit in data.draw(st.permutations(range(problem.unit_count))):
        kernel.move(arrays, state, unit, int(goal[unit]))
        kernel.settle(arrays, state)
        there = state.node_device.copy()
        assert kernel.value(state) == pytest.approx(value_of(problem, there), abs=1e-9)
        free = problem.device_memory - state.used
        assert free == pytest.approx(problem.free_memory(there), abs=1e-9)


@given(st.data())
def test_a_contracted_problem_has_the_value_of_its_groups_expanded(data):
    problem = data.draw(pipelines(8, 4))
    whole = unit_graph(problem)
    drawn = data.draw(st.lists(st.integers(0, 3), min_size=whole.node_count,
                               max_size=whole.node_count))  # fmt: skip
    group = np.unique(drawn, return_inverse=True)[1].astype(np.int32)
    coarse = whole.contracted(group)
    if not coarse.allowed.any(axis=1).all():
        return
    choices = [st.sampled_from(np.flatnonzero(row).tolist()) for row in coarse.allowed]
    device = np.array(data.draw(st.tuples(*choices)), dtype=np.int32)
    assert kernel.value(coarse.loads(device)) == pytest.approx(value_of(problem, device[group]))


@given(pipelines(8, 4), st.integers(0, 3))
def test_annealing_keeps_the_best_placement_that_fits_and_its_true_value(problem, seed):
    graph = unit_graph(problem)
    if not graph.allowed.any(axis=1).all():
        return
    start = graph.allowed.argmax(axis=1).astype(np.int32)
    state = graph.loads(start)
    fitted = state.best_value[0] < np.inf
    rng = np.random.default_rng(seed)
    movable = np.arange(problem.unit_count, dtype=np.int32)
    no_row = np.zeros(0, dtype=np.int32)
    anneal(graph.arrays, state, movable, no_row, rng, 300, 1.0, 0.5, 1e-3, 3)
    if state.best_value[0] < np.inf:
        assert state.best_value[0] == pytest.approx(value_of(problem, state.best), abs=1e-9)
        assert (problem.free_memory(state.best) >= -1e-9).all()
        assert graph.allowed[np.arange(problem.unit_count), state.best].all()
    now = state.node_device
    assert kernel.value(state) == pytest.approx(value_of(problem, now), abs=1e-9)
    assert not fitted or (problem.free_memory(now) >= -1e-9).all()


@given(st.data())
def test_where_descent_ends_no_move_of_one_unit_helps(data):
    problem = data.draw(pipelines(6, 3))
    start = random_devices(data.draw, problem)
    if start is None:
        return
    graph = unit_graph(problem)
    state = graph.loads(start)
    assert descend(graph.arrays, state, np.arange(problem.unit_count, dtype=np.int32), 10**6) >= 0
    value = value_of(problem, state.node_device)
    assert kernel.value(state) == pytest.approx(value, abs=1e-9)
    assert value <= value_of(problem, start) * (1 + 1e-9)
    assert value <= least_after_one_move(problem, state.node_device) * (1 + 1e-9) + 1e-12
