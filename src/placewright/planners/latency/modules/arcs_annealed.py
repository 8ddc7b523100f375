"""Annealed arcs of a chain of modules: the plans of each so far, and how to find a better one.

DiviML (§IV-B1) solves modules exactly. Those with hundreds of ops, such as all heads of a layer,
are annealed instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event
from typing import Literal

import numpy as np

from placewright.analysis.parts import Part, longest_paths
from placewright.budget import Budget, no_progress
from placewright.coarsen import Coarser, coarsen
from placewright.errors import PlacewrightError
from placewright.formulations.latency.incumbent import Incumbent, timed
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.planners.latency.modules.branches import shared_start
from placewright.planners.latency.modules.chain import Chain, Pair
from placewright.planners.latency.modules.equal_branches import Twins, twins_of
from placewright.planners.latency.search import refining
from placewright.planners.latency.search.multilevel import Multilevel
from placewright.planners.latency.search.strings import Annealing
from placewright.planners.latency.search.walk import breadth_first_sequence
from placewright.problem import LONG_ROUNDING, Problem

MOST_PLANS = 4  # that an arc keeps: the shortest, and others that take other memory
FIRST_STARTS = 3  # turns, before those that go on from the best
MOST_IN_VAIN = 2  # turns before one that begins with new starts, for a share of its time
GAIN = 1e-3  # less is in vain
STARTS, START_SHARE = 3, 0.6
START_SECONDS_PER_OP = 0.003
SECONDS_PER_OP = 0.006  # of the other turns, at first
LONGER, TURNS_ROUND = 0.5, 6  # of that, by which they get longer after so many turns
COLDEST, WARMTH = 0.05, 30.0  # the first temperature, in makespans per op: from, and how far up
MOSTLY = 0.5  # of the units are in equal branches
SHARED_SECONDS_PER_OP, SHARED_SECONDS = 0.0036, 1.2  # of a turn that shares out equal branches
LEAST_PER_OP = 0.0015  # of one that has time for it op by op as well
FUSED_SHARE = 0.6  # of the time, where what is fused comes first
COOL = 3.0  # instead of `WARMTH`, after a start that is good as it is
TINY_OPS = 16
EVALUATIONS_PER_OP = 500  # of a tiny module, or in a run counted in turns

GAIN_ELSEWHERE = 0.03  # of the best between other devices, that one not tried may be shorter
SLOWNESS = 0.02  # of what its simple plan is slower, that it is less likely to be
GAIN_PER_TURN = 0.02  # that one tried once may yet get shorter; of n turns an n-th of it

Way = Literal["fused", "shared both ways", "shared", "elsewhere", "starts", "refine"]
SHARING = ("shared", "elsewhere")


@dataclass
class Turn(Budget):
    """What a turn may take: time or, where turns are counted, `iterations`.

    It ends at once, with all its parts, when `stop` is set.
    """

    stop: Event = field(default_factory=Event)
    iterations: int | None = None

    @property
    def left(self) -> float:
        return 0.0 if self.stop.is_set() else super().left

    def part(self, seconds: float) -> Turn:
        return Turn(min(seconds, self.left), stop=self.stop, iterations=self.iterations)

    def share(self, share: float) -> Turn:
        return self.part(share * self.left)


@dataclass(eq=False)
class Arc:
    """A `part` that begins on device `source` and ends on `target`, in no less than `low` seconds.

    `plans`, the shortest first; `turns` and `seconds` that were spent on it, the last ones
    `in_vain`. `simple`: what the best takes that has all on one of the two devices. `fused_first`:
    whether equal branches are best shared out where ops are fused.
    """

    part: Part
    source: int
    target: int
    low: float
    simple: float = math.inf
    plans: list[Incumbent] = field(default_factory=list)
    turns: int = 0
    seconds: float = 0.0
    in_vain: int = 0
    new_starts: int = 0
    fused_first: bool = True
    _memory: dict[Incumbent, Floats] = field(default_factory=dict)

    @cached_property
    def problem(self) -> Problem:
        """The part with its ends pinned."""
        return self.part.pinned(self.source, self.target).problem

    @property
    def value(self) -> float:
        return self.plans[0].value if self.plans else math.inf

    @property
    def is_closed(self) -> bool:
        """Whether nothing better can be found, or nothing at all was."""
        if self.turns and not self.plans:
            return True
        return self.value <= self.low * (1 + LONG_ROUNDING) or self._is_forced

    @cached_property
    def _is_forced(self) -> bool:
        """Whether the ends leave no unit a choice."""
        several = self.part.sub.problem.unit_allowed.sum(axis=1) > 1
        free = self.part.with_ends(np.full(len(self.part.sub.ops), -1), 0, 0) < 0
        return bool(self.plans) and not several[self.part.sub.problem.op_unit[free]].any()

    def memory(self, plan: Incumbent) -> Floats:
        """`[device]` bytes."""
        if plan not in self._memory:
            problem = self.part.sub.problem
            used = np.bincount(plan.placement.device, problem.op_memory, problem.device_count)
            self._memory[plan] = used.astype(np.float64)
        return self._memory[plan]

    def cost(self, plan: Incumbent, price: Floats) -> float:
        """Seconds, with those that its bytes cost."""
        return plan.value + float(price @ self.memory(plan))

    def cheapest(self, price: Floats) -> Incumbent:
        return min(self.plans, key=lambda plan: self.cost(plan, price))

    def offer(self, found: Incumbent) -> bool:
        """Keep it if no plan kept is as short and takes as little; whether it is the shortest."""
        memory = self.memory(found)
        for plan in self.plans:
            if plan.value <= found.value and (self.memory(plan) <= memory).all():
                return False
        is_shortest = found.value < self.value
        others = [
            plan
            for plan in self.plans
            if plan.value < found.value or (self.memory(plan) < memory).any()
        ]
        self.plans = sorted([*others, found], key=lambda plan: plan.value)[:MOST_PLANS]
        return is_shortest

    def offer_simple(self) -> None:
        """The ops all on the first device or all on the second, but for the other's cut op."""
        problem = self.part.sub.problem
        sequence = breadth_first_sequence(problem, problem.topological_order)
        for device in {self.source, self.target}:
            devices = self.part.with_ends(
                np.full(problem.op_count, device), self.source, self.target
            )
            pinned = problem.unit_pinned[problem.op_unit]
            devices = np.where(pinned >= 0, pinned, devices).astype(np.int32)
            if np.isfinite(problem.op_time[np.arange(problem.op_count), devices]).all():
                self.offer(timed(problem, Placement(devices, sequence)))
        self.simple = self.value

    @property
    def way(self) -> Way:
        """Of the next turn: new starts at first, and again where the best is stuck."""
        ways = self._start_ways
        if self.new_starts < FIRST_STARTS or self.in_vain >= MOST_IN_VAIN:
            return ways[self.new_starts % len(ways)]
        return "refine"

    @cached_property
    def _start_ways(self) -> tuple[Way, ...]:
        """In turn. Equal branches are best shared out by counts; few ops are soon placed well."""
        units = sum(twins.unit.size for twins in self._twins)
        if units >= MOSTLY * self.problem.unit_count:
            return ("shared both ways", "shared", "shared", "elsewhere", "fused")
        return ("fused", "starts", "shared") if units else ("fused", "starts")

    @cached_property
    def _twins(self) -> list[Twins]:
        return twins_of(self.problem)

    def wanted_seconds(self) -> float:
        """What the next turn takes if there is time."""
        ops, way = len(self.part.ops), self.way
        if way == "starts":
            return STARTS * START_SECONDS_PER_OP / START_SHARE * ops
        if way in SHARING:
            return max(SHARED_SECONDS_PER_OP * ops, SHARED_SECONDS)
        if way == "shared both ways":
            return 2 * max(SHARED_SECONDS_PER_OP * ops, SHARED_SECONDS)
        return SECONDS_PER_OP * (1 + LONGER * (self.turns // TURNS_ROUND)) * ops

    def begin(self, seconds: float) -> Way:
        """Count the next turn as spent."""
        way = self.way
        self.turns += 1
        self.seconds += seconds
        if way != "refine":
            self.new_starts += 1
            self.in_vain = 0
        return way

    def take(self, found: Incumbent | None) -> None:
        """What came of a turn."""
        least = self.value * (1 - GAIN)
        gained = found is not None and self.offer(found) and found.value <= least
        self.in_vain = 0 if gained else self.in_vain + 1

    def search(
        self, way: Way, turn: Turn, in_turns: bool, seed: int, price: Floats
    ) -> Incumbent | None:
        """What a turn finds, None if nothing. Several may run side by side."""
        best = self.plans[0] if self.plans else None
        ops = self.problem.op_count
        if in_turns or ops <= TINY_OPS:
            turn = Turn(stop=turn.stop, iterations=EVALUATIONS_PER_OP * ops)
        try:
            if way == "fused":
                return self._fused_first(turn, seed)
            if way == "shared both ways" and best is not None:
                return self._shared_both_ways(best.placement, turn, seed, price)
            if way in SHARING and best is not None:
                start = best.placement
                if way == "elsewhere":
                    start = _elsewhere(self.problem, start, seed)
                return self._shared(start, self.fused_first, turn, seed, price)
            if best is None or way == "starts":
                best = self._best_start(turn, seed)
            found = _refined(self.problem, best.placement, turn, 1.0, seed, WARMTH)
            return timed(self.problem, found)
        except PlacewrightError:  # such as: the module alone has no room on these devices
            return None

    def _fused_first(self, turn: Turn, seed: int) -> Incumbent:
        """Few ops are soon placed well, and on slow links next to as well as all."""
        problem = self._fused.problem if self._fused else self.problem
        annealing = Annealing(iterations=turn.iterations, order="free")
        found = annealing.plan(problem, turn.share(1.0), seed, no_progress).placement
        return timed(self.problem, self._fused.expand(found) if self._fused else found)

    def _best_start(self, turn: Turn, seed: int) -> Incumbent:
        """The best of some searches level by level, op by op in the end: good on fast links.

        How good is settled soon, by the levels, and what follows makes no bad one a good one.
        """
        seconds = START_SECONDS_PER_OP * self.problem.op_count / START_SHARE
        starts = int(min(max(turn.left / seconds, 1.0), STARTS))
        found: list[Incumbent] = []
        for number in range(starts):
            part = turn.share(START_SHARE / (starts - START_SHARE * number))
            multilevel = Multilevel(iterations=turn.iterations)
            placement = multilevel.plan(self.problem, part, seed + number, no_progress).placement
            found.append(timed(self.problem, placement))
        return min(found, key=lambda plan: plan.value)

    def _shared_both_ways(self, here: Placement, turn: Turn, seed: int, price: Floats) -> Incumbent:
        """What an engine fuses first, which slow links need, and op by op, if there is time."""
        found = [self._shared(here, True, turn.share(0.5), seed, price)]
        if turn.left >= LEAST_PER_OP * self.problem.op_count:
            found.append(self._shared(here, False, turn, seed, price))
        best = min(found, key=lambda plan: plan.value)
        self.fused_first = best is found[0]
        return best

    def _shared(
        self, here: Placement, fused_first: bool, turn: Turn, seed: int, price: Floats
    ) -> Incumbent:
        """Equal branches shared out anew: those of what an engine fuses first, or op by op."""
        coarse = self._fused.project(here) if fused_first and self._fused else None
        if self._fused is None or coarse is None:
            found = _shared_and_refined(self.problem, self._twins, here, turn, 1.0, seed, price)
            return timed(self.problem, found)
        small, groups = self._fused.problem, self._fused_twins
        coarse = _shared_and_refined(small, groups, coarse, turn, FUSED_SHARE, seed, price)
        found = self._fused.expand(coarse)
        return timed(self.problem, _refined(self.problem, found, turn, 1.0, seed, COOL))

    @cached_property
    def _fused(self) -> Coarser | None:
        """What an engine fuses as one op each: some times fewer ops, and nearly as good plans."""
        if self.problem.op_count <= TINY_OPS:
            return None
        return coarsen(self.problem, "fusion")

    @cached_property
    def _fused_twins(self) -> list[Twins]:
        return twins_of(self._fused.problem) if self._fused else []


@dataclass(eq=False)
class AnnealedArcs:
    """The arcs of a `part`: `at` a pair of devices, if it can begin and end there."""

    part: Part
    low: Floats = field(init=False)
    at: dict[Pair, Arc] = field(init=False)

    def __post_init__(self) -> None:
        self.low = longest_paths(self.part)
        self.at = {
            (source, target): Arc(self.part, source, target, float(self.low[source, target]))
            for source, target in np.argwhere(np.isfinite(self.low)).tolist()
        }
        for arc in self.at.values():
            arc.offer_simple()

    def offer(self, pair: Pair, found: Incumbent) -> None:
        self.at[pair].offer(found)

    @property
    def tried(self) -> list[Arc]:
        return [arc for arc in self.at.values() if arc.turns and arc.plans]

    def table(self, price: Floats, optimistic: bool) -> Floats:
        """`[source, target]` seconds found, or that may yet be found; bytes cost their price."""
        table = np.full(self.low.shape, np.inf)
        for pair, arc in self.at.items():
            if arc.plans:
                table[pair] = arc.cost(arc.cheapest(price), price)
        if optimistic:
            best = min(self.tried, key=lambda arc: table[arc.source, arc.target], default=None)
            for pair, arc in self.at.items():
                if not arc.is_closed:
                    table[pair] = self._optimistic(arc, best, table, price)
        return table

    def _optimistic(self, arc: Arc, best: Arc | None, table: Floats, price: Floats) -> float:
        """What an arc may yet cost; `best` is the one that costs least of those tried.

        As much less than that as its simple plan is, and not much more where that takes longer:
        what is between the ends need not be where they are, but slow devices rarely do better.
        """
        low = arc.low + float(price.min()) * float(self.part.sub.problem.op_memory.sum())
        cost = float(table[arc.source, arc.target])
        if arc.turns:
            return max(low, cost - arc.value * GAIN_PER_TURN / arc.turns)
        if best is None or not arc.plans:
            return low
        least = (1 - GAIN_ELSEWHERE) * float(table[best.source, best.target])
        ratio = arc.simple / best.simple if best.simple > 0 else 1.0
        slower = SLOWNESS * max(arc.simple - best.simple, 0.0)
        return min(cost, max(low, least * min(ratio, 1.0) + slower))


def cheapest(
    chain: Chain[AnnealedArcs], price: Floats, optimistic: bool = False
) -> tuple[list[Arc], float]:
    """The arcs of the shortest path with `price[device]` seconds for each byte, and its length.

    Over what was found or, `optimistic`, may yet be; of infinite length if there is none.
    """
    path = chain.shortest(lambda arcs: arcs.table(price, optimistic))
    if math.isinf(path.length):
        return [], math.inf
    return [arcs.at[pair] for arcs, pair in path.arcs], path.length


def _elsewhere(problem: Problem, start: Placement, seed: int) -> Placement:
    """All on one device, drawn, as far as it can be there; `start` if there is no room.

    Of branches that are shared out next, only what lies between them stays there.
    """
    drawn = int(np.random.default_rng(seed).integers(problem.device_count))
    is_open = problem.unit_allowed[problem.op_unit, drawn]
    device = np.where(is_open, drawn, start.device).astype(np.int32)
    fits = (problem.free_memory(problem.unit_device(device)) >= 0.0).all()
    return Placement(device, start.sequence) if fits else start


def _shared_and_refined(
    problem: Problem, groups: list[Twins], start: Placement, turn: Turn, share: float,
    seed: int, price: Floats,
) -> Placement:  # fmt: skip
    """Equal branches shared out anew, what is outside where `start` has it, without much heat."""
    seconds = share * turn.left
    found = shared_start(problem, groups, start.device, seconds, seed, price)
    return _refined(problem, found, turn, share, seed, COOL)


def _refined(
    problem: Problem, start: Placement, turn: Turn, share: float, seed: int, warmth: float
) -> Placement:
    per_op = refining.makespan_per_op(problem, start)
    hot = COLDEST * warmth ** np.random.default_rng(seed).random() * per_op
    limit = math.inf if turn.iterations is None else turn.iterations
    budget = turn.share(share)
    return refining.refined(problem, start, budget, limit, seed, no_progress, hot=hot)[0]
