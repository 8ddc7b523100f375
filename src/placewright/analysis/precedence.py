"""Which ops come after which in every schedule, as bit sets by topological position."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import and_

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Ints, Wide
from placewright.problem import Problem

START = END = -1
LARGEST_REGION = 500  # ops; rows for larger ones are long and add little
Region = tuple[int, int, list[int]]


def leading(count: int, source: Ints | Wide, target: Ints | Wide) -> NDArray[np.bool_]:
    """`[node, other]` whether the other leads to it, of nodes numbered in a topological order.

    `source` and `target` are the ends of the edges; those within a node count for nothing.
    """
    leads = np.zeros((count, count), dtype=np.bool_)
    pairs = {*zip(source.tolist(), target.tolist(), strict=True)}
    for low, high in sorted(pairs, key=lambda edge: edge[1]):
        if low != high:
            leads[high] |= leads[low]
            leads[high, low] = True
    return leads


class Precedence:
    """`after[op]`, `before[op]`: bit sets of the ops that follow or precede it on some path."""

    def __init__(self, problem: Problem) -> None:
        self.order: list[int] = problem.topological_order.tolist()
        self.position = [0] * problem.op_count
        for place, op in enumerate(self.order):
            self.position[op] = place
        self.followers: list[list[int]] = [[] for _ in self.order]
        self.parents: list[list[int]] = [[] for _ in self.order]
        for producer, consumer in sorted(
            set(zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True))
        ):
            self.followers[producer].append(consumer)
            self.parents[consumer].append(producer)
        self.before = self._closure(self.order, self.parents)
        self.after = self._closure(self.order[::-1], self.followers)

    def _closure(self, order: list[int], neighbours: list[list[int]]) -> list[int]:
        closed = [0] * len(order)
        for op in order:
            for neighbour in neighbours[op]:
                closed[op] |= closed[neighbour] | self.bit(neighbour)
        return closed

    def bit(self, op: int) -> int:
        return 1 << self.position[op]

    def ordered(self, first: int, second: int) -> bool:
        """Whether `second` comes after `first` in every schedule."""
        return bool(self.after[first] >> self.position[second] & 1)

    def after_all(self, ops: list[int]) -> int:
        """Bit set of the ops that start when all of `ops` have started, `ops` alone included."""
        return reduce(and_, (self.after[op] | self.bit(op) for op in ops))

    def unordered_pairs(self) -> int:
        count = len(self.order)
        return count * (count - 1) // 2 - sum(after.bit_count() for after in self.after)

    def members(self, bits: int) -> list[int]:
        """The ops of a bit set, in topological order."""
        return [self.order[place] for place in np.flatnonzero(self._flags(bits)).tolist()]

    def weigh(self, bits: int, weight: Ints) -> int:
        """The sum of `weight[op]` over a bit set."""
        return int(self._flags(bits) @ weight[self.order])

    def _flags(self, bits: int) -> NDArray[np.uint8]:
        """`[topological position]` 1 where the set has a member."""
        count = len(self.order)
        raw = np.frombuffer(bits.to_bytes((count + 7) // 8, "little"), dtype=np.uint8)
        return np.unpackbits(raw, count=count, bitorder="little")

    def regions(self, largest: int) -> list[Region]:
        """`(first, last, between)`: ops that must run after `first` has ended and before `last`.

        One region per op where paths meet (from its immediate dominator), one per op where they
        part (to its immediate post-dominator), and the whole; START and END stand for ops
        before and after all. Regions with fewer than two ops, or more than `largest` (the whole
        aside), are left out.
        """
        found: dict[tuple[int, int], list[int]] = {}
        for first, last in dict.fromkeys(self._forks_and_joins()):
            bits = self.after[first] if first != START else (1 << len(self.order)) - 1
            if last != END:
                bits &= self.before[last]
            if 2 <= bits.bit_count() <= largest or (first, last) == (START, END):
                found[first, last] = self.members(bits)
        return [(first, last, between) for (first, last), between in found.items()]

    def _forks_and_joins(self) -> Iterator[tuple[int, int]]:
        yield START, END
        dominators = self._dominators(self.order, self.parents)
        sinks = [dominators[op] for op in self.order if not self.followers[op]]
        yield self._highest(reduce(and_, sinks)), END
        for op in self.order:
            if len(self.parents[op]) > 1:
                yield self._highest(dominators[op] & ~self.bit(op)), op
        dominators = self._dominators(self.order[::-1], self.followers)
        for op in self.order:
            if len(self.followers[op]) > 1:
                yield op, self._lowest(dominators[op] & ~self.bit(op))

    def _dominators(self, order: list[int], neighbours: list[list[int]]) -> list[int]:
        """Bit sets of the ops on every path to (or from) each op, itself included."""
        on_every_path = [0] * len(order)
        for op in order:
            common = reduce(and_, (on_every_path[other] for other in neighbours[op] or [op]))
            on_every_path[op] = common | self.bit(op)
        return on_every_path

    def _highest(self, bits: int) -> int:
        return self.order[bits.bit_length() - 1] if bits else START

    def _lowest(self, bits: int) -> int:
        return self.order[(bits & -bits).bit_length() - 1] if bits else END
