"""Which tokens attention may look at, as the calls that make its mask say it.

Transformers makes masks of positions: ``arange`` of queries and of keys, compared with one
another. Here such calls are followed by what they say of the place (i, j) of a mask, without any
data: an integer is linear in the places along its axes, a mask is what several comparisons leave.
Positions that go up by one each are those of one sequence, which it looks for others in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from placewright.importers.pairs import Limit
from placewright.importers.torch.costs import op_name

if TYPE_CHECKING:
    from torch.fx import Node


@dataclass(frozen=True)
class Positions:
    """``offset + steps[0]·i + steps[1]·j + …`` at place (i, j, …)."""

    offset: float
    steps: tuple[float, ...]

    def minus(self, other: Positions) -> Positions:
        axes = max(len(self.steps), len(other.steps))
        one, two = (each._along(axes).steps for each in (self, other))
        steps = tuple(a - b for a, b in zip(one, two, strict=True))
        return Positions(self.offset - other.offset, steps)

    def times(self, factor: float) -> Positions:
        return Positions(factor * self.offset, tuple(factor * step for step in self.steps))

    def _along(self, axes: int) -> Positions:
        return replace(self, steps=(0.0,) * (axes - len(self.steps)) + self.steps)


@dataclass(frozen=True)
class Mask:
    """True, or 0 where False is -inf, where all `limits` are at least 0.

    One that is not `is_whole` leaves out others too.
    """

    limits: tuple[Positions, ...] = ()
    is_whole: bool = True


Found = Positions | Mask | None


class Masks:
    """Reads the calls of a program; each once."""

    def __init__(self) -> None:
        self._found: dict[str, Found] = {}

    def is_whole(self, node: Any) -> bool:
        """Whether the limits of a mask are all that it says."""
        found = self._read(node)
        return isinstance(found, Mask) and found.is_whole

    def limits(self, node: Any) -> list[Limit] | None:
        """Those of a mask ``[…, queries, keys]`` of all samples and heads; None: unknown."""
        found = self._read(node)
        if not isinstance(found, Mask):
            return None
        limits = []
        for each in found.limits:
            *others, query, key = (0.0, 0.0, *each.steps)
            if any(others):
                return None
            limits.append((each.offset, query, key))
        return limits

    def limits_without(self, left_out: Any) -> list[Limit] | None:
        """Those of the mask that a tensor is false for, where it is true for all others."""
        if getattr(left_out, "op", "") != "call_function" or not left_out.all_input_nodes:
            return None
        name, mask = op_name(left_out.target).removeprefix("aten::"), left_out.args[0]
        is_of_numbers = mask.meta["val"].is_floating_point()  # 0 or -inf
        is_negated = (
            (name in ("bitwise_not", "logical_not") and not is_of_numbers)
            or (name == "_to_copy" and is_of_numbers)
            or (name == "lt" and is_of_numbers and (_constant(left_out.args[1]) or 0.0) < 0.0)
        )
        return self.limits(mask) if is_negated else None

    def _read(self, node: Any) -> Found:
        if isinstance(node, (int, float)):
            return Positions(float(node), ())
        if getattr(node, "op", "") != "call_function":
            return None
        if node.name not in self._found:
            rule = _RULES.get(op_name(node.target).removeprefix("aten::"))
            self._found[node.name] = rule(self._read, node) if rule else None
        return self._found[node.name]


Read = Callable[[Any], Found]


def _arange(_: Read, node: Node) -> Found:
    given = [each for each in node.args if isinstance(each, (int, float))]
    start, step = (given[0] if len(given) > 1 else 0, given[2] if len(given) > 2 else 1)
    return Positions(float(start), (float(step),))


def _sum(sign: float) -> Callable[[Read, Node], Found]:
    def rule(read: Read, node: Node) -> Found:
        one, two = read(node.args[0]), read(node.args[1])
        if not (isinstance(one, Positions) and isinstance(two, Positions)) or node.kwargs:
            return None
        return one.minus(two.times(-sign))

    return rule


def _comparison(sign: float, least: float) -> Callable[[Read, Node], Found]:
    """``sign · (left − right) ≥ least``, of whole numbers."""

    def rule(read: Read, node: Node) -> Found:
        one, two = read(node.args[0]), read(node.args[1])
        if not (isinstance(one, Positions) and isinstance(two, Positions)):
            return None
        apart = one.minus(two) if sign > 0 else two.minus(one)
        return Mask((replace(apart, offset=apart.offset - least),))

    return rule


def _equal(read: Read, node: Node) -> Found:
    one, two = read(node.args[0]), read(node.args[1])
    if not (isinstance(one, Positions) and isinstance(two, Positions)):
        return None
    return Mask((one.minus(two), two.minus(one)))


def _differs(read: Read, node: Node) -> Found:
    """0 where it is false everywhere."""
    one, two = read(node.args[0]), read(node.args[1])
    if not (isinstance(one, Positions) and isinstance(two, Positions)):
        return None
    apart = one.minus(two)
    return apart if not (apart.offset or any(apart.steps)) else None


def _summed(read: Read, node: Node) -> Found:
    """Of zeros."""
    found = read(node.args[0])
    is_zero = isinstance(found, Positions) and not (found.offset or any(found.steps))
    return found if is_zero else None


def _steps(read: Read, node: Node) -> Found:
    """Those of the last axis, where what is put before it goes on in the same way."""
    found, before = read(node.args[0]), read(node.args[3] if len(node.args) > 3 else None)
    if not (isinstance(found, Positions) and isinstance(before, Positions) and found.steps):
        return None
    *others, step = found.steps
    is_last = tuple(node.args[1:3]) == (1, -1) and len(node.args) == 4  # once, and along it
    if not is_last or any(others) or before.offset != found.offset - step:
        return None
    return Positions(step, (0.0,) * len(found.steps))


def _picked(read: Read, node: Node) -> Found:
    """At places that are given along each axis."""
    found, places = read(node.args[0]), [read(each) for each in _listed(node.args[1])]
    if not isinstance(found, Positions) or len(places) != len(found.steps):
        return None
    total = Positions(found.offset, ())
    for step, place in zip(found.steps, places, strict=True):
        if not isinstance(place, Positions):
            return None
        total = total.minus(place.times(-step))
    return total


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _both(read: Read, node: Node) -> Found:
    known = [each for each in map(read, node.args[:2]) if isinstance(each, Mask)]
    is_whole = len(known) == 2 and all(each.is_whole for each in known)
    limits = dict.fromkeys(limit for each in known for limit in each.limits)
    return Mask(tuple(limits), is_whole) if known else None


def _zeros(_: Read, node: Node) -> Found:
    value = node.meta["val"]
    is_of_numbers = not (value.is_floating_point() or value.is_complex())
    return Positions(0.0, (0.0,) * value.dim()) if is_of_numbers else None


def _chunks(read: Read, node: Node) -> Found:
    """Which chunk of so many places each is in, where all are in the same."""
    found, size = read(node.args[0]), node.args[1]
    if not (isinstance(found, Positions) and isinstance(size, int) and size > 0):
        return None
    shape = [int(each) for each in node.meta["val"].shape]
    spread = [step * (length - 1) for step, length in zip(found.steps, shape, strict=True)]
    first = (found.offset + sum(min(0.0, each) for each in spread)) // size
    last = (found.offset + sum(max(0.0, each) for each in spread)) // size
    return Positions(first, (0.0,) * len(shape)) if first == last else None


def _true(_: Read, node: Node) -> Found:
    """All true: where it is of booleans."""
    import torch

    value = node.args[1] if op_name(node.target) in ("aten::full", "aten::new_full") else True
    return Mask() if node.meta["val"].dtype == torch.bool and value is True else None


def _chosen(read: Read, node: Node) -> Found:
    """``where(mask, 0, -inf)``."""
    mask, kept, left_out = (*node.args, None, None)[:3]
    is_mask = _constant(kept) == 0.0 and is_very_small(left_out)
    found = read(mask)
    return found if is_mask and isinstance(found, Mask) else None


_VERY_SMALL = -1e4  # about the least number of fp16, and below any score


def is_very_small(value: Any) -> bool:
    """Whether a number, or a tensor everywhere, is as good as -inf."""
    return (_constant(value) or 0.0) <= _VERY_SMALL


def _constant(value: Any) -> float | None:
    """The number that a tensor has everywhere."""
    if isinstance(value, (int, float)):
        return float(value)
    name = op_name(value.target) if getattr(value, "op", "") == "call_function" else ""
    if name in ("aten::zeros", "aten::new_zeros", "aten::zeros_like"):
        return 0.0
    if name in ("aten::full", "aten::new_full", "aten::full_like", "aten::scalar_tensor"):
        return _constant(value.args[0 if name == "aten::scalar_tensor" else 1])
    return None


def _same(read: Read, node: Node) -> Found:
    """As its input, also where axes are repeated or put before; of another type if of numbers."""
    source: Any = node.args[0]
    found = read(source)
    if isinstance(found, Mask) and source.meta["val"].dtype != node.meta["val"].dtype:
        return None
    return found


def _over_axes(read: Read, node: Node, change: Callable[[list[float]], Any]) -> Found:
    """What is known of the input, with other axes: `change` changes a list of an item per axis."""
    found = read(node.args[0])
    source: Any = node.args[0]
    axes = len(source.meta["val"].shape) if hasattr(source, "meta") else 0

    def changed(each: Positions) -> Positions:
        steps = list(each._along(axes).steps)
        change(steps)
        return replace(each, steps=tuple(steps))

    if isinstance(found, Positions):
        return changed(found)
    return found and replace(found, limits=tuple(map(changed, found.limits)))


def _unsqueeze(read: Read, node: Node) -> Found:
    axis: Any = node.args[1]
    axis += len(node.meta["val"].shape) if axis < 0 else 0
    return _over_axes(read, node, lambda steps: steps.insert(axis, 0.0))


def _slice(read: Read, node: Node) -> Found:
    """Of positions, each one from a place on; of a mask, from the beginning on."""
    given: dict[int, Any] = dict(enumerate(node.args))
    axis, start, step = (given.get(at, default) for at, default in ((1, 0), (2, 0), (4, 1)))
    found = read(node.args[0])
    if step != 1 or (start or 0) < 0:
        return None
    if isinstance(found, Positions) and found.steps:
        return replace(found, offset=found.offset + (start or 0) * found.steps[axis])
    return None if start else found


def _joined(read: Read, node: Node) -> Found:
    """Two along the last axis, where the second goes on as the first ends."""
    parts, axis = _listed(node.args[0]), node.args[1] if len(node.args) > 1 else 0
    found = [read(each) for each in parts]
    if len(found) != 2 or axis not in (-1, len(node.meta["val"].shape) - 1):
        return None
    one, two = found
    if not (isinstance(one, Positions) and isinstance(two, Positions) and two.steps):
        return None
    *others, step = two.steps
    length = int(parts[0].meta["val"].shape[-1])
    goes_on = two.offset == one.offset + step * length and one.steps[-1:] == (step,)
    return Positions(one.offset, two.steps) if goes_on and not any(others) else None


_RULES: Mapping[str, Callable[[Read, Node], Found]] = {
    "arange": _arange,
    "add": _sum(1.0),
    "sub": _sum(-1.0),
    "le": _comparison(-1.0, 0.0),
    "lt": _comparison(-1.0, 1.0),
    "ge": _comparison(1.0, 0.0),
    "gt": _comparison(1.0, 1.0),
    "eq": _equal,
    "ne": _differs,
    "cumsum": _summed,
    "cat": _joined,
    "diff": _steps,
    "index": _picked,
    **dict.fromkeys(("__and__", "bitwise_and", "logical_and"), _both),
    **dict.fromkeys(("full", "new_full", "ones", "new_ones"), _true),
    **dict.fromkeys(("zeros", "new_zeros"), _zeros),
    "floor_divide": _chunks,
    "where": _chosen,
    **dict.fromkeys(("_to_copy", "alias", "clone", "contiguous", "expand"), _same),
    "unsqueeze": _unsqueeze,
    "slice": _slice,
}
"""Calls by name, and what they say of what they make."""
