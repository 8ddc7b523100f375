"""The least latency at which each ideal can be done, by how many accelerators are in use.

A plan divides the nodes into subgraphs. They are a row of *blocks*, each of which waits for all
that is before it: of one subgraph, or of several that cannot be divided into such a row. The
latency is the sum of what the blocks take, for a longest path goes through all of them. A cut node
is comparable to all nodes, so its subgraph is to all others: blocks of several lie between two cut
nodes, and are steps within a level.

A block of subgraphs on accelerators a_1 … a_m takes at least the longest path through it, and at
least Σ λ_k · (what a_k takes) for all λ_1 + … + λ_m = 1, of which every node and every tensor that
crosses its ends has its least share. So the least latency with such blocks is a lower bound; with
blocks of one subgraph alone it is that of the best plan in a row.

Prices. Accelerators that differ in memory alone may count as one kind, as large as the largest.
With μ ≥ 0 seconds per byte for what subgraphs on a kind keep, and μ times what its accelerators
hold given back, the least latency is a lower bound too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placewright.bounds.invocation.beside import Combinations, shares, weights
from placewright.graph import Flags, Floats, Wide
from placewright.kernels.invocation.ideal_reach import (
    Rates,
    Side,
    extend_beside,
    extend_by_level,
    extend_by_steps,
)
from placewright.planners.invocation.ideal_blocks import Blocks
from placewright.planners.invocation.ideals import Ideals
from placewright.planners.invocation.kinds import Kinds
from placewright.problem import LONG_ROUNDING

NOWHERE = 10.0  # times what all ops take where they are slowest: of ops that a kind cannot run


@dataclass(frozen=True)
class Piece:
    """Between two ideals: on one accelerator of a kind, or on a combination of several."""

    low: int
    high: int
    kind: int = -1
    number: int = 0


class Table:
    """`value[code, ideal]` seconds, filled code by code; infinite where it is not wanted.

    `price[kind]` seconds per byte kept. With `blocks` those of several subgraphs count too.
    """

    def __init__(
        self, ideals: Ideals, kinds: Kinds, price: Floats, blocks: Blocks | None = None
    ) -> None:
        self.ideals, self.kinds = ideals, kinds
        self.memory: Floats = ideals.summed(ideals.graph.memory[None, :])[0]
        self.combinations = Combinations.none()
        if blocks is not None:
            slots, each = kinds.slots.tolist(), np.arange(len(kinds))
            self.combinations = Combinations.of(slots, each, 1, ideals.graph.node_count)
        self._look_up(price, blocks)
        self.value = np.full((kinds.codes, ideals.count), np.inf)
        self.value[0, 0] = 0.0
        self._tree = np.empty(ideals.count)

    def fill(self, code: int, wanted: Flags) -> None:
        """From codes with fewer in use; `[ideal]` whether a value is wanted."""
        used, value = self.kinds.used(code), self.value[code]
        for kind in np.flatnonzero(used).tolist():
            before = self.value[code - int(self.kinds.step[kind])]
            if self.ideals.local:
                extend_by_level(before, kind, self._side, wanted, self._tree, value)
            extend_by_steps(before, kind, self._side, self.ideals.steps, self._rates, wanted, value)
        for number, less in self._beside(used):
            before = self.value[code - less]
            extend_beside(before, number, self._side, self.ideals.steps, self._rates, wanted, value)

    def fitting(self, code: int) -> Flags:
        """`[ideal]` whether those not in use hold what is not in it."""
        total = float(self.memory[-1])
        room = self.kinds.memory_left(code) + LONG_ROUNDING * total
        return np.asarray(total - self.memory <= room)

    def pieces(self, code: int) -> list[Piece]:
        """How all nodes are done in the least seconds with these in use, from the last to first."""
        found: list[Piece] = []
        ideal = self.ideals.count - 1
        while ideal > 0:
            ways = list(self._ways_to(code, ideal))
            seconds = [each[0] for each in ways]
            _, piece, less = ways[int(np.argmin(seconds))]
            found.append(piece)
            ideal, code = piece.low, code - less
        return found

    def kinds_of(self, piece: Piece) -> list[int]:
        """The kind of each accelerator that works on a piece."""
        if piece.kind >= 0:
            return [piece.kind]
        count = self.combinations.count[piece.number]
        return np.repeat(np.arange(len(count)), count).tolist()

    def _beside(self, used: Wide) -> Iterator[tuple[int, int]]:
        """Combinations of several that may be among those in use, and their codes."""
        count = self.combinations.count
        if not count.shape[1]:
            return
        fitting = (self.combinations.size > 1) & (count <= used).all(axis=1)
        for number in np.flatnonzero(fitting).tolist():
            yield number, int(count[number] @ self.kinds.step)

    def _ways_to(self, code: int, ideal: int) -> Iterator[tuple[float, Piece, int]]:
        """The best way to an ideal by each kind and combination: seconds, piece and its code."""
        ideals, side, rates = self.ideals, self._side, self._rates
        into = np.flatnonzero(ideals.steps.targets == ideal)
        low = np.searchsorted(ideals.steps.offsets, into, side="right") - 1
        below = np.flatnonzero(ideals.level < ideals.level[ideal]) if ideals.local else low[:0]
        used = self.kinds.used(code)
        for kind in np.flatnonzero(used).tolist():
            less = int(self.kinds.step[kind])
            before = self.value[code - less]
            room = rates.room[kind]
            row = rates.of[kind]
            near = before[low] + side.time[kind, ideal] - side.time[kind, low]
            near += self._crossing(into, row)
            far = before[below] + side.before[kind, below] + side.after[kind, ideal]
            origin, seconds = np.append(low, below), np.append(near, far)
            seconds[self.memory[ideal] > self.memory[origin] + room] = np.inf
            if len(origin):
                best = int(seconds.argmin())
                yield float(seconds[best]), Piece(int(origin[best]), ideal, kind), less
        for number, less in self._beside(used):
            before = self.value[code - less]
            busy = side.share[number, ideal] - side.share[number, low]
            busy += self._crossing(into, rates.of[len(rates.room) + number])
            paid = side.paid[number, ideal] - side.paid[number, low]
            if rates.for_more[number]:
                busy[:] = 0.0
            if (place := rates.row[number]) >= 0:
                busy = np.maximum(busy, rates.least[place, into])
            seconds = before[low] + np.maximum(busy, ideals.steps.critical[into]) + paid
            seconds[ideals.steps.nodes[into] < rates.size[number]] = np.inf
            if len(low):
                best = int(seconds.argmin())
                yield float(seconds[best]), Piece(int(low[best]), ideal, number=number), less

    def _crossing(self, steps: Wide, row: Floats) -> Floats | float:
        columns = self.ideals.steps[4:]
        if not len(columns[0]):
            return 0.0
        return np.asarray(sum(rate * each[steps] for rate, each in zip(row, columns, strict=True)))

    def _look_up(self, price: Floats, blocks: Blocks | None) -> None:
        """What the kernels look up."""
        ideals, kinds, graph = self.ideals, self.kinds, self.ideals.graph
        time = ideals.node_time(kinds)
        slowest = np.where(np.isfinite(time), time, 0.0).max(axis=1).sum()
        never = NOWHERE * max(float(slowest), 1e-300)
        extra = graph.memory[:, None] * price
        done = ideals.summed(np.where(np.isfinite(time), time + extra, never).T)
        done += kinds.host @ ideals.done
        share = paid = np.zeros((1, ideals.count))
        rates = kinds.host
        if blocks is not None:
            weight = weights(self.combinations, time)
            each = shares(weight, time, np.zeros(extra.shape))
            paid = ideals.summed(_cheapest(extra, self.combinations.count))
            parts = np.where(weight[:, :, None] > 0, weight[:, :, None] * kinds.host, np.inf)
            beside = np.where(np.isfinite(least := parts.min(axis=1)), least, 0.0)
            share = ideals.summed(np.where(np.isfinite(each), each, never)) + beside @ ideals.done
            rates = np.concatenate([kinds.host, beside])
        order = np.argsort(self.memory, kind="stable")
        rank = np.empty(ideals.count, dtype=np.int64)
        rank[order] = np.arange(ideals.count)
        room = kinds.room * (1 + LONG_ROUNDING)
        least = self.memory[None, :] - room[:, None]
        first = np.searchsorted(self.memory[order], least).astype(np.int64)
        self._side = Side(
            self.memory, rank, first, kinds.host @ ideals.begin - done,
            kinds.host @ ideals.end + done, done, share,
            paid, ideals.starts,
        )  # fmt: skip
        size = self.combinations.size
        for_more = self.combinations.stand_for_more(graph.node_count)
        least = np.zeros((0, 0)) if blocks is None else blocks.seconds
        row = np.full(len(size), -1)
        if blocks is not None:
            row = blocks.rows(kinds, self.combinations.count)
        self._rates = Rates(rates, room, size, for_more.astype(np.int64), row, least)


def _cheapest(extra: Floats, count: Wide) -> Floats:
    """`[number, node]` the least of ``extra[node, kind]`` on the kinds of a combination."""
    least = [extra[:, each > 0].min(axis=1, initial=np.inf) for each in count]
    return np.where(np.isfinite(least), least, 0.0)
