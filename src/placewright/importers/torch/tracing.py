"""What exporting for inference and for training share: modes, errors of tracing, meta tensors."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placewright.errors import GraphError, MissingExtraError, PlacewrightError, reason

if TYPE_CHECKING:
    import torch

Arguments = tuple["torch.nn.Module", tuple[Any, ...], dict[str, Any]]


def import_torch(purpose: str) -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError("torch", purpose) from None


@contextlib.contextmanager
def mode_of(module: torch.nn.Module, *, training: bool) -> Iterator[None]:
    """The module in train or eval mode, and afterwards as it was, submodule by submodule."""
    before = {child: child.training for child in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for child, was in before.items():
            child.training = was


@contextlib.contextmanager
def explained(kind: type[PlacewrightError], fault: str, advice: str) -> Iterator[None]:
    """Whatever torch raises, which comes as many types, as one error of ours."""
    try:
        yield
    except PlacewrightError:
        raise
    except Exception as error:
        found = f"{type(error).__name__}: {reason(error)}"
        raise kind(f"{fault} ({found}); {advice}") from error


def tracing(name: str) -> contextlib.AbstractContextManager[None]:
    return explained(
        GraphError,
        f"{name}: torch.export cannot follow this module",
        "remove what depends on data from its forward",
    )


def without_meta(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Arguments:
    """The same, or where there is a meta tensor, a copy on the CPU without memory.

    On meta, constants would be baked with `device="meta"` and autograd would see no gradients.
    Fake tensors are kept by identity, so tied weights stay tied.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_leaves, tree_map

    attributes = [each for child in module.modules() for each in vars(child).values()]
    tensors = [*module.parameters(), *module.buffers(), *attributes]
    found = [each for each in tensors if isinstance(each, torch.Tensor)]
    leaves = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    if not any(each.is_meta for each in [*found, *leaves]):
        return module, tuple(args), dict(kwargs)
    mode = FakeTensorMode()

    def fake(tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor):
            return tensor
        with mode:
            value = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(value, requires_grad=tensor.requires_grad)
        return value.requires_grad_(tensor.requires_grad)

    memo: dict[int, Any] = {}
    for tensor in found:
        if id(tensor) not in memo:
            memo[id(tensor)] = fake(tensor)
    return (
        copy.deepcopy(module, memo),
        tuple(tree_map(fake, tuple(args))),
        tree_map(fake, dict(kwargs)),
    )


def framework() -> str:
    """What runs a program here, as graphs and measured times name it: with CUDA's version if any.

    A wheel says that in its own version (``2.13.0+cu130``), other builds do not.
    """
    import torch

    cuda = torch.version.cuda
    said = cuda is None or "+cu" in torch.__version__
    return f"torch {torch.__version__}" + ("" if said else f" CUDA {cuda}")


def input_shape(value: Any) -> list[int]:
    return [int(size) for size in value.shape]


def facts(parameters: int, inputs: Mapping[str, list[int]]) -> dict[str, Any]:
    """The graph's attributes: for people to read."""
    first = next((shape for shape in inputs.values() if shape), None)
    return {
        "framework": framework(),
        "parameters": parameters,
        "inputs": dict(inputs),
        **({"batch": first[0]} if first else {}),
    }
