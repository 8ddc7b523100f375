"""What engines run as one kernel: which ops, and what these cost together."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import placewright as pw
from placewright.cluster import Cluster
from placewright.costs.fused_kernels import _Kernels, with_fused_kernels
from placewright.errors import OptionError
from placewright.exporters.planning import plan_for
from placewright.graph import Graph, GraphBuilder, topological_order
from placewright.importers import load
from placewright.planning import make_problem
from placewright.whatif.changes import on_cluster
from placewright.whatif.judging.judge import Given, judge

DECODE = "zoo:llama-7b?layers=2&phase=decode&context=512"
TYPES = ("add", "mul", "rmsnorm", "matmul", "softmax", "scale", "topk", "cache", "aten.view")


def works(graph: Graph) -> np.ndarray:
    return (graph.op_flops > 0) | (graph.op_bytes_read + graph.op_bytes_written > 0)


def traffic(graph: Graph) -> float:
    return float((graph.op_bytes_read + graph.op_bytes_written).sum())


class Net:
    """A graph whose ops read all of their inputs, and each makes one tensor of so many bytes."""

    def __init__(self) -> None:
        self.builder = GraphBuilder("net")
        self.sizes: list[float] = []

    def op(self, kind: str, *inputs: int, size: float = 8.0, outside: float = 0.0, **costs) -> int:
        read = outside + sum(self.sizes[each] for each in inputs)
        if kind == "aten.view":
            size, read = self.sizes[inputs[0]], 0.0
        written = 0.0 if kind == "aten.view" else size
        weights = costs.get("parameter_bytes", 0.0)
        name = f"{kind}{len(self.sizes)}"
        op = self.builder.add_op(
            name, kind, inputs, bytes_read=read + weights, bytes_written=written, **costs
        )
        self.sizes.append(size)
        return self.builder.add_tensor(op, size, name)

    def graph(self) -> Graph:
        return self.builder.build()


def costs(graph: Graph) -> dict[str, tuple[float, float]]:
    """What each op that works reads and writes."""
    return {
        graph.op_names[op]: (float(graph.op_bytes_read[op]), float(graph.op_bytes_written[op]))
        for op in np.flatnonzero(works(graph)).tolist()
    }


def test_a_norm_that_is_written_out_reads_its_input_once_and_writes_its_result():
    net = Net()
    x = net.op("matmul", size=100.0, outside=50.0)
    square = net.op("aten.pow", x, size=100.0)
    mean = net.op("aten.mean", square, size=4.0)
    root = net.op("aten.rsqrt", mean, size=4.0)
    scaled = net.op("aten.mul", x, root, size=100.0)
    normed = net.op("aten.mul", scaled, size=100.0, parameter_bytes=10.0)
    net.op("matmul", normed, size=30.0)
    found = costs(with_fused_kernels(net.graph()))
    assert found == {"matmul0": (50, 100), "aten.mul5": (110, 100), "matmul6": (100, 30)}


def test_a_residual_is_added_in_the_kernel_of_the_norm_behind_it_and_written_too():
    net = Net()
    stream = net.op("embedding", size=100.0, outside=100.0)
    made = net.op("matmul", stream, size=100.0)
    total = net.op("add", stream, made, size=100.0)
    normed = net.op("rmsnorm", total, size=100.0, parameter_bytes=10.0)
    again = net.op("matmul", normed, size=100.0)
    net.op("add", total, again, size=100.0)
    found = costs(with_fused_kernels(net.graph()))
    assert "add2" not in found
    assert found["rmsnorm3"] == (210, 200)
    assert found["add5"] == (200, 100)  # behind a product: another kernel


def test_scores_stay_in_the_kernel_of_attention():
    net = Net()
    query, keys, values = (net.op("matmul", size=10.0, outside=10.0) for _ in range(3))
    scores = net.op("matmul", query, keys, size=1000.0, flops=7.0)
    masked = net.op("mask", net.op("scale", scores, size=1000.0), size=1000.0)
    net.op("matmul", net.op("softmax", masked, size=1000.0), values, size=10.0, flops=5.0)
    graph = with_fused_kernels(net.graph())
    found = costs(graph)
    assert len(found) == 4
    assert found["matmul7"] == (30, 10)
    assert graph.op_flops[7] == 12


@pytest.mark.parametrize("position", ["weights", "read twice", "biased"])
def test_what_is_no_attention_of_a_kernel_is_written_out(position):
    net = Net()
    query, keys = (net.op("matmul", size=10.0, outside=10.0) for _ in range(2))
    scores = net.op("matmul", query, keys, size=1000.0)
    if position == "biased":
        scores = net.op("add", scores, net.op("gather", size=1000.0, outside=9.0), size=1000.0)
    chances = net.op("softmax", scores, size=1000.0)
    if position == "read twice":
        net.op("topk", scores, size=1.0)
    weights = {"parameter_bytes": 9.0} if position == "weights" else {}
    net.op("matmul", chances, keys, size=10.0, **weights)
    graph = net.graph()
    if position == "biased":
        assert costs(with_fused_kernels(graph))["matmul2"] == (20, 1000)
    else:
        assert costs(with_fused_kernels(graph)) == costs(graph)


def test_a_bias_is_part_of_its_product_which_has_the_weights():
    net = Net()
    made = net.op("matmul", size=10.0, outside=5.0, parameter_bytes=400.0)
    biased = net.op("add", made, size=10.0, parameter_bytes=10.0)
    net.op("gelu", biased, size=10.0)
    found = costs(with_fused_kernels(net.graph()))
    assert found == {"matmul0": (415, 10), "gelu2": (10, 10)}


def test_tokens_are_routed_to_experts_and_back_by_a_kernel_each():
    net = Net()
    normed = net.op("rmsnorm", size=64.0, outside=64.0)
    scores = net.op("matmul", normed, size=8.0, parameter_bytes=100.0)
    chosen = net.op("topk", net.op("softmax", scores, size=8.0), size=4.0)
    order = net.op("aten.sort", chosen, size=4.0)
    bounds = net.op("aten.cumsum", net.op("aten.histc", order, size=8.0), size=8.0)
    tokens = net.op("aten.index", normed, order, size=128.0)
    made = net.op("grouped_mm", tokens, bounds, size=128.0, parameter_bytes=1000.0)
    back = net.op("aten.index", net.op("aten.mul", made, chosen, size=128.0), order, size=128.0)
    net.op("aten.sum", back, size=64.0)
    table = net.op("aten.index", size=4.0, parameter_bytes=500.0)
    net.op("aten.add", table, size=4.0)
    found = costs(with_fused_kernels(net.graph()))
    assert len(found) == 7
    assert found["aten.index7"] == (64 + 8, 4 + 4 + 8 + 128)  # chosen, order and bounds are read
    assert found["aten.sum11"] == (128 + 4 + 4, 64)
    assert found["aten.index12"] == (500, 4)  # a lookup is a kernel of its own


def test_a_cache_is_appended_to_by_a_kernel_of_its_own():
    net = Net()
    key = net.op("rope", size=10.0, outside=10.0)
    net.op("concat", net.op("concat", key, size=90.0, state_bytes=90.0), size=90.0)
    assert len(costs(with_fused_kernels(net.graph()))) == 3


@st.composite
def nets(draw) -> Graph:
    net = Net()
    made = [net.op("matmul", size=4.0, outside=3.0)]
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(TYPES))
        some = st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True)
        inputs = draw(some)[: 1 if kind == "aten.view" else 3]
        size = float(draw(st.integers(1, 50)))
        costs = {"state_bytes": 5.0} if kind == "cache" else {}
        flops = float(draw(st.integers(1, 9))) if kind != "aten.view" else 0.0
        made.append(net.op(kind, *inputs, size=size, flops=flops, **costs))
    return net.graph()


@given(nets())
def test_no_kernel_waits_for_itself_and_each_is_connected(graph):
    kernel = np.arange(graph.op_count)
    for ops in _Kernels(graph).found():
        kernel[ops] = min(ops)
    producer, consumer = (kernel[end] for end in graph.edges)
    between = producer != consumer
    # raises where there is a circle
    topological_order(graph.op_count, producer[between], consumer[between], names=graph.op_names)


@given(nets())
def test_a_kernel_reads_and_writes_what_passes_its_border(graph):
    """As counted by hand: views aside, for their readers read what they look at."""
    fused = with_fused_kernels(graph)
    looks_at = list(range(graph.tensor_count))
    for tensor in range(graph.tensor_count):
        if graph.op_types[graph.tensor_producer[tensor]] == "aten.view":
            looks_at[tensor] = looks_at[_inputs(graph, int(graph.tensor_producer[tensor]))[0]]
    for ops in _Kernels(graph).found():
        read = {
            looks_at[each]
            for op in ops
            for each in _inputs(graph, op)
            if graph.tensor_producer[looks_at[each]] not in ops
        }
        leaves = [op for op in ops if _leaves(graph, op, ops, looks_at)]
        at = [op for op in ops if works(fused)[op]]
        assert len(at) == 1
        assert fused.op_flops[at[0]] == sum(graph.op_flops[ops])
        assert fused.op_bytes_read[at[0]] == sum(graph.tensor_bytes[each] for each in read)
        assert fused.op_bytes_written[at[0]] == sum(graph.op_bytes_written[op] for op in leaves)
    assert fused.op_flops.sum() == graph.op_flops.sum()
    assert traffic(fused) <= traffic(graph)


def _inputs(graph: Graph, op: int) -> list[int]:
    return graph.edge_tensor[graph.consumers == op].tolist()


def _leaves(graph: Graph, op: int, ops: list[int], looks_at: list[int]) -> bool:
    """Whether what it makes is read outside, views of it looked through, or by nobody."""
    readers = [
        each
        for each in range(graph.op_count)
        if graph.op_types[each] != "aten.view"
        and any(graph.tensor_producer[looks_at[t]] == op for t in _inputs(graph, each))
    ]
    return not readers or any(each not in ops for each in readers)


# -- who is counted so ---------------------------------------------------------------------------


def test_phases_are_counted_as_engines_run_them_and_other_programs_call_by_call():
    graph = load(DECODE).graph
    fused = with_fused_kernels(graph)
    assert works(fused).sum() < works(graph).sum() - 10

    def busy(source, **kinds):
        problem, _ = make_problem(source, "2x3090", costs=pw.CostOptions(profiles=None, **kinds))
        return int((problem.op_time > 0).any(axis=1).sum())

    assert busy(DECODE) == busy(DECODE, kernels="fused") == works(fused).sum()
    assert busy(DECODE, kernels="program") == works(graph).sum()
    forward = "zoo:llama-7b?layers=2&context=64"
    assert busy(forward) == busy(forward, kernels="program") > busy(forward, kernels="fused")


def test_a_llama_costs_the_same_from_the_zoo_and_from_transformers():
    pytest.importorskip("transformers")
    zoo = with_fused_kernels(load(DECODE).graph)
    # the same shape: Llama 2 7B
    hf = with_fused_kernels(
        load("hf:llama?num_hidden_layers=2&phase=decode&context=512&dtype=float16").graph
    )
    own = ["blocks.1.", "model.layers.1."]
    counts = [
        sum(
            works(graph)[op]
            for op, path in enumerate(graph.op_modules)
            if f"{path}.".startswith(of)
        )
        for graph, of in zip((zoo, hf), own, strict=True)
    ]
    assert counts[0] == counts[1]
    assert traffic(hf) == pytest.approx(traffic(zoo), rel=0.002)


def test_training_is_not_run_by_such_engines():
    costs = pw.CostOptions(kernels="fused")
    with pytest.raises(OptionError, match="kernels fused is for inference"):
        make_problem("zoo:gpt2?layers=1", "2x3090", training=True, costs=costs)
    with pytest.raises(OptionError, match="kernels is 'some'; choose auto, program, fused"):
        pw.CostOptions(kernels="some")  # type: ignore[arg-type]


def test_an_engine_is_counted_with_the_kernels_it_has():
    def value(engine, **kinds):
        costs = pw.CostOptions(profiles=None, **kinds)
        found = plan_for(
            DECODE, "a100+2xt4+cpu", engine, objective="latency", costs=costs, free_seconds=0
        )
        return found.plan.value

    for engine, kernels in (("vllm", "fused"), ("llama-cpp", "fused"), ("transformers", "program")):
        assert value(engine) == value(engine, kernels=kernels)
    assert value("vllm") < value("vllm", kernels="program")
    assert value("transformers") > value("transformers", kernels="fused")


def test_a_split_of_hand_is_valued_as_the_plan_for_its_engine():
    costs = pw.CostOptions(profiles=None)
    source = "zoo:gpt2?layers=4&context=64"  # no phase, and yet vLLM runs it
    plan = plan_for(source, "2x3090", "vllm", costs=costs, free_seconds=0).plan
    layers = np.bincount(
        plan.placement.device[
            [plan.problem.op_names.index(f"blocks.{i}.mlp.gelu") for i in range(4)]
        ]
    )
    partition = ",".join(map(str, layers[layers > 0]))
    given = Given(layer_partition=partition)
    found = judge(source, "2x3090", given, costs=costs, options={"objective": "throughput"})
    assert found.plan.value == pytest.approx(plan.value)


@pytest.mark.parametrize("kernels", ["program", "fused"])
def test_a_plan_that_moves_to_another_cluster_keeps_its_kernels(kernels):
    costs = pw.CostOptions(profiles=None, kernels=kernels)
    plan = pw.plan(DECODE, "2x3090", planner="heft", costs=costs)
    moved = on_cluster(plan, "4090+3060")
    expected, _ = make_problem(DECODE, "4090+3060", costs=costs)
    assert np.array_equal(moved.op_time, expected.op_time)


def test_batches_read_the_rows_of_a_table_and_no_op_without_work_is_launched():
    graph = load("zoo:gpt2?layers=1&phase=decode&context=64").graph
    cluster = pw.load_cluster("2x3090")
    problem, _ = make_problem(
        replace(graph, name="gpt"), cluster, {"objective": "batch-throughput", "batch": 8}
    )
    idle = (problem.op_time == 0).all(axis=1)
    assert idle.any()
    assert (problem.batch_time[idle] == 0).all()
    tokens = graph.op_names.index("embedding.tokens")
    table = graph.op_parameter_bytes[tokens] / 936e9
    assert problem.batch_time[tokens, 0, -1] < table / 2
    assert isinstance(cluster, Cluster)
