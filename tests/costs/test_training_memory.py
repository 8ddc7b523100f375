"""What training keeps on a device, against figures worked out by hand."""

from dataclasses import replace

import pytest

from placewright.costs.roofline import CostOptions, op_memory
from placewright.graph import WHOLE_MEMORY
from placewright.importers import load
from placewright.options import Options
from placewright.stash import views
from tests.naive.recompute import model_of


@pytest.mark.parametrize(
    ("dtype", "optimizer", "bytes_per_parameter"),
    [
        ("fp32", "sgd", 8),  # weight and gradient
        ("fp32", "momentum", 12),
        ("fp32", "adam", 16),
        ("fp16", "sgd", 4),
        ("fp16", "adam", 16),  # 2 + 2, and two moments and a copy in fp32 (Rajbhandari 2020, ZeRO)
    ],
)
def test_bytes_per_parameter(dtype, optimizer, bytes_per_parameter):
    graph = load(f"zoo:gpt2?layers=1&dtype={dtype}", training=True).graph
    memory = op_memory(graph, Options(memory="peak"), CostOptions(optimizer))
    parameters = graph.attributes["parameters"]
    assert memory.sum() - graph.op_state_bytes.sum() == bytes_per_parameter * parameters


def test_resident_memory_adds_what_the_backward_pass_reads():
    graph = load("zoo:gpt2?layers=1", training=True).graph
    costs = CostOptions("sgd")
    kept = op_memory(graph, Options(), costs) - op_memory(graph, Options(memory="peak"), costs)
    expected = model_of(graph, views(graph).tolist()).stashed_bytes()
    assert sum(expected.values()) > 0
    assert kept.tolist() == list(expected.values())


def test_bytes_that_are_the_whole_memory_get_nothing_added():
    graph = load("zoo:gpt2?layers=1", training=True).graph
    whole = replace(graph, attributes={WHOLE_MEMORY: True})
    expected = graph.op_parameter_bytes + graph.op_state_bytes
    assert op_memory(whole, Options(), CostOptions()).tolist() == expected.tolist()
