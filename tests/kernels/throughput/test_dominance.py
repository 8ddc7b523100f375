"""Stages that a heavy node leaves are no dearer, and no table of ideals needs the others."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.analysis.contracted import contracted_graph, directions
from placewright.budget import Budget, no_progress
from placewright.graph import GraphBuilder
from placewright.kernels.throughput.dominance import heavy_nodes
from placewright.kernels.throughput.ideal_dp import (
    FOUND,
    GAVE_UP,
    NONE,
    fewest,
    find_chain,
    survivors,
)
from placewright.kernels.throughput.least_chain import least_chain
from placewright.planners.throughput.ideal_search import MOST_IDEALS, Search
from placewright.planners.throughput.splits import least_load, most_load
from placewright.planners.throughput.stages import stage_tables
from placewright.planners.throughput.windows import WindowTables
from placewright.planning import make_problem
from tests.naive.dominance import ideals_of, last_of, parts_of, stage_seconds
from tests.strategies.throughput import throughput_problems

NEVER_GIVES_UP = 10**12


def tables_of(problem):
    """Those of each direction that has a kind of stage."""
    return [each for each in map(stage_tables, directions(problem)) if each.kinds]


def listed_below(tables, limit):
    """The ideals that a split below the limit may pass through, as listed and as they survive."""
    windows, thresholds = WindowTables(tables), [limit] * tables.passes
    listed = Search(Budget(), MOST_IDEALS, no_progress)._ideals(windows, thresholds)
    return listed, survivors(listed.ideals, windows.within(thresholds))


@given(throughput_problems(max_ops=7, max_devices=4), st.randoms())
@settings(max_examples=60)
def test_a_stage_without_a_heavy_last_node_is_no_dearer(problem, random):
    for tables in tables_of(problem):
        graph = tables.graph
        heavy = heavy_nodes(tables.nets, tables.costs, graph.followers)
        ideals = ideals_of(graph)
        pairs = [(small, large) for large in ideals for small in ideals if small < large]
        for small, large in random.sample(pairs, min(len(pairs), 20)):
            for node in last_of(graph, large) - small:
                moves = np.flatnonzero(heavy[tables.costs.move_variant, node])
                for move in moves:
                    stage = large - small
                    before = stage_seconds(tables, move, small, stage)
                    after = stage_seconds(tables, move, small, stage - {node})
                    assert (after <= before + 1e-12).all()


@given(throughput_problems(max_ops=7, max_devices=4))
@settings(max_examples=40)
def test_an_ideal_knows_its_last_nodes_and_the_ideals_without_them(problem):
    for tables in tables_of(problem):
        graph = tables.graph
        listed, _ = listed_below(tables, most_load(tables))
        ideals = listed.ideals
        inside = np.unpackbits(ideals.bits.view(np.uint8), axis=1, bitorder="little")
        last = np.unpackbits(ideals.last.view(np.uint8), axis=1, bitorder="little")
        sets = [frozenset(np.flatnonzero(row).tolist()) for row in inside]
        assert [set(np.flatnonzero(row).tolist()) for row in last] == [
            last_of(graph, each) for each in sets
        ]
        pairs = list(zip(ideals.part_nodes.tolist(), ideals.parts.tolist(), strict=True))
        bounds = ideals.part_offsets.tolist()
        found = [set(pairs[a:b]) for a, b in pairwise(bounds)]
        assert found == parts_of(graph, sets)


@given(throughput_problems(max_ops=12, max_devices=4), st.floats(0.0, 1.0))
@settings(max_examples=60)
def test_tables_are_the_same_if_every_pair_of_ideals_is_looked_at(problem, share):
    for tables in tables_of(problem):
        least, most = least_load(tables), most_load(tables)
        limit = least + share * (min(4 * least, most) - least)
        listed, (alive, few, many) = listed_below(tables, limit)
        limits = tables.limits([limit] * tables.passes)
        none = np.zeros_like(tables.heavy)
        need, need_of_all = (
            fewest(
                *listed, alive, few, many, tables.nets, tables.costs, heavy, limits,
                NEVER_GIVES_UP, True,
            )[1]
            for heavy in (tables.heavy, none)
        )  # fmt: skip
        assert (need == need_of_all).all()
        if tables.passes > 1 or tables.approximate:
            continue
        value, value_of_all = (
            least_chain(
                *listed, alive, few, many, tables.nets, tables.costs, heavy, limits, least, limit
            )[0]
            for heavy in (tables.heavy, none)
        )
        assert value == pytest.approx(value_of_all, rel=1e-12)


@given(throughput_problems(max_ops=7, max_devices=4, staging="direct"))
@settings(max_examples=40)
def test_chains_are_tried_for_as_long_as_there_is_work_left(problem):
    for tables in tables_of(problem):
        limit = most_load(tables)
        listed, (alive, few, many) = listed_below(tables, limit)
        shared, limits = (tables.nets, tables.costs), tables.limits([limit] * tables.passes)
        need = fewest(
            *listed, alive, few, many, *shared, tables.heavy, limits, NEVER_GIVES_UP, True
        )[1]
        answers = [
            find_chain(
                *listed, alive, need, many, *shared, tables.chain, limits, NEVER_GIVES_UP, work
            )[1]
            for work in (NEVER_GIVES_UP, -1)
        ]
        assert answers == ([FOUND, GAVE_UP] if need[0, -1] <= many[0, -1] else [NONE, NONE])


@pytest.mark.parametrize(("size", "heavy"), [(1e6, True), (1e9, False)])
def test_a_node_is_heavy_if_it_computes_longer_than_its_input_takes(size, heavy):
    builder = GraphBuilder("row")
    tensors = []
    for name in ("first", "second", "third"):
        op = builder.add_op(name, "matmul", tensors, flops=1e11)
        tensors = [builder.add_tensor(op, size if name == "first" else 1.0)]
    problem, _ = make_problem(builder.build(), "2x3090", {"objective": "throughput"})
    tables = stage_tables(contracted_graph(problem))
    assert tables.heavy[:, 1].all() == heavy
