"""What SGLang's KV cache takes, against sums done by hand."""

from __future__ import annotations

import numpy as np
import pytest

import placewright as pw
from placewright.exporters.planning import plan_for
from placewright.exporters.sglang_memory import counted
from placewright.planning import make_problem

FIELDS = (
    "num_hidden_layers=6&hidden_size=64&intermediate_size=96&num_attention_heads=4"
    "&num_key_value_heads=2&head_dim=16&vocab_size=100&sliding_window=128&dtype=float16"
)
OF_A_TOKEN = 2 * 2 * 16 * 2  # of a layer: keys and values of two heads, two bytes a number


def counts(source):
    given = pw.load(source)
    problem, _ = make_problem(given, "8xA100", together=True)
    return problem, *counted(problem, given.graph)


@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize("model", ["gemma3_text", "mistral"])
@pytest.mark.parametrize("context", [1000, 100])
def test_layers_with_a_window_keep_the_whole_context(model, phase, context):
    pytest.importorskip("transformers")
    problem, found, facts = counts(f"hf:{model}?{FIELDS}&phase={phase}&context={context}&batch=3")
    whole = 3 * 6 * context * OF_A_TOKEN
    assert found.op_cache.sum() == pytest.approx(whole)
    weights = problem.op_memory.sum() - problem.op_cache.sum()
    assert found.op_memory.sum() == pytest.approx(weights + whole)
    assert facts == {"context": str(context)}


def test_plans_for_sglang_count_so():
    pytest.importorskip("transformers")
    source = f"hf:mistral?{FIELDS}&phase=decode&context=1000"
    plan = plan_for(source, "2x3090", "sglang", free_seconds=0).plan
    assert plan.problem.op_cache.sum() == pytest.approx(6 * 1000 * OF_A_TOKEN)
    assert plan.planner_options["context"] == "1000"


def test_states_are_as_large_for_any_context():
    pytest.importorskip("transformers")
    problem, found, _ = counts("hf:mamba2?num_hidden_layers=2&phase=decode&context=1000")
    assert problem.op_cache.any()
    assert np.array_equal(found.op_cache, problem.op_cache)


def test_a_pass_without_a_cache_is_left_as_it_is():
    problem, found, facts = counts("zoo:llama-7b?layers=4")
    assert found is problem and not facts
