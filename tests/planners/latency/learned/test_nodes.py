"""What a policy sees of a problem, and what placements cost there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.planners.latency.learned.nodes import Nodes, feature_count
from placewright.planning import make_problem
from placewright.simulate.latency import time_placement
from tests.builders import chain
from tests.strategies import problems

WIRING = "zoo:rwnn?modules=1&ops=10"


def random_devices(nodes: Nodes, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed).random(nodes.allowed.shape) + nodes.allowed
    return draw.argmax(axis=1)


@given(problem=problems(), seed=st.integers(0, 3), most=st.sampled_from([3, 1000]))
def test_a_placement_takes_no_longer_than_it_was_told_to(problem, seed, most):
    nodes = Nodes(problem, most)
    device = random_devices(nodes, seed)
    seconds, _ = nodes.timed(device)
    found = time_placement(problem, nodes.placement(device)).makespan
    assert found <= seconds * (1 + 1e-9)
    assert nodes.contraction is not None or found == pytest.approx(seconds)


@given(problem=problems(), seed=st.integers(0, 3))
def test_what_overflows_is_told_in_shares_of_what_there_is(problem, seed):
    nodes = Nodes(problem, 1000)
    device = random_devices(nodes, seed)
    whole = nodes.placement(device).device
    excess = 0.0
    for each, capacity in enumerate(problem.device_memory.tolist()):
        used = sum(problem.op_memory[whole == each].tolist())
        if used > capacity:
            excess += used / max(capacity, 1.0) - 1.0
    assert nodes.timed(device)[1] == pytest.approx(excess, abs=1e-9)


@given(problem=problems())
def test_features_are_finite_and_as_many_as_said(problem):
    nodes = Nodes(problem, 1000)
    assert nodes.features.shape == (problem.unit_count, feature_count(problem.device_count))
    assert np.isfinite(nodes.features).all()


def test_a_node_comes_before_those_that_need_it():
    nodes = Nodes(make_problem(WIRING, "diviml")[0], 1000)
    assert (nodes.source < nodes.target).all()


def test_many_units_are_joined_to_few_nodes_that_fit():
    problem, _ = make_problem("zoo:rwnn?modules=3&ops=14", "diviml")
    nodes = Nodes(problem, 20)
    assert 10 <= nodes.count <= 25 < problem.unit_count
    placement = nodes.placement(random_devices(nodes, 0))
    assert len(placement.device) == problem.op_count


def test_a_start_is_seen_where_it_is():
    problem = chain([1.0] * 4, [9.0, 9.0])
    nodes = Nodes(problem, 10)
    device = np.array([0, 1, 1, 0], dtype=np.int32)
    assert nodes.start(nodes.placement(device)).tolist() == device.tolist()
