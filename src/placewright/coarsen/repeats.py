"""Repeats: stretches of a model in which one block of ops stands several times in a row.

Layers of a transformer, residual blocks of one width: where an exported graph lists its ops in
order, block k + 1 is block k shifted by as many ops as a block has. Such a shift is found, and
checked op by op, in time linear in the graph for each length tried. Only a series counts, in which
later blocks depend on earlier ones: the heads of one attention layer are alike too, but they are
no layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Ints, Wide
from placewright.problem import Problem

Words = NDArray[np.uint64]

FEWEST_BLOCKS = 4
SHORTEST_BLOCK = 4
MOST_LENGTHS = 60  # tried, those that would explain most ops first
NEIGHBOURS = (1, 2, 4)  # the next op of a kind, the second next, the fourth
REACH = 2  # blocks that an edge spans at most to count as one of the block


@dataclass(frozen=True)
class Repeat:
    """Blocks of `length` ops each, `count` times from position `start` of an order."""

    start: int
    length: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.length * self.count

    @property
    def spared(self) -> int:
        """Ops that are copies of the first block's."""
        return self.length * (self.count - 1)


def find_repeats(problem: Problem) -> tuple[Ints, list[Repeat]]:
    """A topological order of the ops and the repeats in it, which do not overlap, by position.

    Blocks are the same if op by op they agree in type, memory, supported devices, pins and sizes
    of results, and in the edges between them and their neighbours; times may differ, as measured
    ones do. The order is that of the problem's ops where it is topological.

    >>> order, repeats = find_repeats(problem)              # doctest: +SKIP
    >>> repeats                                             # doctest: +SKIP
    [Repeat(start=3, length=395, count=32)]
    """
    order = np.arange(problem.op_count, dtype=np.int32)
    if (problem.edge_producer >= problem.consumers).any():
        order = problem.topological_order
    view = _View(problem, order)
    found: list[Repeat] = []
    for length in view.likely_lengths():
        found += view.repeats_of(length)
    return order, _apart(found)


def _apart(found: list[Repeat]) -> list[Repeat]:
    """Those that spare most, none overlapping another."""
    chosen: list[Repeat] = []
    for each in sorted(found, key=lambda each: (-each.spared, each.length, each.start)):
        if all(each.end <= other.start or other.end <= each.start for other in chosen):
            chosen.append(each)
    return sorted(chosen, key=lambda each: each.start)


class _View:
    """The problem by positions of an order: what kind of op is where, and the edges' lengths."""

    def __init__(self, problem: Problem, order: Ints) -> None:
        position = np.empty(problem.op_count, dtype=np.int64)
        position[order] = np.arange(problem.op_count)
        self.count = problem.op_count
        self.producer = position[problem.edge_producer]
        self.consumer = position[problem.consumers]
        size = _numbered(problem.tensor_bytes)
        self.edge_size = size[problem.edge_tensor].astype(np.uint64)
        results = np.zeros(problem.op_count, dtype=np.uint64)
        np.add.at(results, problem.tensor_producer, _mixed(size.astype(np.uint64)))
        kinds = np.column_stack([
            _numbered(np.array(problem.op_types)),
            _numbered(problem.op_memory),
            _numbered(_row_words(np.isfinite(problem.op_time))),
            problem.op_pinned,
            problem.is_backward,
            _numbered(results),
        ])  # fmt: skip
        self.kind: Wide = _numbered(kinds)[order]

    def likely_lengths(self) -> list[int]:
        """Distances between ops of one kind, those first that many ops agree on."""
        by_kind = np.lexsort((np.arange(self.count), self.kind))
        votes: dict[int, int] = {}
        for step in NEIGHBOURS:
            earlier, later = by_kind[:-step], by_kind[step:]
            alike = self.kind[earlier] == self.kind[later]
            lengths, counts = np.unique((later - earlier)[alike], return_counts=True)
            for length, times in zip(lengths.tolist(), counts.tolist(), strict=True):
                votes[length] = votes.get(length, 0) + times
        longest = self.count // FEWEST_BLOCKS
        fitting = [each for each in votes if SHORTEST_BLOCK <= each <= longest]
        return sorted(fitting, key=lambda each: (-votes[each] * each, each))[:MOST_LENGTHS]

    def repeats_of(self, length: int) -> list[Repeat]:
        """The longest series of blocks of that length."""
        edges = self._edges_within(REACH * length)
        alike = (self.kind[:-length] == self.kind[length:]) & (edges[:-length] == edges[length:])
        bounds = np.diff(np.concatenate([[0], alike.astype(np.int8), [0]]))
        starts, ends = np.flatnonzero(bounds == 1), np.flatnonzero(bounds == -1)
        found = [
            Repeat(start, length, 1 + (end - start) // length)
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        return [each for each in found if each.count >= FEWEST_BLOCKS and self._is_series(each)]

    def _edges_within(self, reach: int) -> Words:
        """`[position]` a sum over the edges that end there and are no longer: length and size."""
        length = self.consumer - self.producer
        near = length < reach
        words = _mixed((length[near].astype(np.uint64) << np.uint64(32)) + self.edge_size[near])
        total = np.zeros(self.count, dtype=np.uint64)
        np.add.at(total, self.consumer[near], words)
        return total

    def _is_series(self, repeat: Repeat) -> bool:
        """Whether the third block depends on the first.

        The second may anyway, where the blocks found are shifted against parallel branches.
        """
        first, end = repeat.start, repeat.start + 3 * repeat.length
        within = (self.producer >= first) & (self.consumer < end)
        producer, consumer = self.producer[within] - first, self.consumer[within] - first
        depends = np.zeros(end - first, dtype=np.bool_)
        depends[: repeat.length] = True
        for edge in np.argsort(consumer, kind="stable").tolist():
            depends[consumer[edge]] |= depends[producer[edge]]
        return bool(depends[2 * repeat.length :].any())


def _numbered(values: NDArray[np.generic]) -> Wide:
    """`[row]` a number from 0, the same for equal rows."""
    numbers: Wide = np.unique(values, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
    return numbers


def _row_words(rows: NDArray[np.bool_]) -> Words:
    """`[row]` a word that hardly ever agrees for different rows. Sorting rows takes seconds."""
    packed = np.packbits(rows, axis=1)
    packed = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8)))
    words = packed.view(np.uint64)
    place = _mixed(np.arange(words.shape[1], dtype=np.uint64))
    total: Words = _mixed(words ^ place).sum(axis=1)
    return total


def _mixed(words: Words) -> Words:
    """Words whose sums hardly ever agree by chance (splitmix64's finalizer)."""
    with np.errstate(over="ignore"):
        words = (words + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Words = words ^ (words >> np.uint64(31))
    return mixed
