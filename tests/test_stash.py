"""What training stashes, against what autograd saves when the same module is run.

The independent figure is torch's own: `saved_tensors_hooks` sees every tensor that a backward
function keeps, and storages are counted once each, without those of weights and inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from placewright.graph import GraphBuilder
from placewright.importers.zoo.backward import joint_graph
from placewright.stash import memory_behind, stashed_bytes, views

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from placewright.coarsen.recompute import recomputing  # noqa: E402
from placewright.importers.torch import training as torch_training  # noqa: E402
from placewright.planning import make_problem  # noqa: E402
from tests.importers.tiny_models import NO_DROPOUT, make  # noqa: E402


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(32)
        self.up, self.down = torch.nn.Linear(32, 128), torch.nn.Linear(128, 32)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Residual(torch.nn.Module):
    """A stem, three residual blocks, which may be recomputed, and a head with a loss."""

    def __init__(self, *, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.stem, self.head = torch.nn.Linear(16, 32), torch.nn.Linear(32, 8)
        self.layers = torch.nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: Any, target: Any) -> Any:
        from torch.utils.checkpoint import checkpoint

        x = self.stem(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True) if self.recompute else layer(x)
        return torch.nn.functional.mse_loss(self.head(x), target)


EXAMPLE = {"x": torch.ones(64, 16), "target": torch.ones(64, 8)}


def saved_bytes(module: Any, kwargs: dict[str, Any]) -> int:
    """Bytes that autograd keeps between a forward and a backward pass, besides weights."""
    outer = (*module.parameters(), *module.buffers(), *kwargs.values())
    given = {each.untyped_storage().data_ptr() for each in outer if torch.is_tensor(each)}
    saved: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in given:
            saved[storage.data_ptr()] = storage
        return tensor

    module.train()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = module(**kwargs)
    assert loss is not None
    return sum(storage.nbytes() for storage in saved.values())


@contextmanager
def calls_of(name: str) -> Iterator[list[int]]:
    """How often an ATen operator is called meanwhile, as the one number of a list."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found = [0]

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None):
            found[0] += call.overloadpacket.__name__ == name
            return call(*args, **(kwargs or {}))

    with Counting():
        yield found


def graph_of(module: Any, kwargs: dict[str, Any]) -> Any:
    program = torch_training.export_training(module, (), kwargs)
    return torch_training.graph_from_training(program, "model")


def test_a_stack_of_blocks_stashes_what_autograd_saves() -> None:
    module = Residual(recompute=False)
    graph = graph_of(module, EXAMPLE)
    assert stashed_bytes(graph, views(graph)).sum() == saved_bytes(module, EXAMPLE)


def test_recomputed_blocks_stash_what_autograd_saves_with_checkpoints() -> None:
    graph = graph_of(Residual(recompute=False), EXAMPLE)
    problem, _ = make_problem(graph, "2x3090", {"objective": "throughput"})
    made = recomputing(problem, views(graph))
    assert made.op_stash.sum() == saved_bytes(Residual(recompute=True), EXAMPLE)


def test_as_many_ops_run_again_as_torch_runs_again() -> None:
    module = Residual(recompute=True)
    with calls_of("addmm") as calls:
        module(**EXAMPLE).backward()
    graph = graph_of(Residual(recompute=False), EXAMPLE)
    made = recomputing(make_problem(graph, "2x3090")[0], views(graph))
    assert made.op_types.count("aten.addmm") == calls[0] == 2 * 6 + 2


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "vit", "resnet", "mixtral"])
def test_models_stash_about_what_autograd_saves(name: str) -> None:
    """An export takes apart what eager kernels keep whole, masks and dropout above all."""
    module, kwargs = make(name, training=True, **(NO_DROPOUT if name == "gpt2" else {}))
    graph = graph_of(module, kwargs)
    stashed = stashed_bytes(graph, views(graph)).sum()
    assert stashed == pytest.approx(saved_bytes(module, kwargs), rel=0.15)


def test_a_weight_that_is_sent_to_its_copies_is_not_stashed() -> None:
    """The head of GPT-2 reads a view of its copy of the embedding's weight."""
    graph = graph_of(*make("gpt2", training=True, **NO_DROPOUT))
    copying = graph.with_copies()
    assert copying.tensor_count > graph.tensor_count
    both = [stashed_bytes(each, views(each)).tolist() for each in (graph, copying)]
    assert both[0] == both[1]


def test_a_view_is_in_the_memory_of_what_it_is_a_view_of() -> None:
    builder = GraphBuilder("views")
    weight = builder.add_op("weight", "transpose", parameter_bytes=8.0)
    turned = builder.add_tensor(weight, 8.0)
    product = builder.add_op("product", "matmul", [turned], flops=1.0)
    made = builder.add_tensor(product, 16.0)
    tensors = [made]
    for name in ("one", "other"):
        view = builder.add_op(name, "reshape", tensors[-1:])
        tensors.append(builder.add_tensor(view, 4.0))
    joined = builder.add_op("joined", "concat", tensors[1:])
    tensors.append(builder.add_tensor(joined, 8.0))
    graph = builder.build()
    assert views(graph).tolist() == [True, False, True, True, True]
    assert memory_behind(graph, views(graph)).tolist() == [-1, made, made, made, tensors[-1]]


def test_views_of_one_tensor_are_stashed_once() -> None:
    builder = GraphBuilder("once")
    stem = builder.add_op("stem", "matmul", flops=1.0, parameter_bytes=8.0)
    made = builder.add_tensor(stem, 100.0)
    views_of = [builder.add_op(f"view{k}", "reshape", [made]) for k in range(2)]
    read = [builder.add_tensor(view, 50.0) for view in views_of]
    builder.add_tensor(builder.add_op("product", "matmul", read, flops=1.0), 8.0)
    graph = joint_graph(builder.build())
    stashed = stashed_bytes(graph, views(graph))
    assert stashed[graph.op_index["stem"]] == 100.0
    assert stashed[[graph.op_index["view0"], graph.op_index["view1"]]].tolist() == [0.0, 0.0]


def test_times_that_come_with_a_graph_tell_views_too() -> None:
    builder = GraphBuilder("timed")
    builder.add_op("a", "op")
    builder.add_op("b", "op")
    builder.times = {"V100": [0.0, 1.0]}
    assert views(builder.build()).tolist() == [True, False]
