"""Calls that may write into a weight's own memory: appending to a KV cache without copying it.

An exported program is functional: a buffer that it writes to is copied whole at every write. A
call that makes a buffer's new value may write into the buffer itself where nobody can tell the
difference: the call alone reads the old value, and the new one is no result of the program, nor
is anything that shares its memory. Other ranks may be sent such a tensor, for they are done with
it before the next call of the program.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch.utils._pytree import tree_leaves

from placewright.importers.torch.costs import is_view
from placewright.runtime.stages.code import Call
from placewright.runtime.stages.targets import name_of

if TYPE_CHECKING:
    from torch.fx import Node

    from placewright.importers.torch.programs import Executable

_IN_PLACE = {
    f"torch.ops.aten.{name}.default": f"torch.ops.aten.{name}_.default"
    for name in ("index_copy", "index_put")
}
_SOMETIMES_ITS_INPUT = {"aten::dropout", "aten::feature_dropout", "aten::alpha_dropout"}


def appending(program: Executable) -> dict[str, str]:
    """Call → the weight whose memory it may write into; for any placement."""
    values = program.outputs
    found = {}
    for weight, position in program.updates.items():
        call = values[position]
        if _is_only_reader(program, call, weight):
            others = {each for place, each in enumerate(values) if place != position}
            if others.isdisjoint(_sharing(call)):
                found[call.name] = weight
    return found


def in_place(call: Call) -> Call:
    """The same call, writing into its first input."""
    return replace(call, target=_IN_PLACE[call.target])


def _is_only_reader(program: Executable, call: Node, weight: str) -> bool:
    """Whether a call writes into a copy of a weight that nothing else reads."""
    if call.op != "call_function" or name_of(call.target, call.name) not in _IN_PLACE:
        return False
    old: Any = call.args[0]
    names = [name for name, each in program.weights.items() if each == weight]
    is_alone = list(old.users) == [call] and all(
        each is not old for each in tree_leaves((call.args[1:], call.kwargs))
    )
    return is_alone and names == [old.name]


def _sharing(call: Node) -> set[Node]:
    """The call and all whose values may be in the same memory."""
    found, waiting = {call}, [call]
    while waiting:
        for user in waiting.pop().users:
            if user not in found and _may_share(user):
                found.add(user)
                waiting.append(user)
    return found


def _may_share(node: Node) -> bool:
    """Whether a node's value may be in the memory of an input."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return node.op != "output"
    return (
        is_view(node)
        or schema.name in _SOMETIMES_ITS_INPUT
        or any(each.alias_info is not None for each in schema.returns)
    )
