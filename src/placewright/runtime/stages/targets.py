"""Names for the functions an exported program calls, and back; and for torch's constants."""

from __future__ import annotations

import importlib
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.utils.checkpoint
from torch.fx import GraphModule, Node

from placewright.errors import InputError, OptionError
from placewright.runtime.stages.code import Call, Code, Named, Ref, calls

_OPS = "torch.ops."
_MODULES = {"operator": operator, "math": math, "checkpoint": torch.utils.checkpoint}
CHECKPOINT = "checkpoint.checkpoint"
_BUILT_IN = ("aten", "prim", "prims", "higher_order", "quantized_decomposed")


def call_of(node: Node) -> Call:
    """An FX call as data. InputError names what of it cannot be written down."""
    return Call(
        node.name,
        name_of(node.target, node.name),
        tuple(argument(each, node) for each in node.args),
        {key: argument(each, node) for key, each in node.kwargs.items()},
    )


def argument(value: Any, node: Node) -> Any:
    """An argument of `node` as data (see `Call`)."""
    if isinstance(value, Node):
        return _body(value) if value.op == "get_attr" else Ref(value.name)
    if isinstance(value, (list, tuple)):
        made = [argument(each, node) for each in value]
        return tuple(made) if isinstance(value, tuple) else made
    if isinstance(value, Mapping):
        return {key: argument(each, node) for key, each in value.items()}
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return Named(str(value).removeprefix("torch."))
    if value is None or isinstance(value, (bool, int, float, complex, str, torch.device)):
        return value
    raise InputError(
        f"op '{node.name}' has an argument of type {type(value).__name__}, which depends on the "
        "data or cannot leave this process; export the module with static shapes"
    )


def _body(attribute: Node) -> Code:
    """The graph that a higher-order op (a condition, an autocast region) is given to call."""
    holder = attribute.graph.owning_module
    body = getattr(holder, str(attribute.target), None)
    if not isinstance(body, GraphModule):
        raise InputError(
            f"'{attribute.name}' keeps a value inside the program's graph; "
            "export the module again with torch.export"
        )
    nodes = list(body.graph.nodes)
    return Code(
        inputs=tuple(node.name for node in nodes if node.op == "placeholder"),
        steps=tuple(call_of(node) for node in nodes if node.op == "call_function"),
        result=argument(nodes[-1].args[0], nodes[-1]),
    )


def name_of(target: Any, op: str) -> str:
    """Such as ``torch.ops.aten.linear.default`` or ``operator.getitem``."""
    if isinstance(target, torch._ops.OpOverload):
        return f"{_OPS}{target._schema.name.replace('::', '.')}.{target._overloadname}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"{_OPS}higher_order.{target._name}"
    for module, holder in _MODULES.items():
        name = getattr(target, "__name__", "")
        if name and getattr(holder, name, None) is target:
            return f"{module}.{name}"
    raise InputError(f"op '{op}' calls {target!r}, which is no operator of torch")


def function_of(name: str) -> Callable[..., Any]:
    """The function with that name; InputError where no imported module registers it."""
    if name.startswith(_OPS):
        found: Any = torch.ops
        path = name.removeprefix(_OPS).split(".")
    else:
        module, _, function = name.partition(".")
        found, path = _MODULES[module], [function]
    try:
        for part in path:
            found = getattr(found, part)
    except AttributeError:
        raise InputError(
            f"operator '{name.removeprefix(_OPS)}' is not registered in a new process; "
            "define it at the top level of the module that holds the factory"
        ) from None
    return found  # type: ignore[no-any-return]


def draws(target: Any) -> bool:
    """Whether an operator draws at random, as dropout does."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def call_draws(call: Call) -> bool:
    """Whether a call draws at random; not one that drops nothing, as attention may.

    Operators have the share as ``p`` or ``dropout_p``, and some whether they ``train``.
    """
    function = function_of(call.target)
    if not draws(function):
        return False
    arguments = getattr(getattr(function, "_schema", None), "arguments", ())
    given = {each.name: each.default_value for each in arguments}
    given |= dict(zip(given, call.args, strict=False)) | dict(call.kwargs)
    share = given.get("p", given.get("dropout_p"))
    return given.get("train") is not False and share != 0.0


def check_runs_again(call: Call) -> None:
    """OptionError for a call that would draw anew where it runs again."""
    if call_draws(call):
        raise OptionError(
            f"op '{call.name}' draws at random, and would draw anew when it runs again; plan "
            "without --recompute, or set its probability to 0"
        )


def constant_of(named: Named) -> Any:
    return getattr(torch, named.name)


def defining_modules(codes: Iterable[Code]) -> list[str]:
    """Python modules to import so that every operator in `codes` exists.

    Operators defined with `torch.library.custom_op` know their module; for the others there is
    only the factory's own module.
    """
    from torch._library.custom_ops import OPDEFS

    found: dict[str, None] = {}
    for name in {call.target for code in codes for call in calls(code)}:
        if is_custom(name):
            namespace, operation, *_ = name.removeprefix(_OPS).split(".")
            definition = OPDEFS.get(f"{namespace}::{operation}")
            if definition is not None:
                found[definition._init_fn.__module__] = None
    return sorted(found)


def modules_to_import(codes: Sequence[Code], given: Sequence[str]) -> list[str]:
    """For a new process: none, unless there are operators of others than torch.

    Else those that define such operators, and the `given` ones.
    """
    custom = any(is_custom(call.target) for code in codes for call in calls(code))
    return [*defining_modules(codes), *given] if custom else []


def is_custom(name: str) -> bool:
    """Whether `import torch` alone does not define the operator."""
    return name.startswith(_OPS) and not name.removeprefix(_OPS).startswith(
        tuple(f"{each}." for each in _BUILT_IN)
    )


def import_all(modules: Iterable[str]) -> None:
    for each in modules:
        importlib.import_module(each)
