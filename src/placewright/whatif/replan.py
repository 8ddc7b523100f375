"""`replan`: devices are lost, or others come; which weights are worth moving?

Three kinds of answer, from the fewest bytes moved to the most: the *repair* moves only what was
on lost devices; the *free* replan asks a planner, which may go on from the repair, whatever moves;
*between* are plans found by search from both ends (`replan_latency`, `replan_throughput`). Bytes
moved are those that ops keep (`Problem.op_memory`), once for every device that has the op and did
not before; what was on a lost device counts, for it has to be brought from somewhere.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from placewright.bounds import Bound, lower_bound
from placewright.budget import Budget, Progress, no_progress
from placewright.errors import InfeasibleError, OptionError
from placewright.kernels import compiling
from placewright.objectives import LATENCY, THROUGHPUT
from placewright.options import check_seconds, check_seed
from placewright.plan import Placement, Plan
from placewright.planners.base import Planner
from placewright.planning import AUTO
from placewright.planning import plan as make_plan
from placewright.problem import LONG_ROUNDING, Problem
from placewright.solving import solve
from placewright.system.interrupts import noticed_interrupts
from placewright.units import format_bytes
from placewright.verify import verify
from placewright.whatif.changes import held_before
from placewright.whatif.replan_latency import LatencyWays
from placewright.whatif.replan_throughput import ThroughputWays
from placewright.whatif.trade import Archive, thinned

Kind = Literal["repair", "between", "free"]

KEEP = 0.1
MOST_POINTS = 12  # plans judged and shown
LEAST_SAVING = 1e-3  # of the value, for a plan between to be shown
AUTO_REPEATABLE = {"iterations": "2"}  # without a time limit the same input, the same answer
MOST_WORK = 200_000_000  # evaluations × items, without a time limit
SECONDS_OF_WORK = 1e-8  # of one item


@dataclass(frozen=True)
class Point:
    """One answer: a judged plan, and what it takes to get there from the old one.

    `moved_bytes` counts what ops keep on devices, replicas too, that did not have them under that
    name; `moved_ops` are these ops.
    """

    kind: Kind
    plan: Plan
    moved_bytes: float
    moved_ops: int


@dataclass(frozen=True)
class Replan:
    """The answers by bytes moved, the one chosen, and how many bytes have to move anyhow.

    None is as good as another for fewer bytes, so the value falls from each to the next. The repair
    is there if the lost ops find room with the rest where it is, the free replan if nothing
    between is as good.
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
    """Plans for `problem`, the ops of `old` on other devices, that trade the value against moving.

    Make `problem` with `changes.without_devices` or `changes.on_cluster`; devices are matched by
    name. `chosen` is the answer with the least value / (value of the first, the repair) +
    `keep` · moved / (all bytes), among those that move `max_move` bytes or fewer: going from
    answer to answer, a step pays if moving a share of all bytes saves `keep` times that share of
    the repair's value. `planner` makes the free replan. Without a time limit the same input
    gives the same answer. Ctrl-C ends the search with what there is.

    Raises OptionError for an objective other than latency and throughput, VerificationError where
    `old` does not hold, InfeasibleError where nothing fits, or only with more than `max_move` bytes
    moved.
    """
    check_objective(old)
    if not keep >= 0.0 or math.isinf(keep):
        raise OptionError(f"--keep is {keep}; give a weight of 0 or more, such as {KEEP}")
    if not max_move >= 0.0:
        raise OptionError(f"--max-move is {max_move}; give bytes, such as 2GiB")
    seed = check_seed(seed)
    old.problem.options.require_full_plan("replan")
    verify(old).raise_if_failed()
    problem.check_feasible()
    budget = Budget(check_seconds(time_limit))
    search = _Search(old, problem, budget, keep, max_move, on_progress or no_progress)
    points = search.points(planner, seed)
    return Replan(tuple(points), search.choose(points), search.ways.forced, search.total)


# -- searching -------------------------------------------------------------------------------


class _Ways(Protocol):
    """How plans for an objective are repaired, and moved bit by bit."""

    forced: float

    def repairer(self, budget: Budget, work: float) -> Planner: ...

    def renamed(self, plan: Plan, budget: Budget, work: float) -> Placement | None: ...

    def between(
        self,
        ends: Sequence[Plan],
        limit: float,
        price: Callable[[float, float], float],
        budget: Budget,
        work: float,
        on_progress: Progress,
        kept: Archive[Any],
    ) -> None: ...

    def placement(self, state: Any) -> Placement: ...

    def given(self, placement: Placement) -> Planner: ...


_WAYS: Mapping[str, Callable[[Plan, Problem], _Ways]] = {
    LATENCY.name: LatencyWays,
    THROUGHPUT.name: ThroughputWays,
}


def check_objective(plan: Plan) -> None:
    """OptionError for a plan whose objective nothing here moves weights for."""
    objective = plan.problem.options.objective
    if objective not in _WAYS:
        raise OptionError(
            f"replan takes plans for objectives {' and '.join(_WAYS)}, not for {objective}; "
            "plan anew on the devices that are left"
        )


class _Search:
    """Repair, free replan and what is between, on one problem."""

    def __init__(
        self,
        old: Plan,
        problem: Problem,
        budget: Budget,
        keep: float,
        limit: float,
        on_progress: Progress,
    ) -> None:
        self.old = old
        self.problem = problem
        self.budget = budget
        self.keep = keep
        self.limit = limit
        self.total = float(problem.op_memory.sum())
        self.on_progress = on_progress
        self.ways = _WAYS[problem.options.objective](old, problem)
        self.held = held_before(old, problem)
        self.bound = lower_bound(problem)
        self.compiled: Callable[[], float] = lambda: 0.0

    def points(self, planner: str, seed: int) -> list[Point]:
        found: list[Point] = []
        with noticed_interrupts() as interrupts, compiling() as self.compiled:
            self.on_progress("repair", 0.0)
            repair: Plan | None = None
            with contextlib.suppress(InfeasibleError):  # perhaps the free replan finds room
                repair = self._solved(self.ways.repairer(self.budget, MOST_WORK / 10))
                found.append(self._point("repair", repair))
            if repair is None or not interrupts.came:
                self.on_progress("free replan", 0.1)
                free = self._free(planner, seed, repair)
                self.bound = max(self.bound, Bound(free.lower_bound, free.bound_source), key=_value)
                found.append(self._point("free", free))
                if not interrupts.came:
                    found += self._between([free] if repair is None else [repair, free])
        return [self._bounded(point) for point in _in_order(found)]

    def choose(self, points: Sequence[Point]) -> Point:
        """The best of value and bytes weighed; InfeasibleError if all move too much."""
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

    def _shown(self, states: Sequence[Any]) -> list[Any]:
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
        """What the planner makes of the problem, from the repair on if it starts from plans.

        What it numbered otherwise is named as before.
        """
        left = max(0.4 * self.budget.left, 0.0)
        try:
            found = make_plan(
                self.problem,
                planner=planner,
                planner_options=AUTO_REPEATABLE if planner == AUTO and math.isinf(left) else None,
                time_limit=left,
                seed=seed,
                warm_start=repair,
            )
        except (KeyboardInterrupt, InfeasibleError):
            if repair is None:
                raise
            return repair
        renamed = self.ways.renamed(found, self.budget, MOST_WORK / 10)
        plan = None if renamed is None else self._judged(renamed)
        if plan is None or plan.value > found.value * (1 + LONG_ROUNDING):
            return found
        return replace(
            plan,
            lower_bound=found.lower_bound,
            bound_source=found.bound_source,
            planner=found.planner,
        )

    def _between(self, ends: Sequence[Plan]) -> list[Point]:
        """Judged plans that a search from both ends finds; compiling does not count as its time."""
        budget = Budget(self.budget.left + self.compiled())
        limited = math.isfinite(budget.seconds)
        work = max(budget.left, 0.0) / SECONDS_OF_WORK if limited else MOST_WORK
        kept: Archive[Any] = Archive()
        whole = ends[0].value
        with contextlib.suppress(KeyboardInterrupt):
            self.ways.between(
                ends,
                self.limit,
                lambda value, moved: self._price(value, moved, whole),
                budget,
                work,
                lambda what, done: self.on_progress(what, 0.3 + 0.6 * done),
                kept,
            )
        self.on_progress("judging", 0.9)
        plans = [self._judged(self.ways.placement(state)) for state in self._shown(kept)]
        return [self._point("between", plan) for plan in plans if plan is not None]

    def _judged(self, placement: Placement) -> Plan | None:
        """The plan of a placement; None where it does not fit after all (memory ``peak``)."""
        try:
            return self._solved(self.ways.given(placement))
        except InfeasibleError:
            return None

    def _solved(self, planner: Planner) -> Plan:
        return solve(self.problem, planner, bound=self.bound, source=self.old.source)

    def _point(self, kind: Kind, plan: Plan) -> Point:
        new = np.zeros_like(self.held)
        for device, ops in enumerate(plan.device_ops):
            new[ops, device] = True
        new &= ~self.held
        moved = float((self.problem.op_memory * new.sum(axis=1)).sum())
        plan = replace(plan, source=self.old.source)
        return Point(kind, plan, moved, int(new.any(axis=1).sum()))

    def _bounded(self, point: Point) -> Point:
        plan = replace(point.plan, lower_bound=self.bound.value, bound_source=self.bound.source)
        return replace(point, plan=plan)


def _value(bound: Bound) -> float:
    return bound.value


def _in_order(points: Sequence[Point]) -> list[Point]:
    """By bytes; none that another beats or equals in bytes and value.

    What moves no more than the repair, and beats it, is the repair then.
    """
    order = {"repair": 0, "free": 1, "between": 2}
    kept: list[Point] = []
    for point in sorted(points, key=lambda each: (order[each.kind], each.plan.value)):
        if not any(_beats(other, point) for other in points if other is not point) and not any(
            _same(other, point) for other in kept
        ):
            kept.append(point)
    kept.sort(key=lambda each: (each.moved_bytes, each.plan.value))
    repair = next((each for each in points if each.kind == "repair"), None)
    if repair is not None and repair not in kept:
        least = kept[0]
        if least.kind == "between" and least.moved_bytes <= repair.moved_bytes:
            kept[0] = replace(least, kind="repair")
    return kept


def _beats(one: Point, other: Point) -> bool:
    """Whether it is as good in both, and better in one by more than rounding."""
    margin = LONG_ROUNDING * other.plan.value
    as_good = one.moved_bytes <= other.moved_bytes and one.plan.value <= other.plan.value + margin
    return as_good and (
        one.moved_bytes < other.moved_bytes or one.plan.value < other.plan.value - margin
    )


def _same(one: Point, other: Point) -> bool:
    near = abs(one.plan.value - other.plan.value) <= LONG_ROUNDING * one.plan.value
    return one.moved_bytes == other.moved_bytes and near
