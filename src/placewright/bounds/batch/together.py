"""The mean path of an input and the work of the devices, weighed against each other.

A larger batch takes less time for each input, and more for the batch: what spares work makes paths
longer. `mean_path` and `work` price one of the two each. Let f be a flow of α along the edges, that
may begin and end at any op, f_o what of it passes through op o and f_e along edge e; λ_d ≥ 0
weights of the devices with α + Σ_d λ_d ≤ 1; and μ_d ≥ 0 prices of memory. A flow is made of paths,
so

    α T  ≥  Σ_o f_o Σ_d (n_d / L) t[o, d, n_d]  +  Σ_e f_e w_e,

with Σ_d n_d = L as in `mean_path`, and w_e the mean over the inputs of what they wait for their
tensor; and λ_d T ≥ λ_d load_d as in `work`. With potentials π of `arrivals`, added up over units u
of ops that are split alike and keep m_u bytes,

    T  ≥  Σ_u min over splits n of Σ_d c[u, d, n_d]  −  Σ_d μ_d M_d,
    c[u, d, n_d]  =  Σ_{o∈u} (λ_d + f_o n_d / L) t[o, d, n_d]  +  μ_d m_u [n_d > 0]
                     +  Σ_{e into u} ρ_e(n_d)  −  Σ_{e out of u} π_e(n_d).

The best right side is the value of a linear program: a share of each split of each unit, when
inputs come to each op on average, and how many devices go from so many chunks to so many, such that
no kind of devices has more work or memory than there is. It is solved over the splits seen so far.
Its dual values are f, λ, μ and π, and the splits that are cheapest under these are added, until
none is new (column generation; Gilmore & Gomory, 1961), or over all where they are few. Every round
gives a bound: what the solver's tolerances change is how good it is, not whether it holds. Devices
of a kind have prices alike.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np

from placewright.bounds.batch.arrivals import Arrivals
from placewright.bounds.batch.program import Prices, SplitsProgram, Tables
from placewright.bounds.batch.splits import ROOM, Splits, all_splits, priced
from placewright.bounds.bound import Bound
from placewright.budget import Budget, Progress
from placewright.graph import Floats, Wide
from placewright.kernels.batch.arrays import batches_of
from placewright.problem import LONG_ROUNDING, Problem

SOURCE = "path and work together"
MOST_ROUNDS, CLOSE = 40, 1e-4
MOST_ROWS, MOST_STEPS = 3_000, 2e7  # of the program; of a search for the cheapest splits
MOST_LISTED = 20_000  # splits of all units: these are all in the program from the beginning
MOST_CHUNKS = 16  # of which there may be so few splits
AT_ONCE, ALONE = 10_000, 100_000
"""Pairs of counts at the two ends of an edge, of all edges and kinds: for these it takes up to half
a second to count transfers, or ten, which others can work in meanwhile."""


def path_and_work(problem: Problem) -> Bound:
    """The bound of the module's text; 0 seconds for a program that is too large.

    Where there are more pairs than can be solved at once, or too many splits, nobody waits for a
    tensor.
    """
    rows = problem.op_count + problem.edge_count + problem.unit_count
    units, _, counts = batches_of(problem).unit_time.shape
    if rows > MOST_ROWS or units * problem.device_count * counts**2 > MOST_STEPS:
        return Bound(0.0, SOURCE)
    return _bound(_Units(problem, AT_ONCE), Budget())


def prove(
    problem: Problem,
    budget: Budget,
    incumbent: float = float("inf"),
    on_progress: Progress | None = None,
) -> Bound:
    """`path_and_work` of problems with more pairs."""
    if not AT_ONCE < _pairs(problem) <= ALONE:
        return Bound(0.0, SOURCE)
    units = _Units(problem, ALONE)
    return _bound(units, budget) if units.few_splits else Bound(0.0, SOURCE)


def _pairs(problem: Problem) -> int:
    _, kinds, counts = batches_of(problem).unit_time.shape
    return int(problem.edge_count * kinds * counts**2)


def _bound(units: _Units, budget: Budget) -> Bound:
    if not units.seconds:
        return Bound(0.0, SOURCE)
    best, splits = units.cheapest(units.work_alone())
    if np.isfinite(best):
        program = SplitsProgram(units.problem, units.tables)
        program.add(units.few_splits)
        for done in range(MOST_ROUNDS):
            if not program.add(enumerate(splits)) and done:
                break
            solved = program.solve(budget)
            if solved is None:
                break
            value, splits = units.cheapest(solved[1])
            best = max(best, value)
            if solved[0] <= best * (1 + CLOSE):
                break
    return Bound(best * units.seconds * (1 - LONG_ROUNDING), SOURCE)


class _Units:
    """The units, what their splits cost, and the cheapest of them for given prices."""

    def __init__(self, problem: Problem, most_pairs: int) -> None:
        """With arrivals if there are at most so many pairs."""
        b = batches_of(problem)
        self.problem, self._kind = problem, b.kind
        work = np.where(b.allowed, b.unit_time, 0.0)
        self.seconds = float(work.max(axis=(1, 2), initial=0.0).sum())
        self.few_splits = self._few_splits()
        if self.seconds:
            self.tables = self._tables(work, self._arrivals(most_pairs))

    def _few_splits(self) -> list[tuple[int, Wide]]:
        """All splits, each with its unit, where that is `MOST_LISTED` at most; none where not."""
        allowed, devices = batches_of(self.problem).allowed, np.bincount(self._kind)
        if allowed.shape[2] - 1 > MOST_CHUNKS:
            return []
        table = allowed.reshape(len(allowed), -1)
        first, kind = np.unique(table, axis=0, return_index=True, return_inverse=True)[1:]
        most = MOST_LISTED + 1
        listed = [list(islice(all_splits(allowed[each], devices), most)) for each in first]
        found = [(unit, listed[each]) for unit, each in enumerate(kind.ravel())]
        if sum(len(splits) for _, splits in found) > MOST_LISTED:
            return []
        return [(unit, split) for unit, splits in found for split in splits]

    def _tables(self, work: Floats, arrivals: Arrivals) -> Tables:
        problem, b = self.problem, batches_of(self.problem)
        time = np.where(b.allowed[problem.op_unit], b.time, 0.0) / self.seconds
        count = np.arange(work.shape[2])
        room = np.bincount(b.kind, problem.device_memory)
        return Tables(
            devices=np.bincount(b.kind),
            work=work / self.seconds,
            mean=time * (count / count[-1]),
            usable=b.allowed & (count > 0),
            memory=problem.unit_memory[:, None] / np.where(room > 0, room, np.inf),
            arrivals=arrivals,
        )

    def _arrivals(self, most_pairs: int) -> Arrivals:
        """In times of all units together."""
        if _pairs(self.problem) > most_pairs or not self.few_splits:
            return Arrivals.none(self.problem)
        found = Arrivals.of(self.problem)
        return replace(found, cost=found.cost / self.seconds)

    def work_alone(self) -> Prices:
        """All devices weigh alike, and nothing else has a price."""
        devices, arrivals = self.tables.devices, self.tables.arrivals
        return Prices(
            weight=np.full(len(devices), 1.0 / devices.sum()),
            flow=np.zeros(self.problem.op_count),
            memory=np.zeros(len(devices)),
            through=np.zeros(len(arrivals.edge)),
            potential=np.zeros(arrivals.cost.shape[:3]),
        )

    def cheapest(self, prices: Prices) -> tuple[float, Wide]:
        """The bound of these prices, and the cheapest splits: ``devices[unit, kind, count]``."""
        tables, arrivals = self.tables, self.tables.arrivals
        cost = tables.work * prices.weight[:, None]
        np.add.at(cost, self.problem.op_unit, prices.flow[:, None, None] * tables.mean)
        np.subtract.at(cost, arrivals.producer, prices.potential)
        lowered = arrivals.lowered(prices.potential, prices.through)
        np.add.at(cost, arrivals.consumer, lowered)
        cost = np.where(batches_of(self.problem).allowed, cost, np.inf)
        cost = priced(cost, tables.memory, prices.memory)
        values, chunks = Splits.cheapest(cost[:, self._kind])
        value = float(values.sum() - ROOM * prices.memory.sum())
        return value, self._by_kind(chunks)

    def _by_kind(self, chunks: Wide) -> Wide:
        """``devices[unit, kind, count]`` from ``chunks[unit, device]``."""
        found = np.zeros(self.tables.work.shape, dtype=np.int64)
        each = np.arange(len(chunks))[:, None]
        np.add.at(found, (each, self._kind[None, :], chunks), 1)
        return found
