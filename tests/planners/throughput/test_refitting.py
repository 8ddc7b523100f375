"""Free nodes move to other stages until every stage has room."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.analysis.contracted import contracted_graph
from placewright.planners.throughput.refitting import refitted
from placewright.planners.throughput.stages import stage_tables
from placewright.simulate.throughput import loads
from tests.builders import row_of_ops
from tests.naive.throughput import is_contiguous
from tests.strategies.throughput import with_free_ops


def two_stages(memory, capacity, split):
    """Ops of a row on two stages, the first `split` on the first."""
    seconds = [0.0 if kept else 1.0 for kept in memory]
    problem = row_of_ops(seconds, op_memory=np.array(memory, dtype=float))
    problem = replace(problem, device_memory=np.full(2, float(capacity)))
    tables = stage_tables(contracted_graph(problem))
    stage = (np.arange(len(memory)) >= split).astype(np.int64)
    return tables, stage, np.zeros(2, dtype=np.int64)


def test_what_has_no_room_goes_to_the_next_stage():
    tables, stage, kinds = two_stages([0, 2, 2, 0], 3, 3)
    movable = tables.graph.memory > 0
    found = refitted(tables, stage, kinds, movable, np.inf)
    assert found is not None
    assert found.node_stage.tolist() == [0, 0, 1, 1]
    assert loads(tables.graph.problem, found.placement()).value == pytest.approx(found.value)


def test_nothing_moves_past_what_reads_it_or_above_the_limit():
    tables, stage, kinds = two_stages([2, 2, 0, 0], 3, 3)
    nodes = np.array([True, False, False, False])  # but for the second, it cannot go on
    assert refitted(tables, stage, kinds, nodes, np.inf) is None
    tables, stage, kinds = two_stages([0, 2, 2, 0], 3, 3)
    assert refitted(tables, stage, kinds, tables.graph.memory > 0, 0.5) is None


@given(with_free_ops(replicate=False), st.data())
@settings(max_examples=60)
def test_what_it_finds_fits_and_is_contiguous(problem, data):
    graph = contracted_graph(problem)
    tables = stage_tables(graph)
    last = min(graph.node_count, max(int(graph.problem.device_count), 1)) - 1
    stage = np.sort(data.draw(st.lists(st.integers(0, last), min_size=graph.node_count,
                                       max_size=graph.node_count)))  # fmt: skip
    stage = np.unique(stage, return_inverse=True)[1].astype(np.int64)
    if len(tables.kinds) != 1 or not tables.allowed.all():
        return
    kinds = np.zeros(int(stage.max()) + 1, dtype=np.int64)
    free = (graph.time == 0).all(axis=(0, 2))
    found = refitted(tables, stage, kinds, free, np.inf)
    if found is None:
        return
    device = found.placement().device
    used = np.bincount(device, problem.op_memory, problem.device_count)
    assert (used <= problem.device_memory * (1 + 1e-9)).all()
    assert is_contiguous(problem, device)
    assert (found.node_stage[~free] == stage[~free]).all()
