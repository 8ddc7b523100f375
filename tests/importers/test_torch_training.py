"""Importing forward and backward of a module as one graph."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from placewright.coarsen.blocks import find_blocks  # noqa: E402
from placewright.costs.roofline import CostOptions, op_memory  # noqa: E402
from placewright.errors import (  # noqa: E402
    ExecutionError,
    GraphError,
    OptionError,
    PlacewrightWarning,
)
from placewright.graph import Graph  # noqa: E402
from placewright.importers.torch import export as torch_export  # noqa: E402
from placewright.importers.torch import sources as torch_sources  # noqa: E402
from placewright.importers.torch import training as torch_training  # noqa: E402
from placewright.options import Options  # noqa: E402
from placewright.planning import make_problem  # noqa: E402
from tests.importers.tiny_models import NO_DROPOUT, make  # noqa: E402

CHANGES: dict[str, dict[str, Any]] = {
    "gpt2": {**NO_DROPOUT, "attn_implementation": "eager"},
    "resnet": {},
    "mixtral": {"attn_implementation": "eager"},
}
MODELS = ["gpt2", "resnet"]


def model(name: str, device: str = "cpu") -> Any:
    return make(name, device, training=True, **CHANGES[name])


@cache
def program_of(name: str) -> torch_training.TrainingProgram:
    module, kwargs = model(name)
    return torch_training.export_training(module, (), kwargs)


@cache
def graph_of(name: str) -> Graph:
    return torch_training.graph_from_training(program_of(name), name)


@pytest.mark.parametrize("name", MODELS)
def test_a_view_of_a_weight_takes_no_bytes_and_is_where_the_weight_is(name: str) -> None:
    graph = graph_of(name)
    nodes = {node.name: node for node in program_of(name).graph_module.graph.nodes}
    views = [
        op
        for op, own in enumerate(graph.op_names)
        if nodes[own].target is torch.ops.aten.t.default and op not in graph.consumers
    ]
    assert views
    for tensor in np.flatnonzero(np.isin(graph.tensor_producer, views)):
        assert graph.tensor_bytes[tensor] == 0.0
        together = {int(graph.colocation[op]) for op in graph.consumers_of(tensor)}
        assert together == {int(graph.colocation[graph.tensor_producer[tensor]])} != {-1}


def named(graph: Graph, names: set[str]) -> list[int]:
    return [graph.op_index[name] for name in names]


@pytest.mark.parametrize("name", MODELS)
def test_the_joint_program_gives_the_eager_loss_and_gradients(name: str) -> None:
    module, kwargs = model(name)
    step = program_of(name).run((), kwargs)
    module.train()
    loss = module(**kwargs).loss
    loss.backward()
    torch.testing.assert_close(step.loss, loss.detach(), rtol=0, atol=1e-6)
    gradients = dict(module.named_parameters(remove_duplicate=False))
    assert len(step.gradients) == len(list(module.parameters()))
    for parameter, gradient in step.gradients.items():
        torch.testing.assert_close(gradient, gradients[parameter].grad, rtol=1e-5, atol=1e-6)


def test_the_joint_program_gives_the_new_values_of_running_statistics() -> None:
    module, kwargs = model("resnet")
    updates = program_of("resnet").run((), kwargs).updates
    module.train()
    module(**kwargs)
    statistics = {key: value for key, value in module.named_buffers() if "running" in key}
    assert statistics
    for key, value in statistics.items():
        torch.testing.assert_close(updates[key], value)


class Frozen(torch.nn.Module):
    """A head that is trained on a body with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x)).sum()


@pytest.mark.parametrize(("frozen", "whole", "drops"), [(0, 0, 1), (1, 0, 0), (0, 1, 1)])
def test_what_is_in_eval_mode_inside_a_module_that_trains_stays_so(
    frozen: int, whole: int, drops: int
) -> None:
    module = Frozen()
    module.body.train(not frozen)
    if whole:
        module.eval()
    graph = torch_export.graph_from_module(module, (torch.ones(3, 4),), training=True)
    assert graph.op_types.count("aten.native_dropout") == drops
    assert module.body.training is not bool(frozen or whole)


@pytest.mark.parametrize("name", MODELS)
def test_flops_are_those_torch_counts_in_an_eager_step(name: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    module, kwargs = model(name)
    module.train()
    with FlopCounterMode(display=False) as counter:
        module(**kwargs).loss.backward()
    assert graph_of(name).op_flops.sum() == counter.get_total_flops() > 0


@pytest.mark.parametrize("name", MODELS)
def test_a_meta_module_gives_the_training_graph_of_the_real_one(name: str) -> None:
    module, kwargs = model(name, device="meta")
    found = torch_export.graph_from_module(module, (), kwargs, training=True, name=name)
    assert found.to_document() == graph_of(name).to_document()


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_counted_once(name: str) -> None:
    module, _ = model(name)
    graph = graph_of(name)
    assert graph.attributes["parameters"] == sum(p.numel() for p in module.parameters())
    weights = 4 * graph.attributes["parameters"]
    buffers = sum(b.numel() * b.element_size() for b in module.buffers())
    assert graph.op_parameter_bytes.sum() == weights
    assert graph.op_state_bytes.sum() == buffers
    assert graph.op_parameter_bytes[graph.is_backward].sum() == 0


@pytest.mark.parametrize("name", MODELS)
def test_every_backward_op_has_a_forward_twin_and_no_forward_op_reads_it(name: str) -> None:
    graph = graph_of(name)
    backward = graph.is_backward
    assert backward.sum() > 30
    assert (graph.forward_twin[backward] >= 0).all()
    assert (graph.forward_twin[~backward] == -1).all()
    producer, consumer = graph.edges
    assert not (backward[producer] & ~backward[consumer]).any()


def test_twins_are_the_ops_whose_derivatives_they_are() -> None:
    graph = graph_of("gpt2")
    twin_types = {
        "aten.tanh_backward": "aten.tanh",
        "aten.native_layer_norm_backward": "aten.native_layer_norm",
        "aten.native_dropout_backward": "aten.native_dropout",
        "aten.embedding_dense_backward": "aten.embedding",
        "aten._log_softmax_backward_data": "aten._log_softmax",
        "aten.nll_loss_backward": "aten.nll_loss_forward",
    }
    seen = set()
    for op in np.flatnonzero(graph.is_backward):
        expected = twin_types.get(graph.op_types[op])
        if expected is not None:
            assert graph.op_types[graph.forward_twin[op]] == expected
            seen.add(expected)
    assert len(seen) >= 5


def test_a_sum_of_gradients_belongs_to_the_op_that_made_the_value() -> None:
    class Branches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        def forward(self, x: Any) -> Any:
            value = torch.exp(self.weight * x)
            return (torch.sin(value) + torch.cos(value)).sum()

    graph = torch_export.graph_from_module(Branches(), (torch.ones(4),), training=True)
    adds = [op for op in np.flatnonzero(graph.is_backward) if graph.op_types[op] == "aten.add"]
    assert [graph.op_types[graph.forward_twin[op]] for op in adds] == ["aten.exp"]


def test_a_sum_that_is_a_weights_gradient_belongs_to_the_weights_first_reader() -> None:
    graph = graph_of("gpt2")  # the tied embedding: its gradient is a sum of two
    last = max(op for op in np.flatnonzero(graph.is_backward) if graph.op_types[op] == "aten.add")
    assert graph.op_names[graph.forward_twin[last]] == "embedding"


def test_weight_gradients_are_where_the_weight_is() -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

        def forward(self, x: Any) -> Any:
            return self.second(torch.tanh(self.first(x))).square().mean()

    graph = torch_export.graph_from_module(Two(), (torch.zeros(3, 4),), training=True)
    products = [op for op in range(graph.op_count) if graph.op_flops[op] > 0]
    groups = {
        path: {graph.colocation[op] for op in products if graph.op_modules[op] == path}
        for path in ("first", "second")
    }
    assert all(len(group) == 1 and -1 not in group for group in groups.values())
    assert groups["first"] != groups["second"]
    tanh = [op for op in range(graph.op_count) if "tanh" in graph.op_types[op]]
    assert len(tanh) == 2 and (graph.colocation[tanh] == -1).all()


def test_layers_of_a_deep_model_stay_free_of_each_other() -> None:
    graph = graph_of("gpt2")
    modules: dict[int, set[str]] = {}
    for op in np.flatnonzero(graph.colocation >= 0):
        modules.setdefault(int(graph.colocation[op]), set()).add(graph.op_modules[op])
    layers = [{name.split(".")[2] for name in group if ".h." in name} for group in modules.values()]
    assert all(len(each) <= 1 for each in layers)
    assert sum(1 for each in layers if each) == 2 * 6


def test_backward_ops_have_the_modules_they_belong_to() -> None:
    graph = graph_of("resnet")
    convolutions = [
        op for op, kind in enumerate(graph.op_types) if kind == "aten.convolution_backward"
    ]
    assert len(convolutions) == 6
    for op in convolutions:
        assert graph.op_modules[op] == graph.op_modules[graph.forward_twin[op]] != ""


def test_an_op_that_was_in_place_has_derivatives_with_twins() -> None:
    graph = graph_of("mixtral")
    assert (graph.forward_twin[graph.is_backward] >= 0).all()
    assert "flops_unknown" not in graph.attributes


def test_a_module_that_returns_its_loss_alone_will_do() -> None:
    class Loss(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x).mean()

    module, x = Loss(4, 2), torch.ones(3, 4)
    step = torch_training.export_training(module, (x,)).run((x,))
    module(x).backward()
    torch.testing.assert_close(step.gradients["weight"], module.weight.grad)


def test_a_module_without_a_loss_is_refused() -> None:
    with pytest.raises(OptionError, match="Linear returns no loss"):
        torch_training.export_training(torch.nn.Linear(4, 2), (torch.zeros(3, 4),))


def test_a_module_with_nothing_to_train_is_refused() -> None:
    class Frozen(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x).mean()

    module = Frozen(4, 2).requires_grad_(False)
    with pytest.raises(GraphError, match="no backward ops; at least one parameter"):
        torch_training.export_training(module, (torch.zeros(3, 4),))


def test_a_program_without_weights_cannot_be_run() -> None:
    module, kwargs = model("gpt2", device="meta")
    program = torch_training.export_training(module, (), kwargs)
    with pytest.raises(ExecutionError, match="has no weights"):
        program.run((), kwargs)


def test_a_transformers_configuration_imports_for_training() -> None:
    graph = torch_sources.from_hf("bert?num_hidden_layers=1&sequence=8", training=True)
    assert graph.is_training and graph.attributes["inputs"]["labels"] == [1, 8]


@pytest.mark.slow
def test_gpt2_xl_imports_for_training_without_weights() -> None:
    graph = torch_sources.from_hf("gpt2?n_embd=1600&n_layer=48&n_head=25", training=True)
    assert graph.attributes["parameters"] == 1_557_611_200
    assert (graph.forward_twin[graph.is_backward] >= 0).all()


class Adapted(torch.nn.Module):
    """A frozen product with a batch norm, and an adapter beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = torch.nn.Linear(8, 8).requires_grad_(False)
        self.norm = torch.nn.BatchNorm1d(8)
        self.adapter = torch.nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.norm(self.frozen(x)) + self.adapter(x)).square().mean()


def test_what_is_not_trained_has_no_gradients() -> None:
    module = Adapted()
    program = torch_training.export_training(module, (torch.ones(4, 8),))
    graph = torch_training.graph_from_training(program, "adapted")
    trained = [each for each in module.parameters() if each.requires_grad]
    frozen = [each for each in module.parameters() if not each.requires_grad]
    assert graph.op_parameter_bytes.sum() == sum(each.nbytes for each in trained)
    used = [*frozen, module.norm.running_mean, module.norm.running_var]
    assert graph.op_state_bytes.sum() >= sum(each.nbytes for each in used)
    costs = CostOptions(optimizer="adam", profiles=None)
    memory = op_memory(graph, Options(memory="peak"), costs).sum()
    assert memory == 4 * graph.op_parameter_bytes.sum() + graph.op_state_bytes.sum()


class Streams(torch.nn.Module):
    """Two values are carried along four layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(8))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for one, two in zip(self.layers[::2], self.layers[1::2], strict=True):
            x, y = x + torch.relu(one(y)), y + torch.tanh(two(x))
        return (x + y).square().mean()


def test_gradients_that_are_added_up_along_two_streams_are_where_the_value_is_made() -> None:
    program = torch_training.export_training(Streams(), (torch.ones(4, 8), torch.ones(4, 8)))
    graph = torch_training.graph_from_training(program, "streams")
    names = graph.op_names
    summed = [
        op
        for op, name in enumerate(names)
        if graph.is_backward[op] and program_node(program, name).meta.get("is_gradient_acc")
    ]
    assert len(summed) > 4
    for op in summed:
        readers = {
            int(graph.forward_twin[each])
            for tensor in np.flatnonzero(graph.tensor_producer == op)
            for each in graph.consumers_of(tensor)
        }
        if readers:
            assert graph.forward_twin[op] == max(readers)


def program_node(program: torch_training.TrainingProgram, name: str) -> Any:
    return next(node for node in program.graph.nodes if node.name == name)


class Cast(torch.nn.Module):
    """Layers under autocast, between an embedding and a head that are not."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(16, 8)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
        self.head = torch.nn.Linear(8, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for layer in self.layers:
                x = x + torch.relu(layer(x))
        return self.head(x.float()).square().mean()


@pytest.mark.parametrize("training", [False, True])
def test_layers_under_autocast_are_known_by_their_weights(training: bool) -> None:
    tokens = torch.ones(4, 2, dtype=torch.long)
    exported = torch_export.export_module(Cast(), (tokens,), {}, training=training)
    graph = torch_export.graph_from_exported(exported, "cast")
    problem, _ = make_problem(graph, "2x3090")
    blocks = find_blocks(problem)
    assert [blocks.names[k] for k in np.flatnonzero(blocks.repeated)] == [
        f"layers.{n}" for n in range(3)
    ]


class Checkpointed(torch.nn.Module):
    """A row of layers, each under `torch.utils.checkpoint` or as it is."""

    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
        self.reentrant = reentrant

    def forward(self, x: Any) -> Any:
        from torch.utils.checkpoint import checkpoint

        x = self.layers[0](x)
        for layer in self.layers[1:]:
            if self.reentrant is None:
                x = layer(x)
            else:
                x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x.sum()


@pytest.mark.parametrize("reentrant", [False, True])
def test_parts_under_checkpoint_are_imported_as_they_are_and_told(reentrant: bool) -> None:
    plain = torch_training.export_training(Checkpointed(None), (torch.ones(2, 8),))
    with pytest.warns(PlacewrightWarning, match=r"Checkpointed: it runs 2 of its parts under"):
        program = torch_training.export_training(Checkpointed(reentrant), (torch.ones(2, 8),))
    calls = [[str(each.target) for each in found.graph.nodes] for found in (plain, program)]
    assert calls[0] == calls[1]


class Stated(torch.autograd.Function):
    """Rounds, and lets gradients through as if it did not."""

    @staticmethod
    def forward(_ctx: Any, x: Any) -> Any:
        return x.round()

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


class Rounded(torch.nn.Module):
    """A layer whose output is rounded by `Stated`, or has its gradient changed by a hook."""

    def __init__(self, hooked: bool) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.hooked = hooked

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        if not self.hooked:
            return Stated.apply(Stated.apply(y)).sum()
        y.register_hook(lambda gradient: 2 * gradient)
        return y.sum()


@pytest.mark.parametrize("hooked, name", [(False, "Stated"), (True, r"Tensor\.register_hook")])
def test_derivatives_that_a_module_states_itself_are_told(hooked: bool, name: str) -> None:
    with pytest.warns(PlacewrightWarning, match=rf"Rounded: it states .* of its own \({name}\), "):
        torch_training.export_training(Rounded(hooked), (torch.ones(2, 8),))


class Recurrent(torch.nn.Module):
    """An LSTM that data goes into as it is: the input needs no gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = torch.nn.LSTM(6, 4, num_layers=2, bidirectional=True)

    def forward(self, x: Any) -> Any:
        made, (_, cells) = self.lstm(x)
        return made.square().mean() + cells.sum()


def test_an_lstm_on_data_is_trained_as_by_autograd_and_its_flops_are_counted() -> None:
    module, data = Recurrent(), torch.randn(3, 2, 6, generator=torch.Generator().manual_seed(1))
    program = torch_training.export_training(module, (data,))
    step = program.run((data,))
    module(data).backward()
    assert step.gradients.keys() == dict(module.named_parameters()).keys()
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(step.gradients[name], parameter.grad)
    graph = torch_training.graph_from_training(program, "recurrent")
    forward = [flops for op, flops in enumerate(graph.op_flops) if not graph.is_backward[op]]
    rows, products = 3 * 2, 4 * 4 * (6 + 4) + 4 * 4 * (8 + 4)  # of each direction of both layers
    assert sum(forward) == 2 * rows * 2 * products


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_an_example_that_asks_for_a_gradient_gets_none(device: str) -> None:
    """Its gradient would be ops that no step needs, and a result that a run does not know."""
    module = Checkpointed(None).to(device)
    programs = [
        torch_training.export_training(
            module, (torch.ones(2, 8, device=device, requires_grad=asks),)
        )
        for asks in (False, True)
    ]
    plain, asking = [[str(each) for each in program.graph.nodes] for program in programs]
    assert plain == asking
