"""A problem as a policy sees it: few nodes with features and edges, and what a placement costs."""

from __future__ import annotations

import zlib

import numpy as np

from placewright.analysis.orders import mean_edge_time, mean_op_time
from placewright.coarsen.contraction import Contraction, contract
from placewright.graph import Flags, Floats, Ints, Wide
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.dispatch import dispatch, floor_of
from placewright.plan import Placement
from placewright.planners.latency.search.multilevel.levels import coarsen
from placewright.problem import Problem
from placewright.simulate.latency import rank_order

TYPES = 32
"""Kinds of ops that a policy tells apart: a type's checksum says which it is."""


class Nodes:
    """The units of a problem in topological order, of a coarser one if it has more than `most`.

    Of `count` nodes and `devices`: `features[node, feature]` of about 1, `kind[node]` below
    `TYPES`, edges from `source` to `target`, and `allowed[node, device]`. `seconds` is what all
    nodes take one after another, each where it is fastest: makespans are told in it, so that
    policies know no units.
    """

    def __init__(self, problem: Problem, most: int) -> None:
        self.contraction = _contraction(problem, most)
        self.problem = coarse = self.contraction.problem if self.contraction else problem
        self.count, self.devices = coarse.unit_count, coarse.device_count
        first = np.full(self.count, coarse.op_count)
        np.minimum.at(first, coarse.op_unit, coarse.topological_rank)
        self.unit: Wide = np.argsort(first, kind="stable")
        """`[node]` its unit."""
        node_of = np.argsort(self.unit)
        self.op_node: Wide = node_of[coarse.op_unit]
        self.allowed: Flags = coarse.unit_allowed[self.unit]
        self.seconds = float(coarse.unit_time.min(axis=1).sum()) or 1.0
        self.memory: Floats = coarse.unit_memory[self.unit]
        self.kind = self._kinds()
        ends = np.stack([self.op_node[coarse.edge_producer], self.op_node[coarse.consumers]])
        self.source, self.target = np.unique(ends[:, ends[0] != ends[1]], axis=1)
        self.features = self._features()
        self._arrays = arrays_of(coarse)
        self._floor = floor_of(self._arrays)
        self._rank = np.empty(coarse.op_count, dtype=np.int64)
        order = rank_order(coarse, mean_op_time(coarse), mean_edge_time(coarse))
        self._rank[order] = np.arange(coarse.op_count)
        self._sequence = np.empty(coarse.op_count + coarse.edge_count, dtype=np.int32)

    @property
    def has_choice(self) -> bool:
        """Whether some node may be on more than one device."""
        return bool((self.allowed.sum(axis=1) > 1).any())

    def start(self, placement: Placement) -> Ints:
        """`[node]` where `placement` has it; where it is fastest if that does not fit so coarse."""
        if self.contraction is not None:
            projected = self.contraction.project(placement)
            if projected is None:
                fastest = np.where(self.allowed, self.problem.unit_time[self.unit], np.inf)
                found: Ints = fastest.argmin(axis=1).astype(np.int32)
                return found
            placement = projected
        return self.problem.unit_device(placement.device)[self.unit]

    def timed(self, node_device: Ints) -> tuple[float, float]:
        """Seconds, as in `simulate.latency.dispatch_placement`, and memory above what there is.

        That is the sum of the devices' excesses, each as a share of what the device has.
        """
        used = np.bincount(node_device, self.memory, self.devices)
        over = used > self.problem.device_memory
        has = np.maximum(self.problem.device_memory[over], 1.0)
        device = node_device[self.op_node].astype(np.int32)
        value = dispatch(self._arrays, device, self._rank, self._floor, self._sequence)
        return float(value), float((used[over] / has - 1.0).sum())

    def placement(self, node_device: Ints) -> Placement:
        """Of the whole problem, in the order in which it was timed."""
        self.timed(node_device)
        device = node_device[self.op_node].astype(np.int32)
        found = Placement(device, self._sequence.copy())
        return self.contraction.expand(found) if self.contraction else found

    def _kinds(self) -> Wide:
        """`[node]` the kind of its op that takes longest."""
        names = [zlib.crc32(each.encode()) % TYPES for each in self.problem.op_types]
        by_time = np.argsort(mean_op_time(self.problem), kind="stable")
        kind = np.zeros(self.count, dtype=np.int64)
        kind[self.op_node[by_time]] = np.array(names)[by_time]
        return kind

    def _features(self) -> Floats:
        """Times and where it is allowed by device, memory, bytes in and out, places in the order.

        Its own place, and the mean places of the nodes before and after it.
        """
        problem, count = self.problem, self.count
        time = np.where(self.allowed, problem.unit_time[self.unit], 0.0)
        moving = mean_edge_time(problem)
        came = np.bincount(self.op_node[problem.consumers], moving, count)
        goes = np.bincount(self.op_node[problem.edge_producer], moving, count)
        finite = problem.device_memory[np.isfinite(problem.device_memory)]
        share = self.memory / max(float(finite.mean()), 1.0) if len(finite) else 0.0 * self.memory
        place = np.linspace(0.0, 1.0, count)
        columns = [
            np.log1p(np.column_stack([time, came, goes]) * count / self.seconds),
            self.allowed,
            share[:, None],
            place[:, None],
            _mean_over(place, self.source, self.target)[:, None],
            _mean_over(place, self.target, self.source)[:, None],
        ]
        return np.concatenate(columns, axis=1)


def feature_count(devices: int) -> int:
    """Columns of `Nodes.features`."""
    return 2 * devices + 6


def _mean_over(values: Floats, source: Wide, target: Wide) -> Floats:
    """`[node]` mean of the values at the other ends of its edges, its own if it has none."""
    number = np.bincount(target, minlength=len(values))
    total = np.bincount(target, values[source], len(values))
    return np.where(number > 0, total / np.maximum(number, 1), values)


def _contraction(problem: Problem, most: int) -> Contraction | None:
    """Ops joined pair by pair (as by planner `multilevel`) to about `most`; None for fewer."""
    if problem.unit_count <= most:
        return None
    levels = coarsen(problem, None, most, np.random.default_rng(0))
    if not levels:
        return None
    group = levels[0].op_group
    for level in levels[1:]:
        group = level.op_group[group]
    return contract(problem, group)
