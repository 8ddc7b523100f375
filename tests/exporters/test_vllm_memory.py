"""What vLLM takes of a GPU besides weights and KV cache, against sums done by hand."""

from __future__ import annotations

import numpy as np
import pytest

import placewright as pw
from placewright.exporters.engines import find_engine
from placewright.exporters.exporting import export
from placewright.exporters.pieces import pieces_for
from placewright.exporters.planning import plan_for
from placewright.exporters.requests import plan_requests_for
from placewright.exporters.vllm_memory import counted
from placewright.graph import GraphBuilder
from placewright.importers import Imported
from placewright.planning import make_problem
from placewright.problem import Problem

SOURCE = "zoo:llama-7b?layers=4&phase=decode&context=512"
HIDDEN, INNER, VOCABULARY = 4096, 11008, 32000
HALF = 2  # bytes of a number
SAMPLED = 23  # of a logit: 2 + 4 as they come, 4 + 8 sorted, 4 of its probability, 1 of a mask


def counts(source: str | Imported, objective: str = "latency") -> tuple[Problem, Problem, dict]:
    """The problem as it is and as vLLM counts it, and what a plan says of that."""
    given = pw.load(source) if isinstance(source, str) else source
    options = {"objective": objective}
    problem, _ = make_problem(given, "8xA100", together=True, options=options)
    found, facts = counted(problem, given.graph)
    return problem, found, dict(facts)


def results(problem: Problem, found: Problem) -> float:
    """Bytes that a GPU has less for a batch, of the 0.9 that vLLM takes."""
    return float(0.9 * (problem.device_memory - found.device_memory)[0])


@pytest.mark.parametrize("query", ["context=512", "context=512&batch=16", "context=2048"])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_a_batch_of_2048_tokens_and_logits_of_256_sequences_have_room(phase, query):
    problem, found, facts = counts(f"zoo:llama-7b?layers=4&phase={phase}&{query}")
    inside_the_mlp = 3 * INNER + HIDDEN  # gate, up, their product, and what is added to it
    assert results(problem, found) == pytest.approx(2048 * inside_the_mlp * HALF)
    more = found.op_memory - problem.op_memory
    (head,) = np.flatnonzero(more)
    assert problem.op_names[head] == "lm_head"
    assert more[head] == pytest.approx(256 * VOCABULARY * SAMPLED)
    assert (facts["batched_tokens"], facts["sequences_at_once"]) == ("2048", "256")
    assert np.array_equal(found.op_cache, problem.op_cache)  # of whole pages


def test_each_sequence_has_whole_pages_of_16_tokens():
    problem, found, _ = counts(SOURCE.replace("512", "500") + "&batch=3")
    assert found.op_cache.sum() == pytest.approx(3 * 512 * 4 * 2 * HIDDEN * HALF)
    assert problem.op_cache.sum() == pytest.approx(3 * 500 * 4 * 2 * HIDDEN * HALF)
    weights = problem.op_memory.sum() - problem.op_cache.sum()
    logits = 256 * VOCABULARY * SAMPLED
    assert found.op_memory.sum() == pytest.approx(weights + found.op_cache.sum() + logits)


@pytest.mark.parametrize(
    ("context", "batch", "rows"),
    [
        (4096, 1, 4096),  # a window of 128, and batches of 2048 tokens for 8 stages, and one more
        (4096, 64, 128 + 16 + 9 * 2048 / 64),
        (100, 64, 112),  # less than a window
    ],
)
def test_a_window_keeps_what_is_under_way_besides(context, batch, rows):
    pytest.importorskip("transformers")
    fields = (
        "num_hidden_layers=6&hidden_size=64&intermediate_size=96&num_attention_heads=4"
        "&num_key_value_heads=2&head_dim=16&vocab_size=100&sliding_window=128&dtype=float16"
    )
    _, found, _ = counts(f"hf:gemma3_text?{fields}&phase=decode&context={context}&batch={batch}")
    of_a_token = 2 * 2 * 16 * HALF  # keys and values of two heads
    whole = -(-context // 16) * 16
    assert found.op_cache.sum() == pytest.approx(batch * (5 * rows + whole) * of_a_token)


SMALL = (
    "num_hidden_layers=2&hidden_size=64&intermediate_size=96&num_attention_heads=4"
    "&num_key_value_heads=2&vocab_size=100&dtype=float16"
)
SOME_MAMBA = "num_experts=1&attn_layer_period=2&attn_layer_offset=1&mamba_dt_rank=4"


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_windows_in_all_layers_keep_what_is_under_way_too(phase):
    pytest.importorskip("transformers")
    source = f"hf:mistral?{SMALL}&sliding_window=128&phase={phase}&context=4096&batch=64"
    _, found, _ = counts(source)
    rows = 128 + 16 + 9 * 2048 / 64
    assert found.op_cache.sum() == pytest.approx(64 * 2 * rows * 2 * 2 * 16 * HALF)


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_states_are_no_windows_of_few_tokens(phase):
    """Those of Mamba are as large for any number of tokens."""
    pytest.importorskip("transformers")
    source = f"hf:jamba?{SMALL}&{SOME_MAMBA}&phase={phase}&context=512&batch=2"
    problem, found, _ = counts(source)
    assert problem.op_cache.sum() > 2 * 512 * 2 * 2 * 16 * HALF  # more than keys and values
    assert np.array_equal(found.op_cache, problem.op_cache)


@pytest.mark.parametrize("model", ["gemma2?head_dim=16", f"jamba?{SOME_MAMBA}"])
def test_what_is_made_of_weights_alone_is_no_result_of_a_token(model):
    """One plus the weights of a norm, or a matrix that decays a state, are there once."""
    pytest.importorskip("transformers")
    decode, prefill = (
        results(*counts(f"hf:{model}&{SMALL}&phase={phase}&context=512")[:2])
        for phase in ("decode", "prefill")
    )
    assert 0.7 * prefill < decode < 1.05 * prefill


def test_stages_of_large_batches_have_room_for_all_their_sequences():
    problem, found, facts = counts(f"{SOURCE}&batch=400", "throughput")
    assert facts["sequences_at_once"] == facts["batched_tokens"] == "3200"  # on eight GPUs
    inside_the_mlp = 3 * INNER + HIDDEN
    assert results(problem, found) == pytest.approx(3200 * inside_the_mlp * HALF)


def test_experts_run_at_once():
    problem, found, _ = counts("zoo:mixtral-8x7b?layers=2&phase=decode&context=64")
    inside_two_experts = 2 * 3 * 14336
    assert results(problem, found) >= 2048 * inside_two_experts * HALF
    assert results(problem, found) < 2048 * (inside_two_experts + 4 * HIDDEN) * HALF


def test_any_gpu_may_sample_for_a_head_that_shares_its_weights():
    """The bytes of ops that share weights say how large a copy is."""
    problem, found, _ = counts("zoo:gpt2?phase=decode&context=64")
    inside_the_mlp = 2 * 4 * 768 + 768
    sampled = 256 * 50257 * SAMPLED
    assert results(problem, found) == pytest.approx(2048 * inside_the_mlp * HALF + sampled)
    assert np.array_equal(found.op_memory, problem.op_memory)
    (shared,) = pieces_for(found, find_engine("vllm")).shared
    assert shared.bytes == 50257 * 768 * HALF


def test_what_is_made_of_the_whole_cache_is_no_result_of_a_token():
    """Keys that weights make of cached latents, and scores, are read where the cache is."""
    context, wide, builder = 1000, 64, GraphBuilder("latent")
    tensor: list[int] = []

    def add(name: str, numbers: int, weights: int, state: float = 0.0, type_: str = "matmul"):
        op = builder.add_op(name, type_, tensor, module=f"layers.{name[-1]}", dtype="fp16",
                            flops=2.0 * max(weights, 1), parameter_bytes=HALF * weights,
                            state_bytes=state)  # fmt: skip
        tensor[:] = [builder.add_tensor(op, HALF * numbers)]

    for layer in "01":
        add(f"new{layer}", wide, wide * wide)
        add(f"cache{layer}", context * wide, 0, state=HALF * context * wide, type_="cache")
        add(f"keys{layer}", context * 8 * wide, wide * 8 * wide)
        add(f"scores{layer}", context, 0)
        add(f"mixed{layer}", wide, 0)
        add(f"out{layer}", wide, wide * wide)
    add("head0", 10, wide * 10)
    builder.attributes.update({"phase": "decode", "context": context})
    graph = builder.build()
    problem, found, _ = counts(Imported(graph, source="latent"))
    assert problem.op_cache.any()
    assert results(problem, found) == pytest.approx(2048 * 2 * wide * HALF)


def test_a_pass_without_a_cache_is_left_as_it_is():
    problem, found, facts = counts("zoo:llama-7b?layers=4")
    assert found is problem and not facts


@pytest.mark.parametrize("phase", ["decode", "generate"])
def test_transformers_ops_come_to_what_the_zoo_s_do(phase):
    pytest.importorskip("transformers")
    fields = f"num_hidden_layers=2&phase={phase}&context=64&dtype=float16"
    problem, found, _ = counts(f"hf:llama?{fields}")
    inside_the_mlp = 3 * INNER + HIDDEN
    assert results(problem, found) == pytest.approx(2048 * inside_the_mlp * HALF, rel=0.02)
    assert (found.op_memory - problem.op_memory).max() == 256 * VOCABULARY * SAMPLED


def test_a_gpu_that_weights_fill_has_no_room_for_a_batch():
    cluster = pw.load_cluster("4090+3060")
    plan = plan_for("zoo:llama-13b?phase=decode&context=512", cluster, "vllm",
                    objective="latency", free_seconds=0).plan  # fmt: skip
    assert plan.planner_options["batched_tokens"] == "2048"
    free = 0.9 * np.array([device.memory for device in cluster.devices]) - plan.device_memory
    assert (free >= 2048 * (3 * 13824 + 5120) * HALF).all()


def test_vllm_is_told_the_batch_that_its_memory_is_counted_for(tmp_path):
    found = plan_for(SOURCE, "4090+3060", "vllm", free_seconds=0)
    (line,) = export(found.plan, "vllm", tmp_path / "x.json")
    assert "--max-num-seqs 256 --max-model-len 512 --max-num-batched-tokens 2048" in line
    mix = "prompt=64,output=8"
    source = "zoo:llama-7b?layers=4&batch=3"
    served = plan_requests_for(source, "4090+3060", "vllm", mix, free_seconds=0)
    plan, stages = served.by_blocks.plan, len(served.by_blocks.stages)
    assert plan.planner_options["sequences_at_once"] == "6"  # if it has two stages
    (line,) = export(plan, "vllm", tmp_path / "y.json")
    assert f"--max-num-seqs {3 * stages} --max-model-len 72" in line
