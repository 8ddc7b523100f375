"""Random weights of a module on the meta device, made submodule by submodule.

What a submodule owns is drawn from its name and a seed alone, so every process that makes it makes
the same values, whatever else it makes. It is given memory alone, initialised as its library
does that, and let go of.

Transformers initialises a submodule and then each module around it, which may change it again. So
shallow copies of these are made, around the one that has memory; the rest of them stays on meta,
where initialising does nothing.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from placewright.errors import InputError, PlacewrightError, reason
from placewright.runtime.weights.base import check_names
from placewright.runtime.weights.layout import Layout
from placewright.runtime.weights.matching import is_transformers


class FreshWeights:
    """The parameters and buffers of `module`, which is that of `source` and is left as it is."""

    def __init__(self, module: torch.nn.Module, source: str, seed: int = 0) -> None:
        self._module = module
        self._source = source
        self._seed = seed
        self._tensors = {
            **dict(module.named_parameters(remove_duplicate=False)),
            **dict(module.named_buffers(remove_duplicate=False)),
        }
        self._first: dict[int, str] = {}  # of tied ones
        for name, tensor in self._tensors.items():
            self._first.setdefault(id(tensor), name)

    @property
    def origin(self) -> str:
        return f"initial values of {self._source} (seed {self._seed})"

    def layouts(self, names: Collection[str]) -> dict[str, Layout]:
        check_names(names, self._tensors, self.origin)
        return {name: Layout.of(self._tensors[name]).dense for name in names}

    def load(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """InputError for a submodule that cannot be initialised alone."""
        check_names(names, self._tensors, self.origin)
        wanted: dict[str, list[str]] = {}
        first = {name: self._first[id(self._tensors[name])] for name in names}
        for name in dict.fromkeys(first.values()):
            wanted.setdefault(name.rpartition(".")[0], []).append(name)
        made: dict[str, torch.Tensor] = {}
        for path, own in wanted.items():
            made |= self._made(path, own)
        return {name: made[first[name]] for name in names}

    def _made(self, path: str, names: Collection[str]) -> dict[str, torch.Tensor]:
        """These, which the submodule at `path` owns; what else it owns is made and let go of."""
        modules = _around(self._module, path)
        shells = _shells(modules, path)
        owner = shells[-1]
        own = {name: name.rpartition(".")[2] for name in names}
        tensors = {name: _owned(owner)[attribute] for name, attribute in own.items()}
        left = {tensor.data_ptr() for tensor in tensors.values() if tensor.numel()}
        label = f"'{path or type(self._module).__name__}' ({type(owner).__name__})"
        with torch.no_grad(), _drawing_from(f"{self._seed}:{path}"), _explained(label):
            written = _by_transformers(modules, shells)
            if left - written:
                written |= _by_itself(owner)
        missing = [name for name, each in tensors.items() if each.data_ptr() in left - written]
        if missing:
            raise InputError(
                f"'{missing[0]}' has no initial value: the module {label} does not initialise it "
                "by a reset_parameters() of its own; give --weights FILE"
            )
        return {name: tensor.detach() for name, tensor in tensors.items()}


def _around(module: torch.nn.Module, path: str) -> list[torch.nn.Module]:
    """The module, its child on the way to `path`, and so on."""
    found = [module]
    for part in path.split(".") if path else ():
        found.append(found[-1].get_submodule(part))
    return found


def _shells(modules: list[torch.nn.Module], path: str) -> list[torch.nn.Module]:
    """Shallow copies, each with the next as its child; the last has memory for what it owns."""
    shells = [_shallow(each) for each in modules]
    for parent, part, child in zip(shells, path.split("."), shells[1:], strict=False):
        vars(parent)["_modules"] = vars(parent)["_modules"] | {part: child}
    owner = vars(shells[-1])
    owner["_parameters"] = {
        name: None if each is None else torch.nn.Parameter(_empty(each), each.requires_grad)
        for name, each in owner["_parameters"].items()
    }
    owner["_buffers"] = {
        name: None if each is None else _empty(each) for name, each in owner["_buffers"].items()
    }
    return shells


def _shallow(module: torch.nn.Module) -> torch.nn.Module:
    copy = type(module).__new__(type(module))
    vars(copy).update(vars(module))
    return copy


def _empty(tensor: torch.Tensor) -> torch.Tensor:
    return Layout.of(tensor).dense.empty()


def _owned(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    tensors = {**vars(module)["_parameters"], **vars(module)["_buffers"]}
    return {name: each for name, each in tensors.items() if each is not None}


# -- how libraries initialise ----------------------------------------------------------------


def _by_transformers(modules: list[torch.nn.Module], shells: list[torch.nn.Module]) -> set[int]:
    """Where it wrote: by the innermost Transformers model around each, from the inside out."""
    initialise: Any = None
    steps = []
    for module, shell in zip(modules, shells, strict=True):
        if is_transformers(module):
            initialise = module._init_weights
        if initialise is not None:
            steps.append((initialise, shell))
    written = _Written()
    with written:
        for function, shell in reversed(steps):
            function(shell)
    return written.memory


def _by_itself(owner: torch.nn.Module) -> set[int]:
    """Where its own ``reset_parameters`` wrote, if it has one that takes nothing."""
    written = _Written()
    with written:
        for name in ("reset_parameters", "_reset_parameters"):
            function = getattr(owner, name, None)
            if callable(function) and not inspect.signature(function).parameters:
                function()
                break
    return written.memory


class _Written(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the memory that ops write to; a tensor's version would miss writes through .data."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = dict(zip((each.name for each in func._schema.arguments), args, strict=False))
        given |= kwargs or {}
        for argument in func._schema.arguments:
            value = given.get(argument.name)
            is_written = argument.alias_info is not None and argument.alias_info.is_write
            if is_written and isinstance(value, torch.Tensor) and not value.is_meta:
                self.memory.add(value.untyped_storage().data_ptr())
        return result


@contextmanager
def _drawing_from(text: str) -> Iterator[None]:
    """Random numbers of the CPU from a text; afterwards they go on as before."""
    generator = torch.default_generator
    before = generator.get_state()
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
    generator.manual_seed(number)
    try:
        yield
    finally:
        generator.set_state(before)


@contextmanager
def _explained(label: str) -> Iterator[None]:
    try:
        yield
    except PlacewrightError:
        raise
    except Exception as error:
        raise InputError(
            f"initialising the module {label} alone raised {type(error).__name__}: "
            f"{reason(error)}; give --weights FILE"
        ) from error
