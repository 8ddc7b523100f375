"""`solve`: one problem, one planner, one verified plan; `compare`: several planners.

The outline is here: ask the planner, time what it proposes, bound it, have it judged.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from placewright import planners
from placewright.coarsen import check_name, coarsen
from placewright.errors import InfeasibleError, MissingExtraError, OptionError
from placewright.outcome import Outcome, Schedule
from placewright.plan import Placement, Plan
from placewright.problem import Problem
from placewright.verify import verify

if TYPE_CHECKING:
    from placewright.bounds import Bound
    from placewright.coarsen import Coarser
    from placewright.planners.base import Budget, Listener, Planner, Progress, Proposal

MAX_RETRIES = 64


@dataclass(frozen=True)
class Comparison:
    """One planner's line in a comparison: its plan, or why it has none."""

    planner: str
    plan: Plan | None
    error: str = ""


def solve(
    problem: Problem,
    planner: str | Planner,
    *,
    planner_options: Mapping[str, str] | None = None,
    coarsening: str = "none",
    time_limit: float = float("inf"),
    seed: int = 0,
    start: Placement | None = None,
    source: str = "",
    bound: Bound | None = None,
    on_progress: Progress | None = None,
) -> Plan:
    """Plan a problem with one planner, time the plan, bound it, and have it verified.

    `planner` is a name of the table, or a planner of your own (see `planners.base.Planner`).
    With a `coarsening` (see `coarsen.COARSENINGS`) the planner sees the coarser problem, and its
    answer is expanded and timed on this one. `start` is a placement that fits, for planners that
    can go on from one (`planners.base.Budget`).
    """
    from placewright.bounds import Bound, lower_bound
    from placewright.planners.base import Budget, no_progress

    started, budget = time.perf_counter(), Budget(time_limit, start)
    problem.check_feasible()
    objective = problem.options.objective
    if isinstance(planner, str):
        chosen = planners.create(planner, planner_options, objective)
    else:
        chosen = planner
    if chosen.objective != objective:
        raise OptionError(f"planner '{chosen.name}' plans for {chosen.objective}, not {objective}")
    contraction = coarsen(problem, coarsening)
    refusal = chosen.supports(contraction.problem if contraction else problem)
    if refusal:
        raise OptionError(f"planner '{chosen.name}' cannot take this problem: {refusal}")
    proposal, outcome = propose(
        problem,
        contraction,
        chosen,
        budget,
        seed,
        on_progress or no_progress,
    )
    seconds = time.perf_counter() - started
    bound = bound or lower_bound(problem)
    if proposal.lower_bound > bound.value:
        bound = Bound(proposal.lower_bound, proposal.bound_source)
    found = Plan(
        problem=problem,
        placement=replace(proposal.placement, sequence=None),
        outcome=outcome,
        value=outcome.value,
        lower_bound=bound.value,
        bound_source=bound.source,
        planner=chosen.name,
        seed=seed,
        planner_options=dict(planner_options or {}),
        coarsening=coarsening,
        source=source,
        seconds=seconds,
    )
    verify(found).raise_if_failed()
    return found


def compare(
    problem: Problem,
    names: Sequence[str] | None = None,
    *,
    coarsening: str = "none",
    time_limit: float = float("inf"),
    seed: int = 0,
    source: str = "",
    on_progress: Progress | None = None,
) -> list[Comparison]:
    """Plan `problem` with each of the planners `names` (the quick ones if None).

    The time limit is for all of them together. A planner that finds nothing, has no time left or
    is interrupted (Ctrl-C, after which no other starts) has no plan in its line. The best bound
    that any of them proved is that of every plan.
    """
    from placewright.bounds import lower_bound
    from placewright.planners.base import Budget, no_progress

    report = on_progress or no_progress
    chosen = list(names) if names is not None else quick_planners(problem)
    for name in chosen:
        planners.entry(name, problem.options.objective)
    check_name(coarsening)
    problem.check_feasible()
    bound = lower_bound(problem)
    budget = Budget(time_limit)
    lines: list[Comparison] = []
    for number, name in enumerate(chosen):
        report(name, number / len(chosen))
        if budget.left <= 0 and any(line.plan for line in lines):
            lines.append(Comparison(name, None, "no time was left"))
            continue
        try:
            found = solve(
                problem,
                name,
                coarsening=coarsening,
                time_limit=budget.left,
                seed=seed,
                source=source,
                bound=bound,
            )
            lines.append(Comparison(name, found))
        except (InfeasibleError, OptionError, MissingExtraError) as error:
            lines.append(Comparison(name, None, str(error)))
        except KeyboardInterrupt:
            if not any(line.plan for line in lines):
                raise
            lines.append(Comparison(name, None, "interrupted"))
            break
    report("done", 1.0)
    return _with_best_bound(lines)


def _with_best_bound(lines: list[Comparison]) -> list[Comparison]:
    """What one planner proved about the problem holds for the plans of all."""
    plans = [line.plan for line in lines if line.plan is not None]
    if not plans:
        return lines
    best = max(plans, key=lambda plan: plan.lower_bound)

    def bounded(plan: Plan) -> Plan:
        return replace(plan, lower_bound=best.lower_bound, bound_source=best.bound_source)

    return [replace(line, plan=line.plan and bounded(line.plan)) for line in lines]


def best_of(lines: Sequence[Comparison]) -> Plan:
    """The best plan of a comparison; InfeasibleError with every planner's reason if none."""
    plans = [line.plan for line in lines if line.plan is not None]
    if not plans:
        reasons = "; ".join(line.error for line in lines)
        raise InfeasibleError(f"no planner found a plan: {reasons}")
    return min(plans, key=lambda each: each.value)


def quick_planners(problem: Problem) -> list[str]:
    """Names of the planners for the problem's objective that need no time limit."""
    return [row.name for row in planners.planners_for(problem.options.objective) if row.quick]


def propose(
    problem: Problem,
    contraction: Coarser | None,
    planner: Planner,
    budget: Budget,
    seed: int,
    on_progress: Progress,
) -> tuple[Proposal, Outcome]:
    """The planner's proposal with what it comes to, within memory also where that is a peak.

    With a `contraction` of `problem` the planner is asked about the coarser one; the proposal is
    on the problem's own ops, and what was proved of the coarser one is left out.

    Planners keep count of resident bytes. Under ``peak`` the schedule decides what lives besides,
    so a proposal that overflows is asked for again with that much memory held back.
    """
    from placewright.planners.base import Proposal, Silence
    from placewright.simulate.peak import peak_memory

    asked = contraction.problem if contraction else problem
    budget = _overheard(problem, contraction, budget)
    held_back = np.zeros(problem.device_count)
    for _ in range(MAX_RETRIES):
        available = problem.device_memory - held_back
        within = asked.with_device_memory(np.maximum(available, 0.0))
        proposal = _with_room(within, planner, budget, seed, on_progress)
        placement, outcome = _expand(problem, contraction, proposal.placement)
        if contraction or held_back.any():  # what is proved there bounds another problem
            proposal = Proposal(placement)
        if problem.options.memory == "resident" or not isinstance(outcome, Schedule):
            return proposal, outcome
        over = peak_memory(problem, placement, outcome) - problem.device_memory
        if not (over > 0).any():
            return proposal, outcome
        # Half as much again: shaving off exactly the excess would creep.
        held_back += np.where(over > 0, 1.5 * over, 0.0)
        budget = replace(budget, start=None, listener=Silence())
    raise InfeasibleError(
        f"planner '{planner.name}' found no placement whose peak memory fits; "
        "give the devices more memory or try another planner"
    )


def _overheard(problem: Problem, contraction: Coarser | None, budget: Budget) -> Budget:
    """The budget of a planner that is asked about a coarser problem, or that counts no peak.

    The start is made coarser too, where it fits then; placements are expanded, and bounds left out,
    for they are about another problem. What overflows the peak is kept from the listener.
    """
    if contraction is None and problem.options.memory == "resident":
        return budget
    start = budget.start
    if contraction is not None and start is not None:
        start = contraction.project(start) if problem.options.objective == "latency" else None
    return replace(budget, start=start, listener=_Expanding(problem, contraction, budget.listener))


@dataclass(frozen=True)
class _Expanding:
    """A listener to a planner of a coarser problem, or of one whose memory is a peak."""

    problem: Problem
    contraction: Coarser | None
    listener: Listener

    def found(self, placement: Placement) -> None:
        from placewright.simulate.peak import peak_memory

        placement, outcome = _expand(self.problem, self.contraction, placement)
        if self.problem.options.memory == "peak" and isinstance(outcome, Schedule):
            used = peak_memory(self.problem, placement, outcome)
            if (used > self.problem.device_memory).any():
                return
        self.listener.found(placement)

    def proved(self, lower_bound: float, source: str) -> None:
        if self.contraction is None:
            self.listener.proved(lower_bound, source)


def _expand(
    problem: Problem, contraction: Coarser | None, placement: Placement
) -> tuple[Placement, Outcome]:
    """The placement on the problem's own ops, evaluated; a latency one in the better of two orders.

    Expanded, a group's ops keep the place of the group; scheduled afresh, they need not.
    """
    from placewright.simulate import evaluate

    if contraction is None:
        return placement, evaluate(problem, placement)
    kept = contraction.expand(placement)
    if kept.sequence is None or problem.options.objective != "latency":
        kept = replace(kept, sequence=None)
        return kept, evaluate(problem, kept)
    timed = [(each, evaluate(problem, each)) for each in (kept, replace(kept, sequence=None))]
    return min(timed, key=lambda pair: pair[1].value)


def _with_room(
    problem: Problem, planner: Planner, budget: Budget, seed: int, on_progress: Progress
) -> Proposal:
    """Ask the planner; if it runs out of room for a unit, place that one first and ask again."""
    from placewright.planners.base import Proposal, Silence
    from placewright.planners.fit import FirstPlaced

    first = FirstPlaced(problem, budget)
    while True:
        pinned = problem.with_pins(first.device) if first.device else problem
        if first.device:  # a start need not keep the pins, and what is proved is about other plans
            budget = replace(budget, start=None, listener=Silence())
        try:
            proposal = planner.plan(pinned, budget, seed, on_progress)
            # What is proved with units pinned says nothing about the problem without the pins.
            return Proposal(proposal.placement) if first.device else proposal
        except InfeasibleError as error:
            first.after(error)
