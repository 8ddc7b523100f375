"""Prefill and decode of Transformers models: the KV cache is kept, not copied."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from placewright.errors import OptionError
from placewright.graph import Graph
from placewright.importers.phases import load_phases
from placewright.importers.torch import sources
from placewright.importers.torch.programs import load_executable
from placewright.serving.planning import plan_request

pytest.importorskip("transformers")

SIZES = "hidden_size=64&num_hidden_layers=2&num_attention_heads=4&num_key_value_heads=2&head_dim=16"
LLAMA = f"llama?{SIZES}&intermediate_size=96&vocab_size=100"
TOKEN = 2 * 2 * 2 * 16 * 4  # layers, keys and values, heads, head size, fp32: bytes of a token


@cache
def from_hf(config: str, **options: Any) -> Graph:
    """As `sources.from_hf`, each configuration once."""
    return sources.from_hf(config, **options)


def state(graph: Graph) -> float:
    return float(graph.op_state_bytes.sum())


def of_type(graph: Graph, kind: str) -> list[int]:
    return [op for op, each in enumerate(graph.op_types) if each == kind]


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_phase_keeps_the_keys_and_values_of_its_context(phase: str) -> None:
    graph = from_hf(f"{LLAMA}&phase={phase}&context=24&batch=3")
    assert state(graph) == 3 * 24 * TOKEN
    assert (graph.attributes["phase"], graph.attributes["context"]) == (phase, 24)
    assert graph.input_samples == 3
    holders = {graph.op_modules[op] for op in graph.op_state_bytes.nonzero()[0].tolist()}
    assert holders == {f"model.layers.{layer}.self_attn" for layer in range(2)}


def test_the_plain_forward_keeps_nothing() -> None:
    graph = from_hf(f"{LLAMA}&context=24")
    assert state(graph) == 0.0
    assert "phase" not in graph.attributes
    assert graph.op_flops.tolist() == from_hf(f"{LLAMA}&sequence=24").op_flops.tolist()


def test_decode_computes_one_token_against_the_cache() -> None:
    graph = from_hf(f"{LLAMA}&phase=decode&context=24")
    products = sum(float(graph.op_flops[op]) for op in of_type(graph, "aten.linear"))
    weights = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96) + 64 * 100
    assert products == 2 * weights
    attention = [
        op for op, kind in enumerate(graph.op_types) if "scaled_dot_product_attention" in kind
    ]
    assert [float(graph.op_flops[op]) for op in attention] == [2 * 4 * 24 * 2 * 16] * 2


def test_prefill_makes_the_logits_of_the_last_token_only() -> None:
    graph = from_hf(f"{LLAMA}&phase=prefill&context=24")
    head = graph.op_modules.index("lm_head")
    assert graph.op_flops[head] == 2 * 64 * 100


def test_a_step_appends_to_the_cache_and_does_not_copy_it() -> None:
    graph = from_hf(f"{LLAMA}&phase=decode&context=24")
    kept = graph.op_state_bytes.nonzero()[0].tolist()
    assert len(kept) == 4
    for op in kept:
        new = graph.op_state_bytes[op] / 24
        assert graph.op_bytes_read[op] == graph.op_bytes_written[op] == new


def test_a_step_reads_keys_and_values_once_for_all_heads_that_share_them() -> None:
    short, long = (from_hf(f"{LLAMA}&phase=decode&context={tokens}") for tokens in (100, 1100))
    read, written = (
        float(more.sum())
        for more in (
            long.op_bytes_read - short.op_bytes_read,
            long.op_bytes_written - short.op_bytes_written,
        )
    )
    assert read == pytest.approx(1000 * TOKEN, rel=0.1)  # and the mask
    assert written < 1000 * TOKEN * 0.1


def test_a_sliding_window_keeps_its_window_only() -> None:
    mistral = LLAMA.replace("llama", "mistral") + "&sliding_window=8&phase=decode"
    assert state(from_hf(f"{mistral}&context=24")) == 8 * TOKEN
    assert state(from_hf(f"{mistral}&context=6")) == 6 * TOKEN


def test_the_cache_has_the_room_that_is_asked_for() -> None:
    assert state(from_hf(f"{LLAMA}&phase=decode&context=24", cache_tokens=40)) == 40 * TOKEN
    mistral = LLAMA.replace("llama", "mistral") + "&sliding_window=30&phase=decode"
    assert state(from_hf(f"{mistral}&context=24", cache_tokens=40)) == 30 * TOKEN


def test_a_mixture_of_experts_has_phases_too() -> None:
    mixtral = LLAMA.replace("llama", "mixtral") + "&num_local_experts=4"
    assert state(from_hf(f"{mixtral}&phase=decode&context=24")) == 24 * TOKEN


def test_gpt2_has_phases_too() -> None:
    graph = from_hf("gpt2?n_layer=1&n_embd=32&n_head=2&vocab_size=50&phase=decode&context=16")
    assert state(graph) == 2 * 32 * 16 * 4


def test_a_phase_can_be_run_call_by_call() -> None:
    names = [node.name for node in load_executable(f"hf:{LLAMA}&phase=decode&context=24").calls]
    assert names == list(from_hf(f"{LLAMA}&phase=decode&context=24").op_names)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (f"{LLAMA}&phase=train", "phase is 'train'; choose forward, prefill, decode, generate"),
        (f"{LLAMA}&phase=decode&context=1", "decode needs a token before the new one"),
        (f"{LLAMA}&context=4&sequence=4", "context and sequence are the same"),
        (f"{LLAMA}&phase=decode&context=0", "context is '0'"),
        ("t5?num_layers=1&phase=decode", "phase is for causal language models, and a t5 is none"),
        ("bert?num_hidden_layers=1&phase=prefill", "a bert is none"),
        ("bert?num_hidden_layers=1&phase=decode&context=2000", "a bert is none"),
        ("gpt2?n_layer=1&phase=decode&context=2000", "the model has 1024 positions"),
    ],
)
def test_a_phase_that_cannot_be_is_refused(config: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=re.escape(sentence)):
        from_hf(config)


def test_a_phase_is_not_trained() -> None:
    with pytest.raises(OptionError, match="phase=decode cannot be trained"):
        from_hf(f"{LLAMA}&phase=decode", training=True)


def test_the_parts_of_both_phases_find_each_other() -> None:
    phases = load_phases(f"hf:{LLAMA}", 24, 8)
    weights = {op for op, amount in enumerate(phases.decode.op_parameter_bytes) if amount > 1000}
    assert weights <= {two for _, two in phases.twins}
    for one, two in phases.twins:
        assert phases.prefill.op_modules[one] == phases.decode.op_modules[two]
        assert phases.prefill.op_parameter_bytes[one] == phases.decode.op_parameter_bytes[two]


def test_a_mix_counts_weights_and_cache_of_a_configuration_once() -> None:
    served = plan_request(f"hf:{LLAMA}", "2x3090", "prompt=24,output=8", planner="heft")
    weights = sum(
        float(amount)
        for amount in from_hf(f"{LLAMA}&phase=decode&context=24").op_parameter_bytes
        if amount > 1000
    )
    kept = float(served.plan.problem.op_memory.sum())
    assert served.capacity.cache.sum() == 32 * TOKEN
    assert kept == pytest.approx(weights + 32 * TOKEN, rel=0.05)
