"""Multilevel annealing for the least largest load, and `annealing`, the planner that is all of it.

Annealing unit by unit sticks: what a good plan moves are whole blocks whose inner nets are too
costly to cut on the way. A round therefore contracts units along random heavy nets (sometimes
only within devices, so that the best plan survives), anneals the coarse problem, and refines it
level by level down to single units. Rounds go on from a few good plans, the elites; where those
lead to nothing better for long, the search starts anew. The best plan is kept.

Levels are annealed with the moves of `block-moves`; without levels these end 0.3 to 12 % higher on
the published graphs (12 % on BERT-12 in training) after as many moves.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from placewright.analysis.contracted import unit_graph
from placewright.budget import Budget, Progress, no_progress
from placewright.errors import InfeasibleError
from placewright.graph import Floats, Ints
from placewright.kernels.throughput.annealing import anneal
from placewright.kernels.throughput.loads import refill
from placewright.planners.base import MemoryAccount, Proposal, whole_number
from placewright.planners.joining import in_random_order, levels
from placewright.planners.throughput.joining import Nodes, shared_nets
from placewright.planners.throughput.linear_dp import LinearDP
from placewright.planners.throughput.reporting import PipelineReporter, start_units
from placewright.planners.throughput.row_cuts import RowCuts
from placewright.problem import LONG_ROUNDING, Problem

STEPS_PER_CHOICE = 10  # of a level: annealing steps per unit and device
FEWEST_STEPS = 2_000
COARSEST = 10  # units at the least
SMALLER = 0.45  # units of a level as a share of those of the next finer one
FRESH_SHARE = 0.1  # of the rounds, start from nothing
HOT, WARM, COOL, COLD = 0.3, 0.03, 0.01, 2e-5  # temperatures as shares of the best value
SQUARINGS = (3, 4, 5, 6)
DEFAULT_ROUNDS = 40
STEPS_BETWEEN_LOOKS = 20_000  # at the clock
ELITES = 4
CHAMPIONS = 6
CROSS_SHARE = 0.2  # of the rounds, start from what two plans have in common
QUIET_ROUNDS = 40  # without a better elite, and the elites are given up
NO_ROW = np.zeros(0, dtype=np.int32)
START_ORDERS, START_SECONDS = 4, 10.0
MOST_FOR_LINES = 3_000  # units; of more, the row of the devices is given (`row-cuts`)


@dataclass
class Found:
    """The best so far: ``unit_device[unit]`` and its value in seconds."""

    unit_device: Ints
    value: float


class MultilevelAnnealing:
    """Rounds of multilevel annealing (Kirkpatrick et al. 1983; coarsening as in METIS).

    Starts from the best contiguous plan of a few linear orders. Has no replicas, and no rows of
    devices: contiguous plans are not for it. Options: `steps`, annealing steps in all, moves that
    come to nothing included (without it and without a time limit, `DEFAULT_ROUNDS` rounds).
    """

    name: ClassVar[str] = "annealing"
    objective: ClassVar[str] = "throughput"

    def __init__(self, steps: str | int | None = None) -> None:
        self.steps = None if steps is None else whole_number(self.name, "steps", steps)

    def supports(self, problem: Problem) -> str | None:
        if problem.options.contiguous:
            return (
                "it does not keep devices in a row; set contiguous false, or use ideal-dp or "
                "max-load-ip"
            )
        return None

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        start = start_units(problem, budget)
        if start is None:
            start = first_plan(problem, seed, budget)
        search = Multilevel(problem, seed, start)
        reporter = PipelineReporter(problem, budget)
        unlimited = self.steps is None and not math.isfinite(budget.seconds)
        rounds = DEFAULT_ROUNDS if unlimited else math.inf
        most = math.inf if self.steps is None else self.steps
        done = 0
        with contextlib.suppress(KeyboardInterrupt):  # what was found so far is the answer
            while done < rounds and budget.left > 0 and search.steps < most and search.can_improve:
                share = (done / rounds, search.steps / most, 1 - budget.left / budget.seconds)
                on_progress("annealing", min(max(x for x in share if not math.isnan(x)), 1.0))
                search.run(budget, 1, most)
                reporter.found(search.best.unit_device, search.best.value)
                done += 1
        return Proposal(reporter.answer(search.best.unit_device, search.best.value))


class Multilevel:
    """The search, which can be stopped and gone on with at any round.

    >>> search = Multilevel(problem, seed=0, start=unit_device)     # doctest: +SKIP
    >>> search.run(Budget(5.0)).value                               # doctest: +SKIP
    """

    def __init__(
        self, problem: Problem, seed: int, start: Ints, patience: int = QUIET_ROUNDS
    ) -> None:
        self.problem, self.patience = problem, patience
        self.graph = unit_graph(problem)
        self.rng = np.random.default_rng(seed)
        self.steps = 0
        self.best = Found(np.array(start, dtype=np.int32), math.inf)
        self.elites: list[Found] = []
        self.champions: list[Found] = []  # the best of elites given up
        self.quiet = 0  # rounds since the best of the elites was found
        self.warm, self.cold = WARM, COLD
        self.keep(self.best.unit_device)

    def meet(self, other: Found) -> None:
        """Take in another search's best plan, to be crossed with one's own."""
        self.champions = [*self.champions[: CHAMPIONS - 1], other]
        if other.value < self.best.value:
            self.best = other

    @property
    def can_improve(self) -> bool:
        return self.best.value > 0.0 and bool((self.graph.allowed.sum(axis=1) > 1).any())

    def run(self, budget: Budget, rounds: float = math.inf, most_steps: float = math.inf) -> Found:
        """Rounds until one of the limits is reached; Ctrl-C is the caller's care."""
        done = 0
        while self.can_improve and done < rounds and budget.left > 0 and self.steps < most_steps:
            self.round(budget, most_steps)
            done += 1
        return self.best

    def round(self, budget: Budget, most_steps: float = math.inf) -> Found | None:
        """Coarsen, anneal, refine; what comes out, if it fits."""
        origin, within = self._origin()
        fresh = origin is None
        groups = self._coarsen(within)
        placed = self._first(groups[-1], origin)
        hottest = HOT if fresh else self.warm * self.rng.choice([0.1, 0.3, 1.0])
        squarings = int(self.rng.choice(SQUARINGS))
        finer: Ints | None = None
        for group in reversed(groups):
            if finer is not None:  # the coarser level's devices, unit by unit
                if budget.left <= 0:
                    break
                placed = on_groups(group, placed[finer])
                hottest = COOL
                squarings = max(squarings, 5)
            placed = self._anneal(group, placed, hottest, squarings, budget, most_steps)
            finer = group
        return self.keep(placed if finer is None else placed[finer])

    def _origin(self) -> tuple[Ints | None, Ints | None]:
        """The plan that a round starts from, and what it may not join: units with other labels.

        Of two plans, units are joined that are together in both.
        """
        if self.quiet >= self.patience:  # the elites all lead to one place: look elsewhere
            best = sorted([*self.champions, self.elites[0]], key=lambda each: each.value)
            self.champions, self.elites, self.quiet = best[:CHAMPIONS], [], 0
        kind = self.rng.random()
        if self.elites and kind > FRESH_SHARE + CROSS_SHARE:
            one = self.elites[self.rng.integers(len(self.elites))].unit_device
            return one, one
        pool = [*self.champions, *self.elites[:1]]
        crossed = kind > FRESH_SHARE if self.elites else kind > 0.5
        if not crossed or len(pool) < 2:
            return None, None
        first, second = self.rng.choice(len(pool), 2, replace=False)
        one, two = pool[first].unit_device, pool[second].unit_device
        return one, one * self.problem.device_count + two

    # -- levels --------------------------------------------------------------------------------

    def _coarsen(self, within: Ints | None) -> list[Ints]:
        """`[unit]` group of every level, the finest (each unit its own) first.

        Pairs of units that share a net are joined in a random order that favours heavy nets,
        unless they would be too big, no device allows both, or `within` has them apart.
        """
        units, devices = self.graph.node_count, self.problem.device_count
        most = max(COARSEST + 1, units // 2)
        least = min(most, max(COARSEST, 2 * devices))
        target = int(math.exp(self.rng.uniform(math.log(least), math.log(most))))
        forest = Nodes(self.graph, within)
        return list(levels(forest, in_random_order(*self._shared, self.rng), target, SMALLER))

    @cached_property
    def _shared(self) -> tuple[Ints, Floats]:
        return shared_nets(self.graph)

    def _first(self, group: Ints, origin: Ints | None) -> Ints:
        """`[group]` the devices of `origin`, or random ones that fit."""
        if origin is not None:
            return on_groups(group, origin)
        level = self.graph.contracted(group)
        placed = np.zeros(level.node_count, dtype=np.int32)
        load = np.zeros(self.problem.device_count)
        for unit in np.argsort(-level.time.sum(axis=0).min(axis=1), kind="stable").tolist():
            time = level.time[:, unit].sum(axis=0)
            wanted = (load + time) * self.rng.uniform(1.0, 1.5, len(load))
            device = int(np.where(level.allowed[unit], wanted, np.inf).argmin())
            placed[unit] = device
            load[device] += time[device]
        return placed

    # -- one level -----------------------------------------------------------------------------

    def _anneal(
        self,
        group: Ints,
        placed: Ints,
        hottest: float,
        squarings: int,
        budget: Budget,
        most_steps: float,
    ) -> Ints:
        level = self.graph.contracted(group) if len(placed) < len(group) else self.graph
        movable = np.flatnonzero(level.allowed.sum(axis=1) > 1).astype(np.int32)
        if not len(movable):
            return placed
        arrays = level.arrays
        state = level.loads(placed)
        steps = max(FEWEST_STEPS, STEPS_PER_CHOICE * len(movable) * self.problem.device_count)
        first, last = hottest * self.best.value, self.cold * self.best.value
        done = 0
        while done < steps and budget.left > 0 and self.steps < most_steps:
            count = int(min(STEPS_BETWEEN_LOOKS, steps - done, most_steps - self.steps))
            start, end = (first * (last / first) ** (at / steps) for at in (done, done + count))
            anneal(
                arrays, state, movable, NO_ROW, self.rng, count, self.best.value, start, end,
                squarings,
            )  # fmt: skip
            refill(arrays, state)
            done += count
            self.steps += count
        return state.best if state.best_value[0] < math.inf else state.node_device

    def keep(self, unit_device: Ints) -> Found | None:
        """Among the elites if it is good; the best of all in `best`. None if it does not fit."""
        state = self.graph.loads(unit_device)
        if state.best_value[0] == math.inf:
            return None
        found = Found(state.node_device.copy(), float(state.best_value[0]))
        if found.value < self.best.value:
            self.best = found
        leads = not self.elites or found.value < self.elites[0].value
        self.quiet = 0 if leads else self.quiet + 1
        others = [
            e for e in self.elites if abs(e.value - found.value) > LONG_ROUNDING * found.value
        ]
        self.elites = sorted([*others, found], key=lambda each: each.value)[:ELITES]
        return found


def first_plan(problem: Problem, seed: int, budget: Budget) -> Ints:
    """`[unit]` the best contiguous plan of a few linear orders, or else one that fits.

    NoRoomError if none is found.
    """
    single = replace(problem, options=replace(problem.options, replicate=False, shares="equal"))
    lines: LinearDP | RowCuts = LinearDP(START_ORDERS)
    if problem.unit_count > MOST_FOR_LINES or lines.supports(single) is not None:
        lines = RowCuts()
    limit = Budget(min(START_SECONDS, budget.left))  # the first order is looked at in any case
    with contextlib.suppress(InfeasibleError):
        device = lines.plan(single, limit, seed, no_progress).placement.device
        return device[np.unique(problem.op_unit, return_index=True)[1]]
    account = MemoryAccount(problem, "annealing")
    fastest = np.argsort(
        problem.unit_time.sum(axis=0, where=np.isfinite(problem.unit_time))
    ).astype(np.int32)
    for unit in np.argsort(-problem.unit_memory, kind="stable").tolist():
        account.place_first(unit, fastest)
    return account.unit_device


def on_groups(group: Ints, unit_device: Ints) -> Ints:
    """`[group]` the device of one of its units (of all, where groups lie within devices)."""
    placed = np.zeros(int(group.max()) + 1, dtype=np.int32)
    placed[group] = unit_device
    return placed
