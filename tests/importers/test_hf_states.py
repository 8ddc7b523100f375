"""Phases of models whose layers keep a state: Mamba, its hybrids with attention, delta rules."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from placewright.errors import OptionError
from placewright.graph import Graph
from placewright.importers.torch import sources
from placewright.importers.torch.export import export_inference
from placewright.serving.planning import plan_request

pytest.importorskip("transformers")

TINY = "hidden_size=32&vocab_size=64&pad_token_id=0&bos_token_id=1&eos_token_id=2"
MAMBA = f"mamba?{TINY}&num_hidden_layers=1&state_size=8&time_step_rank=4"
MAMBA2 = (
    f"mamba2?{TINY}&num_hidden_layers=2&num_heads=4&head_dim=16&n_groups=2&state_size=8"
    "&chunk_size=16"
)
ATTENTION = "num_attention_heads=2&num_key_value_heads=1&intermediate_size=32"
FALCON = (
    f"falcon_h1?{TINY}&{ATTENTION}&num_hidden_layers=1&mamba_d_ssm=64&mamba_n_heads=4"
    "&mamba_d_head=16&mamba_d_state=8&mamba_n_groups=1"
)
QWEN = (
    f"qwen3_5_text?{TINY}&{ATTENTION}&num_hidden_layers=2&head_dim=16&linear_num_value_heads=4"
    "&linear_num_key_heads=2&linear_key_head_dim=8&linear_value_head_dim=16"
    '&layer_types=["linear_attention","full_attention"]'
)
INNER, STATE = 64, 8  # channels of the Mambas above, and numbers of a state for each
CONVOLVED = {MAMBA: INNER, MAMBA2: INNER + 2 * 2 * STATE}  # Mamba 2 convolves B and C too


@cache
def from_hf(config: str, **options: Any) -> Graph:
    """As `sources.from_hf`, each configuration once."""
    return sources.from_hf(config, **options)


def the_op(graph: Graph, kind: str) -> int:
    return graph.op_types.index(f"placewright.{kind}")


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("context", [2, 40])
@pytest.mark.parametrize(("config", "layers"), [(MAMBA, 1), (MAMBA2, 2)])
def test_a_state_is_kept_and_is_as_large_for_any_context(
    config: str, layers: int, context: int, phase: str
) -> None:
    graph = from_hf(f"{config}&phase={phase}&context={context}&batch=3")
    per_layer = INNER * STATE + CONVOLVED[config] * 4
    assert graph.op_state_bytes.sum() == 3 * layers * per_layer * 4
    assert (graph.attributes["phase"], graph.input_samples) == (phase, 3)
    assert list(graph.attributes["inputs"]) == ["input_ids"]


def test_a_hybrid_keeps_keys_and_values_besides_for_as_many_tokens_as_are_asked_for() -> None:
    state = (INNER * STATE + (INNER + 2 * STATE) * 4) * 4
    token = 2 * 16 * 4
    graph = from_hf(f"{FALCON}&phase=decode&context=24")
    assert graph.op_state_bytes.sum() == state + 24 * token
    graph = from_hf(f"{FALCON}&phase=decode&context=24", cache_tokens=100)
    assert graph.op_state_bytes.sum() == state + 100 * token


def test_a_step_reads_and_writes_its_state_once() -> None:
    graph = from_hf(f"{MAMBA}&phase=decode&context=24&batch=2")
    step, numbers = the_op(graph, "selective_state_update"), 2 * INNER * STATE
    read_besides = (
        2 * 3 * INNER + INNER * STATE + 2 * 2 * STATE + 2 * INNER
    )  # x, dt, z; A; B, C; D, dt_bias
    assert graph.op_bytes_read[step] == 4 * (numbers + read_besides)
    assert graph.op_bytes_written[step] == 4 * (numbers + 2 * INNER)
    assert graph.op_flops[step] == 7 * numbers
    convolution = the_op(graph, "causal_conv1d_update")
    assert graph.op_bytes_written[convolution] == 4 * 2 * INNER * (4 + 1)
    assert graph.op_flops[convolution] == 2 * 2 * INNER * 4
    assert not any("copy" in kind for kind in graph.op_types)


def test_prefill_scans_in_one_op_however_long_the_prompt() -> None:
    short, long = (from_hf(f"{MAMBA}&phase=prefill&context={tokens}") for tokens in (8, 64))
    assert short.op_types == long.op_types
    for graph, tokens in ((short, 8), (long, 64)):
        assert graph.op_flops[the_op(graph, "selective_scan")] == 7 * tokens * INNER * STATE


def test_a_scan_in_chunks_counts_pairs_within_them_and_their_states() -> None:
    graph = from_hf(f"{MAMBA2}&phase=prefill&context=64")
    scan = the_op(graph, "chunk_scan")
    pairs, states = 16 * (2 * STATE + INNER), 2 * INNER * STATE
    assert graph.op_flops[scan] == 2 * 64 * (pairs + states)


def test_a_delta_rule_counts_its_chunks_and_its_step() -> None:
    prefill = from_hf(f"{QWEN}&phase=prefill&context=128")
    of_key, of_value, heads, chunk = 8, 16, 4, 64
    of_a_token = chunk * (3 * of_key + 2 * of_value) + 3 * of_key * of_value
    flops = prefill.op_flops[the_op(prefill, "chunk_delta_rule")]
    assert flops == 2 * heads * 128 * of_a_token
    decode = from_hf(f"{QWEN}&phase=decode&context=128")
    step = the_op(decode, "delta_rule")
    assert decode.op_flops[step] == 7 * heads * of_key * of_value
    assert decode.op_state_bytes[step] == 4 * heads * of_key * of_value


def test_pointwise_kernels_compute_in_fp32_and_products_in_the_type_of_the_model() -> None:
    graph = from_hf(f"{MAMBA2}&phase=prefill&context=32&dtype=bfloat16")
    assert graph.op_dtypes[the_op(graph, "chunk_scan")] == "bf16"
    assert graph.op_dtypes[the_op(graph, "causal_conv1d")] == "fp32"


@pytest.mark.parametrize("config", [MAMBA, MAMBA2, FALCON, QWEN], ids=lambda each: each[:7])
def test_both_phases_compute_what_the_model_computes(config: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from placewright.importers.torch.configuration import configuration
    from placewright.importers.torch.phases import with_phase

    source, _, query = config.partition("?")
    given = dict(each.split("=", 1) for each in query.split("&"))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(configuration(source, given, config)).eval()
    ids = torch.randint(3, 60, (2, 20))
    whole = model(ids, use_cache=False).logits.detach()
    prefill, _, _ = with_phase(model, "prefill", batch=2, context=19, source=config)
    inputs: dict[str, Any] = {"input_ids": ids[:, :19], "past": []}
    said, *kept = export_inference(prefill, (), inputs).module()(**inputs)
    torch.testing.assert_close(said[:, -1], whole[:, 18])
    decode, _, _ = with_phase(model, "decode", batch=2, context=20, source=config)
    inputs = {"input_ids": ids[:, 19:], "past": kept}
    said, *_ = export_inference(decode, (), inputs).module()(**inputs)
    torch.testing.assert_close(said[:, -1], whole[:, 19])


def test_a_step_past_its_sliding_window_is_at_its_own_position() -> None:
    import torch
    from transformers import AutoModelForCausalLM, Gemma3TextConfig

    from placewright.importers.torch.phases import with_phase

    torch.manual_seed(0)
    settings = Gemma3TextConfig(
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        vocab_size=64,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention"],
    )
    model = AutoModelForCausalLM.from_config(settings).eval()
    ids = torch.randint(3, 60, (1, 20))
    whole = model(ids, use_cache=False).logits.detach()
    prefill, _, _ = with_phase(model, "prefill", batch=1, context=19, source="gemma3")
    _, *kept = prefill(ids[:, :19], [])
    decode, _, _ = with_phase(model, "decode", batch=1, context=20, source="gemma3")
    torch.testing.assert_close(decode(ids[:, 19:], kept)[0][:, -1], whole[:, 19])


def test_a_request_of_a_hybrid_is_planned_with_its_state_counted_once() -> None:
    served = plan_request(f"hf:{FALCON}", "2x3090", "prompt=24,output=8", planner="heft")
    state = (INNER * STATE + (INNER + 2 * STATE) * 4) * 4
    assert served.capacity.cache.sum() == state + 32 * 2 * 16 * 4


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (f"{MAMBA}&phase=generate&context=8", "built for models that keep keys and values alone"),
        (
            "rwkv?hidden_size=32&num_hidden_layers=1&phase=decode&context=8",
            "RwkvForCausalLM has a cache of its own; leave out phase",
        ),
        (
            f"recurrent_gemma?{TINY}&{ATTENTION}&num_hidden_layers=3&phase=prefill&context=8",
            "layer 0 (LinearAttentionLayer) of this one kept nothing there; leave out phase",
        ),
        (
            "deepseek_v4?num_hidden_layers=2&phase=decode&context=8",
            "2 of 2 of this one keep something else (DeepseekV4HCACache of Transformers); leave",
        ),
        (
            "glm_moe_dsa?num_hidden_layers=2&phase=decode&context=8",
            "2 of 2 of this one keep something else (DynamicIndexedLayer of Transformers); leave",
        ),
    ],
)
def test_what_keeps_its_state_elsewhere_is_refused(config: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=re.escape(sentence)):
        from_hf(config)


def test_a_new_process_knows_which_module_defines_the_ops_of_kernels() -> None:
    from placewright.importers.torch import kernel_ops
    from placewright.importers.torch.programs import load_executable
    from placewright.runtime.stages.code import Code
    from placewright.runtime.stages.targets import call_of, defining_modules

    calls = load_executable(f"hf:{MAMBA}&phase=decode&context=8").calls
    code = Code(inputs=(), steps=tuple(map(call_of, calls)), result=None)
    assert defining_modules([code]) == [kernel_ops.__name__]


def test_an_op_of_a_kernel_computes_by_nothing_but_a_reference_of_transformers() -> None:
    import torch

    from placewright.importers.torch.kernel_ops import _compute

    call = '{"of": "os:causal_conv1d_fn", "tensors": ["hidden_states"], "settings": {}}'
    with pytest.raises(ValueError, match=r"os is no module of transformers\.models"):
        _compute([torch.zeros(1)], call)
