"""The arcs of one chain of ops: what the subgraph takes at least that holds some of its places.

See `bounds.invocation.path` for the argument.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from placewright.analysis.comparable import spans
from placewright.bounds.invocation.between import Between
from placewright.bounds.invocation.cut import (
    PRICE_STEPS,
    Accelerator,
    LeastCut,
    capacity_of,
    next_price,
)
from placewright.bounds.invocation.ways import Run, Ways
from placewright.bounds.prices import HopedFor
from placewright.graph import Flags, Floats, Whole
from placewright.kernels.invocation.hulls import enclose
from placewright.kernels.invocation.timing import equal_accelerators, network_of
from placewright.problem import LONG_ROUNDING, ROUNDING, Problem

MOST_PRICES = 40
BEYOND = 1e3  # times what any plan takes at most: the bound where there is no plan


@dataclass
class Limit:
    """When to stop, and how many cuts are left."""

    deadline: float
    cuts: int

    def reached(self) -> bool:
        return self.cuts <= 0 or time.monotonic() > self.deadline


class Runs:
    """The arcs of a chain: `length[kind, a, b]`, of a run from place a to b on such an accelerator.

    They grow as cuts are found. With `between` what ops between two places take is counted beside
    the runs; then these pay nothing for computing such ops on either side of them.
    """

    def __init__(self, problem: Problem, chain: list[int], *, with_between: bool) -> None:
        self.problem = problem
        self.path = chain
        self.network = network_of(problem)
        self.span = spans(problem, chain)
        self.tied = problem.options.subgraphs == 1
        self.used = np.flatnonzero(np.diff(problem.consumer_offsets) > 0)
        groups = equal_accelerators(problem)
        self.kinds = [Accelerator.of(problem, group[0]) for group in groups]
        there = problem.is_cpu & np.isfinite(problem.unit_time[problem.op_unit[chain]])
        self.on_cpu: Floats = np.where(there, problem.op_time[chain], np.inf).min(axis=1)
        self.capacity = capacity_of(problem, float(problem.device_memory[~problem.is_cpu].sum()))
        self.kept = np.array([self._surely_kept(first) for first in range(len(chain))])
        self.paces = _paces(self.kinds)
        self.length = self._sure_lengths()
        self.cut_done = np.zeros(self.length.shape, dtype=np.bool_)
        slots = [problem.options.subgraphs * len(group) for group in groups]
        self.between = self._between(slots) if with_between else None
        if self.between is not None:
            for number, kind in enumerate(self.kinds):  # then a cut has nothing to add
                self.cut_done[number] = not (kind.read.any() or kind.write.any())
        ways = problem.is_backward[chain]
        self.ways = Ways(slots, self.paces, np.append(False, ways[1:] != ways[:-1]), self.between)

    def _sure_lengths(self) -> Floats:
        """`[kind, first, last]` as of `_surely`, infinite beyond the accelerator's memory."""
        places = range(len(self.path))
        memory = np.array([self._surely_held(first) for first in places])
        shape = len(self.kinds), len(self.path), len(self.path)
        length = np.empty(shape)
        for number, kind in enumerate(self.kinds):
            like = int(np.flatnonzero(self.paces == self.paces[number])[0])
            if like == number:
                length[number] = [self._surely(kind, first) for first in places]
            else:
                length[number] = length[like]
        for number, kind in enumerate(self.kinds):
            room = self.problem.device_memory[kind.device] * (1 + LONG_ROUNDING)
            length[number][memory > room] = np.inf
        return length

    def _between(self, slots: list[int]) -> Between:
        allowed = self.problem.unit_allowed[self.problem.op_unit]
        times = [np.where(allowed[:, k.device], k.time, np.inf) for k in self.kinds]
        return Between(self.problem, self.path, times, slots, self.paces)

    def bounds(self, limit: Limit) -> Iterator[float]:
        """Seconds: the shortest way again and again, with ever more arcs cut, at several prices.

        Goes on to the next price when all arcs of the shortest way are cut. Ends when the
        accelerators hold what the way keeps, or when time is up.
        """
        price, too_large, fitting = 0.0, None, None
        for _ in range(1 + PRICE_STEPS):
            while True:
                length, runs = self.ways.shortest(self.length + price * self.kept, self.on_cpu)
                if math.isinf(length):  # there is no plan at all
                    yield BEYOND * self._longest()
                    return
                yield length * (1 - ROUNDING) - price * self.capacity
                open_runs = [run for run in runs if not self.cut_done[run]]
                if not open_runs or limit.reached():
                    break
                self._cut(open_runs, limit)
            kept = sum(float(self.kept[first, last]) for _, first, last in runs)
            line = length - price * kept, kept
            too_large, fitting = (line, fitting) if kept > self.capacity else (too_large, line)
            following = next_price(price, too_large, fitting, self.capacity)
            if following is None or limit.reached():
                return
            price = following

    def bounds_by_pace(self, limit: Limit) -> Iterator[float]:
        """Seconds: as `bounds`, with prices of memory that differ by how fast accelerators are.

        For clusters without CPUs, where each op is in a run, between two, or beside.
        """
        assert self.between is not None
        number = int(self.paces.max()) + 1
        memory = self.problem.device_memory[~self.problem.is_cpu]
        pace = np.empty(self.problem.device_count, dtype=np.int64)
        for kind, devices in enumerate(equal_accelerators(self.problem)):
            pace[devices] = self.paces[kind]
        room = np.minimum(memory, self.problem.unit_memory.sum()) * (1 + LONG_ROUNDING)
        room = np.bincount(pace[~self.problem.is_cpu], room, number)
        kept, price, target = self._kept_alone(), np.zeros(number), HopedFor(MOST_PRICES)
        while not (limit.reached() or target.given_up):
            between = self.between.priced(price[self.paces], kept)
            charged = self.length + price[self.paces][:, None, None] * self.kept
            length, runs = self.ways.shortest(charged, self.on_cpu, between)
            if math.isinf(length):
                return
            value = length * (1 - LONG_ROUNDING) - float(price @ room) * (1 + LONG_ROUNDING)
            yield value
            used = np.zeros(number)
            used[price.argmin()] = self._outside(runs, kept)
            for kind, first, last in runs:
                used[self.paces[kind]] += self.kept[first, last]
            price = target.next_prices(price, value, used - room)

    def _outside(self, runs: list[Run], kept: Floats) -> float:
        """Bytes of what lies between the runs."""
        assert self.between is not None
        inside = {place for _, first, last in runs for place in range(first + 1, last + 1)}
        places = [place for place in range(len(self.path) + 1) if place not in inside]
        return sum(float(kept[self.between.ops[place]].sum()) for place in places)

    def _kept_alone(self) -> Floats:
        """`[op]` the share of its unit's bytes that is the op's alone; 0 where others share it."""
        problem = self.problem
        alone = self._ops_by_pass[problem.is_backward.astype(np.int64), problem.op_unit] == 1
        return np.where(alone, self._share[problem.op_unit], 0.0) * (1 - ROUNDING)

    @cached_property
    def _ops_by_pass(self) -> Whole:
        """`[pass, unit]` how many ops of a unit are of the pass."""
        problem = self.problem
        count = np.zeros((2, problem.unit_count), dtype=np.int64)
        np.add.at(count, (problem.is_backward.astype(np.int64), problem.op_unit), 1)
        return count

    @cached_property
    def _share(self) -> Floats:
        """`[unit]` bytes of each of its ops; of all in a pass, where these are in one subgraph."""
        count = self._ops_by_pass
        parts = (count > 0).sum(axis=0) if self.tied else count.sum(axis=0)
        return np.asarray(self.problem.unit_memory / parts)

    def _longest(self) -> float:
        """Seconds: all ops one after another where they take longest, each tensor ever so often."""
        problem = self.problem
        slowest = np.where(np.isfinite(problem.op_time), problem.op_time, 0.0).max(axis=1)
        moved = [(kind.read.sum(), kind.write.sum()) for kind in self.kinds]
        most = max((float(sum(each)) for each in moved), default=0.0)
        return float(slowest.sum()) + most * problem.op_count

    def _cut(self, runs: list[Run], limit: Limit) -> None:
        """Lengthen the arcs of these runs to their least cuts, or of some if time is up."""
        for run in runs:
            if limit.reached():
                return
            limit.cuts -= 1
            self.length[run] = max(self.length[run], self._least_cut(*run))
            self.cut_done[run] = True

    # -- what surely belongs to a run, for all its ends at once

    def _surely(self, kind: Accelerator, first: int) -> Floats:
        """`[last]` seconds of computing what lies between, and of what surely crosses; or inf."""
        problem, count = self.problem, len(self.path)
        low, high = self.span[:, 0], self.span[:, 1]
        starts = problem.consumer_offsets[:-1][self.used]
        producer = problem.tensor_producer[self.used]
        back = problem.is_backward
        mine = back == back[self.path[first]]
        inside = self._inside(first)
        total = _from(high[inside], kind.time[inside], count)
        reader = problem.consumers
        read_at = np.where(mine[reader] & (low[reader] >= first), high[reader], count)
        read_at = np.minimum.reduceat(read_at, starts)
        reads = ((high[producer] < first) | ~mine[producer]) & (read_at < count)
        total += _from(read_at[reads], kind.read[self.used][reads], count)
        last_read = np.where(mine[reader], low[reader], count)
        last_read = np.maximum.reduceat(last_read, starts)
        writes = inside[producer] & (last_read > high[producer])
        cost = kind.write[self.used][writes]
        total += _from(high[producer][writes], cost, count)
        # Sums of many floats are rounded, and lowered by more than the error can be: here, for what
        # comes off again may be nearly all of them.
        total *= 1 - ROUNDING
        total -= _from(last_read[writes], cost, count)
        total[:first] = np.inf
        turned = np.flatnonzero(~mine[self.path[first:]])
        if len(turned):  # a subgraph has ops of one way
            total[first + turned[0] :] = np.inf
        return np.maximum(total, 0.0)

    def _surely_held(self, first: int) -> Floats:
        """`[last]` bytes that the device of a run keeps: of the units of ops between its places."""
        return self._of_units(first, self.problem.unit_memory)

    def _surely_kept(self, first: int) -> Floats:
        """`[last]` bytes that a run keeps, of each unit the share that no other run counts."""
        if self.tied:
            return self._of_units(first, self._share) * (1 - ROUNDING)
        inside, high = self._inside(first), self.span[:, 1]
        share = self._share[self.problem.op_unit[inside]]
        return _from(high[inside], share, len(self.path)) * (1 - ROUNDING)

    def _inside(self, first: int) -> Flags:
        """`[op]` whether it is in a run from this place to some other, for it lies between."""
        back, span = self.problem.is_backward, self.span
        mine: Flags = back == back[self.path[first]]
        return mine & (span[:, 0] >= first) & (span[:, 1] < len(self.path))

    def _of_units(self, first: int, amount: Floats) -> Floats:
        """`[last]` the sum of ``amount[unit]`` over the units of ops in a run to there."""
        problem, count = self.problem, len(self.path)
        inside = self._inside(first)
        unit_at = np.full(problem.unit_count, count)
        np.minimum.at(unit_at, problem.op_unit[inside], self.span[inside, 1])
        placed = unit_at < count
        return _from(unit_at[placed], amount[placed], count)

    # -- least cuts

    def _least_cut(self, number: int, first: int, last: int) -> float:
        """Seconds that a subgraph with places `first` to `last` of the chain takes at least."""
        problem, kind = self.problem, self.kinds[number]
        state = np.empty(problem.op_count, dtype=np.int64)
        way = int(problem.is_backward[self.path[first]])
        if not enclose(
            self.network, problem.topological_order, self.span, first, last, way, kind.device,
            self.tied, state,
        ):  # fmt: skip
            return math.inf
        if self.between is not None:
            time = kind.time.copy()
            time[self.between.ops[first]] = time[self.between.ops[last + 1]] = 0.0
            kind = replace(kind, time=time)
        cut = LeastCut(problem, kind, state, way, self.tied)
        return cut.least_within(capacity_of(problem, float(problem.device_memory[kind.device])))


def _from(place: Whole, amount: Floats, count: int) -> Floats:
    """`[place]` the sum of the amounts at places up to this one."""
    return np.cumsum(np.bincount(place, amount, count + 1)[:count]).astype(np.float64)


def _paces(kinds: Sequence[Accelerator]) -> Whole:
    """`[kind]` a number, the same for those that compute, read and write as fast."""
    number: dict[tuple[bytes, ...], int] = {}
    columns = ((kind.time, kind.read, kind.write) for kind in kinds)
    keys = [tuple(column.tobytes() for column in each) for each in columns]
    return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)
