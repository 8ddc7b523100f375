"""Rows of models whose ops need not wait for their stage, beside every row there is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.exporters.engines import find_engine
from placewright.exporters.pieces import pieces_for
from placewright.exporters.planning import plan_row
from placewright.graph import GraphBuilder
from placewright.verify import verify
from tests.exporters.test_rows import every_value, problem_of


def modulated(early, late, nbytes=1e3):
    """Layers in a row, each scaled by what it computes (`early` FLOPs) of the model's input."""
    builder, state = GraphBuilder("modulated"), []
    for layer, (before, flops) in enumerate(zip(early, late, strict=True)):
        module = f"layers.{layer}"
        scaling = builder.add_op(f"scale{layer}", "op", module=module, flops=before)
        scale = builder.add_tensor(scaling, 8.0)
        op = builder.add_op(f"layer{layer}", "op", [*state, scale], module=module, flops=flops)
        state = [builder.add_tensor(op, nbytes)]
    return builder.build()


@pytest.mark.parametrize("cluster", ["2x3090", "4090+3060", "3090+2x3060"])
@pytest.mark.parametrize("before", [1e9, 1e10, 1e11])
def test_what_a_stage_computes_before_its_turn_is_proved(cluster, before):
    problem = problem_of(modulated([before] * 4, [4e10] * 4), cluster, "latency")
    plan = plan_row(problem, find_engine("accelerate"))
    assert plan.status == "optimal" and verify(plan).ok
    assert plan.value <= min(every_value(problem, "accelerate")) * (1 + 1e-9)


sizes = st.lists(st.tuples(*[st.sampled_from([1e8, 1e9, 1e10, 1e11])] * 2), min_size=2, max_size=4)


@settings(max_examples=25)
@given(sizes, st.sampled_from([1e3, 1e7]), st.sampled_from(["accelerate", "vllm"]))
def test_no_row_is_below_the_bound(layers, nbytes, engine):
    graph = modulated(*zip(*layers, strict=True), nbytes)
    problem = problem_of(graph, "3090+2x3060", "latency")
    plan = plan_row(problem, find_engine(engine))
    best = min(every_value(problem, engine))
    assert plan.lower_bound <= min(plan.value, best)
    assert verify(plan).ok


def test_llama_cpp_keeps_an_input_that_no_cpu_has_with_the_first_layer():
    def pieces(cluster):
        problem = problem_of("zoo:llama-7b?layers=4&context=64", cluster, "latency")
        return pieces_for(problem, find_engine("llama-cpp"))

    assert pieces("4090+cpu").count == 6
    together = pieces("2x3090")
    assert together.count == 5
    assert np.unique(together.op_piece[together.blocks.op_block <= 1]).tolist() == [0]
