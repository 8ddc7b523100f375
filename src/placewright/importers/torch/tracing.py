"""What exporting for inference and for training share: modes, errors of tracing, meta tensors."""

from __future__ import annotations

import contextlib
import copy
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

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
    """The module in train or eval mode, and afterwards as it was, submodule by submodule.

    To train, submodules in eval mode stay so (frozen statistics, no dropout), unless the whole
    module is.
    """
    before = {child: child.training for child in module.modules()}
    if not (training and module.training):
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


@contextlib.contextmanager
def tracing(name: str) -> Iterator[None]:
    """Errors of following the module `name` as a GraphError, without torch's own pages of them.

    Types of torch say that it cannot follow the module. All others come out of the forward.
    """
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stderr(cast("TextIO", _WithoutGraphs(sys.stderr))):
            yield
    except PlacewrightError:
        raise
    except Exception as error:
        said = f"({type(error).__name__}: {reason(error)})"
        if type(error).__module__.startswith("torch."):
            raise GraphError(
                f"{name}: torch.export cannot follow this module {said}; remove what depends on "
                "data from its forward"
            ) from error
        raise GraphError(
            f"{name}: its forward fails {said}; check that it runs with the arguments given, and "
            "remove what needs their values"
        ) from error
    finally:
        logging.disable(disabled)


class _WithoutGraphs:
    """Standard error but for the graph so far, which torch prints when it gives up."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._dropped = False

    def write(self, text: str) -> int:
        ends_dropped = self._dropped and text == "\n"
        self._dropped = "def forward(self" in text
        return len(text) if self._dropped or ends_dropped else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


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
