"""Weights that several ops share: one copy each in a pipeline, else on one device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import placewright as pw
from placewright.cluster import Cluster, Device, Link
from placewright.costs.catalog import complete
from placewright.errors import GraphError
from placewright.formats.graphs import read_graph
from placewright.graph import Graph, GraphBuilder
from placewright.plan import Placement
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.simulate import evaluate

GPT2 = "zoo:gpt2?layers=4"
TABLE = 2 * 50257 * 768  # bytes of the embedding, fp16


def problem(source: str | Graph, cluster: str | Cluster = "8xA100", **options: object) -> Problem:
    training = bool(options.pop("training", False))
    made, _ = make_problem(source, cluster, options, training=training)
    return made


def boxes(memory: float) -> Cluster:
    devices = tuple(Device(name, "RTX 3090", memory=memory) for name in ("x", "y"))
    return complete(Cluster("boxes", devices, (Link("x", "y", 1e9),)))


def shared() -> Graph:
    """a and c share a weight of 10 bytes; b and c must be together for a reason of their own."""
    builder = GraphBuilder("shared")
    a = builder.add_op("a", "op", flops=1e12, parameter_bytes=13.0, colocate="all")
    b = builder.add_op("b", "op", [builder.add_tensor(a, 1.0)], flops=1e12, colocate="all")
    builder.add_op("c", "op", [builder.add_tensor(b, 1.0)], flops=1e12, colocate="all")
    builder.say_copies({2: 10.0}, {1: "b and c", 2: "b and c"})
    return builder.build()


def test_a_graph_with_copies_parts_what_only_weights_held_together() -> None:
    graph = shared().with_copies()
    assert graph.op_parameter_bytes.tolist() == [13.0, 0.0, 10.0]
    assert graph.colocation.tolist() == [-1, 0, 0]
    assert not graph.op_copy_bytes.any()


def test_a_graph_file_keeps_what_copies_would_come_to(tmp_path: Path) -> None:
    document = shared().to_document()
    again = read_graph(document)
    assert again.op_copy_bytes.tolist() == [0.0, 0.0, 10.0]
    assert again.copy_colocation.tolist() == [-1, 0, 0]
    plain = read_graph({**document, "ops": {"name": ["a", "b", "c"]}})
    assert plain.copy_colocation.tolist() == plain.colocation.tolist() == [-1, -1, -1]


def test_a_pipeline_that_infers_has_copies_which_count_where_they_are() -> None:
    found = problem(GPT2, objective="throughput")
    head, embedding = (found.op_names.index(name) for name in ("lm_head", "embedding.tokens"))
    assert found.op_unit[head] != found.op_unit[embedding]
    assert found.op_memory[head] == found.op_copied[head] == TABLE
    assert found.op_memory[embedding] == TABLE
    assert found.op_copied.sum() == TABLE


@pytest.mark.parametrize(
    "options",
    [
        {"objective": "latency"},
        {"objective": "invocation-latency", "cluster": "4x3090+cpu"},
        {"objective": "latency", "training": True},
        {"objective": "throughput", "training": True, "contiguous": False},
    ],
)
def test_elsewhere_what_shares_a_weight_is_together_and_counted_once(options: dict) -> None:
    found = problem(GPT2, **options)
    head, embedding = (found.op_names.index(name) for name in ("lm_head", "embedding.tokens"))
    assert found.op_unit[head] == found.op_unit[embedding]
    assert found.op_memory[head] == 0 or options.get("training")
    assert not found.op_copied.size


def test_where_copies_cannot_fit_there_are_none() -> None:
    kept = problem(GPT2, objective="latency").op_memory.sum()
    tight = problem(GPT2, boxes((kept + TABLE / 2) / 2), objective="throughput")
    assert not tight.op_copied.size
    assert tight.op_memory.sum() == kept
    roomy = problem(GPT2, boxes(kept + TABLE), objective="throughput")
    assert roomy.op_memory.sum() == kept + TABLE


def test_eight_devices_are_of_use_to_gpt2_and_the_judge_counts_both_copies(tmp_path: Path) -> None:
    plan = pw.plan(GPT2, "8xA100", objective="throughput", planner="row-cuts")
    alone = pw.plan(GPT2, "8xA100", objective="throughput", planner="single-device")
    assert plan.value < alone.value / 3
    device = plan.device_of()
    assert device["lm_head"] != device["embedding.tokens"]
    report = pw.verify(plan)
    assert report.ok
    assert sum(report.device_memory) == plan.problem.op_memory.sum()
    plan.save(tmp_path / "plan.json")
    again = pw.Plan.load(tmp_path / "plan.json")
    assert np.array_equal(again.problem.op_copied, plan.problem.op_copied)
    assert pw.verify(again).ok


def test_the_bound_of_the_problem_with_copies_is_below_any_plan_of_it() -> None:
    bounds = pw.plan("zoo:gpt2?layers=2", "2x3090", objective="throughput", planner="ideal-dp")
    assert bounds.lower_bound <= bounds.value
    together = replace(bounds.problem, colocation=problem("zoo:gpt2?layers=2").colocation)
    assert pw.solve(together, "ideal-dp").value >= bounds.lower_bound


# -- training ------------------------------------------------------------------------------------


def crossing(found: Problem, device: np.ndarray) -> list[tuple[str, list[str], float]]:
    """Tensors that leave their device: who makes them, who reads them elsewhere, bytes."""
    sent = []
    for tensor, producer in enumerate(found.tensor_producer.tolist()):
        start, end = found.consumer_offsets[tensor : tensor + 2]
        away = [op for op in found.consumers[start:end] if device[op] != device[producer]]
        if away:
            names = [found.op_names[op] for op in away]
            sent.append((found.op_names[producer], names, float(found.tensor_bytes[tensor])))
    return sent


def test_in_training_a_copy_is_with_its_own_backward_ops_and_has_gradients_and_state() -> None:
    found = problem(GPT2, objective="throughput", training=True)
    number = {name: op for op, name in enumerate(found.op_names)}
    unit = {name: found.op_unit[op] for name, op in number.items()}
    assert unit["lm_head"] == unit["lm_head.grad_weight"] == unit["lm_head.grad_input"]
    assert unit["embedding.tokens"] == unit["embedding.tokens.grad_weight"]
    assert unit["embedding.tokens"] == unit["embedding.tokens.grad_weight_sum"]
    assert unit["embedding.tokens"] != unit["lm_head"]
    more = found.op_copied[number["lm_head"]]
    assert more == found.op_copied.sum() == TABLE / 2 * (2 + 2 + 12)  # weight, gradient, Adam's
    assert found.op_sync_bytes[number["lm_head"]] == TABLE


def test_copies_in_training_exchange_their_gradients_and_each_device_pays_for_both_ways() -> None:
    """Beside the same placement of a model whose head has weights of its own."""
    source = "zoo:gpt2?layers=2"
    found = problem(source, "2x3090", objective="throughput", training=True)
    forward = found.topological_rank >= np.median(found.topological_rank[~found.is_backward])
    device = np.where(found.is_backward, forward[found.forward_twin], forward).astype(np.int32)
    head, table = (found.op_names.index(each) for each in ("lm_head", "embedding.tokens"))
    device[found.op_unit == found.op_unit[table]] = 0
    device[found.op_unit == found.op_unit[head]] = 1
    exchanged = [each for each in crossing(found, device) if each[2] == TABLE]
    assert exchanged == [
        ("lm_head.grad_weight", ["embedding.tokens.grad_weight_sum"], TABLE),
        ("embedding.tokens", ["lm_head"], TABLE),
    ]
    without = replace(
        found, tensor_bytes=np.where(found.tensor_bytes == TABLE, 0.0, found.tensor_bytes)
    )
    plain, counted = (evaluate(each, Placement(device)) for each in (without, found))
    seconds = TABLE * found.link_seconds_per_byte[0, 1]
    assert (counted.load - plain.load).tolist() == pytest.approx([2 * seconds] * 2)
    assert (counted.outgoing - plain.outgoing).tolist() == pytest.approx(
        np.array([[seconds, 0.0], [0.0, seconds]])
    )
    assert (counted.incoming - plain.incoming).tolist() == pytest.approx(
        np.array([[0.0, seconds], [seconds, 0.0]])
    )


def test_eight_devices_are_of_use_to_training_gpt2() -> None:
    plan = pw.plan(GPT2, "8xA100", objective="throughput", planner="row-cuts", training=True)
    alone = pw.plan(GPT2, "8xA100", objective="throughput", planner="single-device", training=True)
    assert pw.verify(plan).ok
    assert plan.value < alone.value / 2
    device = plan.device_of()
    assert device["lm_head"] != device["embedding.tokens"]


@pytest.mark.parametrize("load", ["sum", "duplex"])
def test_with_copies_in_training_the_best_split_is_that_of_trying_every_one(load: str) -> None:
    source = "zoo:gpt2?layers=2&hidden=64&heads=2&vocabulary=2000&batch=4"
    made, _ = make_problem(
        source,
        fast(),
        {"objective": "throughput", "load": load},
        training=True,
        granularity="block",
    )
    tried, planned = pw.solve(made, "exhaustive"), pw.solve(made, "ideal-dp")
    assert planned.value == pytest.approx(tried.value, rel=1e-9)
    assert planned.lower_bound <= tried.value


def fast() -> Cluster:
    devices = tuple(Device(name, "RTX 3090", memory=24e9) for name in ("x", "y"))
    return complete(Cluster("fast", devices, (Link("x", "y", 1e12),)))


def test_copy_tensors_are_kept_in_files_and_checked() -> None:
    graph = pw.load(GPT2, training=True).graph
    (sent,) = graph.copy_tensors
    assert graph.op_names[sent.producer] == "embedding.tokens"
    assert [graph.op_names[op] for op in sent.consumers] == ["lm_head"] and sent.bytes == TABLE
    document = graph.to_document()
    assert read_graph(document).copy_tensors == (sent,)
    document["copy_tensors"]["producer"] = [10**6]
    with pytest.raises(GraphError, match=r"copy_tensors: .* names op 1000000"):
        read_graph(document)
    document["copy_tensors"]["producer"] = []
    with pytest.raises(GraphError, match="the columns of copy_tensors differ in length"):
        read_graph(document)


def tied_module(torch, trains=False):
    """Its table and its head share a weight; to train it makes a loss."""

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(50, 8)
            self.middle = torch.nn.Linear(8, 8)
            self.head = torch.nn.Linear(8, 50, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids):
            middle = self.middle(self.table(ids))
            return self.head(middle.relu()).square().mean() if trains else self.head(middle)

    return Tied()


def test_a_torch_model_that_trains_tied_weights_has_copies_with_their_backward_ops() -> None:
    torch = pytest.importorskip("torch")
    from placewright.importers.torch.training import export_training, graph_from_training

    program = export_training(
        tied_module(torch, trains=True), (torch.zeros(1, 4, dtype=torch.long),)
    )
    graph = graph_from_training(program, "tied")
    size = 50 * 8 * 4
    (sent,) = graph.copy_tensors
    assert graph.op_modules[sent.producer] == "table" and sent.bytes == size
    assert [graph.op_modules[op] for op in sent.consumers] == ["head"]
    assert graph.op_copy_bytes.sum() == size
    apart = graph.with_copies()
    groups = apart.colocation.tolist()
    unit = {groups[sent.producer]: "table", groups[sent.consumers[0]]: "head"}
    assert len(unit) == 2
    producer, consumer = apart.edges
    ends = [
        (groups[a], groups[b], bool(graph.is_backward[a]))
        for a, b in zip(producer, consumer, strict=True)
    ]
    exchanged = [
        (unit[one], unit[two], backward)
        for one, two, backward in ends
        if one != two and one in unit and two in unit
    ]
    assert exchanged == [("head", "table", True), ("table", "head", False)]


# -- elsewhere -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("objective", "times"), [("latency", 1), ("throughput", 2)])
def test_a_pipeline_of_requests_has_copies_of_shared_weights(objective: str, times: int) -> None:
    served = pw.plan_request(
        GPT2, "2x3090", "prompt=8,output=8", objective=objective, planner="single-device"
    )
    alone, _ = make_problem("zoo:gpt2?layers=4&phase=decode&context=16", "2x3090")
    table = float(alone.op_memory[alone.op_names.index("embedding.tokens")])
    whole = alone.op_memory.sum() + (times - 1) * table
    assert served.plan.problem.op_memory.sum() == pytest.approx(whole)


def test_the_weights_of_a_torch_model_are_shared_so() -> None:
    torch = pytest.importorskip("torch")
    from placewright.importers.torch.export import graph_from_module

    graph = graph_from_module(tied_module(torch), (torch.zeros(1, 4, dtype=torch.long),))
    parted = graph.with_copies()
    assert graph.op_copy_bytes.sum() == 50 * 8 * 4
    assert parted.op_parameter_bytes.sum() == graph.op_parameter_bytes.sum() + 50 * 8 * 4
    readers = [op for op in range(graph.op_count) if graph.colocation[op] >= 0]
    assert {graph.op_modules[op] for op in readers} == {"table", "head"}
    units = {module: set() for module in ("table", "head")}
    for op in readers:
        units[graph.op_modules[op]].add(int(parted.colocation[op]))
    assert units["table"].isdisjoint(units["head"]) or units["table"] == units["head"] == {-1}


def test_the_weights_of_an_onnx_model_are_shared_so(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from placewright.importers.onnx.model import read_onnx

    helper = onnx.helper
    weight = onnx.numpy_helper.from_array(np.zeros((80, 80), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], "one"),
        helper.make_node("MatMul", ["y", "w"], ["z"], "two"),
    ]
    value = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 80]) for name in ("x", "z")
    ]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], [weight])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    found = read_onnx(tmp_path / "m.onnx")
    assert found.colocation.tolist() == [0, 0]
    assert found.with_copies().colocation.tolist() == [-1, -1]
    assert found.with_copies().op_parameter_bytes.tolist() == [80 * 80 * 4] * 2
