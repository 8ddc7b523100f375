"""Memory as llama.cpp takes it: rows of the KV cache, windows, and room for compute buffers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from placewright.costs.clusters import load_cluster
from placewright.costs.roofline import CostOptions, build_problem
from placewright.exporters.llama_cpp.buffers import compute_buffer
from placewright.exporters.llama_cpp.memory import counted
from placewright.importers import load
from placewright.options import Options
from tests.importers.gguf_bytes import llama, write

PER_TOKEN = 2 * 128 * 2  # of a layer: keys and values of 128 numbers, of two bytes
HIDDEN, WIDE = 256, 768


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "dense.gguf"
    write(path, *llama(layers=6))
    return path


def as_counted(source: str):
    graph = load(source).graph
    problem = build_problem(graph, load_cluster("2x3090"), Options(), CostOptions())
    return problem, *counted(problem, graph)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize(("context", "rows"), [(1, 256), (256, 256), (257, 512), (500, 512)])
def test_the_cache_of_a_sequence_has_a_multiple_of_256_rows(path, phase, context, rows):
    problem, found, facts = as_counted(f"{path}?phase={phase}&context={context}&batch=3")
    assert found.op_cache.sum() == 3 * 6 * rows * PER_TOKEN
    weights = problem.op_memory.sum() - problem.op_cache.sum()
    assert found.op_memory.sum() == weights + found.op_cache.sum()
    assert (facts["context"], facts["sequences"]) == (str(context), "3")


@pytest.mark.parametrize(
    ("context", "window", "rows"),
    [(4096, 100, 768), (4096, 1024, 1536), (1024, 1000, 1024), (300, 100, 512)],
)
def test_a_layer_with_a_window_keeps_a_batch_besides(tmp_path, context, window, rows):
    metadata, tensors = llama(layers=6)
    gemma = {key.replace("llama.", "gemma2.", 1): value for key, value in metadata.items()}
    gemma |= {"general.architecture": "gemma2", "gemma2.attention.sliding_window": window}
    path = tmp_path / "windows.gguf"
    write(path, gemma, tensors)
    whole = -(-context // 256) * 256
    _, found, _ = as_counted(f"{path}?phase=decode&context={context}")
    assert found.op_cache.sum() == pytest.approx(3 * (rows + whole) * PER_TOKEN)


TRANSFORMERS = (
    "num_hidden_layers=6&hidden_size=64&intermediate_size=96&num_attention_heads=4"
    "&num_key_value_heads=2&head_dim=128&vocab_size=100&sliding_window=100&dtype=float16"
    "&phase=decode&context=4000"
)


@pytest.mark.parametrize(
    ("model", "rows"),
    [("gemma3_text", 5 * 768 + 4096), ("mistral", 6 * 4096)],  # which llama.cpp runs without
)
def test_windows_of_a_model_of_transformers_are_those_of_its_file(model, rows):
    pytest.importorskip("transformers")
    _, found, _ = as_counted(f"hf:{model}?{TRANSFORMERS}")
    assert found.op_cache.sum() == pytest.approx(rows * 2 * PER_TOKEN)  # of two heads


def test_each_device_has_room_for_the_results_of_a_batch(path):
    problem, found, facts = as_counted(f"{path}?phase=decode&context=500")
    end = 3 * WIDE + 2 * HIDDEN  # gate, up, their product; behind what a layer began with, normed
    handed_on = (2 + 3) * HIDDEN
    buffer = 512 * (4 * (end + handed_on) + 4 * (2 * 512 + 24))  # with masks of two bytes
    assert float(facts["buffer"]) == buffer
    assert (problem.device_memory - found.device_memory == buffer).all()


@pytest.mark.parametrize("query", ["phase=decode&batch=4", "phase=prefill&batch=2&dtype=fp32"])
def test_the_buffer_is_of_a_batch_of_tokens_in_single_precision_whatever_is_planned(path, query):
    one = compute_buffer(load(f"{path}?phase=decode&context=512").graph, 512, 1)
    graph = load(f"{path}?context=512&{query}").graph
    assert compute_buffer(graph, 512, graph.input_samples) == pytest.approx(one)
    small = compute_buffer(load(f"{path}?phase=decode&context=256").graph, 256, 1)
    assert small < one / 2  # no batch is longer than the context


def test_a_pass_that_keeps_nothing_says_no_context(path):
    problem, found, facts = as_counted(str(path))
    assert found is problem and facts == {}


def test_a_graph_of_no_file_has_no_compute_buffer_but_a_cache_in_rows():
    problem, found, facts = as_counted("zoo:llama-7b?layers=2&phase=decode&context=500")
    assert facts["buffer"] == "0"
    np.testing.assert_allclose(found.op_cache, problem.op_cache * 512 / 500)
