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

Arcs start with what surely crosses, and only those on the current shortest way get a least cut,
until there are none left to do.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from placewright.bounds.bound import Bound
from placewright.graph import Floats
from placewright.kernels.invocation import READS, WRITES, Whole, equal_accelerators, network_of
from placewright.kernels.invocation_hulls import FREE, INSIDE, OUTSIDE, enclose
from placewright.problem import Problem

SOURCE = "a path through subgraphs, each with its least cut"
LONGEST_PATH = 2_000
MOST_CUTS = 10_000
RESOLUTION = 2**40  # whole units that all work and transfers together come to
ENDLESS = 4 * RESOLUTION
PRICE_STEPS = 8
WEIGHTS = ((1.0, 0.1, 0.0), (1.0, 0.0, 1.0), (0.0, 0.0, 0.0), (0.2, 1.0, 0.2))
"""Of compute, memory and transfers, in shares of their totals, in the choice of a path."""


@dataclass
class _Limit:
    deadline: float
    cuts: int

    @property
    def reached(self) -> bool:
        return self.cuts <= 0 or time.monotonic() > self.deadline


def path_bound(
    problem: Problem,
    *,
    seconds: float = math.inf,
    cuts: int = MOST_CUTS,
    target: float = math.inf,
) -> Bound:
    """The best over a few paths; stops after so many seconds or cuts, or at a bound of `target`.

    Without a limit of seconds the same problem has the same bound.
    """
    limit = _Limit(time.monotonic() + seconds, cuts)
    best = Bound(0.0, SOURCE)
    seen: set[tuple[int, ...]] = set()
    for weights in WEIGHTS:
        path = _path(problem, weights)
        if tuple(path) in seen or len(path) > LONGEST_PATH or limit.reached:
            continue
        seen.add(tuple(path))
        value = _Runs(problem, path).bound(limit, target)
        best = max(best, Bound(value, SOURCE), key=lambda each: each.value)
        if best.value >= target:
            break
    return best


def _path(problem: Problem, weights: tuple[float, float, float]) -> list[int]:
    """The heaviest path, by a mixture of compute, memory and transfers, and of ops at least."""
    compute = np.where(np.isfinite(problem.op_time), problem.op_time, np.inf).min(axis=1)
    transfers = np.zeros(problem.op_count)
    np.add.at(transfers, problem.tensor_producer, problem.tensor_bytes)
    weight = np.full(problem.op_count, 1e-6)
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


@dataclass(frozen=True, eq=False)
class _Accelerator:
    """One of several equal accelerators, with `read[tensor]` and `write[tensor]` seconds."""

    device: int
    time: Floats
    read: Floats
    write: Floats

    @classmethod
    def of(cls, problem: Problem, device: int) -> _Accelerator:
        read, write = (
            problem.host_latency[way, device]
            + problem.tensor_bytes * problem.host_seconds_per_byte[way, device]
            for way in (READS, WRITES)
        )
        return cls(device, problem.op_time[:, device], read, write)


class _Runs:
    """The arcs of one path: `length[a, b]`, of a run from place a to b, grows as cuts are found."""

    def __init__(self, problem: Problem, path: list[int]) -> None:
        self.problem = problem
        self.path = path
        self.network = network_of(problem)
        self.span = _spans(problem, path)
        self.tied = problem.options.subgraphs == 1
        self.used = np.flatnonzero(np.diff(problem.consumer_offsets) > 0)
        self.kinds = [_Accelerator.of(problem, group[0]) for group in equal_accelerators(problem)]
        there = problem.is_cpu & np.isfinite(problem.unit_time[problem.op_unit[path]])
        self.on_cpu: Floats = np.where(there, problem.op_time[path], np.inf).min(axis=1)
        self.length = np.full((len(path), len(path)), np.inf)
        for kind in self.kinds:
            for first in range(len(path)):
                np.minimum(self.length[first], self._surely(kind, first), out=self.length[first])
        self.cut_done = np.zeros(self.length.shape, dtype=bool)

    def bound(self, limit: _Limit, target: float) -> float:
        """Seconds: the shortest way when all its arcs are cut, or when time is up."""
        while True:
            length, runs = self._shortest()
            open_runs = [run for run in runs if not self.cut_done[run]]
            if not open_runs or length >= target or math.isinf(length):
                break
            for run in open_runs:
                if limit.reached:
                    return length
                limit.cuts -= 1
                self.length[run] = max(
                    self.length[run], min(self._least_cut(kind, *run) for kind in self.kinds)
                )
                self.cut_done[run] = True
        return 0.0 if math.isinf(length) else length

    def _shortest(self) -> tuple[float, list[tuple[int, int]]]:
        """The length of the shortest way over all places, and its runs."""
        count = len(self.path)
        best = np.full(count + 1, np.inf)
        best[0] = 0.0
        came = np.full(count + 1, -1)
        alone = np.zeros(count + 1, dtype=bool)
        for place in range(count):
            ends = best[place] + self.length[place, place:]
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

    def _surely(self, kind: _Accelerator, first: int) -> Floats:
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
        total[memory > problem.device_memory[kind.device] * (1 + 1e-9)] = np.inf
        total[:first] = np.inf
        turned = np.flatnonzero(~mine[self.path[first:]])
        if len(turned):  # a subgraph has ops of one way
            total[first + turned[0] :] = np.inf
        # Sums of many floats are rounded; lowered by more than the error can be.
        return np.where(np.isfinite(total), np.maximum(total, 0.0) * (1 - 1e-12), np.inf)

    # -- least cuts

    def _least_cut(self, kind: _Accelerator, first: int, last: int) -> float:
        """Seconds that a subgraph with places `first` to `last` of the path takes at least."""
        problem = self.problem
        state = np.empty(problem.op_count, dtype=np.int64)
        way = int(problem.is_backward[self.path[first]])
        if not enclose(
            self.network, problem.topological_order, self.span, first, last, way, kind.device,
            self.tied, state,
        ):  # fmt: skip
            return math.inf
        cut = _Cut(problem, kind, state, way, self.tied)
        return cut.least_within(float(problem.device_memory[kind.device]))


class _Cut:
    """The network of one run: node 0 is the inside, node 1 the outside, then ops and tensors.

    An op on the source's side belongs to the subgraph. Cut are: op → 1, what it takes to compute;
    tensor's reading node → producer, if some reader is in and the producer out; producer →
    writing node, if the producer is in and some reader out.
    """

    def __init__(
        self, problem: Problem, kind: _Accelerator, state: Whole, way: int, tied: bool
    ) -> None:
        self.state, self.way, self.problem = state, way, problem
        self.names = np.where(state == INSIDE, 0, 1)
        self.free = np.flatnonzero(state == FREE)
        self.names[self.free] = 2 + np.arange(len(self.free))
        self.time = np.where(state == OUTSIDE, 0.0, kind.time)
        self.kept = _kept_bytes(problem, way)
        total = float(self.time.sum() + kind.read.sum() + kind.write.sum())
        self.scale = RESOLUTION / total if total > 0 else 1.0
        self.tail, self.head, self.capacity = self._edges(kind, tied)

    def _edges(self, kind: _Accelerator, tied: bool) -> tuple[Whole, Whole, Whole]:
        """All edges but those of computing."""
        problem, names = self.problem, self.names
        reading = 2 + len(self.free) + np.arange(problem.tensor_count)
        writing = reading + problem.tensor_count
        of, consumer = problem.edge_tensor, names[problem.consumers]
        producer = names[problem.tensor_producer]
        endless = np.full(len(of), ENDLESS)
        tails = [consumer, reading, producer, writing[of]]
        heads = [reading[of], producer, writing, consumer]
        room = [endless, self._whole(kind.read), self._whole(kind.write), endless]
        if tied:
            one, other = _mates(problem, self.way)
            tails += [names[one], names[other]]
            heads += [names[other], names[one]]
            room += [np.full(len(one), ENDLESS)] * 2
        tail, head, capacity = (np.concatenate(each) for each in (tails, heads, room))
        used = (tail != head) & (tail != 1) & (head != 0) & (capacity > 0)
        return tail[used], head[used], capacity[used]

    def least_within(self, room: float) -> float:
        """Seconds that any subgraph takes at least that keeps no more than `room` bytes.

        Each subgraph S is a line over the price μ, cost(S) + μ · (memory(S) - room); a cut finds
        the lowest at one μ. The next μ is where the lowest lines known on both sides meet.
        """
        value, kept = self.solve(0.0)
        best = value
        if kept <= room:
            return best
        too_large, roomy = (value, kept), None
        price = value / room if room > 0 else 1.0
        for _ in range(PRICE_STEPS):
            value, kept = self.solve(price)
            best = max(best, value - price * room)
            if kept > room:
                too_large = (value - price * kept, kept)
            else:
                roomy = (value - price * kept, kept)
            if roomy is None:
                price *= 4.0
                continue
            following = (roomy[0] - too_large[0]) / (too_large[1] - roomy[1])
            if not following > 0 or abs(following - price) <= 1e-9 * price:
                break
            price = following
        return best

    def solve(self, price: float) -> tuple[float, float]:
        """Least seconds at `price` seconds per byte kept, and the bytes then kept."""
        from ortools.graph.python import max_flow

        charged = self.time + price * self.kept
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(
            np.concatenate([self.tail, self.names[self.free]]),
            np.concatenate([self.head, np.ones(len(self.free), dtype=np.int64)]),
            np.concatenate([self.capacity, self._whole(charged[self.free])]),
        )
        inside = self.state == INSIDE
        compute = float(charged[inside].sum()) * (1 - 1e-12)
        if not (self.tail == 0).any() or (not (self.head == 1).any() and not len(self.free)):
            return compute, float(self.kept[inside].sum())
        if flow.solve(0, 1) != flow.OPTIMAL:  # nothing is proved
            return 0.0, 0.0
        names = np.array(flow.get_source_side_min_cut())
        inside |= np.isin(self.names, names[names >= 2])
        return compute + flow.optimal_flow() / self.scale, float(self.kept[inside].sum())

    def _whole(self, seconds: Floats) -> Whole:
        """Rounded down, so that a cut is never too long."""
        return np.minimum(np.floor(seconds * self.scale), ENDLESS).astype(np.int64)


def _from(place: Whole, amount: Floats, count: int) -> Floats:
    """`[place]` the sum of the amounts at places up to this one."""
    return np.cumsum(np.bincount(place, amount, count + 1)[:count]).astype(np.float64)


def _mates(problem: Problem, way: int) -> tuple[Whole, Whole]:
    """Pairs of ops of one unit and way, enough to join them all."""
    ops = np.flatnonzero(problem.is_backward == bool(way))
    ops = ops[np.argsort(problem.op_unit[ops], kind="stable")]
    same = problem.op_unit[ops[1:]] == problem.op_unit[ops[:-1]]
    return ops[:-1][same], ops[1:][same]


def _kept_bytes(problem: Problem, way: int) -> Floats:
    """`[op]` its unit's memory, shared out over the unit's ops of this way."""
    mine = problem.is_backward == bool(way)
    count = np.bincount(problem.op_unit[mine], minlength=problem.unit_count)
    kept = problem.unit_memory[problem.op_unit] / np.maximum(count[problem.op_unit], 1)
    return np.where(mine, kept, 0.0)
