"""What the programs for batches start from: chunks of inputs, what may be where, and when.

Inputs are alike, and each device takes some numbers of them only. With g the greatest common
divisor of all these numbers and of L, a *chunk* is g inputs that stay together; counts of inputs
are counts of chunks here.

Chunks lose nothing (`chunks_lose_nothing`) where any placement of single inputs has one of
chunks whose batches are as large and wait for no others:

- g = 1: nothing to show.
- The pairs of ops joined by edges make a forest. For an edge from i to j let f[u, v] be how many
  inputs i has on u and j on v. Its row and column sums are batch sizes, multiples of g, so some
  f' has the same sums, multiples of g only, and is 0 where f is (corners of a transportation
  polytope). Going along a tree, the chunks of i on u go where f' of the next edge says, freely.
- Two chunks (L = 2g). An op is on one device or has half of its inputs on each of two. Let one
  chunk go where input 0 went, the other where input 0 did not. The first then waits for nothing
  new. Nor does the second: of ops i and j that share an edge, fewer than 2g inputs are with input
  0 at i or at j, so some input is elsewhere at both.

In other cases placements of chunks may miss the optimum: then nothing that was proved of them is
claimed for the problem. Under contention a transfer takes the longer the more inputs go in it,
which none of this looks at: there a chunk is a single input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from placewright.analysis.precedence import Precedence
from placewright.formulations.time_windows import Ways, time_windows
from placewright.graph import Flags, Floats, Ints
from placewright.outcome import BatchSchedule
from placewright.plan import Placement
from placewright.problem import Problem
from placewright.simulate.batch import run_batches
from placewright.solvers.mathopt import HORIZON, LOOSE

Batch = tuple[int, int]
"""An op and a device."""


@dataclass(frozen=True, eq=False)
class BatchIncumbent:
    """The best plan so far."""

    placement: Placement
    schedule: BatchSchedule

    @property
    def value(self) -> float:
        return self.schedule.value


def timed_batches(problem: Problem, placement: Placement) -> BatchIncumbent:
    return BatchIncumbent(placement, run_batches(problem, placement))


def chunk_size(problem: Problem) -> int:
    """g: the inputs that stay together; 1 under contention."""
    if problem.options.contention != "none":
        return 1
    some = np.isfinite(problem.batch_time).any(axis=(0, 1))
    return math.gcd(problem.options.batch, *problem.batch_sizes[some].tolist())


def chunks_lose_nothing(problem: Problem) -> bool:
    """Whether a placement of chunks is among the best ones (see the module's text)."""
    chunk = chunk_size(problem)
    if chunk == 1 or problem.options.batch <= 2 * chunk:
        return True
    unit = problem.op_unit
    ends = np.stack([unit[problem.edge_producer], unit[problem.consumers]], axis=1)
    pairs = {(min(a, b), max(a, b)) for a, b in ends.tolist() if a != b}
    return _is_forest(problem.unit_count, pairs)


def _is_forest(count: int, pairs: set[tuple[int, int]]) -> bool:
    root = list(range(count))

    def find(unit: int) -> int:
        while root[unit] != unit:
            root[unit] = root[root[unit]]
            unit = root[unit]
        return unit

    for a, b in pairs:
        if find(a) == find(b):
            return False
        root[find(a)] = find(b)
    return True


def chunk_devices(device: Ints, chunk: int) -> Ints | None:
    """`[op, chunk]` of a placement `device[op, input]`, or None if it parts inputs of a chunk.

    Inputs are put in lexicographic order of where they go first: they may be renamed at will.
    """
    by_path = device[:, np.lexsort(device[::-1])]
    groups = by_path.reshape(len(device), -1, chunk)
    return groups[:, :, 0] if (groups == groups[:, :, :1]).all() else None


class BatchInstance:
    """A problem with a horizon: plans that take longer are of no interest.

    Times are scaled so that the horizon is `solver.HORIZON`.

    - `chunk` inputs in a chunk, `chunks` of them; `sizes[size]` in chunks;
    - `allowed[unit, device, size]`: some plan within the horizon may have such a batch;
    - `time[op, device, size]`, `inf` where not allowed; `quickest[op, device]` over the sizes;
    - `moves[producer, consumer]` = `[source, target]` of the longest transfer between the two;
    - `smallest[op, device]` batch, in chunks;
    - `head[op, device]`: no batch of the op starts sooner there; `tail[op, device]`: from the
      end of one to the end of all it is no less. Both follow the path of a single input;
    - `floor[op, device]`: heads are no sooner than this (here 0);
    - `latest_start[op, device]`, `latest_finish[op, device]`: neither is later;
    - `known[unit, chunk]`: the device, or -1 where that is to be found (here everywhere; not so
      in a neighbourhood, see `planners.batch.neighbourhood`).
    """

    def __init__(self, problem: Problem, horizon: float | None) -> None:
        self.problem = problem
        self.precedence = Precedence(problem)
        self.chunk = chunk_size(problem)
        self.chunks = problem.options.batch // self.chunk
        self.known: Ints = np.full((problem.unit_count, self.chunks), -1, dtype=np.int32)
        self.sizes: list[int] = (problem.batch_sizes // self.chunk).tolist()
        self.units = [np.flatnonzero(problem.op_unit == u).tolist() for u in _units(problem)]
        longest = self._longest_of_interest() if horizon is None else horizon
        self.scale = longest * (1 + LOOSE) / HORIZON
        self.moves = self._moves()
        self.floor: Floats = np.zeros((problem.op_count, problem.device_count))
        self._narrow()
        least = np.where(self.allowed, np.array(self.sizes), self.chunks + 1).min(axis=2)
        self.smallest: Ints = least[problem.op_unit]

    def _longest_of_interest(self) -> float:
        """All batches of one input each and all transfers in a row, each at its slowest."""
        problem = self.problem
        finite = np.where(np.isfinite(problem.batch_time), problem.batch_time, 0.0)
        ops = finite.max(axis=2).sum()
        sizes = problem.tensor_bytes[problem.edge_tensor]
        moves = problem.link_latency.max() + sizes * problem.link_seconds_per_byte.max()
        if problem.options.contention != "none":
            moves = moves * problem.options.batch
        return float(ops + moves.sum()) or 1.0

    def _moves(self) -> dict[tuple[int, int], Floats]:
        problem = self.problem
        largest: dict[tuple[int, int], float] = {}
        ends = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
        for pair, tensor in zip(ends, problem.edge_tensor.tolist(), strict=True):
            size = float(problem.tensor_bytes[tensor])
            largest[pair] = max(largest.get(pair, 0.0), size)
        moves = {}
        for pair, size in largest.items():
            time = (problem.link_latency + size * problem.link_seconds_per_byte) / self.scale
            np.fill_diagonal(time, 0.0)
            moves[pair] = time
        return moves

    def _possible(self) -> Flags:
        problem = self.problem
        possible = np.repeat(problem.unit_allowed[:, :, None], len(self.sizes), axis=2)
        np.logical_and.at(possible, problem.op_unit, np.isfinite(problem.batch_time))
        return possible

    def _narrow(self) -> None:
        problem, unit = self.problem, self.problem.op_unit
        ends = np.array(list(self.moves), dtype=np.int32).reshape(-1, 2)
        delay = np.array(list(self.moves.values())).reshape(-1, *problem.link_latency.shape)
        together = unit[ends[:, 0]] == unit[ends[:, 1]]
        apart = ~np.eye(problem.device_count, dtype=np.bool_)
        delay[together[:, None, None] & apart] = np.inf
        found = time_windows(
            self._possible(),
            problem.batch_time / self.scale,
            unit,
            Ways(ends[:, 0], ends[:, 1], delay, problem.topological_rank),
            (self.floor, np.zeros(self.floor.shape)),
            HORIZON,
        )
        self.allowed, self.time, self.quickest = found.allowed, found.time, found.quickest
        self.head, self.tail = found.head, found.tail
        self.latest_finish: Floats = HORIZON - self.tail
        self.latest_start: Floats = self.latest_finish - self.quickest

    def arranged(self, device: Ints) -> Ints:
        """``device[op, chunk]`` with the chunks in lexicographic order of where they go.

        What stands first is what rows that order chunks (`alike`) look at.
        """
        keys = np.concatenate([self.known, device[self.precedence.order]])
        return device[:, np.lexsort(keys[::-1])]

    def alike(self) -> list[tuple[int, int]]:
        """Neighbouring chunks that can be exchanged: all that is known of them is the same."""
        return [
            (one, two)
            for one, two in pairwise(range(self.chunks))
            if (self.known[:, one] == self.known[:, two]).all()
        ]

    def devices(self, unit: int) -> list[int]:
        """Where batches of the unit may be."""
        return np.flatnonzero(self.allowed[unit].any(axis=1)).tolist()

    def sizes_on(self, unit: int, device: int) -> list[int]:
        """Which sizes, by number, its batches may have there."""
        return np.flatnonzero(self.allowed[unit, device]).tolist()

    def orders(self) -> list[tuple[int, int, int]]:
        """`(one, two, device)`: if `one` has a batch there, it ends before that of `two` starts."""
        return []

    def rivals(self) -> list[tuple[int, int, int]]:
        """`(one, two, device)`: ops whose batches there are in no order that is known.

        Batches of an op and of its descendant are ordered if they share an input, which they
        must where the two smallest sizes make more than all inputs; otherwise either may be
        first. Windows that do not meet order all others.
        """
        found = []
        for device in range(self.problem.device_count):
            here = [op for op in self.precedence.order if np.isfinite(self.quickest[op, device])]
            found += [
                (one, two, device)
                for place, one in enumerate(here)
                for two in here[place + 1 :]
                if self._compete(one, two, device)
            ]
        return found

    def _compete(self, one: int, two: int, device: int) -> bool:
        """Whether it is open which of two batches is first; `one` is first topologically."""
        if (
            self.latest_finish[one, device] <= self.head[two, device]
            or self.latest_finish[two, device] <= self.head[one, device]
        ):
            return False
        share = self.smallest[one, device] + self.smallest[two, device] > self.chunks
        return not (share and self.precedence.ordered(one, two))


def _units(problem: Problem) -> range:
    return range(problem.unit_count)
