"""What leaves, and what enters, a stretch of consecutive pieces, for every stretch at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from placewright.exporters.pieces import Phase
from placewright.exporters.stretches import within
from placewright.graph import Flags, Floats

Amounts = tuple[Floats, Floats]
"""`[i, j]` how many tensors, and how many bytes."""


class Crossing:
    """Counts and bytes of the tensors of a phase that leave, and that enter, the pieces i … j.

    By those edges alone that ``counts[edge]`` names, where it is given.
    """

    def __init__(self, phase: Phase, count: int, counts: Flags | None = None) -> None:
        problem, place = phase.problem, phase.op_piece.astype(np.int64)
        self.count = count
        self.home = place[problem.tensor_producer].tolist()
        self.bytes = problem.tensor_bytes
        readers = place[problem.consumers].tolist()
        edges = range(problem.edge_count) if counts is None else np.flatnonzero(counts).tolist()
        reads: list[set[int]] = [set() for _ in range(problem.tensor_count)]
        tensor = problem.edge_tensor.tolist()
        for edge in edges:
            reads[tensor[edge]].add(readers[edge])
        self.readers = [sorted(each) for each in reads]

    def tables(self) -> tuple[Amounts, Amounts]:
        """`(sent, received)`, to and from any others."""
        return self._summed(self._sent()), self._summed(self._received())

    def from_the_first(self) -> Amounts:
        """`[h, i, j]` what pieces i … j read of pieces before h, themselves not among these."""
        count = self.count
        tensors, nbytes = np.zeros((2, count + 1, count, count))
        for tensor, (home, readers) in enumerate(zip(self.home, self.readers, strict=True)):
            spans = [(one, one, 1.0) for one in readers]
            spans += [(one, two, -1.0) for one, two in pairwise(readers)]
            for first, last, sign in spans:
                tensors[home + 1, first, last] += sign
                nbytes[home + 1, first, last] += sign * self.bytes[tensor]
        for table in (tensors, nbytes):
            np.cumsum(table[:, ::-1], axis=1, out=table[:, ::-1])
            np.cumsum(table, axis=2, out=table)
            np.cumsum(table, axis=0, out=table)
        return tensors, nbytes

    def _sent(self) -> list[tuple[int, int, int, int]]:
        """Tensors of pieces i … j, less those that are read there only: (first, last, t, sign)."""
        rows = []
        for tensor, (home, readers) in enumerate(zip(self.home, self.readers, strict=True)):
            if readers:
                rows.append((home, home, tensor, 1))
                rows.append((min(home, readers[0]), max(home, readers[-1]), tensor, -1))
        return rows

    def _received(self) -> list[tuple[int, int, int, int]]:
        """Tensors with a reader among pieces i … j, less those with their producer there too.

        A tensor has a reader there where readers there outnumber neighbouring pairs of them.
        """
        rows = []
        for tensor, (home, readers) in enumerate(zip(self.home, self.readers, strict=True)):
            spans = [(one, one, 1) for one in readers]
            spans += [(one, two, -1) for one, two in pairwise(readers)]
            for first, last, sign in spans:
                rows.append((first, last, tensor, sign))
                rows.append((min(first, home), max(last, home), tensor, -sign))
        return rows

    def _summed(self, rows: list[tuple[int, int, int, int]]) -> Amounts:
        if not rows:
            return np.zeros((self.count, self.count)), np.zeros((self.count, self.count))
        first, last, tensor, sign = np.array(rows, dtype=np.int64).T
        signs = sign.astype(np.float64)
        amounts = (signs, signs * self.bytes[tensor])
        counts, nbytes = (within(first, last, each, self.count) for each in amounts)
        return np.maximum(counts, 0.0), np.maximum(nbytes, 0.0)
