"""What one device alone can run shares its stage, with all between."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from placewright.analysis.contracted import contracted_graph, directions
from placewright.analysis.reductions.sole_devices import with_sole_devices
from tests.analysis.reductions.test_free_nodes import best_of
from tests.builders import row_of_ops
from tests.naive.throughput import best_split
from tests.strategies.throughput import throughput_problems


@given(throughput_problems())
@settings(max_examples=120)
def test_no_split_is_lost(problem):
    graphs = [with_sole_devices(graph) for graph in directions(problem)]
    assert best_of(graphs)[0] == pytest.approx(best_split(problem)[0], rel=1e-8, abs=1e-12)


def two_kinds(**changes):
    problem = row_of_ops([1.0, 1.0, 1.0, 1.0], op_memory=np.array([0.0, 5.0, 0.0, 5.0]), **changes)
    return with_sole_devices(contracted_graph(problem))


def test_ops_that_only_one_device_supports_are_together_with_what_lies_between():
    seconds = np.array([[1.0, 1.0], [1.0, np.inf], [1.0, 1.0], [1.0, np.inf]])
    assert two_kinds(op_time=seconds).op_node.tolist() == [0, 1, 1, 1]


def test_ops_that_only_one_device_has_room_for_are_together():
    assert two_kinds(device_memory=np.array([20.0, 4.0])).op_node.tolist() == [0, 1, 1, 1]


def test_two_equal_devices_leave_a_choice():
    assert two_kinds(device_memory=np.array([20.0, 20.0])).node_count == 4
