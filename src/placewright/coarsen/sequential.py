"""Optimal operation fusion: groups of neighbours in a topological order (Celeritas Alg. 1).

Neighbours in a topological order contract to a DAG, whatever they are (Lemma 2); so the order is
cut where that costs least, by dynamic programming (Kernighan 1971), in time linear in ops times
reach. A few hundred groups instead of tens of thousands of ops, which send each other a fraction
of the bytes, are what `planners.latency.construct.celeritas` places.
"""

from __future__ import annotations

from typing import Literal, cast, get_args

import numpy as np

from placewright.analysis.orders import by_label, mean_edge_time, mean_op_time, order_named
from placewright.errors import OptionError
from placewright.graph import Flags, Floats, Ints, Wide, frozen
from placewright.kernels.latency.sequential import ALONE, cheapest_cuts
from placewright.problem import Problem

REACH = 200
MEMORY_FRACTION = 0.25

Measure = Literal["edge", "tensor"]

LARGEST_TOTAL = 2.0**60
"""Costs become whole numbers that add up to no more, so that adding them is exact."""


def sequential_groups(
    problem: Problem,
    *,
    order: str = "cpd",
    reach: int = REACH,
    memory_fraction: float = MEMORY_FRACTION,
    measure: str | None = None,
) -> Ints:
    """`[op]` group: consecutive ops of a topological order, cut where least is sent (Alg. 1).

    Groups are numbered in the order. Each has at most `reach` ops (the paper's R) and
    `memory_fraction` (its M) of the memory of a device, the lower median of those that have any;
    an op larger than that is alone. Of the cheapest cuts the one with the fewest groups is taken.

    `order` is a name of `analysis.orders.ORDERS`. `measure` says what a cut costs: per ``edge``
    the mean transfer time for every consumer in another group (eq. 4), per ``tensor`` once for
    every other group that reads it; the default is the problem's transfer unit.

    For every group, and for all groups that colocation ties to it, some device supports all ops,
    is the one they are pinned to, and has the memory. See `_tied` for how.

    OptionError for an option out of range.

    >>> group = sequential_groups(problem, reach=100)   # doctest: +SKIP
    >>> coarse = contract(problem, group).problem       # doctest: +SKIP
    """
    if reach < 1:
        raise OptionError(f"reach is {reach}; a group needs at least 1 op")
    if not memory_fraction > 0:
        raise OptionError(
            f"memory_fraction is {memory_fraction}; give a share above 0, such as {MEMORY_FRACTION}"
        )
    line = order_named(order, problem)
    measure = check_measure(measure or problem.options.transfer_unit)
    cutter = _Cutter(problem, line, reach, memory_fraction, measure)
    group = cutter.cut(line)
    return group if cutter.leads.all() else _tied(cutter, line, group)


def ccr(problem: Problem) -> float:
    """Communication-to-computation ratio: all transfers by all op times (Celeritas eq. 1).

    Seconds of sending every tensor to every consumer over the mean route, by seconds of running
    every op on the mean device that supports it; `inf` where ops take no time but tensors do.
    What colocated ops give each other is never sent and does not count.
    """
    apart = problem.op_unit[problem.edge_producer] != problem.op_unit[problem.consumers]
    sending = float(mean_edge_time(problem)[apart].sum())
    computing = float(mean_op_time(problem).sum())
    if computing == 0:
        return float("inf") if sending > 0 else 0.0
    return sending / computing


def check_measure(measure: str) -> Measure:
    """The same name; OptionError if there is no such measure."""
    if measure not in get_args(Measure):
        raise OptionError(f"measure is '{measure}'; choose {', '.join(get_args(Measure))}")
    return cast(Measure, measure)


def _tied(cutter: _Cutter, line: Ints, group: Ints) -> Ints:
    """Groups for a problem with colocation, from those that ignore it.

    Contraction keeps groups together that hold colocated ops. Cut without regard for that, a
    training graph becomes a single chain of ties: each group of the backward pass holds ops that
    belong to two groups of the forward pass. So every unit belongs to the group of its first op,
    ops that belong to different groups are kept apart, and what those of one group send each
    other costs nothing. To have them stand together in the first place, the order is gone
    through group by group (`orders.by_label`); ops of no unit go with their forward twin.
    """
    problem = cutter.problem
    owner = group[cutter.leader]
    colocated = np.bincount(problem.op_unit)[problem.op_unit] > 1
    label = np.where(colocated, owner, ALONE)
    twin = problem.forward_twin
    line = by_label(problem, line, np.where(~colocated & (twin >= 0), owner[twin], owner))
    pure = np.zeros(problem.op_count, dtype=np.bool_)
    while True:
        group = cutter.cut(line, label, pure)
        homeless = cutter.homeless(group, label) & ~pure
        if not homeless.any():
            return group
        pure |= homeless  # without the ops of no unit it can be placed, as its first group could


class _Cutter:
    """What it takes to cut a line of the ops of `problem`, in numbers.

    `leader[op]` is the op of its unit that comes first in `line`, `leads[op]` whether it is that
    itself. A unit's memory counts where its leader is: there it is decided where the unit goes.
    """

    def __init__(
        self, problem: Problem, line: Ints, reach: int, memory_fraction: float, measure: Measure
    ) -> None:
        self.problem, self.reach, self.measure = problem, reach, measure
        self.cost = _whole(mean_edge_time(problem))
        self.allowed = np.isfinite(problem.unit_time)[problem.op_unit]
        self.limit = memory_fraction * _usual_memory(problem)
        first = np.full(problem.unit_count, problem.op_count)
        np.minimum.at(first, problem.op_unit, _positions(line))
        self.leader = line[first[problem.op_unit]]
        self.leads = self.leader == np.arange(problem.op_count)
        self.memory = np.where(self.leads, problem.unit_memory[problem.op_unit], 0.0)

    def cut(self, line: Ints, label: Ints | None = None, pure: Flags | None = None) -> Ints:
        """`[op]` group of the cheapest cut; `label` and `pure` per op as in `cheapest_cuts`."""
        problem, n = self.problem, self.problem.op_count
        label = np.full(n, ALONE, dtype=np.int32) if label is None else label
        pure = np.zeros(n, dtype=np.bool_) if pure is None else pure
        producer, consumer = problem.edge_producer, problem.consumers
        tied = (label[producer] == label[consumer]) & (label[producer] != ALONE)
        begin = cheapest_cuts(
            *self._inputs(line, np.where(tied, 0, self.cost)),
            self.memory[line],
            self.allowed[line],
            problem.device_memory,
            self.limit,
            label[line],
            pure[line],
            self.reach,
        )
        starts = np.zeros(n, dtype=np.int32)
        end = n
        while end > 0:
            end = int(begin[end])
            starts[end] = 1
        group = np.empty(n, dtype=np.int32)
        group[line] = np.cumsum(starts) - 1
        return frozen(group, np.int32)

    def _inputs(self, line: Ints, cost: Wide) -> tuple[Wide, Wide, Wide]:
        """What the op at each position reads: CSR offsets, `input_after` and `input_cost`."""
        problem, position = self.problem, _positions(line)
        reader = position[problem.consumers]
        after = position[problem.edge_producer]
        if self.measure == "tensor":  # what a group reads already is not sent to it again
            by_tensor = np.lexsort((reader, problem.edge_tensor))
            again = np.flatnonzero(np.diff(problem.edge_tensor[by_tensor], prepend=-1) == 0)
            after[by_tensor[again]] = reader[by_tensor[again - 1]]
        edge = np.argsort(reader, kind="stable")
        offsets = np.searchsorted(reader[edge], np.arange(problem.op_count + 1))
        return offsets, after[edge], cost[edge]

    def homeless(self, group: Ints, label: Ints) -> Flags:
        """`[op]` whether it has a label and no device can take all groups with that label."""
        problem = self.problem
        home = np.full(int(group.max()) + 1, ALONE)
        np.maximum.at(home, group, label)
        tied = np.flatnonzero(home[group] != ALONE)  # has a label, or is in a group that does
        owner = home[group[tied]]
        count = int(label.max()) + 1
        allowed = np.ones((count, problem.device_count), dtype=np.bool_)
        np.logical_and.at(allowed, owner, self.allowed[tied])
        memory = np.bincount(owner, problem.op_memory[tied], count)
        fits: Flags = allowed & (memory[:, None] <= problem.device_memory)
        full: Flags = ~fits.any(axis=1, keepdims=True).ravel()
        return frozen((label != ALONE) & full[np.maximum(label, 0)], np.bool_)


def _positions(line: Ints) -> Wide:
    position = np.empty(len(line), dtype=np.int64)
    position[line] = np.arange(len(line))
    return position


def _whole(cost: Floats) -> Wide:
    """Costs as whole numbers, in a unit so small that floating point would round more."""
    total = float(cost.sum())
    exponent = np.floor(np.log2(LARGEST_TOTAL / total)) if total > 0 else 0.0
    return np.round(np.ldexp(cost, int(exponent))).astype(np.int64)


def _usual_memory(problem: Problem) -> float:
    """The lower median of the devices' memory, those without any aside."""
    memory = np.sort(problem.device_memory[problem.device_memory > 0])
    return float(memory[(len(memory) - 1) // 2]) if len(memory) else 0.0
