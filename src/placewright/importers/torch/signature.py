"""The signature of a call: what two calls share exactly when they do the same work.

A line of text: the operator, then its arguments, tensors by type and shape. Strides are given
where a tensor is not contiguous, for a transposed matrix takes another time. Values of tensors
and names of anything are left out, so that the layers of a model share their signatures, and so
do models. Measured times are kept by it (see `costs.profiles`).

>>> import torch
>>> from placewright.importers.torch.export import export_inference
>>> program = export_inference(torch.nn.Linear(4, 2), (torch.zeros(3, 4),))
>>> [signature(node) for node in program.graph.nodes if node.op == "call_function"]
['aten.linear.default(float32[3,4], float32[2,4], float32[2])']
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

PLACES = frozenset({"device", "pin_memory", "layout"})
"""Arguments that say where a result goes, which the measured device says already."""


def signature(node: Node) -> str:
    """The signature of a call of an exported program (its ``meta["val"]`` tells the shapes)."""
    arguments = [_text(value, node) for value in node.args]
    arguments += [
        f"{name}={_text(value, node)}"
        for name, value in sorted(node.kwargs.items())
        if name not in PLACES
    ]
    return f"{target_name(node.target)}({', '.join(arguments)})"


def described(value: torch.Tensor) -> str:
    """A tensor as signatures have it, such as ``float32[3,4]``."""
    return _value(value)


def target_name(target: Any) -> str:
    """Such as ``aten.linear.default`` or ``higher_order.cond``; else the function's own name."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return f"{schema.name.replace('::', '.')}.{target._overloadname}"
    name = getattr(target, "_name", None) or getattr(target, "__name__", type(target).__name__)
    return f"higher_order.{name}" if hasattr(target, "_name") else str(name)


def _text(value: Any, node: Node) -> str:
    import torch

    if isinstance(value, torch.fx.Node):
        return _body(value) if value.op == "get_attr" else _value(value.meta.get("val"))
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_text(each, node) for each in value)}]"
    if isinstance(value, Mapping):
        items = (f"{key}: {_text(each, node)}" for key, each in value.items())
        return f"{{{', '.join(items)}}}"
    return _value(value)


def _value(value: Any) -> str:
    """A tensor by type, shape and strides, a list of them, or a plain value."""
    import torch

    if isinstance(value, torch.Tensor):
        shape = [_whole(size) for size in value.shape]
        strides = [_whole(stride) for stride in value.stride()]
        text = f"{_plain(value.dtype)}[{','.join(map(str, shape))}]"
        usual = _contiguous(shape)
        if any(a != b and size != 1 for size, a, b in zip(shape, strides, usual, strict=True)):
            # The stride of a dimension of one is never used.
            told = ("_" if n == 1 else str(s) for n, s in zip(shape, strides, strict=True))
            text += f"/[{','.join(told)}]"
        return text
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(each) for each in value)}]"
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return str(_whole(value))
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return _plain(value)
    return repr(value)


def _plain(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _whole(size: Any) -> Any:
    """A size, for the example inputs where it is symbolic; its formula where nobody knows it."""
    node = getattr(size, "node", None)
    if node is None:
        return size
    return node.hint if node.has_hint() else str(size)


def _contiguous(shape: list[Any]) -> list[Any]:
    """The strides of a dense tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1) if isinstance(size, int) else 1
    return strides[::-1]


def _body(attribute: Node) -> str:
    """What a higher-order op is given to call, by the signatures of its calls."""
    from torch.fx import GraphModule

    body: GraphModule | Any = getattr(attribute.graph.owning_module, str(attribute.target), None)
    if not isinstance(body, GraphModule):
        return _value(attribute.meta.get("val"))
    calls = [signature(node) for node in body.graph.nodes if node.op == "call_function"]
    return f"<{hashlib.sha256(chr(10).join(calls).encode()).hexdigest()[:16]}>"
