"""Calls of a forward program that autograd has no derivative for, as ones that it has.

A stage that trains replays its forward calls, and autograd goes back over them.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch.fx import Node

from placewright.runtime.stages.code import Call, Named, Ref
from placewright.runtime.stages.targets import call_of

_COPY = "torch.ops.aten.copy.default"


def differentiable(node: Node) -> Iterator[Call]:
    """The calls that do what that of `node` does."""
    call = call_of(node)
    if call.target != _COPY:
        yield call
        return
    # What an assignment to a part of a tensor becomes: the values of the second tensor, in the
    # shape and type of the first.
    made, expanded = node.meta["val"], f"{call.name}_expanded"
    source = call.args[1]
    yield Call(expanded, "torch.ops.aten.expand.default", (source, list(made.shape)), {})
    dtype = Named(str(made.dtype).removeprefix("torch."))
    yield Call(call.name, "torch.ops.aten._to_copy.default", (Ref(expanded),), {"dtype": dtype})
