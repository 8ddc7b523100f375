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

An op on a CPU is a subgraph of its own, and beside it there may be others on CPUs at no cost. So a
block may have nodes on CPUs too: alone, and they take their longest path; or beside accelerators,
whose shares then are of the other nodes, and it takes at least as long as each node on a CPU.

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
from placewright.kernels.invocation.ideal_cpus import (
    Cpus,
    extend_with_cpus,
    fill_with_cpus,
    relax_on_cpus,
)
from placewright.kernels.invocation.ideal_reach import (
    Rates,
    Side,
    extend_beside,
    extend_by_level,
    extend_by_steps,
)
from placewright.planners.invocation.ideals.blocks import Blocks
from placewright.planners.invocation.ideals.kinds import Kinds
from placewright.planners.invocation.ideals.listing import Ideals
from placewright.problem import LONG_ROUNDING

TINY = 1e-300
CPU = -2
NOWHERE = 10.0  # times what all ops take where they are slowest: of ops that a kind cannot run


@dataclass(frozen=True)
class Piece:
    """Between two ideals: on an accelerator of a kind or `CPU`, or on a combination of several."""

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
        self._relax(0, np.ones(ideals.count, dtype=np.bool_))

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
        if self._cpus is not None:
            for number, less in self._beside(used, fewest=1):
                before = self.value[code - less]
                extend_with_cpus(
                    before, number, self._cpus, self._side, self.ideals.steps, wanted, value
                )
            self._relax(code, wanted)

    def _relax(self, code: int, wanted: Flags) -> None:
        """By nodes on CPUs alone."""
        if self._cpus is not None:
            ideals = self.ideals
            relax_on_cpus(self.value[code], ideals.steps, ideals.level, self._cpus.cut, wanted)

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
        """The kind of each accelerator that works on a piece; none if that is on CPUs."""
        if piece.kind == CPU:
            return []
        if piece.kind >= 0:
            return [piece.kind]
        count = self.combinations.count[piece.number]
        return np.repeat(np.arange(len(count)), count).tolist()

    def _beside(self, used: Wide, fewest: int = 2) -> Iterator[tuple[int, int]]:
        """Combinations of so many or more that may be among those in use, and their codes."""
        count = self.combinations.count
        if not count.shape[1]:
            return
        fitting = (self.combinations.size >= fewest) & (count <= used).all(axis=1)
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
            near = before[low] + side.time[kind, ideal] - side.time[kind, low]
            near += self._crossing(into, kind)
            far = before[below] + side.before[kind, below] + side.after[kind, ideal]
            origin, seconds = np.append(low, below), np.append(near, far)
            seconds[self.memory[ideal] > self.memory[origin] + room] = np.inf
            if len(origin):
                best = int(seconds.argmin())
                yield float(seconds[best]), Piece(int(origin[best]), ideal, kind), less
        for number, less in self._beside(used):
            before = self.value[code - less]
            busy = side.share[number, ideal] - side.share[number, low]
            busy += self._least_crossing(into, number)
            paid = side.paid[number, ideal] - side.paid[number, low]
            apart = side.quickest[ideal] - side.quickest[low]
            spared = (rates.size[number] - 1) * rates.spared[ideals.level[low]]
            busy = np.maximum(busy, apart - spared)
            if rates.for_more[number]:
                busy[:] = 0.0
            if (place := rates.row[number]) >= 0:
                busy = np.maximum(busy, rates.least[place, into])
            seconds = before[low] + np.maximum(busy, ideals.steps.critical[into]) + paid
            seconds[ideals.steps.nodes[into] < rates.size[number]] = np.inf
            if len(low):
                best = int(seconds.argmin())
                yield float(seconds[best]), Piece(int(low[best]), ideal, number=number), less
        if self._cpus is not None:
            yield from self._ways_with_cpus(self._cpus, code, ideal, into, low)

    def _ways_with_cpus(
        self, cpus: Cpus, code: int, ideal: int, into: Wide, low: Wide
    ) -> Iterator[tuple[float, Piece, int]]:
        ideals, value = self.ideals, self.value
        origin = np.append(low, ideal - 1)
        ended = int(ideals.level[ideal - 1])
        cut = cpus.cut[ended] if ideals.level[ideal] > ended else np.inf
        seconds = value[code, origin] + np.append(ideals.steps.on_cpu[into], cut)
        best = int(seconds.argmin())
        yield float(seconds[best]), Piece(int(origin[best]), ideal, CPU), 0
        for number, less in self._beside(self.kinds.used(code), fewest=1):
            took = np.empty(len(low))
            fill_with_cpus(cpus, self._side, number, low, ideal, took)
            took = np.maximum(took, ideals.steps.critical[into])
            took[ideals.steps.nodes[into] < 2] = np.inf
            if len(low):
                seconds = value[code - less, low] + took
                best = int(seconds.argmin())
                yield float(seconds[best]), Piece(int(low[best]), ideal, number=number), less

    def _crossing(self, steps: Wide, kind: int) -> Floats | float:
        host = int(self._rates.host[kind])
        return self.ideals.steps.crossing[host, steps] if host >= 0 else 0.0

    def _least_crossing(self, steps: Wide, number: int) -> Floats | float:
        part, crossing = self._rates.part[number], self.ideals.steps.crossing
        used = np.flatnonzero(np.isfinite(part))
        if not len(crossing):
            return 0.0
        return np.asarray((part[used, None] * crossing[used][:, steps]).min(axis=0))

    def _look_up(self, price: Floats, blocks: Blocks | None) -> None:
        """What the kernels look up."""
        ideals, kinds = self.ideals, self.kinds
        host = ideals.host_row(kinds)
        time = ideals.node_time(kinds)
        extra = ideals.graph.memory[:, None] * price
        never = NOWHERE * max(ideals.slowest(time), TINY)
        finite = np.where(np.isfinite(time), time, never)
        done = ideals.summed((finite + extra).T)
        done += kinds.host @ ideals.done
        self._cpus = None
        share = paid = np.zeros((1, ideals.count))
        quickest = ideals.summed(finite.min(axis=1)[None, :])[0]
        each = np.zeros((1, ideals.graph.node_count))
        part, row, least = np.zeros((1, len(ideals.hosts))), np.full(1, -1), np.zeros((0, 0))
        spared = np.zeros(0)
        if blocks is not None:
            weight = weights(self.combinations, time)
            each = shares(weight, time, np.zeros(extra.shape))
            each = np.where(np.isfinite(each), each, never)
            share = ideals.summed(each)
            share += _least(weight, kinds.host) @ ideals.done
            paid = ideals.summed(_least(self.combinations.count > 0, extra.T))
            part = _parts(weight, host, len(ideals.hosts))
            row, least = blocks.rows(kinds, self.combinations.count), blocks.seconds
            spared = blocks.spared
        if len(ideals.on_cpu):
            self._cpus = _cpus_of(ideals, each)
        begin, end = kinds.host @ ideals.begin - done, kinds.host @ ideals.end + done
        room = kinds.room * (1 + LONG_ROUNDING)
        self._side = Side(
            self.memory,
            *_ranks(self.memory, room),
            begin,
            end,
            done,
            share,
            quickest,
            paid,
            ideals.level,
            ideals.starts,
        )
        for_more = self.combinations.stand_for_more(ideals.graph.node_count).astype(np.int64)
        self._rates = Rates(room, host, self.combinations.size, for_more, part, row, least, spared)


def _cpus_of(ideals: Ideals, share: Floats) -> Cpus:
    """For the kernels; ``share[number, node]``."""
    seconds, stretch = ideals.on_cpu, ideals.stretch
    quickest_first = np.lexsort((seconds, stretch))
    nodes = quickest_first[stretch[quickest_first] >= 0]
    offsets = np.searchsorted(stretch[nodes], np.arange(len(ideals.starts)))
    cut = np.zeros(len(ideals.starts))
    cut_nodes = np.flatnonzero(stretch < 0)
    cut[-1 - stretch[cut_nodes]] = seconds[cut_nodes]
    return Cpus(ideals.bits, seconds, offsets.astype(np.int64), nodes.astype(np.int64), cut, share)


def _ranks(memory: Floats, room: Floats) -> tuple[Wide, Wide]:
    """`[ideal]` its rank by memory, `[kind, ideal]` the least rank from which there is room."""
    order = np.argsort(memory, kind="stable")
    rank = np.empty(len(memory), dtype=np.int64)
    rank[order] = np.arange(len(memory))
    first = np.searchsorted(memory[order], memory[None, :] - room[:, None])
    return rank, first.astype(np.int64)


def _least(weight: Floats | Flags, amount: Floats) -> Floats:
    """`[number, column]` the least of ``weight[number, kind] · amount[kind, column]`` of its kinds.

    0 of a combination of none.
    """
    least = np.zeros((len(weight), amount.shape[1]))
    for number, each in enumerate(weight):
        if (kinds := np.flatnonzero(each)).size:
            least[number] = (each[kinds, None] * amount[kinds]).min(axis=0)
    return least


def _parts(weight: Floats, host: Wide, hosts: int) -> Floats:
    """`[number, host]` the least weight of kinds with that row; infinite if there is none."""
    part = np.full((len(weight), hosts), np.inf)
    for kind, row in enumerate(host.tolist()):
        if row >= 0:
            each = np.where(weight[:, kind] > 0, weight[:, kind], np.inf)
            part[:, row] = np.minimum(part[:, row], each)
    return part
