"""Programs for another device: nothing of the one they were exported on is left in them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from placewright.importers.torch.programs import from_module, load_executable  # noqa: E402
from placewright.importers.torch.retarget import call_on, on_device  # noqa: E402
from placewright.importers.torch.signature import signature  # noqa: E402

CUDA = torch.device("cuda", 0)


class Baked(torch.nn.Module):
    """What writes a device into a program: factories and moves."""

    def forward(self, x):
        places = torch.arange(x.shape[-1])
        moved = (x + places).to("cpu", torch.float64)
        grown = torch.cat([moved, torch.zeros(2, 4, dtype=torch.float64, device="cpu")])
        return grown.to(torch.device("cpu")) + torch.full((4,), 2.0), torch.zeros_like(x)


class Mixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layer(x)


class Branching(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + torch.arange(4), lambda x: x - 1.0, (x,))


def like(value):
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=CUDA)


def devices_on_cuda(executable):
    """The devices of all that a program makes for a GPU, with tensors that hold nothing."""
    moved = on_device(executable, CUDA)
    made = []

    class Noted(torch.fx.Interpreter):
        def run_node(self, n):
            value = super().run_node(n)
            if n.op == "call_function" and isinstance(value, torch.Tensor):
                made.append(value.device)
            return value

    with FakeTensorMode():
        inputs = [
            like(node.meta["val"]) for node in moved.module.graph.find_nodes(op="placeholder")
        ]
        Noted(moved.module).run(*inputs)
    return set(made)


@pytest.mark.parametrize("module", [Baked(), Mixed()])
def test_everything_a_program_makes_is_on_the_device_it_is_for(module):
    executable = from_module((module, (torch.randn(2, 4),), {}), "module")
    assert devices_on_cuda(executable) == {CUDA}


@pytest.mark.parametrize("name", ["bert", "t5", "resnet"])
def test_models_of_transformers_are_for_a_gpu_too(name):
    pytest.importorskip("transformers")
    assert devices_on_cuda(load_executable(f"hf:{name}")) == {CUDA}


def test_bodies_of_higher_order_ops_are_moved_and_the_program_itself_is_not():
    meta = torch.device("meta")
    executable = from_module((Branching(), (torch.randn(2, 4),), {}), "module")
    moved = on_device(executable, meta)
    for program, expected in ((executable, torch.device("cpu")), (moved, meta)):
        bodies = list(program.module.children())
        named = [
            node.kwargs["device"]
            for body in bodies
            for node in body.graph.find_nodes(
                op="call_function", target=torch.ops.aten.arange.default
            )
        ]
        assert named == [expected]


def test_names_and_signatures_stay():
    executable = from_module((Baked(), (torch.randn(2, 4),), {}), "module")
    before = [signature(node) for node in executable.calls]
    moved = on_device(executable, torch.device("meta"))
    assert [node.name for node in moved.calls] == [node.name for node in executable.calls]
    assert [signature(node) for node in executable.calls] == before


def test_what_makes_a_tensor_of_nothing_is_told_where():
    _, _, named = call_on(torch.ops.aten.scalar_tensor.default, (0.5,), {}, CUDA)
    assert named == {"device": CUDA}
    _, _, named = call_on(torch.ops.aten.zeros_like.default, (torch.zeros(1),), {}, CUDA)
    assert named == {}


def test_a_view_of_what_lies_otherwise_on_another_device_may_copy():
    target, args, _ = call_on(torch.ops.aten.view.default, (torch.zeros(4, 2).t(), [8]), {}, CUDA)
    assert target(*args).shape == (8,)
