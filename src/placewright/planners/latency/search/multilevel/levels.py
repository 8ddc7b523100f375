"""Coarser and coarser problems, made by joining ops pair by pair.

A pair is the better the less it adds to the longest path (`losses`), and the longer what the two
send each other takes. Pairs are joined in rounds, none that costs more than a tolerance, which
rises when few are left; so branches that run side by side are joined late.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placewright.analysis.orders import mean_edge_time, mean_op_time
from placewright.graph import Flags, Floats, Ints, Whole
from placewright.kernels.latency import multilevel_matching as kernel
from placewright.kernels.latency.sequential import breadth_first_order
from placewright.planners.latency.search.multilevel.contracting import Level, contracted
from placewright.problem import Problem

SMALLER = 3.0  # from one level to the next
LEAST_PROGRESS = 0.93  # of the groups may be left after a round; if more, the tolerance rises
# What a pair may cost, of the longest path: first nothing, then this, doubled again and again.
TOLERANCE, MOST_TOLERANCE = 1 / 3000, 1 / 30
MEMORY_SHARE = 0.2  # of the largest device: the most that a unit made of several may take
WEIGHT_SHARE = 4.0  # of an even share of all work among the coarsest ops: the same
STRETCH = 0.1  # what a longer path through the two counts beside a longer longest path
SIZE = 0.05  # what their own time counts: small ops are joined first
NOISE = 0.3  # of a pair's score, so that other pairs are joined each time
MOST_SETS = 64  # of devices: a bit each

Bits = NDArray[np.uint64]


def coarsen(
    problem: Problem, device: Ints | None, target: int, rng: np.random.Generator
) -> list[Level]:
    """Levels, the finest first, down to about `target` ops; none where few ops can be joined.

    With `device[op]`, only ops on one device are joined, so that the placement remains one.
    """
    levels: list[Level] = []
    total = float(_weight(problem, device).sum())
    while problem.op_count > target:
        least = max(target, int(problem.op_count / SMALLER))
        group = _joined(problem, device, least, WEIGHT_SHARE * total / target, rng)
        if group is None:
            break
        levels.append(contracted(problem, group))
        problem = levels[-1].problem
        if device is not None:
            coarse = np.empty(problem.op_count, dtype=np.int32)
            coarse[group] = device
            device = coarse
    return levels


def _joined(
    problem: Problem, device: Ints | None, least: int, most_weight: float, rng: np.random.Generator
) -> Ints | None:
    """`[op]` group: rounds until `least` are left, or None if far more are."""
    graph = _Graph.of(problem, device)
    longest = graph.longest_path()
    finite = problem.device_memory[np.isfinite(problem.device_memory)]
    most_memory = MEMORY_SHARE * float(finite.max(initial=0.0)) if len(finite) else np.inf
    tolerance = 0.0
    while graph.count > least and tolerance <= MOST_TOLERANCE * longest:
        before = graph.count
        graph.round(least, tolerance, most_weight, most_memory, rng)
        if graph.count > LEAST_PROGRESS * before:
            tolerance = max(2 * tolerance, TOLERANCE * longest, 1e-300)
    return graph.group if graph.count <= LEAST_PROGRESS * problem.op_count else None


def _weight(problem: Problem, device: Ints | None) -> Floats:
    """`[op]` seconds: on its device, or on the mean device that supports it."""
    if device is None:
        return mean_op_time(problem)
    found: Floats = problem.op_time[np.arange(problem.op_count), device]
    return found


@dataclass
class _Graph:
    """Groups of the ops of a problem, and the edges between them; `round` joins some."""

    group: Ints
    """`[op]`; all that follows is by group, edge or unit."""
    count: int
    source: Ints
    target: Ints
    cost: Floats
    """`[edge]` seconds that it takes between the devices of its ends; 0 where these are free."""
    saving: Floats
    """`[edge]` seconds that it takes between two devices, on average."""
    weight: Floats
    label: Ints
    """`[group]` its device: only groups of one label are joined."""
    unit: Ints
    parent: Ints
    unit_memory: Floats
    unit_weight: Floats
    unit_allowed: Bits

    @classmethod
    def of(cls, problem: Problem, device: Ints | None) -> _Graph:
        n, units = problem.op_count, problem.unit_count
        weight, saving = _weight(problem, device), mean_edge_time(problem)
        cost = np.zeros(problem.edge_count)
        label = np.zeros(n, dtype=np.int32)
        if device is not None:
            label = device
            a, b = device[problem.edge_producer], device[problem.consumers]
            seconds = (
                problem.link_latency[a, b]
                + problem.tensor_bytes[problem.edge_tensor] * problem.link_seconds_per_byte[a, b]
            )
            cost = np.where(a == b, 0.0, seconds)
        edges = _distinct(n, problem.edge_producer, problem.consumers, cost, saving)
        return cls(
            np.arange(n, dtype=np.int32),
            n,
            *edges,
            weight=weight,
            label=label,
            unit=problem.op_unit,
            parent=np.arange(units, dtype=np.int32),
            unit_memory=problem.unit_memory.copy(),
            unit_weight=np.bincount(problem.op_unit, weight, units).astype(np.float64),
            unit_allowed=_bits(problem.unit_allowed),
        )

    def longest_path(self) -> float:
        head, tail = self._paths(self._order())
        return float((head + tail).max())

    def round(
        self,
        least: int,
        tolerance: float,
        most_weight: float,
        most_memory: float,
        rng: np.random.Generator,
    ) -> None:
        """Join each group with one other at most, the best pairs first, down to `least` groups."""
        order = self._order()
        depth = kernel.depths_of(order, self._readers, self.target)
        one, two, saved = self._pairs(depth)
        if not len(one):
            return
        lost, stretched = kernel.losses(
            one, two, self.source, self.target, self.cost, self.weight, *self._paths(order)
        )
        score = lost + STRETCH * stretched - saved
        kept = score <= tolerance
        one, two, score = one[kept], two[kept], score[kept]
        score = score + SIZE * (self.weight[one] + self.weight[two])
        score = score + NOISE * np.abs(score) * rng.random(len(score))
        best = np.argsort(score, kind="stable")
        by_target = np.argsort(self.target, kind="stable")
        partner = kernel.join_pairs(
            one[best],
            two[best],
            depth,
            self._readers,
            self.target,
            _offsets(self.count, self.target),
            self.source[by_target],
            self.unit,
            self.parent,
            self.unit_memory,
            self.unit_weight,
            self.unit_allowed,
            most_memory,
            most_weight,
            least,
        )
        self._join(partner)

    @property
    def _readers(self) -> Whole:
        return _offsets(self.count, self.source)  # edges come by source

    def _order(self) -> Ints:
        waiting = np.bincount(self.target, minlength=self.count)
        roots = np.flatnonzero(waiting == 0).astype(np.int32)
        order: Ints = breadth_first_order(self._readers, self.target, waiting, roots)
        return order

    def _paths(self, order: Ints) -> tuple[Floats, Floats]:
        head, tail = kernel.heads_and_tails(
            order, self.weight, self._readers, self.target, self.cost
        )
        return head, tail

    def _pairs(self, depth: Ints) -> tuple[Ints, Ints, Floats]:
        """Pairs that may be joined (producer first), and the seconds of transfers this saves."""
        close = (depth[self.target] == depth[self.source] + 1) & (
            self.label[self.source] == self.label[self.target]
        )
        one, two, saved = [self.source[close]], [self.target[close]], [self.saving[close]]
        # Siblings: neighbours, by weight, among the readers of a group and among those it reads.
        for ends, others in ((self.source, self.target), (self.target, self.source)):
            order = np.lexsort(
                (others, self.weight[others], self.label[others], depth[others], ends)
            )
            a, b = order[:-1], order[1:]
            alike = (
                (ends[a] == ends[b])
                & (depth[others[a]] == depth[others[b]])
                & (self.label[others[a]] == self.label[others[b]])
            )
            one.append(others[a[alike]])
            two.append(others[b[alike]])
            saved.append(np.minimum(self.saving[a[alike]], self.saving[b[alike]]))
        return np.concatenate(one), np.concatenate(two), np.concatenate(saved)

    def _join(self, partner: Ints) -> None:
        kept, place = np.unique(
            np.minimum(partner, np.arange(self.count, dtype=np.int32)), return_inverse=True
        )
        number: Ints = place.astype(np.int32)
        self.weight = np.bincount(number, self.weight, len(kept)).astype(np.float64)
        self.label, self.unit = self.label[kept], self.unit[kept]
        self.group = number[self.group]
        self.count = len(kept)
        self.source, self.target, self.cost, self.saving = _distinct(
            self.count, number[self.source], number[self.target], self.cost, self.saving
        )


def _offsets(count: int, ends: Ints) -> Whole:
    return np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=count))])


def _distinct(
    count: int, source: Ints, target: Ints, cost: Floats, saving: Floats
) -> tuple[Ints, Ints, Floats, Floats]:
    """Edges between different groups, each once with the sums of all like it, by source."""
    apart = source != target
    key, place = np.unique(
        source[apart].astype(np.int64) * count + target[apart], return_inverse=True
    )
    return (
        (key // count).astype(np.int32),
        (key % count).astype(np.int32),
        np.bincount(place, cost[apart], len(key)).astype(np.float64),
        np.bincount(place, saving[apart], len(key)).astype(np.float64),
    )


def _bits(allowed: Flags) -> Bits:
    """`[unit]` the devices allowed, a bit for each set of devices that are allowed together.

    Where there are more sets than bits, the first of them count.
    """
    columns = np.packbits(allowed, axis=0).T
    first = np.sort(np.unique(columns, axis=0, return_index=True)[1])[:MOST_SETS]
    ones = np.uint64(1) << np.arange(len(first), dtype=np.uint64)
    bits: Bits = (allowed[:, first] * ones).sum(axis=1, dtype=np.uint64)
    return bits
