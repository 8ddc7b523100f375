"""A path through subgraphs: the strong lower bound on invocation latency.

Take any path v_0 → … → v_{m-1} of the graph, and any plan. As subgraphs are contiguous, the ops
of the path that one subgraph S holds are neighbours on it, v_a … v_b. So the plan divides the path
into such runs and single ops on CPUs. One after another, they start when the one before has
ended: v_{a-1} is an input of S, and what v_b makes is there when S has ended. Hence

    latency  ≥  Σ_{runs} (reading + computing + writing of S)  +  Σ_{ops on CPUs} their time,

and a shortest way over the places of the path, an arc being a run or an op on a CPU, is a lower
bound if no arc is longer than what it stands for can be. For a run a … b:

- S holds all that lies between its ops, and with one subgraph per accelerator the whole units of
  its ops; this must fit the accelerator's memory, or there is no such arc;
- S holds nothing that comes before v_{a-1} or after v_{b+1} (there would be a way out and back);
- so S costs at least the *least cut* of a network in which these two sets are the source and the
  target, other ops are on either side, and what a side costs is its computing plus each tensor
  that crosses, once for writing and once for reading;
- where the least cut's S overflows the memory M, μ ≥ 0 seconds per byte are charged for what S
  keeps, and μ·M given back: a lower bound for every μ.

Together the runs keep no more than the accelerators' memory M: a run keeps at least the units
whose ops lie between its own, and each unit counts once however many runs it has ops in (shared
out over its ops; or where each accelerator has one subgraph per way, over its ways, as all its
ops of one way are then in one subgraph). So for every λ ≥ 0 seconds per byte

    latency  ≥  Σ_{runs} (its arc + λ · bytes it keeps)  +  Σ_{ops on CPUs} their time  -  λ · M,

and a shortest way with such arcs, less λ · M, is a lower bound too: the better one where the
accelerators cannot hold the model, as without it all ops of a path may be on one in turn.

Arcs start with what surely crosses, and only those on the current shortest way get a least cut,
until there are none left to do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placewright.bounds.bound import Bound, nowhere
from placewright.bounds.invocation.cut import (
    PRICE_STEPS,
    Accelerator,
    LeastCut,
    capacity_of,
    next_price,
)
from placewright.graph import Floats, Whole
from placewright.kernels.invocation.hulls import enclose
from placewright.kernels.invocation.timing import equal_accelerators, network_of
from placewright.problem import LONG_ROUNDING, ROUNDING, Problem

if TYPE_CHECKING:
    from placewright.budget import Budget

SOURCE = "a path through subgraphs, each with its least cut"
LONGEST_PATH = 2_000
MOST_CUTS = 10_000
OP_WEIGHT = 1e-6  # of an op on a path, beside shares of what all ops take
TELL_SECONDS = 0.5  # between two bounds that somebody is told of
WEIGHTS = ((1.0, 0.1, 0.0), (1.0, 0.0, 1.0), (0.0, 0.0, 0.0), (0.2, 1.0, 0.2))
"""Of compute, memory and transfers, in shares of their totals, in the choice of a path."""


@dataclass
class _Limit:
    deadline: float
    cuts: int

    def reached(self) -> bool:
        return self.cuts <= 0 or time.monotonic() > self.deadline


Tell = Callable[[Bound], None]


def prove(problem: Problem, budget: Budget, incumbent: float = math.inf) -> Bound:
    """`path_bound` within the budget, whose listener hears of each bound that is better.

    `incumbent`, the latency of a plan known, ends the search where nothing is left to prove.
    """
    listener = budget.listener
    return path_bound(
        problem,
        seconds=budget.left,
        target=incumbent,
        tell=lambda bound: listener.proved(min(bound.value, incumbent), bound.source),
    )


def path_bound(
    problem: Problem,
    *,
    seconds: float = math.inf,
    cuts: int = MOST_CUTS,
    target: float = math.inf,
    tell: Tell | None = None,
) -> Bound:
    """The best over a few paths; stops after so many seconds or cuts, or at a bound of `target`.

    `tell` hears of each that is better than all before. Without a limit of seconds the same
    problem has the same bound.
    """
    if none := nowhere(problem):
        return none
    limit = _Limit(time.monotonic() + seconds, cuts)
    best, news = Bound(0.0, SOURCE), _News(tell)
    for value in _values(problem, limit):
        best = max(best, Bound(value, SOURCE), key=lambda each: each.value)
        news.hear(best)
        if best.value >= target:
            break
    news.hear(best, last=True)
    return best


class _News:
    """Tells of better bounds, but not too often."""

    def __init__(self, tell: Tell | None) -> None:
        self.tell = tell
        self.told, self.since = 0.0, -math.inf

    def hear(self, bound: Bound, last: bool = False) -> None:
        if self.tell is None or bound.value <= self.told:
            return
        if last or time.monotonic() - self.since >= TELL_SECONDS:
            self.told, self.since = bound.value, time.monotonic()
            self.tell(bound)


def _values(problem: Problem, limit: _Limit) -> Iterator[float]:
    """Seconds: one bound after another, of several paths, until the limit."""
    seen: set[tuple[int, ...]] = set()
    for weights in WEIGHTS:
        path = _path(problem, weights)
        if tuple(path) in seen or len(path) > LONGEST_PATH or limit.reached():
            continue
        seen.add(tuple(path))
        yield from _Runs(problem, path).bounds(limit)


def _path(problem: Problem, weights: tuple[float, float, float]) -> list[int]:
    """The heaviest path, by a mixture of compute, memory and transfers, and of ops at least."""
    compute = np.where(np.isfinite(problem.op_time), problem.op_time, np.inf).min(axis=1)
    transfers = np.zeros(problem.op_count)
    np.add.at(transfers, problem.tensor_producer, problem.tensor_bytes)
    weight = np.full(problem.op_count, OP_WEIGHT)
    for share, amount in zip(weights, (compute, problem.op_memory, transfers), strict=True):
        weight += share * amount / max(float(amount.sum()), 1e-300)
    length = weight.copy()
    before = np.full(problem.op_count, -1)
    offsets, edges = problem.op_inputs
    for op in problem.topological_order.tolist():
        for edge in edges[offsets[op] : offsets[op + 1]]:
            producer = int(problem.edge_producer[edge])
            if length[producer] + weight[op] > length[op]:
                length[op] = length[producer] + weight[op]
                before[op] = producer
    path = [int(length.argmax())]
    while before[path[-1]] >= 0:
        path.append(int(before[path[-1]]))
    return path[::-1]


def _spans(problem: Problem, path: list[int]) -> Whole:
    """`[op, 0]` the last place of the path that leads to the op, `[op, 1]` the first it leads to.

    -1 and the path's length where there is none; an op of the path has its own place twice.
    """
    span = np.empty((problem.op_count, 2), dtype=np.int64)
    span[:, 0], span[:, 1] = -1, len(path)
    span[path, 0] = span[path, 1] = np.arange(len(path))
    offsets, edges = problem.op_inputs
    order = problem.topological_order.tolist()
    for op in order:
        for edge in edges[offsets[op] : offsets[op + 1]]:
            span[op, 0] = max(span[op, 0], span[problem.edge_producer[edge], 0])
    for op in reversed(order):
        for edge in edges[offsets[op] : offsets[op + 1]]:
            producer = problem.edge_producer[edge]
            span[producer, 1] = min(span[producer, 1], span[op, 1])
    return span


class _Runs:
    """The arcs of one path: `length[a, b]`, of a run from place a to b, grows as cuts are found."""

    def __init__(self, problem: Problem, path: list[int]) -> None:
        self.problem = problem
        self.path = path
        self.network = network_of(problem)
        self.span = _spans(problem, path)
        self.tied = problem.options.subgraphs == 1
        self.used = np.flatnonzero(np.diff(problem.consumer_offsets) > 0)
        self.kinds = [Accelerator.of(problem, group[0]) for group in equal_accelerators(problem)]
        there = problem.is_cpu & np.isfinite(problem.unit_time[problem.op_unit[path]])
        self.on_cpu: Floats = np.where(there, problem.op_time[path], np.inf).min(axis=1)
        self.capacity = capacity_of(problem, float(problem.device_memory[~problem.is_cpu].sum()))
        self.length = np.full((len(path), len(path)), np.inf)
        self.kept = np.array([self._surely_kept(first) for first in range(len(path))])
        for kind in self.kinds:
            for first in range(len(path)):
                np.minimum(self.length[first], self._surely(kind, first), out=self.length[first])
        self.cut_done = np.zeros(self.length.shape, dtype=bool)

    def bounds(self, limit: _Limit) -> Iterator[float]:
        """Seconds: the shortest way again and again, with ever more arcs cut, at several prices.

        Goes on to the next price when all arcs of the shortest way are cut. Ends when the
        accelerators hold what the way keeps, or when time is up.
        """
        price, too_large, fitting = 0.0, None, None
        for _ in range(1 + PRICE_STEPS):
            while True:
                length, runs = self._shortest(price)
                if math.isinf(length):  # no plan holds this path
                    return
                yield length - price * self.capacity
                open_runs = [run for run in runs if not self.cut_done[run]]
                if not open_runs or limit.reached():
                    break
                self._cut(open_runs, limit)
            kept = sum(float(self.kept[run]) for run in runs)
            line = length - price * kept, kept
            too_large, fitting = (line, fitting) if kept > self.capacity else (too_large, line)
            following = next_price(price, too_large, fitting, self.capacity)
            if following is None or limit.reached():
                return
            price = following

    def _cut(self, runs: list[tuple[int, int]], limit: _Limit) -> None:
        """Lengthen the arcs of these runs to their least cuts, or of some if time is up."""
        for run in runs:
            if limit.reached():
                return
            limit.cuts -= 1
            cut = min(self._least_cut(kind, *run) for kind in self.kinds)
            self.length[run] = max(self.length[run], cut)
            self.cut_done[run] = True

    def _shortest(self, price: float) -> tuple[float, list[tuple[int, int]]]:
        """The length of the shortest way over all places, what it keeps paid for, and its runs."""
        count = len(self.path)
        best = np.full(count + 1, np.inf)
        best[0] = 0.0
        came = np.full(count + 1, -1)
        alone = np.zeros(count + 1, dtype=bool)
        for place in range(count):
            ends = best[place] + self.length[place, place:] + price * self.kept[place, place:]
            better = np.flatnonzero(ends < best[place + 1 :]) + place + 1
            best[better] = ends[better - place - 1]
            came[better], alone[better] = place, False
            if best[place] + self.on_cpu[place] < best[place + 1]:
                best[place + 1] = best[place] + self.on_cpu[place]
                came[place + 1], alone[place + 1] = place, True
        runs: list[tuple[int, int]] = []
        end = count
        while end > 0 and came[end] >= 0:
            if not alone[end]:
                runs.append((int(came[end]), end - 1))
            end = int(came[end])
        return float(best[count]), runs

    # -- what surely belongs to a run, for all its ends at once

    def _surely(self, kind: Accelerator, first: int) -> Floats:
        """`[last]` seconds of computing what lies between, and of what surely crosses; or inf."""
        problem, count = self.problem, len(self.path)
        low, high = self.span[:, 0], self.span[:, 1]
        starts = problem.consumer_offsets[:-1][self.used]
        producer = problem.tensor_producer[self.used]
        back = problem.is_backward
        mine = back == back[self.path[first]]
        inside = mine & (low >= first) & (high < count)
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
        total -= _from(last_read[writes], cost, count)
        unit_at = np.full(problem.unit_count, count)
        np.minimum.at(unit_at, problem.op_unit[inside], high[inside])
        placed = unit_at < count
        memory = _from(unit_at[placed], problem.unit_memory[placed], count)
        total[memory > problem.device_memory[kind.device] * (1 + LONG_ROUNDING)] = np.inf
        total[:first] = np.inf
        turned = np.flatnonzero(~mine[self.path[first:]])
        if len(turned):  # a subgraph has ops of one way
            total[first + turned[0] :] = np.inf
        # Sums of many floats are rounded; lowered by more than the error can be.
        return np.where(np.isfinite(total), np.maximum(total, 0.0) * (1 - ROUNDING), np.inf)

    def _surely_kept(self, first: int) -> Floats:
        """`[last]` bytes that a run keeps, of each unit the share that no other run counts."""
        problem, count = self.problem, len(self.path)
        low, high = self.span[:, 0], self.span[:, 1]
        inside = (problem.is_backward == problem.is_backward[self.path[first]]) & (low >= first)
        inside &= high < count
        if not self.tied:
            share = problem.unit_memory / np.bincount(problem.op_unit)
            return _from(high[inside], share[problem.op_unit[inside]], count) * (1 - ROUNDING)
        ways = np.zeros((2, problem.unit_count))
        ways[problem.is_backward.astype(np.int64), problem.op_unit] = 1
        unit_at = np.full(problem.unit_count, count)
        np.minimum.at(unit_at, problem.op_unit[inside], high[inside])
        placed = unit_at < count
        share = problem.unit_memory / ways.sum(axis=0)
        return _from(unit_at[placed], share[placed], count) * (1 - ROUNDING)

    # -- least cuts

    def _least_cut(self, kind: Accelerator, first: int, last: int) -> float:
        """Seconds that a subgraph with places `first` to `last` of the path takes at least."""
        problem = self.problem
        state = np.empty(problem.op_count, dtype=np.int64)
        way = int(problem.is_backward[self.path[first]])
        if not enclose(
            self.network, problem.topological_order, self.span, first, last, way, kind.device,
            self.tied, state,
        ):  # fmt: skip
            return math.inf
        cut = LeastCut(problem, kind, state, way, self.tied)
        return cut.least_within(capacity_of(problem, float(problem.device_memory[kind.device])))


def _from(place: Whole, amount: Floats, count: int) -> Floats:
    """`[place]` the sum of the amounts at places up to this one."""
    return np.cumsum(np.bincount(place, amount, count + 1)[:count]).astype(np.float64)
