"""Weights that several ops share: one copy each in a pipeline that infers, else on one device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import placewright as pw
from placewright.cluster import Cluster, Device, Link
from placewright.costs.catalog import complete
from placewright.formats.graphs import read_graph
from placewright.graph import Graph, GraphBuilder
from placewright.problem import Problem

GPT2 = "zoo:gpt2?layers=4"
TABLE = 2 * 50257 * 768  # bytes of the embedding, fp16


def problem(source: str | Graph, cluster: str | Cluster = "8xA100", **options: object) -> Problem:
    from placewright.planning import make_problem

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
        {"objective": "invocation-latency"},
        {"objective": "throughput", "training": True},
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


def test_a_request_of_both_phases_keeps_shared_weights_together() -> None:
    served = pw.plan_request(
        GPT2, "2x3090", "prompt=8,output=8", objective="throughput", planner="single-device"
    )
    whole = problem("zoo:gpt2?layers=4&phase=decode&context=16").op_memory.sum()
    assert served.plan.problem.op_memory.sum() == whole


def test_the_weights_of_a_torch_model_are_shared_so() -> None:
    torch = pytest.importorskip("torch")
    from placewright.importers.torch.export import graph_from_module

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(50, 8)
            self.middle = torch.nn.Linear(8, 8)
            self.head = torch.nn.Linear(8, 50, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids):
            return self.head(self.middle(self.table(ids)))

    graph = graph_from_module(Tied(), (torch.zeros(1, 4, dtype=torch.long),))
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
