"""Weights that several ops read: kept together, or with a copy at each.

Of a joint program backward ops read weights too. They are with the forward op that they belong to;
so are those that make its part of a weight's gradient. The parts are added up at the weight's first
reader, from where copies get what a step made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from placewright.graph import CopyTensor, GraphBuilder, merged


@dataclass
class Use:
    """Who reads one weight: `holders[op]` is op itself and, if op is a view, the view's readers.

    Readers of a view (a transposed weight) read the weight's memory just as well.
    """

    bytes: float
    holders: dict[str, list[str]] = field(default_factory=dict)

    def add(self, holder: str, reader: str) -> None:
        readers = self.holders.setdefault(holder, [])
        if reader not in readers:
            readers.append(reader)

    @property
    def first(self) -> str:
        return next(iter(self.holders))


@dataclass(frozen=True, eq=False)
class Sharing:
    """The `uses` of a program's weights by key; `twins` and `gradients` are those of `Program`."""

    uses: Mapping[Any, Use]
    twins: Mapping[str, str | None]
    gradients: Mapping[Any, Sequence[str]]

    def groups(self) -> dict[str, str]:
        """`op → group` of ops on one device where a weight is at one place."""
        sets: list[Iterable[str]] = [*self.gradients.values()]
        for use in self.uses.values():
            sets += [*use.holders.values(), use.holders]
        return merged(sets)

    def held(self) -> dict[str, float]:
        """Bytes of weights by op, each at its first reader."""
        held: dict[str, float] = {}
        for use in self.uses.values():
            held[use.first] = held.get(use.first, 0.0) + use.bytes
        return held

    def frozen(self) -> dict[str, float]:
        """Of `held`, in training, what is not trained: buffers, parameters without a gradient."""
        found: dict[str, float] = {}
        for key, use in self.uses.items():
            if self.gradients and key not in self.gradients:
                found[use.first] = found.get(use.first, 0.0) + use.bytes
        return found

    @cached_property
    def copy_groups(self) -> dict[str, str]:
        """`op → group` of ops on one device where each op has copies of the weights it shares."""
        sets: list[Iterable[str]] = []
        for use in self.uses.values():
            sets += use.holders.values()
            sets += [(op, self.twins[op] or use.first) for op in use.holders if op in self.twins]
        apart = merged(sets)
        for key, use in self.uses.items():
            first, *makers = self.gradients.get(key, (use.first,))
            if len({apart.get(op, op) for op in use.holders}) == 1:
                sets.append([*use.holders, first, *makers])
            else:
                sets += [(maker, self.twins.get(maker) or first) for maker in makers]
        return merged(sets)

    def copied(self) -> dict[Any, list[str]]:
        """By key, the ops with copies of a weight: the first reader of each group but one."""
        groups, copied = self.copy_groups, {}
        for key, use in self.uses.items():
            readers: dict[str, str] = {}
            for op in use.holders:
                readers.setdefault(groups.get(op, op), op)
            copied[key] = list(readers.values())[1:]
        return copied

    def held_apart(self) -> dict[str, float]:
        """Bytes of weights by op, copies among them."""
        held = self.held()
        for key, ops in self.copied().items():
            for op in ops:
                held[op] = held.get(op, 0.0) + self.uses[key].bytes
        return held

    def say_copies(self, builder: GraphBuilder, number: Mapping[str, int]) -> None:
        """Tell `builder`, where an op has a `number`, of what there is with copies."""
        more: dict[int, float] = {}
        tensors = []
        for key, ops in self.copied().items():
            use, readers = self.uses[key], [number[op] for op in ops]
            for reader in readers:
                more[reader] = more.get(reader, 0.0) + use.bytes
            if readers and key in self.gradients:
                tensors.append(CopyTensor(number[use.first], use.bytes, tuple(readers)))
        groups = {number[op]: group for op, group in self.copy_groups.items()}
        builder.say_copies(more, groups, tensors)
