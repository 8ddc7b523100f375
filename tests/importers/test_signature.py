"""Signatures: equal exactly where two calls do the same work."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from placewright.graph import Graph  # noqa: E402
from placewright.importers.torch.export import export_inference, graph_from_module  # noqa: E402
from placewright.importers.torch.signature import signature  # noqa: E402
from tests.costs.profiles.models import five_layers, two_layers  # noqa: E402


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def signatures(function, *args):
    program = export_inference(Function(function), args)
    return [signature(node) for node in program.graph.nodes if node.op == "call_function"]


def test_a_signature_names_the_call_its_types_shapes_and_plain_arguments():
    assert signatures(lambda x: torch.softmax(x, 1), torch.zeros(2, 3)) == [
        "aten.softmax.int(float32[2,3], 1)"
    ]
    found = signatures(lambda x: x.to(torch.bfloat16), torch.zeros(4))
    assert found[-1] == "aten._to_copy.default(float32[4], dtype=bfloat16)"


def test_equal_layers_share_their_signatures_and_so_do_models():
    two, five = (graph_from_module(*make()) for make in (two_layers, five_layers))
    assert set(two.op_signatures) == set(five.op_signatures)
    assert len(set(two.op_signatures)) == 4 and five.op_count > two.op_count


def test_values_do_not_count():
    assert signatures(torch.relu, torch.zeros(3)) == signatures(torch.relu, torch.ones(3))


@pytest.mark.parametrize(
    "other", [torch.zeros(3, 2), torch.zeros(2, 3, dtype=torch.float64), torch.zeros(3, 2).t()]
)
def test_type_shape_and_strides_count(other):
    assert signatures(torch.relu, torch.zeros(2, 3)) != signatures(torch.relu, other)


def test_the_stride_of_a_dimension_of_one_does_not_count():
    odd = torch.zeros(8, 4)[:1]
    odd = odd.as_strided((1, 4), (77, 1))
    assert signatures(torch.relu, odd) == signatures(torch.relu, torch.zeros(1, 4))


def test_a_broadcast_dimension_counts():
    wide = torch.zeros(1, 4).expand(3, 4)
    assert signatures(torch.relu, wide) == ["aten.relu.default(float32[3,4]/[0,1])"]


def test_where_a_result_goes_does_not_count():
    def made(x):
        return x + torch.arange(4, device="cpu")

    assert "aten.arange.start_step(0, 4)" in signatures(made, torch.zeros(4)) or (
        "aten.arange.default(4)" in signatures(made, torch.zeros(4))
    )


def test_bodies_of_higher_order_ops_count_by_what_they_do():
    def branch(power):
        def chosen(flag, x):
            return torch.cond(flag, lambda x: x.pow(power), lambda x: x.neg(), (x,))

        return signatures(chosen, torch.tensor(True), torch.zeros(4))

    assert branch(2) == branch(2)
    assert branch(2) != branch(3)


def test_graphs_keep_their_signatures_in_files(tmp_path):
    graph = graph_from_module(*two_layers())
    graph.save(tmp_path / "graph.json")
    assert Graph.load(tmp_path / "graph.json").op_signatures == graph.op_signatures
