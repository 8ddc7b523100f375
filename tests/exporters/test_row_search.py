"""Rows of pipelines, with all that their stages send: beside every row, looked at one by one."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.exporters.engines import find_engine
from placewright.exporters.pieces import Pieces
from placewright.exporters.planning import plan_row
from placewright.exporters.row_costs import row_costs
from placewright.exporters.row_search import best_of_rows
from placewright.graph import GraphBuilder
from placewright.planning import make_problem
from placewright.verify import verify
from tests.exporters.test_rows import every_value
from tests.naive.stage_rows import best_row, value_of
from tests.strategies.throughput import throughput_problems


@st.composite
def rows_of_pieces(draw):
    """A problem whose ops are parted among pieces anyhow, each of which has one."""
    problem = draw(throughput_problems(max_ops=6, replicate=False, staging="direct"))
    problem = replace(problem, options=replace(problem.options, schedule="pipedream"))
    count = draw(st.integers(1, min(problem.op_count, 4)))
    some = [draw(st.integers(0, count - 1)) for _ in range(problem.op_count - count)]
    return Pieces(problem, None, np.array([*range(count), *some], dtype=np.int32))


@given(rows_of_pieces())
def test_the_best_row_found_is_the_best_there_is(pieces):
    best = best_row(pieces.problem, pieces.op_piece)
    costs = row_costs(pieces)
    row, is_whole = best_of_rows(pieces, costs, math.inf)
    assert is_whole and (row is None) == math.isinf(best)
    if row is None:
        return
    assert row.value == pytest.approx(best, rel=1e-9)
    left = [list(members) for members in costs.classes[1]]
    device = np.concatenate([[left[one].pop(0)] * (j - i + 1) for one, i, j in row.stages])
    placed = device[pieces.op_piece].astype(np.int32)
    assert value_of(pieces.problem, placed) == pytest.approx(best, rel=1e-9)


@settings(max_examples=30)
@given(rows_of_pieces(), st.integers(0, 6))
def test_a_search_that_ends_early_says_so(pieces, nodes):
    best = best_row(pieces.problem, pieces.op_piece)
    row, is_whole = best_of_rows(pieces, row_costs(pieces), math.inf, nodes)
    assert row is None or row.value >= best * (1 - 1e-9)
    assert not is_whole or math.isinf(best) or row.value == pytest.approx(best, rel=1e-9)


def with_a_mask(layers):
    """Layers of a row, each of which reads what the first makes besides."""
    builder = GraphBuilder("masked")
    mask = builder.add_tensor(builder.add_op("mask", "op", module="layers.0", flops=1e9), 4e5)
    state = []
    for layer in range(layers):
        op = builder.add_op(f"layer{layer}", "op", [*state, mask], module=f"layers.{layer}",
                            flops=4e10)  # fmt: skip
        state = [builder.add_tensor(op, 8e5)]
    return builder.build()


@pytest.mark.parametrize("cluster", ["a100+2xt4+cpu", "3090+2x3060"])
@pytest.mark.parametrize("load", ["sum", "duplex"])
def test_what_the_first_stage_sends_to_each_other_is_proved(cluster, load):
    given_options = {"objective": "throughput", "load": load}
    problem = make_problem(with_a_mask(6), cluster, given_options)[0]
    plan = plan_row(problem, find_engine("vllm"))
    assert plan.value == pytest.approx(min(every_value(problem, "vllm")), rel=1e-9)
    assert plan.status == "optimal" and verify(plan).ok
