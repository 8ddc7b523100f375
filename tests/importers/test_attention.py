"""Attention costs what its kernels do: pairs that a mask leaves out are not computed."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest

from placewright.graph import Graph
from placewright.importers.pairs import TILE, causal, share_of_pairs

SIZES = (
    "hidden_size=64&num_hidden_layers=1&num_attention_heads=4&num_key_value_heads=2&head_dim=16"
    "&intermediate_size=96&vocab_size=100"
)
PAIRS = 4 * 512 * 512  # of four heads and a prompt of 512 tokens
FLOPS = PAIRS * 2 * (16 + 16)
CAUSAL = 10 / 16  # of four tiles by four


@pytest.mark.parametrize("window", [math.inf, 1, 100, 128, 300])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (100, 100), (128, 128), (513, 513)])
def test_pairs_are_those_of_the_tiles_that_a_mask_leaves_something_of(
    queries: int, keys: int, window: float
) -> None:
    tiles = {
        (i // TILE, j // TILE)
        for i in range(queries)
        for j in range(keys)
        if j <= i and i - j < window
    }
    most = [min(TILE, queries - start) for start in range(0, queries, TILE)]
    pairs = sum(most[row] * most[column] for row, column in tiles)
    assert share_of_pairs(queries, keys, causal(window)) == pytest.approx(pairs / (queries * keys))


def test_a_new_token_sees_the_whole_cache() -> None:
    assert share_of_pairs(1, 5000, ((4999.0, 1.0, -1.0),)) == 1.0


def test_a_query_that_sees_nothing_computes_nothing() -> None:
    assert share_of_pairs(256, 256, ((-128.0, 1.0, 0.0),)) == 0.5


@cache
def attention(is_causal: bool, masked: bool = False) -> Graph:
    torch = pytest.importorskip("torch")
    from placewright.importers.torch.export import graph_from_module

    class Attention(torch.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, x: Any) -> Any:
            mask = torch.ones(512, 512, dtype=torch.bool).tril() if masked else None
            attend = torch.nn.functional.scaled_dot_product_attention
            return attend(x, x, x, attn_mask=mask, is_causal=is_causal)

    return graph_from_module(Attention(), (torch.zeros(1, 4, 512, 16),))


def test_causal_attention_computes_half_the_pairs_and_a_mask_of_ones_own_all() -> None:
    assert attention(is_causal=False).op_flops.sum() == FLOPS
    assert attention(is_causal=True).op_flops.sum() == FLOPS * CAUSAL
    assert attention(is_causal=False, masked=True).op_flops.sum() == FLOPS


@cache
def from_hf(config: str, training: bool = False) -> Graph:
    pytest.importorskip("transformers")
    from placewright.importers.torch import sources

    return sources.from_hf(config, training)


def numbers_of(graph: Graph, *kinds: str) -> list[int]:
    return [op for op, kind in enumerate(graph.op_types) if any(each in kind for each in kinds)]


@pytest.mark.parametrize("phase", ["forward", "prefill"])
def test_a_causal_mask_of_transformers_spares_half_and_is_nowhere(phase: str) -> None:
    graph = from_hf(f"llama?{SIZES}&phase={phase}&context=512")
    (op,) = numbers_of(graph, "scaled_dot_product")
    assert graph.op_flops[op] == FLOPS * CAUSAL
    assert graph.op_bytes_read[op] == 512 * 16 * 4 * (4 + 2 + 2)
    for op in numbers_of(graph, "aten.le", "aten.expand"):
        assert graph.op_bytes_read[op] == graph.op_bytes_written[op] == 0
    assert graph.tensor_bytes.max() < 512 * 512  # the numbers of a mask


def test_a_causal_mask_spares_half_in_training_too() -> None:
    graph = from_hf(f"llama?{SIZES}&sequence=512", training=True)
    forward, backward = (graph.op_flops[op] for op in numbers_of(graph, "scaled_dot_product"))
    assert (forward, backward) == (FLOPS * CAUSAL, FLOPS * CAUSAL * 2.5)


def test_a_sliding_window_spares_more() -> None:
    graph = from_hf(f"mistral?{SIZES}&sliding_window=100&phase=prefill&context=512")
    (op,) = numbers_of(graph, "scaled_dot_product")
    assert graph.op_flops[op] == FLOPS * 7 / 16


@pytest.mark.parametrize("chunk", [512, 300])
def test_attention_in_chunks_is_causal_too(chunk: int) -> None:
    graph = from_hf(
        f"llama4_text?{SIZES}&num_local_experts=4&intermediate_size_mlp=96&phase=prefill"
        f"&context=512&attention_chunk_size={chunk}"
    )
    (op,) = numbers_of(graph, "scaled_dot_product")
    assert graph.op_flops[op] == FLOPS * CAUSAL
    assert graph.op_bytes_read[op] == 512 * 16 * 4 * (4 + 2 + 2)  # and no mask: it is of positions


def test_an_encoder_sees_all_pairs() -> None:
    graph = from_hf(
        "bert?hidden_size=64&num_hidden_layers=1&num_attention_heads=4&vocab_size=100"
        "&intermediate_size=96&sequence=512"
    )
    (op,) = numbers_of(graph, "scaled_dot_product")
    assert graph.op_flops[op] == FLOPS


GPT_OSS = f"gpt_oss?{SIZES}&num_local_experts=4&sliding_window=1000"


def in_attention(graph: Graph, kind: str) -> list[int]:
    found = numbers_of(graph, kind)
    return [op for op in found if graph.op_modules[op].endswith("self_attn")]


def test_attention_written_out_is_one_kernel_where_it_serves() -> None:
    graph = from_hf(f"{GPT_OSS}&phase=prefill&context=512")
    scores, context = in_attention(graph, "aten.matmul")
    assert graph.op_flops[scores] == graph.op_flops[context] == FLOPS / 2 * CAUSAL
    assert graph.op_bytes_read[scores] == 512 * 16 * 4 * (4 + 2)
    assert graph.op_bytes_written[scores] == 0
    assert graph.op_bytes_read[context] == 512 * 16 * 4 * 2
    moved = graph.op_bytes_read + graph.op_bytes_written
    assert not [op for op in in_attention(graph, "") if moved[op] >= PAIRS]


def test_attention_written_out_is_counted_step_by_step_where_it_does_not() -> None:
    graph = from_hf(f"{GPT_OSS}&context=512")
    scores, context = in_attention(graph, "aten.matmul")
    assert graph.op_flops[scores] == graph.op_flops[context] == FLOPS / 2
    assert graph.op_bytes_written[scores] == PAIRS * 4


def test_a_step_of_attention_written_out_reads_shared_heads_once() -> None:
    short, long = (from_hf(f"{GPT_OSS}&phase=decode&context={tokens}") for tokens in (100, 900))
    more = long.op_bytes_read.sum() - short.op_bytes_read.sum()
    assert more == 800 * 2 * 2 * 16 * 4  # tokens, keys and values, heads
    assert long.op_bytes_written.sum() == short.op_bytes_written.sum()


BIASED = {
    "bloom": "bloom?hidden_size=64&n_layer=1&n_head=4&vocab_size=100",
    "mpt": "mpt?d_model=64&n_layers=1&n_heads=4&vocab_size=100",
    "falcon": "falcon?hidden_size=64&num_hidden_layers=1&num_attention_heads=4&vocab_size=100"
    "&alibi=true&new_decoder_architecture=false&multi_query=false",
}
"""Models with ALiBi, of four heads of 16."""


@pytest.mark.parametrize("name", BIASED)
def test_a_bias_of_positions_is_made_by_the_kernel_where_it_serves(name: str) -> None:
    graph = from_hf(f"{BIASED[name]}&phase=prefill&context=512")
    attention = numbers_of(graph, "scaled_dot_product") or numbers_of(graph, "matmul", "bmm")
    assert graph.op_flops[attention].sum() == FLOPS * CAUSAL
    assert graph.op_bytes_read[attention].sum() == 512 * 64 * 4 * 3
    assert graph.op_bytes_written[attention].sum() == 512 * 64 * 4
    moved = graph.op_bytes_read + graph.op_bytes_written
    inside = [op for op, module in enumerate(graph.op_modules) if "att" in module.split(".")[-1]]
    assert inside and moved[inside].max() < PAIRS
    outside = [op for op, module in enumerate(graph.op_modules) if module == "transformer"]
    assert moved[outside].max() < 512 * 512
    step = from_hf(f"{BIASED[name]}&phase=decode&context=512")
    longer = from_hf(f"{BIASED[name]}&phase=decode&context=612")
    assert (longer.op_bytes_read - step.op_bytes_read).sum() == 100 * 2 * 64 * 4
    assert (longer.op_bytes_written == step.op_bytes_written).all()


def test_a_bias_of_positions_is_counted_step_by_step_where_it_does_not_serve() -> None:
    graph = from_hf(f"{BIASED['bloom']}&context=512")
    (scores,) = numbers_of(graph, "aten.baddbmm")
    assert graph.op_flops[scores] == FLOPS / 2
    assert graph.op_bytes_written[scores] == PAIRS * 4


def test_a_bias_that_is_learned_or_given_is_none_of_positions() -> None:
    torch = pytest.importorskip("torch")
    from placewright.importers.torch.biases import is_of_positions
    from placewright.importers.torch.export import export_inference

    class Biased(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(8, 4)

        def forward(self, x: Any) -> Any:
            places = torch.arange(8)
            return places * torch.full([], 0.5), self.table(places) * 2, x * places

    program = export_inference(Biased(), (torch.zeros(8),))
    made = program.graph.output_node().args[0]
    assert [is_of_positions(each) for each in made] == [True, False, False]
