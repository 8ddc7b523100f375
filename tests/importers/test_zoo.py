"""The zoo's graphs against published counts of ops, parameters and FLOPs."""

from __future__ import annotations

import doctest
import importlib
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.costs.clusters import load_cluster
from placewright.errors import OptionError
from placewright.graph import ITEM_BYTES, Graph, GraphBuilder
from placewright.importers import zoo
from placewright.importers.zoo import blocks
from placewright.importers.zoo.diviml_times import A100, BATCHES, CPU, T4
from placewright.importers.zoo.random_wiring import RandomWiring, random_edges

NAMES = [entry.name for entry in zoo.entries()]
BY_NAME = {entry.name: entry for entry in zoo.entries()}


def ops_in_blocks(graph: Graph) -> int:
    return sum("blocks." in module for module in graph.op_modules)


def reached(graph: Graph, start: int, forward: bool = True) -> set[int]:
    """Ops on a path from (or to) `start`, itself included."""
    producer, consumer = graph.edges if forward else graph.edges[::-1]
    after: dict[int, list[int]] = {}
    for one, other in zip(producer.tolist(), consumer.tolist(), strict=True):
        after.setdefault(one, []).append(other)
    seen, stack = {start}, [start]
    while stack:
        for op in after.get(stack.pop(), []):
            if op not in seen:
                seen.add(op)
                stack.append(op)
    return seen


# -- the table ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_model_builds_with_the_parameters_its_entry_states(name: str) -> None:
    graph = zoo.build(name)
    assert graph.name == name
    assert graph.attributes["parameters"] == BY_NAME[name].parameter_count
    item = ITEM_BYTES[graph.attributes["dtype"]]
    assert graph.op_parameter_bytes.sum() == pytest.approx(item * BY_NAME[name].parameter_count)


def test_the_names_and_descriptions_of_the_entries_are_all_different() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert len({entry.description for entry in zoo.entries()}) == len(NAMES)


def test_an_entry_s_parameters_can_be_written_back_as_a_spec() -> None:
    entry = BY_NAME["gpt3-330m"]
    spec = "&".join(f"{key}={value}" for key, value in entry.parameters.items())
    graph = zoo.build(f"gpt3-330m?{spec}")
    assert graph.op_count == zoo.build("gpt3-330m").op_count


# -- Moirai paper, Table IV --------------------------------------------------------------------

TABLE_IV_OPS = {
    "gpt3-330m": 4872,
    "gpt3-1.3b": 9480,
    "gpt3-2.7b": 12640,
    "gpt3-13b": 19640,
    "swin-1.8b": 6496,
    "swin-6.6b": 14352,
    "swin-13b": 22120,
    "alphafold2-87m": 5136,
    "alphafold2-930m": 12992,
    "alphafold2-2.4b": 37920,
    "alphafold2-3.2b": 50560,
}


@pytest.mark.parametrize(("name", "ops"), TABLE_IV_OPS.items())
def test_blocks_have_as_many_ops_as_table_iv_counts(name: str, ops: int) -> None:
    assert ops_in_blocks(zoo.build(name)) == ops


@pytest.mark.parametrize(
    ("name", "parameters", "tolerance"),
    [
        ("gpt3-330m", 330e6, 0.10),
        ("gpt3-1.3b", 1.3e9, 0.03),
        ("gpt3-2.7b", 2.7e9, 0.03),
        ("gpt3-13b", 13e9, 0.03),
        ("swin-1.8b", 1.8e9, 0.02),
        ("swin-6.6b", 6.6e9, 0.02),
        ("swin-13b", 13e9, 0.02),
        ("alphafold2-87m", 87e6, 0.02),
        ("alphafold2-930m", 930e6, 0.10),
        ("alphafold2-2.4b", 2.4e9, 0.10),
        ("alphafold2-3.2b", 3.2e9, 0.10),
    ],
)
def test_parameters_come_near_the_name_in_table_iv(
    name: str, parameters: float, tolerance: float
) -> None:
    assert BY_NAME[name].parameter_count == pytest.approx(parameters, rel=tolerance)


# -- parameters as published -------------------------------------------------------------------

PARAMETERS = {
    # as counted from the models of the transformers package
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "llama-7b": 6_738_415_616,
    "llama-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "mixtral-8x7b": 46_702_792_704,
    "swin-t": 28_288_354,
    "swin-b": 87_768_224,
    # as torchvision's documentation gives them
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "googlenet": 6_624_904,
}


@pytest.mark.parametrize(("name", "parameters"), PARAMETERS.items())
def test_parameters_are_those_published(name: str, parameters: int) -> None:
    assert BY_NAME[name].parameter_count == parameters


def test_inception_has_its_auxiliary_classifier_only_when_asked() -> None:
    assert BY_NAME["inception-v3"].parameter_count == 23_834_568
    full = zoo.build("inception-v3?auxiliary=true")
    assert full.attributes["parameters"] == 27_161_264


def test_gpt3_has_175_billion_parameters() -> None:
    assert BY_NAME["gpt3-175b"].parameter_count == pytest.approx(175e9, rel=0.005)


def test_granularity_changes_ops_but_neither_parameters_nor_flops() -> None:
    for name in ("gpt2", "bert-base", "llama3-8b?layers=2", "t5-small", "swin-t"):
        join = "&" if "?" in name else "?"
        whole, split = (zoo.build(f"{name}{join}granularity={g}") for g in ("op", "head"))
        assert split.op_count > whole.op_count
        assert split.attributes["parameters"] == whole.attributes["parameters"]
        assert split.op_flops.sum() == pytest.approx(whole.op_flops.sum(), rel=1e-3)


def test_the_evoformer_costs_the_same_in_every_granularity() -> None:
    small = "alphafold2-930m?layers=2&granularity="
    head, op, full = (zoo.build(small + each) for each in ("head", "op", "full"))
    assert head.op_flops.sum() == pytest.approx(op.op_flops.sum(), rel=1e-9)
    assert full.op_flops.sum() == pytest.approx(op.op_flops.sum(), rel=1e-9)
    assert head.attributes["parameters"] == op.attributes["parameters"]
    assert full.attributes["parameters"] == op.attributes["parameters"]
    assert full.op_count > head.op_count > op.op_count


# -- FLOPs as published ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "multiply_adds"),
    [
        # torchvision's documentation, in multiply-adds
        ("resnet50", 4.089e9),
        ("resnet101", 7.801e9),
        ("resnet152", 11.514e9),
        ("googlenet", 1.498e9),
        ("inception-v3", 5.713e9),
        ("swin-t", 4.491e9),
        ("swin-b", 15.431e9),
    ],
)
def test_vision_models_have_the_flops_published(name: str, multiply_adds: float) -> None:
    assert zoo.build(name).op_flops.sum() == pytest.approx(2 * multiply_adds, rel=0.02)


def test_gpt3_computes_twice_its_parameters_per_token_and_its_attention() -> None:
    graph = zoo.build("gpt3-175b")
    tokens, layers, hidden = 2048, 96, 12288
    attention = 4 * tokens**2 * hidden * layers
    expected = 2 * graph.attributes["parameters"] * tokens + attention
    assert graph.op_flops.sum() == pytest.approx(expected, rel=0.003)


def test_flops_and_activations_grow_with_the_batch_and_parameters_do_not() -> None:
    for name in ("gpt2", "resnet50", "swin-t", "alphafold2-87m?layers=1", "rwnn"):
        join = "&" if "?" in name else "?"
        one, four = zoo.build(name), zoo.build(f"{name}{join}batch=4")
        assert four.op_flops.sum() == pytest.approx(4 * one.op_flops.sum())
        assert four.op_parameter_bytes.sum() == one.op_parameter_bytes.sum()
        assert four.tensor_bytes.sum() == pytest.approx(4 * one.tensor_bytes.sum(), rel=0.02)


def test_the_dtype_decides_the_bytes_and_nothing_else() -> None:
    half, full = zoo.build("gpt2?dtype=fp16"), zoo.build("gpt2?dtype=fp32")
    assert set(full.op_dtypes) == {"fp32"}
    assert (full.op_flops == half.op_flops).all()
    assert full.op_bytes_read == pytest.approx(2 * half.op_bytes_read)
    assert full.tensor_bytes == pytest.approx(2 * half.tensor_bytes)


def test_views_cost_nothing_and_all_else_moves_bytes() -> None:
    graph = zoo.build("gpt2")
    views = np.isin(graph.op_types, ["transpose", "slice", "reshape"])
    traffic = graph.op_bytes_read + graph.op_bytes_written
    assert views.any()
    assert not traffic[views].any()
    assert not graph.op_flops[views].any()
    assert (traffic[~views] > 0).all()


# -- structure ---------------------------------------------------------------------------------


def test_the_heads_of_one_layer_run_side_by_side() -> None:
    graph = zoo.build("gpt3-330m?layers=1")
    first = reached(graph, graph.op_index["blocks.0.attention.head.0.q"])
    assert graph.op_index["blocks.0.attention.head.1.context"] not in first
    assert graph.op_index["blocks.0.attention.concat"] in first
    assert graph.op_modules[graph.op_index["blocks.0.attention.head.5.q"]] == (
        "blocks.0.attention.head.5"
    )


def test_grouped_heads_share_keys_and_values() -> None:
    graph = zoo.build("llama-70b?layers=1&granularity=head")
    keys = [name for name in graph.op_names if name.endswith(".k")]
    queries = [name for name in graph.op_names if name.endswith(".q")]
    assert (len(keys), len(queries)) == (8, 64)


def test_tied_embeddings_are_counted_once_and_stay_together() -> None:
    graph = zoo.build("gpt2")
    embedding, head = graph.op_index["embedding.tokens"], graph.op_index["lm_head"]
    assert graph.colocation[embedding] == graph.colocation[head] >= 0
    assert graph.op_parameter_bytes[embedding] == 2 * 50257 * 768
    assert graph.op_parameter_bytes[head] == 0
    assert graph.op_bytes_read[head] > 2 * 50257 * 768


def test_llama_does_not_tie_its_embeddings() -> None:
    graph = zoo.build("llama-7b?layers=1")
    assert (graph.colocation == -1).all()
    assert graph.op_parameter_bytes[graph.op_index["lm_head"]] == 2 * 32000 * 4096


def test_every_t5_layer_reads_the_encoder_and_its_stack_s_position_bias() -> None:
    graph = zoo.build("t5-small")
    encoded = graph.op_index["encoder.final_norm"]
    bias = graph.op_index["encoder.position_bias"]
    tensors = {op: graph.tensor_producer.tolist().index(op) for op in (encoded, bias)}
    assert len(graph.consumers_of(tensors[encoded])) == 6 * 2
    assert len(graph.consumers_of(tensors[bias])) == 6


# -- decoding ----------------------------------------------------------------------------------


@pytest.mark.parametrize("granularity", ["op", "head"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_the_kv_cache_of_llama_7b_takes_half_a_mebibyte_per_token(
    phase: str, granularity: str
) -> None:
    graph = zoo.build(f"llama-7b?phase={phase}&context=1000&batch=3&granularity={granularity}")
    assert graph.op_state_bytes.sum() == 3 * 1000 * 2**19


def test_grouped_queries_shrink_the_kv_cache() -> None:
    graph = zoo.build("llama-70b?phase=decode&context=1000")
    assert graph.op_state_bytes.sum() == 1000 * 80 * 2 * 8 * 128 * 2


def test_a_plain_forward_pass_keeps_no_cache() -> None:
    assert not zoo.build("gpt2").op_state_bytes.any()


def test_a_decoding_step_reads_every_parameter_once_and_computes_for_one_token() -> None:
    graph = zoo.build("llama-7b?phase=decode&context=16")
    matmuls = np.array(graph.op_types) == "matmul"
    held = graph.op_parameter_bytes[matmuls].sum()
    assert graph.op_flops[matmuls].sum() == pytest.approx(held, rel=0.001)  # 2 bytes, 2 FLOPs
    assert graph.op_bytes_read[matmuls].sum() == pytest.approx(held, rel=0.01)


@pytest.mark.parametrize("granularity", ["op", "head"])
def test_a_prompt_is_read_by_kernels_that_skip_what_is_masked(granularity: str) -> None:
    sizes = f"layers=1&context=512&granularity={granularity}"
    prompt, forward = (
        zoo.build(f"llama3-8b?{sizes}&phase={phase}") for phase in ("prefill", "forward")
    )
    pairs, heads, size = 512 * 512, 32, 128

    def of(graph: Graph, name: str) -> list[int]:
        return [op for op, each in enumerate(graph.op_names) if each.endswith(f".{name}")]

    for name in ("scores", "context"):
        assert prompt.op_flops[of(prompt, name)].sum() == 2 * heads * size * pairs * 10 / 16
        assert forward.op_flops[of(forward, name)].sum() == 2 * heads * size * pairs
    for name in ("scores", "scale", "mask", "softmax"):
        assert not prompt.op_bytes_written[of(prompt, name)].any()
        assert forward.op_bytes_written[of(forward, name)].sum() == 2 * heads * pairs


@pytest.mark.parametrize("model", ["gpt2", "llama3-8b"])
def test_a_prompt_makes_the_logits_of_its_last_token(model: str) -> None:
    graph = zoo.build(f"{model}?layers=1&context=512&batch=3&phase=prefill")
    head = graph.op_index["lm_head"]
    width, vocabulary = (768, 50257) if model == "gpt2" else (4096, 128256)
    assert graph.op_flops[head] == 3 * 2 * width * vocabulary


def test_decoding_t5_runs_no_encoder_and_finds_both_caches_full() -> None:
    graph = zoo.build("t5-small?phase=decode&context=100&target=50")
    assert not any(module.startswith("encoder") for module in graph.op_modules)
    assert graph.op_state_bytes.sum() == 6 * 2 * (100 + 50) * 512 * 2
    assert "decoder.blocks.0.cross_attention.k" not in graph.op_index


def test_one_token_of_mixtral_reads_and_computes_two_experts_of_eight() -> None:
    graph = zoo.build("mixtral-8x7b?phase=decode&context=16")
    experts = np.array([".expert." in name for name in graph.op_names])
    matmuls = experts & (np.array(graph.op_types) == "matmul")
    held = graph.op_parameter_bytes[matmuls].sum()
    assert graph.op_bytes_read[matmuls].sum() == pytest.approx(held / 4, rel=0.01)
    assert graph.op_flops[matmuls].sum() == pytest.approx(held / 4, rel=0.001)


def test_many_tokens_of_mixtral_read_all_experts_and_compute_a_quarter() -> None:
    graph = zoo.build("mixtral-8x7b?layers=1&context=2048")
    assert sum(name.endswith(".dispatch") for name in graph.op_names) == 8
    gate = graph.op_index["blocks.0.mlp.expert.7.gate"]
    weights = 4096 * 14336
    assert graph.op_flops[gate] == 2 * (2048 / 4) * weights
    assert graph.op_bytes_read[gate] == pytest.approx(2 * (weights + 512 * 4096))


# -- random wiring -----------------------------------------------------------------------------

wirings = st.builds(
    RandomWiring,
    generator=st.sampled_from(["er", "ws", "ba"]),
    ops=st.integers(6, 20),
    modules=st.integers(1, 4),
    channels=st.integers(1, 4),
    dependency=st.sampled_from(["sdep", "wdep"]),
    seed=st.integers(0, 1000),
    m=st.integers(1, 5),
    k=st.sampled_from([2, 4]),
)


def spec_of(shape: RandomWiring) -> str:
    keys = ("generator", "ops", "modules", "channels", "dependency", "seed", "m", "k")
    return "rwnn?" + "&".join(f"{key}={getattr(shape, key)}" for key in keys)


def crossing_tensors(graph: Graph, module: int) -> list[int]:
    """Tensors produced in `module` and read in the next."""
    before, after = f"modules.{module}", f"modules.{module + 1}"
    return [
        tensor
        for tensor, producer in enumerate(graph.tensor_producer.tolist())
        if graph.op_modules[producer] == before
        and any(graph.op_modules[op] == after for op in graph.consumers_of(tensor))
    ]


@settings(max_examples=40, deadline=None)
@given(wirings)
def test_every_op_lies_on_a_path_from_stem_to_classifier(shape: RandomWiring) -> None:
    graph = zoo.build(spec_of(shape))
    everything = set(range(graph.op_count))
    assert reached(graph, graph.op_index["stem"]) == everything
    assert reached(graph, graph.op_index["head.classifier"], forward=False) == everything


@settings(max_examples=40, deadline=None)
@given(wirings)
def test_modules_are_joined_by_one_tensor_per_channel_with_one_reader(
    shape: RandomWiring,
) -> None:
    graph = zoo.build(spec_of(shape))
    for module in range(shape.modules - 1):
        crossing = crossing_tensors(graph, module)
        assert len(crossing) == shape.channels
        assert all(len(graph.consumers_of(tensor)) == 1 for tensor in crossing)
    units = sum(".unit." in name for name in graph.op_names)
    assert units == shape.ops * shape.modules


@settings(max_examples=20, deadline=None)
@given(wirings)
def test_the_same_seed_gives_the_same_network(shape: RandomWiring) -> None:
    one, other = zoo.build(spec_of(shape)), zoo.build(spec_of(shape))
    assert one.to_document() == other.to_document()


def test_another_seed_gives_another_network() -> None:
    graphs = [zoo.build(f"rwnn?seed={seed}") for seed in (0, 1)]
    assert not np.array_equal(graphs[0].consumers, graphs[1].consumers)


@settings(max_examples=20, deadline=None)
@given(wirings)
def test_under_sdep_one_input_reaches_the_whole_module_and_one_output_ends_it(
    shape: RandomWiring,
) -> None:
    graph = zoo.build(spec_of(replace(shape, dependency="sdep")))
    units = {op for op, name in enumerate(graph.op_names) if name.startswith("modules.0.unit.")}
    assert units <= reached(graph, graph.op_index["modules.0.input.0"])
    assert units <= reached(graph, graph.op_index["modules.0.output.0"], forward=False)


def test_under_wdep_no_input_reaches_the_whole_module() -> None:
    graph = zoo.build("rwnn?modules=1&channels=4&dependency=wdep&seed=3")
    units = {op for op, name in enumerate(graph.op_names) if ".unit." in name}
    for i in range(4):
        assert not units <= reached(graph, graph.op_index[f"modules.0.input.{i}"])


@pytest.mark.parametrize(
    ("generator", "expected", "spread"),
    [("er", 0.2 * 32 * 31 / 2, 0.15), ("ws", 32 * 2, 0.0), ("ba", 5 * 27, 0.0)],
)
def test_random_graphs_have_the_edges_their_model_says(
    generator: str, expected: float, spread: float
) -> None:
    shape = RandomWiring(generator=generator)
    counts = [len(random_edges(shape, random.Random(seed))) for seed in range(50)]
    assert np.mean(counts) == pytest.approx(expected, rel=spread)
    edges = random_edges(shape, random.Random(0))
    assert all(0 <= low < high < 32 for low, high in edges)


def test_rewiring_happens_as_often_as_asked() -> None:
    ring = random_edges(RandomWiring(generator="ws", p=0.0), random.Random(0))
    assert ring == {(min(a, b), max(a, b)) for a in range(32) for b in ((a + 1) % 32, (a + 2) % 32)}
    kept = [
        len(ring & random_edges(RandomWiring(generator="ws"), random.Random(seed))) / len(ring)
        for seed in range(50)
    ]
    assert np.mean(kept) == pytest.approx(0.25, abs=0.06)


def test_opening_the_units_changes_ops_but_not_costs() -> None:
    layer, op = zoo.build("rwnn"), zoo.build("rwnn?granularity=op")
    assert op.op_count > 3 * layer.op_count
    assert op.op_flops.sum() == pytest.approx(layer.op_flops.sum())
    assert op.op_bytes_read.sum() == pytest.approx(layer.op_bytes_read.sum())
    assert op.op_state_bytes.sum() == pytest.approx(layer.op_state_bytes.sum())


# -- random wiring with times --------------------------------------------------------------------

TIMED = "rwnn?times=diviml"


def total(graph: Graph, kind: str) -> float:
    return float(graph.times[kind].sum())


@pytest.mark.parametrize("query", ["", "&ops=10", "&granularity=op", "&modules=1&ops=2&seed=7"])
def test_drawn_times_are_as_much_slower_on_cpu_and_t4_as_in_diviml_table_ii(query: str) -> None:
    graph = zoo.build(TIMED + query)
    assert total(graph, CPU) == pytest.approx(7.10 * total(graph, A100))
    assert total(graph, T4) == pytest.approx(1.26 * total(graph, A100))
    assert min(times.min() for times in graph.times.values()) > 0


@pytest.mark.parametrize(
    ("query", "milliseconds"),
    [  # Table I, best device; with more channels the mean of sdep and wdep
        ("", 211.7),
        ("&channels=2", (234.9 + 225.2) / 2),
        ("&channels=3", (236.5 + 229.9) / 2),
        ("&channels=4", (250.5 + 242.9) / 2),
    ],
)
def test_the_a100_alone_takes_as_long_as_in_diviml_table_i(query: str, milliseconds: float) -> None:
    graphs = [zoo.build(f"{TIMED}&seed={seed}{query}") for seed in range(5)]
    mean = 1e3 * np.mean([total(graph, A100) for graph in graphs])
    assert mean == pytest.approx(milliseconds, rel=0.05)


def test_drawn_times_let_hardly_an_op_gain_by_its_fastest_device() -> None:
    graph = zoo.build(TIMED)
    fastest = np.minimum.reduce([graph.times[kind] for kind in (CPU, T4, A100)])
    assert 0.98 * total(graph, A100) < fastest.sum() < total(graph, A100)


def test_drawn_times_make_convolutions_worst_on_the_cpu_and_averages_nearly_as_good() -> None:
    graph = zoo.build(TIMED + "&granularity=op")
    ratio = graph.times[CPU] / graph.times[A100]
    kinds = np.array(graph.op_types)
    assert ratio[kinds == "conv"].min() > 5
    assert ratio[(kinds == "mean") | (kinds == "relu") | (kinds == "add")].max() < 1.5


def test_the_a100_gets_through_as_many_images_as_in_diviml_table_iv() -> None:
    graphs = [zoo.build(f"{TIMED}&seed={seed}") for seed in range(5)]
    assert np.mean([16 / total(graph, f"{A100}@16") for graph in graphs]) == pytest.approx(
        54, rel=0.03
    )


def test_drawn_times_of_batches_grow_with_the_batch_and_fall_per_input() -> None:
    graph = zoo.build(TIMED)
    for kind in (CPU, T4, A100):
        sizes = np.array([1, *BATCHES])
        times = np.array([graph.times[kind], *(graph.times[f"{kind}@{b}"] for b in BATCHES)])
        assert (np.diff(times, axis=0) > 0).all()
        assert (np.diff(times / sizes[:, None], axis=0) <= 1e-12).all()


def test_a_network_for_batches_takes_the_drawn_times_of_that_batch() -> None:
    one, four = zoo.build(TIMED), zoo.build(TIMED + "&batch=4")
    for kind in (CPU, T4, A100):
        assert four.times[kind] == pytest.approx(one.times[f"{kind}@4"])
        assert four.times[f"{kind}@4"] == pytest.approx(one.times[f"{kind}@16"])


def test_drawn_times_depend_on_the_seed_alone_and_leave_the_wiring_as_it_is() -> None:
    plain, one, again = zoo.build("rwnn"), zoo.build(TIMED), zoo.build(TIMED)
    assert np.array_equal(plain.consumers, one.consumers) and not plain.times
    assert one.to_document() == again.to_document()
    assert not np.allclose(one.times[A100], zoo.build(TIMED + "&seed=1").times[A100][:343])


def test_drawn_times_are_those_of_the_kinds_of_devices_in_cluster_diviml() -> None:
    kinds = {device.kind for device in load_cluster("diviml").devices}
    assert {kind for kind in zoo.build(TIMED).times if "@" not in kind} == kinds


def test_drawn_times_cannot_be_had_for_training() -> None:
    with pytest.raises(OptionError, match="times=diviml are for inference"):
        zoo.build(TIMED, training=True)


# -- training ----------------------------------------------------------------------------------

TRAINED = [
    "gpt2?layers=2",
    "gpt3-330m?layers=1",
    "bert-base?layers=2",
    "t5-small?layers=2",
    "llama3-8b?layers=1",
    "mixtral-8x7b?layers=1",
    "swin-t",
    "resnet50",
    "googlenet",
    "inception-v3?auxiliary=true",
    "alphafold2-87m?layers=1",
    "alphafold2-87m?layers=1&granularity=full",
    "rwnn?channels=2",
    "rwnn?granularity=op&modules=2",
]


@pytest.mark.parametrize("spec", TRAINED)
def test_every_backward_op_has_a_twin_and_every_forward_op_is_one(spec: str) -> None:
    graph = zoo.build(spec, training=True)
    assert (graph.forward_twin[graph.is_backward] >= 0).all()
    twins = set(graph.forward_twin[graph.is_backward].tolist())
    assert twins == set(np.flatnonzero(~graph.is_backward).tolist())


@pytest.mark.parametrize("spec", TRAINED)
def test_training_keeps_the_forward_graph_and_adds_the_loss_after_it(spec: str) -> None:
    forward, joint = zoo.build(spec), zoo.build(spec, training=True)
    n = forward.op_count
    assert joint.op_names[: n + 1] == (*forward.op_names, "loss")
    assert not joint.is_backward[: n + 1].any()
    assert joint.is_backward[n + 1 :].all()
    assert np.array_equal(joint.op_flops[:n], forward.op_flops)
    assert joint.attributes["parameters"] == forward.attributes["parameters"]
    assert joint.op_parameter_bytes.sum() == forward.op_parameter_bytes.sum()


@pytest.mark.parametrize("spec", TRAINED)
def test_each_parameter_has_a_gradient_of_its_size_beside_it(spec: str) -> None:
    graph = zoo.build(spec, training=True)
    for op in np.flatnonzero(graph.op_parameter_bytes):
        gradient = graph.op_index[f"{graph.op_names[op]}.grad_weight"]
        assert graph.forward_twin[gradient] == op
        assert graph.colocation[gradient] == graph.colocation[op] >= 0
        produced = graph.tensor_bytes[graph.tensor_producer == gradient]
        assert produced.tolist() == [graph.op_parameter_bytes[op]]


@pytest.mark.parametrize("spec", TRAINED)
def test_gradients_of_activations_are_as_large_as_the_activations(spec: str) -> None:
    graph = zoo.build(spec, training=True)
    size = dict(zip(graph.tensor_names, graph.tensor_bytes.tolist(), strict=True))
    gradients = [name for name in size if name.endswith(".grad")]
    assert gradients
    assert all(size[name] == size[name.removesuffix(".grad")] for name in gradients)


@pytest.mark.parametrize("spec", ["gpt2", "t5-small", "resnet50", "swin-t", "llama3-8b"])
def test_a_step_of_training_computes_three_times_the_forward_pass(spec: str) -> None:
    forward, joint = zoo.build(spec), zoo.build(spec, training=True)
    assert joint.op_flops.sum() == pytest.approx(3 * forward.op_flops.sum(), rel=0.02)


def small_graph() -> Graph:
    """x → fc → relu → (add of relu and fc): every rule of the backward pass in four ops."""
    w = blocks.Writer("small", "fp32")
    x = w.linear("fc", blocks.model_input(8, 10), 20, bias="none")
    hidden = w.linear("fc2", x, 20, bias="none")
    w.elementwise("sum", "add", (w.elementwise("relu", "relu", (hidden,)), x))
    return w.finish()


def inputs_of(graph: Graph, name: str) -> set[str]:
    op = graph.op_index[name]
    return {
        graph.tensor_names[tensor]
        for tensor in range(graph.tensor_count)
        if op in graph.consumers_of(tensor)
    }


def test_backward_ops_read_the_gradients_and_activations_they_need() -> None:
    graph = zoo.joint_graph(small_graph())
    assert inputs_of(graph, "sum.grad_input") == {"sum.grad"}
    assert inputs_of(graph, "relu.grad_input") == {"relu.grad", "relu"}
    assert inputs_of(graph, "fc2.grad_input") == {"fc2.grad"}
    assert inputs_of(graph, "fc2.grad_weight") == {"fc2.grad", "fc"}
    assert inputs_of(graph, "fc.grad_sum") == {"fc.grad"}  # two gradients of one name
    assert inputs_of(graph, "fc.grad_weight") == {"fc.grad_sum"}
    assert "fc.grad_input" not in graph.op_index  # nobody wants the gradient of the model's input


def test_backward_costs_of_a_linear_layer_are_its_own_twice() -> None:
    graph = zoo.joint_graph(small_graph())
    flops = dict(zip(graph.op_names, graph.op_flops.tolist(), strict=True))
    assert flops["fc2"] == flops["fc2.grad_input"] == flops["fc2.grad_weight"] == 2 * 8 * 20 * 20
    assert flops["sum.grad_input"] == 0
    assert flops["fc.grad_sum"] == 8 * 20
    read = graph.op_bytes_read[graph.op_index["fc2.grad_weight"]]
    assert read == 4 * (8 * 20 + 8 * 20)
    read = graph.op_bytes_read[graph.op_index["fc2.grad_input"]]
    assert read == 4 * (8 * 20 + 20 * 20)


def test_a_product_of_activations_has_a_gradient_for_each() -> None:
    graph = zoo.build("gpt2?layers=1", training=True)
    scores = graph.op_index["blocks.0.attention.scores"]
    backward = graph.op_index["blocks.0.attention.scores.grad_input"]
    assert graph.op_flops[backward] == 2 * graph.op_flops[scores]
    assert (graph.tensor_producer == backward).sum() == 2


def test_a_whole_module_runs_its_forward_again_and_stashes_only_its_inputs() -> None:
    graph = zoo.build("rwnn?modules=1", training=True)
    unit = graph.op_index["modules.0.unit.5"]
    backward = graph.op_index["modules.0.unit.5.grad_input"]
    assert graph.op_flops[backward] == 2 * graph.op_flops[unit]
    assert graph.op_bytes_read[backward] > 2 * graph.op_bytes_read[unit]
    stash = inputs_of(graph, "modules.0.unit.5")
    received = inputs_of(graph, "modules.0.unit.5.grad_input") - stash
    assert len(received) == 1
    assert received.pop().startswith("modules.0.unit.5.grad")


def test_tied_embeddings_add_their_gradients_before_the_step() -> None:
    graph = zoo.build("gpt2?layers=1&optimizer=adam", training=True)
    group = graph.colocation[graph.op_index["lm_head"]]
    together = {graph.op_names[op] for op in np.flatnonzero(graph.colocation == group)}
    assert together == {
        "embedding.tokens", "lm_head", "lm_head.grad_input", "lm_head.grad_weight",
        "embedding.tokens.grad_weight", "embedding.tokens.grad_weight_sum",
        "embedding.tokens.step",
    }  # fmt: skip
    assert inputs_of(graph, "embedding.tokens.grad_weight_sum") == {
        "lm_head.grad_weight", "embedding.tokens.grad_weight"
    }  # fmt: skip
    assert "lm_head.step" not in graph.op_index


def test_adam_moves_twelve_bytes_of_state_per_half_precision_parameter() -> None:
    graph = zoo.build("resnet50?optimizer=adam&dtype=fp16", training=True)
    steps = np.array(graph.op_types) == "adam"
    parameters = graph.attributes["parameters"]
    assert graph.op_bytes_read[steps].sum() == (2 * 2 + 12) * parameters
    assert graph.op_bytes_written[steps].sum() == (2 + 12) * parameters
    assert steps.sum() == np.count_nonzero(graph.op_parameter_bytes)
    assert not graph.op_state_bytes[graph.is_backward].any()


def test_no_gradient_is_made_for_what_depends_on_no_parameter() -> None:
    builder = GraphBuilder("constants")
    constant = builder.add_tensor(builder.add_op("constant", "fill", bytes_written=8), 8, "c")
    fc = builder.add_op("fc", "matmul", [constant], flops=10, parameter_bytes=16)
    builder.add_tensor(fc, 8, "y")
    graph = zoo.joint_graph(builder.build())
    assert "fc.grad_weight" in graph.op_index
    assert "fc.grad_input" not in graph.op_index
    assert "constant.grad_input" not in graph.op_index


def test_a_joint_graph_has_no_second_backward_pass() -> None:
    graph = zoo.joint_graph(small_graph())
    with pytest.raises(OptionError, match="already has backward ops"):
        zoo.joint_graph(graph)


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gtp2", "no zoo model 'gtp2'; did you mean 'gpt2'"),
        ("", "no zoo model ''; there are gpt2"),
        ("gpt2?layer=2", "no parameter 'layer'; did you mean 'layers'"),
        ("gpt2?layers", "'layers' is no parameter: write key=value"),
        ("gpt2?layers=", "write key=value"),
        ("gpt2?layers=1&layers=2", "'layers' is given twice"),
        ("gpt2?layers=two", "layers=two: must be a whole number"),
        ("gpt2?layers=0", "layers=0: must be from 1"),
        ("gpt2?phase=decod", "did you mean 'decode'.*one of forward, prefill, decode"),
        ("gpt2?heads=7", r"hidden \(768\) must be a multiple of heads \(7\)"),
        ("gpt2?optimizer=adam", "needs training"),
        ("llama-70b?kv_heads=5", r"heads \(64\) must be a multiple of kv_heads \(5\)"),
        ("mixtral-8x7b?active=9", r"active \(9\) must be at most experts \(8\)"),
        ("swin-t?hidden=97", r"hidden \(97 in stage 0\) must be a multiple of heads \(3"),
        ("inception-v3?image=40", "image is too small"),
        ("inception-v3?auxiliary=maybe", "must be true or false"),
        ("alphafold2-87m?pair=100", "must be a multiple of 32"),
        ("rwnn?p=2", "must be a number from 0 to 1"),
        ("rwnn?p=nan", "must be a number from 0 to 1"),
        ("rwnn?generator=ws&k=3", "must be even"),
        ("rwnn?generator=ba&ops=4", r"m \(5\) must be less than ops \(4\)"),
        ("rwnn?generator=ba&p=0.5", "leave it out for ba"),
        ("rwnn?ops=3&channels=4", r"channels \(4\) must be at most ops \(3\)"),
    ],
)
def test_what_does_not_exist_or_fit_is_refused_in_one_sentence(spec: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        zoo.build(spec)


def test_a_slip_that_would_make_too_many_ops_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MAX_OPS", 1000)
    with pytest.raises(OptionError, match="more than 1,000 ops; ask for fewer layers"):
        zoo.build("gpt2?layers=100000000")


def test_a_run_with_a_cache_cannot_be_trained() -> None:
    with pytest.raises(OptionError, match="phase=decode cannot be trained"):
        zoo.build("gpt2?phase=decode", training=True)


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(OptionError, match="optimizer 'lion' is unknown"):
        zoo.joint_graph(small_graph(), "lion")


@pytest.mark.parametrize("module", ["zoo", "zoo.blocks", "zoo.diviml_times", "zoo.options"])
def test_examples_in_docstrings_hold(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"placewright.importers.{module}"))
    assert found.attempted > 0
    assert found.failed == 0
