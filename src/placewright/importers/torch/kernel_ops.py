"""The ops that stand for kernels, as torch knows them: importing this module defines them.

They compute by the reference of Transformers, wherever a program with them is run; so a process
that runs one has to import this module first, as those of a run do.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from placewright.importers.torch.kernels import HOME, KERNELS, OPS, Arguments, place_of, said

Overwrite = Callable[[Any, Any], None]
"""Told of a state, and of what it is from now on."""


@contextlib.contextmanager
def kernels_of(model: torch.nn.Module, overwrite: Overwrite) -> Iterator[None]:
    """Calls of references in the modules of `model` as ops; `overwrite` hears of new states."""
    names = {type(child).__module__ for child in model.modules()}
    homes = [sys.modules[name] for name in sorted(names) if name.startswith(HOME)]
    before = [
        (home, name, getattr(home, name))
        for home in homes
        for name in KERNELS
        if name in vars(home)
    ]
    try:
        for home, name, reference in before:
            setattr(home, name, _call(f"{home.__name__}:{name}", reference, overwrite))
        yield
    finally:
        for home, name, reference in before:
            setattr(home, name, reference)


def _call(place: str, reference: Any, overwrite: Overwrite) -> Callable[..., Any]:
    """What stands for a reference, which is at `place`: ``module:function``."""
    kernel, parameters = KERNELS[place.rpartition(":")[2]], inspect.signature(reference).parameters

    def call(*args: Any, **kwargs: Any) -> Any:
        named = {key: value for key, value in kwargs.items() if key in parameters}
        bound = inspect.signature(reference).bind(*args, **named)
        bound.apply_defaults()
        variable = inspect.Parameter.VAR_KEYWORD
        given = {k: v for k, v in bound.arguments.items() if parameters[k].kind is not variable}
        if kernel.asked_by and not given[kernel.asked_by]:
            return reference(*args, **kwargs)
        tensors = {key: each for key, each in given.items() if isinstance(each, torch.Tensor)}
        settings = {key: each for key, each in given.items() if key not in tensors}
        text = json.dumps({"of": place, "tensors": list(tensors), "settings": settings})
        op: Any = getattr(torch.ops.placewright, kernel.name)
        result, *state = op(list(tensors.values()), text)
        if kernel.overwrites:
            overwrite(given[kernel.overwrites], state[0])
        return (result, *state) if kernel.asked_by else result

    call.reference = reference  # type: ignore[attr-defined]
    return call


def _compute(inputs: Sequence[Any], call: str) -> list[Any]:
    """The result and the new state."""
    kernel, given = said(inputs, call)
    reference = _reference(call)
    if kernel.overwrites:
        state = given[kernel.overwrites].clone()
        found = [reference(**{**given, kernel.overwrites: state}), state]
    else:
        made = reference(**given)
        found = list(made) if isinstance(made, tuple) else [made]
    found[0] = found[0].to(_like(given).dtype)
    return [each.contiguous() for each in found]


def _shapes(inputs: Sequence[Any], call: str) -> list[Any]:
    """The same without values."""
    kernel, given = said(inputs, call)
    like = _like(given)
    made = [like.new_empty(like.shape)]
    if kernel.state is not None:
        kept = given[kernel.overwrites].dtype if kernel.overwrites else torch.float32
        made.append(like.new_empty(list(kernel.state(given)), dtype=kept))
    return made


def _like(given: Arguments) -> Any:
    """The argument that the result has the shape and the type of."""
    return given["value" if "value" in given else "hidden_states"]


def _reference(call: str) -> Any:
    home, _, name = place_of(call).rpartition(":")
    if not home.startswith(HOME):  # a program may come of a file
        raise ValueError(f"{home} is no module of {HOME.rstrip('.')}")
    found = getattr(importlib.import_module(home), name)
    return getattr(found, "reference", found)  # where a module runs with kernels


for _op in sorted(OPS):
    torch.library.custom_op(
        _op, _compute, mutates_args=(), schema="(Tensor[] inputs, str call) -> Tensor[]"
    ).register_fake(_shapes)
