"""Biases that attention adds to its scores, of which kernels make some themselves.

ALiBi is linear in how far two tokens are apart, with a slope for each head. vLLM's kernels take the
slopes, llama.cpp's the largest of them: no bias is made, kept or read. A bias that is learned (T5)
is a tensor: llama.cpp writes attention out then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placewright.importers.torch.costs import op_name
from placewright.importers.torch.masks import Masks, is_very_small

if TYPE_CHECKING:
    from torch.fx import Node

    from placewright.importers.pairs import Limit


def is_of_positions(bias: Any) -> bool:
    """Whether a call makes it of places alone: of no input of the program, and of no weight."""
    waiting, seen = [bias], {bias}
    while waiting:
        node = waiting.pop()
        if node.op != "call_function":
            return False
        found = [each for each in node.all_input_nodes if each not in seen]
        waiting += found
        seen.update(found)
    return True


def filled_limits(node: Node, masks: Masks) -> list[Limit] | None:
    """What a call leaves that fills with -inf where a mask says so; None: it is no such call."""
    if node.op != "call_function" or op_name(node.target) != "aten::masked_fill":
        return None
    _, left_out, value = node.args[:3]
    return masks.limits_without(left_out) if is_very_small(value) else None
