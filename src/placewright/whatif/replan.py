"""`replan`: devices are lost, or others come; which weights are worth moving?

Three kinds of answer, from the fewest bytes moved to the most: the *repair* moves only what was
on lost devices; the *free* replan asks a planner as if nothing were anywhere; *between* are
plans found by search with a penalty on moving, from both ends. Bytes moved are those that ops
keep (`Problem.op_memory`) and whose device changes; what was on a lost device counts, for it has
to be brought from somewhere.

>>> from placewright.planning import plan
>>> from placewright.whatif.changes import without_devices
>>> old = plan("zoo:gpt2?layers=2", "8xA100", planner="heft")
>>> found = replan(old, without_devices(old.problem, ["gpu7"]))
>>> found.chosen in found.points
True
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from placewright.bounds import Bound, lower_bound
from placewright.budget import Budget, Progress, no_progress
from placewright.errors import InfeasibleError, OptionError
from placewright.graph import Flags, Floats, Ints
from placewright.plan import Plan
from placewright.planning import AUTO
from placewright.planning import plan as make_plan
from placewright.problem import LONG_ROUNDING, Problem
from placewright.solving import solve
from placewright.system.interrupts import noticed_interrupts
from placewright.units import format_bytes
from placewright.verify import verify
from placewright.whatif.changes import home_devices
from placewright.whatif.moves import Judge, State, descend, thinned, unit_sets
from placewright.whatif.repair import Given, Repair

Kind = Literal["repair", "between", "free"]

KEEP = 0.1
MOST_POINTS = 12  # plans judged and shown
TAKEN = "replan takes plans"
LEAST_SAVING = 1e-3  # of the latency, for a plan between to be shown
AUTO_REPEATABLE = {"iterations": "2"}  # without a time limit the same input, the same answer
MOST_WORK = 200_000_000  # evaluations × items, without a time limit
SECONDS_OF_WORK = 1e-8  # of one item
# Penalties tried, in shares of what the free replan saves per byte it moves more.
WEIGHTS = (10.0, 3.0, 1.0, 0.3, 0.1)


@dataclass(frozen=True)
class Point:
    """One answer: a judged plan, and what it takes to get there from the old one.

    `moved_bytes` counts ops that are not on the device of that name any more, `moved_ops` them.
    """

    kind: Kind
    plan: Plan
    moved_bytes: float
    moved_ops: int


@dataclass(frozen=True)
class Replan:
    """The answers by bytes moved, the one chosen, and how many bytes have to move anyhow.

    Of those *between* none is as good for fewer bytes. The repair is there if the lost ops find
    room with the rest where it is, the free replan if it is not the same.
    """

    points: tuple[Point, ...]
    chosen: Point
    forced_bytes: float
    total_bytes: float


def replan(
    old: Plan,
    problem: Problem,
    *,
    keep: float = KEEP,
    max_move: float = math.inf,
    planner: str = AUTO,
    time_limit: float = math.inf,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Replan:
    """Plans for `problem`, the ops of `old` on other devices, that trade latency against moving.

    Make `problem` with `changes.without_devices` or `changes.on_cluster`; devices are matched by
    name. `chosen` is the answer with the least latency / (latency of the first, the repair) +
    `keep` · moved / (all bytes), among those that move `max_move` bytes or fewer: going from
    answer to answer, a step pays if moving a share of all bytes saves `keep` times that share of
    the repair's latency. `planner` makes the free replan. Without a time limit the same input
    gives the same answer. Ctrl-C ends the search with what there is.

    Raises OptionError for an objective other than latency, VerificationError where `old` does not
    hold, InfeasibleError where nothing fits, or only with more than `max_move` bytes moved.
    """
    old.problem.options.require_latency(TAKEN)
    if not keep >= 0.0 or math.isinf(keep):
        raise OptionError(f"--keep is {keep}; give a weight of 0 or more, such as {KEEP}")
    if not max_move >= 0.0:
        raise OptionError(f"--max-move is {max_move}; give bytes, such as 2GiB")
    verify(old).raise_if_failed()
    problem.check_feasible()
    home = home_devices(old, problem)
    search = _Search(
        old, problem, home, Budget(time_limit), keep, max_move, on_progress or no_progress
    )
    points = search.points(planner, seed)
    forced = float(problem.unit_memory[home < 0].sum())
    return Replan(tuple(points), search.choose(points), forced, search.total)


# -- searching -------------------------------------------------------------------------------


class _Search:
    """Repair, free replan and what is between, on one problem."""

    def __init__(
        self,
        old: Plan,
        problem: Problem,
        home: Ints,
        budget: Budget,
        keep: float,
        limit: float,
        on_progress: Progress,
    ) -> None:
        self.old = old
        self.problem = problem
        self.home = home
        self.budget = budget
        self.keep = keep
        self.limit = limit
        self.total = float(problem.op_memory.sum())
        self.on_progress = on_progress
        self.sets = unit_sets(problem)
        self.bound = lower_bound(problem)

    def points(self, planner: str, seed: int) -> list[Point]:
        found: list[Point] = []
        with noticed_interrupts() as interrupts:
            self.on_progress("repair", 0.0)
            repairer = Repair(self.home, self.sets)
            repair: Plan | None = None
            with contextlib.suppress(InfeasibleError):  # perhaps the free replan finds room
                repair = self._solved(repairer)
                found.append(self._point("repair", repair))
            if repair is None or not interrupts.came:
                self.on_progress("free replan", 0.1)
                free = self._free(planner, seed, repair)
                self.bound = max(self.bound, Bound(free.lower_bound, free.bound_source), key=_value)
                found.append(self._point("free", free))
                if not interrupts.came:
                    found += self._between(repairer.capacity, repair, free)
        return [self._bounded(point) for point in _in_order(found)]

    def choose(self, points: Sequence[Point]) -> Point:
        """The best of latency and bytes weighed; InfeasibleError if all move too much."""
        allowed = [point for point in points if point.moved_bytes <= self.limit]
        if not allowed:
            least = min(point.moved_bytes for point in points)
            raise InfeasibleError(
                f"at least {format_bytes(least)} have to move, and --max-move allows "
                f"{format_bytes(self.limit)}"
            )
        whole = points[0].plan.value  # the repair's, if there is one: nothing moves less
        return min(
            allowed,
            key=lambda each: (
                self._price(each.plan.value, each.moved_bytes, whole),
                each.moved_bytes,
            ),
        )

    def _price(self, value: float, moved: float, whole: float) -> float:
        return value / (whole or 1.0) + self.keep * moved / (self.total or 1.0)

    def _shown(self, states: Sequence[State]) -> list[State]:
        """The states worth judging: some all along the way, and the one that will be chosen."""
        allowed = [state for state in states if state.moved <= self.limit]
        if not allowed:
            return []
        whole = states[0].value
        best = min(allowed, key=lambda each: self._price(each.value, each.moved, whole))
        worth, last = [], math.inf
        for state in allowed:
            if state.value <= last * (1 - LEAST_SAVING):
                worth.append(state)
                last = state.value
        shown = thinned(worth, MOST_POINTS)
        return shown if best in shown else [*shown, best]

    def _free(self, planner: str, seed: int, repair: Plan | None) -> Plan:
        """What the planner makes of the problem; what it numbered otherwise is named as before."""
        left = max(0.4 * self.budget.left, 0.0)
        try:
            found = make_plan(
                self.problem,
                planner=planner,
                planner_options=AUTO_REPEATABLE if planner == AUTO and math.isinf(left) else None,
                time_limit=left,
                seed=seed,
            )
        except (KeyboardInterrupt, InfeasibleError):
            if repair is None:
                raise
            return repair
        judge = Judge(
            self.problem, self.home, self.problem.device_memory, self.budget, MOST_WORK / 10
        )
        renamed = _renamed(judge, found)
        plan = None if renamed is None else self._judged(renamed)
        if plan is None or plan.value > found.value * (1 + LONG_ROUNDING):
            return found
        return replace(
            plan,
            lower_bound=found.lower_bound,
            bound_source=found.bound_source,
            planner=found.planner,
        )

    def _between(self, capacity: Floats | None, repair: Plan | None, free: Plan) -> list[Point]:
        """Judged plans that a search from both ends finds; `capacity` as the repair needed it."""
        limited = math.isfinite(self.budget.seconds)
        work = max(self.budget.left, 0.0) / SECONDS_OF_WORK if limited else MOST_WORK
        most = self.problem.device_memory if capacity is None else capacity
        judge = Judge(self.problem, self.home, most, self.budget, work)
        with contextlib.suppress(KeyboardInterrupt):
            self._descend(judge, [plan for plan in (repair, free) if plan is not None])
        self.on_progress("judging", 0.9)
        plans = [self._judged(state) for state in self._shown(judge.archive)]
        return [self._point("between", plan) for plan in plans if plan is not None]

    def _descend(self, judge: Judge, plans: Sequence[Plan]) -> None:
        """Fill the judge's archive: descents from both ends under falling and rising penalties."""
        ends = [self._state(judge, plan) for plan in plans]
        ends = [end for end in ends if judge.fits(end.unit_device)]
        if not ends:
            return
        first, last = ends[0], ends[-1]
        centre = _exchange_rate(first, last, self.problem)
        targets = [last.unit_device, first.unit_device]
        if (self.home >= 0).all():
            targets.append(self.home)
        movable: Flags = np.isfinite(self.problem.unit_time).sum(axis=1) > 1
        runs = [(first, factor * centre) for factor in WEIGHTS]
        runs += [(last, factor * centre) for factor in reversed(WEIGHTS)]
        for number, (start, weight) in enumerate(runs):
            self.on_progress("between", 0.3 + 0.6 * number / len(runs))
            share = judge.work_left / (len(runs) - number)
            later = judge.work_left - share
            judge.work_left = share
            limit = math.inf if start.moved > self.limit else self.limit
            descend(judge, start, weight, self.sets, movable, limit, targets)
            judge.work_left += later

    def _state(self, judge: Judge, plan: Plan) -> State:
        return judge.state(self.problem.unit_device(plan.placement.device))

    def _judged(self, state: State) -> Plan | None:
        """The plan of a state; None where it does not fit after all (memory ``peak``)."""
        try:
            return self._solved(Given(state.placement(self.problem)))
        except InfeasibleError:
            return None

    def _solved(self, planner: Repair | Given) -> Plan:
        return solve(self.problem, planner, bound=self.bound, source=self.old.source)

    def _point(self, kind: Kind, plan: Plan) -> Point:
        before = np.array([*self.old.problem.device_names])[self.old.placement.device]
        after = np.array([*self.problem.device_names])[plan.placement.device]
        moved = before != after
        plan = replace(plan, source=self.old.source)
        return Point(kind, plan, float(self.problem.op_memory[moved].sum()), int(moved.sum()))

    def _bounded(self, point: Point) -> Point:
        plan = replace(point.plan, lower_bound=self.bound.value, bound_source=self.bound.source)
        return replace(point, plan=plan)


def _value(bound: Bound) -> float:
    return bound.value


def _exchange_rate(first: State, last: State, problem: Problem) -> float:
    """Seconds per byte that the penalties are around: what the free replan saves per byte.

    Where it saves nothing, a tenth of the latency for all bytes.
    """
    gain, bytes_more = first.value - last.value, last.moved - first.moved
    if gain > 0 and bytes_more > 0:
        return gain / bytes_more
    return 0.1 * first.value / max(float(problem.op_memory.sum()), 1.0)


def _renamed(judge: Judge, plan: Plan) -> State | None:
    """The plan with devices of a kind exchanged so that fewer bytes move, and it is no worse."""
    problem = judge.problem
    state = judge.state(problem.unit_device(plan.placement.device))
    start, improved = state, True
    while improved and not judge.spent():
        improved = False
        for a in range(problem.device_count):
            for b in range(a + 1, problem.device_count):
                if problem.device_kinds[a] != problem.device_kinds[b] or judge.spent():
                    continue
                names = np.arange(problem.device_count, dtype=np.int32)
                names[[a, b]] = b, a
                candidate = names[state.unit_device]
                if judge.moved(candidate) < state.moved and judge.fits(candidate):
                    found = judge.state(candidate, state.sequence)
                    if found.value <= state.value * (1 + LONG_ROUNDING):
                        state, improved = found, True
    return state if state is not start else None


def _in_order(points: Sequence[Point]) -> list[Point]:
    """By bytes, then value; of those between only such as no other point beats or equals."""
    ends = [point for point in points if point.kind != "between"]
    if len(ends) == 2 and _same(*ends):
        ends = [point for point in ends if point.kind == "repair"]
    kept = list(ends)
    between = [point for point in points if point.kind == "between"]
    for point in sorted(between, key=lambda each: (each.moved_bytes, each.plan.value)):
        if not any(
            other.moved_bytes <= point.moved_bytes and other.plan.value <= point.plan.value
            for other in kept
        ):
            kept.append(point)
    return sorted(kept, key=lambda each: (each.moved_bytes, each.kind != "repair", each.plan.value))


def _same(one: Point, other: Point) -> bool:
    near = abs(one.plan.value - other.plan.value) <= LONG_ROUNDING * one.plan.value
    return one.moved_bytes == other.moved_bytes and near
