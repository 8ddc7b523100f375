"""`solve`: one problem, one planner, one verified plan; `compare`: several planners.

The outline is here: ask the planner, time what it proposes, bound it, have it judged.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from placewright import planners
from placewright.coarsen import check_name, coarsen
from placewright.errors import (
    InfeasibleError,
    MissingExtraError,
    OptionError,
    ProvedInfeasibleError,
    VerificationError,
)
from placewright.graph import Floats, Ints
from placewright.options import (
    check_called,
    check_kind,
    check_mapping,
    check_seconds,
    check_seed,
)
from placewright.outcome import Outcome, Schedule
from placewright.plan import Placement, Plan
from placewright.problem import LONG_ROUNDING, Problem
from placewright.system.interrupts import noticed_interrupts
from placewright.system.references import referred
from placewright.units import listed
from placewright.verify import verify

if TYPE_CHECKING:
    from placewright.bounds import Bound
    from placewright.budget import Budget, Lesson, Listener, Progress
    from placewright.coarsen import Coarser
    from placewright.planners.base import Planner, Proposal

INTERRUPTED = "interrupted"
MAX_RETRIES = 64
STARTS_WITHIN_PEAK = ("heft", "memory-fill", "m-topo", "single-device")
"""Constructive planners, in the order in which they are asked for a plan whose peak fits."""


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
    on_lesson: Callable[[Lesson], None] | None = None,
) -> Plan:
    """Plan a problem with one planner, time the plan, bound it, and have it verified.

    `planner` is a name of the table, or a planner of your own (see `planners.base.Planner`).
    With a `coarsening` (see `coarsen.COARSENINGS`) the planner sees the coarser problem, and its
    answer is expanded and timed on this one. `start` is a placement that fits, for planners that
    can go on from one (`planners.base.Budget`). One that learns tells `on_lesson` how it gets on.

    Raises OptionError for what cannot be used, InfeasibleError where no plan can exist or the
    planner found none, VerificationError for a proposal that the judge rejects.
    """
    from placewright.bounds import Bound, lower_bound
    from placewright.budget import Budget, no_progress, unheard

    check_kind(problem, Problem, "problem", "what build_problem makes, or the problem of a plan")
    check_kind(bound, (Bound, type(None)), "bound", "a placewright.bounds.Bound, or None")
    check_mapping(planner_options, "planner_options", "{'gap': '0.01'}")
    check_kind(source, str, "source", "text")
    check_called(on_progress=on_progress, on_lesson=on_lesson)
    _check_start(problem, start)
    problem.options.require_full_pipeline("this planner")
    seed = check_seed(seed)
    started = time.perf_counter()
    budget = Budget(check_seconds(time_limit), start, on_lesson=on_lesson or unheard)
    check_feasible(problem)
    chosen = _chosen(planner, planner_options, problem.options.objective)
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
    own = Bound(proposal.lower_bound, proposal.bound_source)
    proved = own.value >= outcome.value * (1 - 2 * LONG_ROUNDING)
    if bound is None and not proved:  # where nothing is left to prove, bounds would only take time
        bound = lower_bound(problem)
    if bound is None or own.value > bound.value:
        bound = own
    found = Plan(
        problem=problem,
        placement=replace(proposal.placement, sequence=None),
        outcome=outcome,
        value=outcome.value,
        lower_bound=bound.value,
        bound_source=bound.source,
        planner=chosen.name,
        seed=seed,
        planner_options=planners.as_texts(planner_options),
        coarsening=coarsening,
        source=source,
        seconds=seconds,
    )
    verify(found).raise_if_failed()
    return found


def _chosen(planner: str | Planner, options: Mapping[str, str] | None, objective: str) -> Planner:
    """The planner of a name, or the one given; OptionError for none, or of another objective."""
    chosen: Planner
    if isinstance(planner, str):
        chosen = planners.create(planner, options, objective)
    elif hasattr(planner, "plan"):
        chosen = planner
    else:
        raise OptionError(f"planner is {planner!r}; give the name of one, such as 'heft'")
    check_kind(chosen.name, str, "the planner's name", "text")
    if chosen.objective != objective:
        raise OptionError(f"planner '{chosen.name}' plans for {chosen.objective}, not {objective}")
    return chosen


def _check_start(problem: Problem, start: Placement | None) -> None:
    """OptionError for a start that is no placement of the problem's ops on its devices."""
    if start is None:
        return
    check_kind(start, Placement, "start", "a Placement, such as that of a plan")
    if wrong := _misfit(problem, start):
        raise OptionError(f"start {wrong}")


def _check_proposal(problem: Problem, proposal: Any, name: str) -> None:
    """VerificationError for what no kernel may be given, which would read past its arrays."""
    from placewright.planners.base import Proposal

    if not isinstance(proposal, Proposal) or not isinstance(proposal.placement, Placement):
        given = getattr(proposal, "placement", proposal)
        raise VerificationError(
            f"planner '{name}' gave a {type(given).__name__}; give a Proposal of a Placement"
        )
    if wrong := _misfit(problem, proposal.placement):
        raise VerificationError(f"the placement of planner '{name}' {wrong}")


def _misfit(problem: Problem, placement: Placement) -> str:
    """What a placement has that the problem has not, as the end of a sentence; empty if nothing."""
    options, count = problem.options, problem.device_count
    per_op = (options.batch,) if options.objective == "batch-throughput" else ()
    shape = (problem.op_count, *per_op)
    if placement.device.shape != shape:
        return (
            f"has devices of shape {placement.device.shape}; give one of shape {shape}: "
            f"a device for each op{' and input' if per_op else ''}"
        )
    others = [*placement.row, *chain(*placement.replicas)]
    named = np.concatenate([placement.device.ravel(), np.array(others, dtype=np.int64)])
    unknown = named[(named < 0) | (named >= count)]
    if unknown.size:
        return f"names device {unknown[0]}; devices go from 0 to {count - 1}"
    if placement.subgraph is not None and placement.subgraph.shape != shape:
        return f"has subgraphs of shape {placement.subgraph.shape}; give one of shape {shape}"
    sequence = placement.sequence
    return "" if sequence is None else _missing(problem, placement, sequence)


def _missing(problem: Problem, placement: Placement, sequence: Ints) -> str:
    """What a sequence does not name once, as the end of a sentence."""
    what = "each op and each edge"
    if problem.options.objective == "batch-throughput":
        from placewright.simulate.batch import expand

        problem, what = expand(problem, placement.device).problem, "each batch and each edge of one"
    elif problem.options.objective != "latency":  # where it counts for nothing
        return ""
    items = np.arange(-problem.edge_count, problem.op_count)
    if np.array_equal(np.sort(sequence), items):
        return ""
    return f"has a sequence that does not name {what} once"


def check_feasible(problem: Problem) -> None:
    """Say before planning, with the arithmetic, why no plan can exist, where that is known."""
    problem.check_feasible()
    if check := problem.options.row.check:
        referred(check)(problem)


def compare(
    problem: Problem,
    names: Sequence[str] | str | None = None,
    *,
    coarsening: str = "none",
    time_limit: float = float("inf"),
    seed: int = 0,
    source: str = "",
    on_progress: Progress | None = None,
) -> list[Comparison]:
    """Plan `problem` with each of the planners `names`, or the one (the quick ones if None).

    The time limit is for all of them together: each may take an even share of what is left, those
    that need no limit first, which leave what they do not use to the others. What is compiled on
    the first run counts for the planner that needs it only. A planner that finds nothing, has no
    time left, or is interrupted (Ctrl-C, after which no other starts), has no plan in its line. The
    best bound that any of them proved is that of every plan.
    """
    from placewright.bounds import lower_bound
    from placewright.budget import Budget, no_progress
    from placewright.kernels import compiling

    check_kind(problem, Problem, "problem", "what build_problem makes, or the problem of a plan")
    check_kind(names, (str, Sequence, type(None)), "names", "a list of planners, or None")
    check_called(on_progress=on_progress)
    report, budget = on_progress or no_progress, Budget(check_seconds(time_limit))
    problem.options.require_full_pipeline("a comparison of planners")
    seed = check_seed(seed)
    names = [names] if isinstance(names, str) else names
    chosen = list(names) if names is not None else quick_planners(problem)
    rows = [planners.entry(name, problem.options.objective) for name in chosen]
    check_name(coarsening)
    check_feasible(problem)
    coarsen(problem, coarsening)  # no planner could take a problem that this refuses
    lines: dict[int, Comparison] = {}
    turns = sorted(range(len(chosen)), key=lambda number: not rows[number].quick)
    with compiling() as compiled, noticed_interrupts() as interrupts:
        bound = lower_bound(problem)
        for turn, number in enumerate(turns):
            name, has_plan = chosen[number], any(line.plan for line in lines.values())
            report(name, turn / len(turns))
            left = budget.left + compiled()
            if interrupts.came or (left <= 0 and has_plan):
                why = INTERRUPTED if interrupts.came else "no time was left"
                lines[number] = Comparison(name, None, why)
                continue
            share = max(left, 0.0) / (len(turns) - turn)
            try:
                lines[number] = _line(problem, name, coarsening, share, seed, source, bound)
            except KeyboardInterrupt:
                interrupts.came = True
                lines[number] = Comparison(name, None, INTERRUPTED)
        if interrupts.came and not any(line.plan for line in lines.values()):
            raise KeyboardInterrupt
    report("done", 1.0)
    return _with_best_bound([lines[number] for number in sorted(lines)])


def _line(
    problem: Problem,
    name: str,
    coarsening: str,
    seconds: float,
    seed: int,
    source: str,
    bound: Bound,
) -> Comparison:
    """What one planner comes to in so many seconds."""
    try:
        found = solve(
            problem,
            name,
            coarsening=coarsening,
            time_limit=seconds,
            seed=seed,
            source=source,
            bound=bound,
        )
    except (InfeasibleError, OptionError, MissingExtraError) as error:
        return Comparison(name, None, str(error))
    return Comparison(name, found)


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
    """The best plan of a comparison; InfeasibleError with the planners' reasons if none."""
    plans = [line.plan for line in lines if line.plan is not None]
    if not plans:
        raise no_plan({line.planner: line.error for line in lines})
    return min(plans, key=lambda each: each.value)


_REASON = re.compile(
    r"(planner '[^']*':? )?(?P<cause>.*?)( \([^()]*\))?(; (?P<advice>.*))?", re.DOTALL
)
"""What a planner says: its name, the cause, what it found of its own, and what to do about it."""


def no_plan(reasons: Mapping[str, str]) -> InfeasibleError:
    """Why none of the planners found a plan: each cause once, and who said so if not all did.

    >>> str(no_plan({"a": "planner 'a' found no room (2 B left); wait", "b": "found no room"}))
    'none of 2 planners found a plan: found no room; wait'
    """
    if not reasons:
        return InfeasibleError("no planner found a plan: time was up")
    if len(reasons) == 1:
        return InfeasibleError(f"no planner found a plan: {''.join(reasons.values())}")
    text = in_common(reasons)
    return InfeasibleError(f"none of {len(reasons)} planners found a plan: {text}")


def in_common(reasons: Mapping[str, str]) -> str:
    """Reasons by who gives them in one sentence: each cause once, those of most first."""
    names: dict[str, list[str]] = {}
    advice: dict[str, str] = {}
    for name, reason in reasons.items():
        found = _REASON.fullmatch(reason)
        assert found is not None  # it matches all texts
        names.setdefault(found["cause"], []).append(name)
        advice.setdefault(found["cause"], found["advice"] or "")
    causes = sorted(names, key=lambda cause: -len(names[cause]))
    several = len(causes) > 1
    parts = [f"{cause} ({listed(names[cause])})" if several else cause for cause in causes]
    return "; ".join([*parts, *filter(None, [advice[causes[0]]])])


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
    """
    budget = _overheard(problem, contraction, budget)
    asking = _Asking(problem, contraction, planner, seed, on_progress)
    if problem.options.memory == "resident":
        return asking.once(asking.asked, budget)
    if contraction is None and getattr(planner, "counts_peak", False):
        return asking.with_a_start(budget)
    return asking.with_less_memory(budget)


@dataclass(frozen=True)
class _Asking:
    """One planner and what it is asked about."""

    problem: Problem
    contraction: Coarser | None
    planner: Planner
    seed: int
    on_progress: Progress

    @property
    def asked(self) -> Problem:
        return self.contraction.problem if self.contraction else self.problem

    def once(self, asked: Problem, budget: Budget, is_all: bool = True) -> tuple[Proposal, Outcome]:
        """What it proposes and what that comes to; `is_all`: the devices have all their memory.

        Otherwise, and of a coarser problem, what is proved to be infeasible need not be.
        """
        from placewright.planners.base import Proposal

        try:
            proposal = _with_units_first(asked, self.planner, budget, self.seed, self.on_progress)
        except ProvedInfeasibleError as error:
            if is_all and self.contraction is None:
                raise
            raise InfeasibleError(
                f"planner '{self.planner.name}' found no placement "
                f"{'of whole groups ' if self.contraction else ''}that fits; give the devices more "
                "memory or try another planner"
            ) from error
        placement, outcome = _expand(self.problem, self.contraction, proposal.placement)
        return (Proposal(placement) if self.contraction else proposal), outcome

    def with_a_start(self, budget: Budget) -> tuple[Proposal, Outcome]:
        """Of a planner that heeds the peak: if it finds nothing that fits, from a plan that does.

        Exact planners say themselves what they have proved.
        """
        try:
            return self._within_peak(budget)
        except ProvedInfeasibleError:
            raise
        except InfeasibleError:
            start = plan_within_peak(self.problem, self.seed) if budget.start is None else None
            if start is None:
                raise
        return self._within_peak(replace(budget, start=start))

    def _within_peak(self, budget: Budget) -> tuple[Proposal, Outcome]:
        proposal, outcome = self.once(self.asked, budget)
        if (self.excess(proposal.placement, outcome) > 0).any():
            raise self._too_full()
        return proposal, outcome

    def with_less_memory(self, budget: Budget) -> tuple[Proposal, Outcome]:
        """Of a planner that counts what ops keep: ever less memory, until the peak fits too.

        What is proved with all of it holds: what ops keep is part of every peak.
        """
        from placewright.budget import Silence
        from placewright.planners.base import Proposal

        resident = replace(self.asked, options=replace(self.asked.options, memory="resident"))
        capacity = self.problem.device_memory
        held_back = np.zeros(self.problem.device_count)
        for _ in range(MAX_RETRIES):
            within = resident.with_device_memory(np.maximum(capacity - held_back, 0.0))
            try:
                proposal, outcome = self.once(within, budget, is_all=not held_back.any())
            except InfeasibleError:
                if not held_back.any():
                    raise
                raise self._too_full() from None  # what it says is of less memory than there is
            over = self.excess(proposal.placement, outcome)
            if not (over > 0).any():
                return Proposal(proposal.placement) if held_back.any() else proposal, outcome
            # Half as much again: shaving off exactly the excess would creep.
            held_back += np.where(over > 0, 1.5 * over, 0.0)
            budget = replace(budget, start=None, listener=Silence())
        raise self._too_full()

    def excess(self, placement: Placement, outcome: Outcome) -> Floats:
        """`[device]` bytes above what it has, at the peak."""
        from placewright.simulate.peak import peak_excess

        assert isinstance(outcome, Schedule)
        return peak_excess(self.problem, placement, outcome)

    def _too_full(self) -> InfeasibleError:
        return InfeasibleError(
            f"planner '{self.planner.name}' found no placement whose peak memory fits, which does "
            "not prove that there is none; give the devices more memory or try another planner"
        )


def plan_within_peak(problem: Problem, seed: int) -> Placement | None:
    """The plan of the first constructive planner whose peak memory fits, with its sequence."""
    from placewright.budget import Budget, no_progress
    from placewright.simulate.latency import schedule_placement

    for name in STARTS_WITHIN_PEAK:
        asking = _Asking(problem, None, planners.create(name), seed, no_progress)
        with suppress(InfeasibleError):
            placement = asking.with_less_memory(Budget())[0].placement
            if placement.sequence is None:
                placement = schedule_placement(problem, placement.device)
            return placement
    return None


def _overheard(problem: Problem, contraction: Coarser | None, budget: Budget) -> Budget:
    """The budget of a planner that is asked about a coarser problem, or that counts no peak.

    The start is made coarser too, where it fits then; placements are expanded, and bounds left out,
    for they are about another problem. What overflows the peak is kept from the listener.
    """
    if contraction is None and problem.options.memory == "resident":
        return budget
    start = budget.start
    if contraction is not None and start is not None:
        start = contraction.project(start) if problem.options.row.has_sequence else None
    return replace(budget, start=start, listener=_Expanding(problem, contraction, budget.listener))


@dataclass(frozen=True)
class _Expanding:
    """A listener to a planner of a coarser problem, or of one whose memory is a peak."""

    problem: Problem
    contraction: Coarser | None
    listener: Listener

    def found(self, placement: Placement) -> None:
        from placewright.simulate.peak import peak_excess

        placement, outcome = _expand(self.problem, self.contraction, placement)
        if (
            not isinstance(outcome, Schedule)
            or (peak_excess(self.problem, placement, outcome) <= 0).all()
        ):
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
    if kept.sequence is None or not problem.options.row.has_sequence:
        kept = replace(kept, sequence=None)
        return kept, evaluate(problem, kept)
    timed = [(each, evaluate(problem, each)) for each in (kept, replace(kept, sequence=None))]
    return min(timed, key=lambda pair: pair[1].value)


def _with_units_first(
    problem: Problem, planner: Planner, budget: Budget, seed: int, on_progress: Progress
) -> Proposal:
    """Ask the planner; if it runs out of room for a unit, place that one first and ask again."""
    from placewright.budget import Silence
    from placewright.planners.base import Proposal
    from placewright.planners.first_placed import FirstPlaced

    first = FirstPlaced(problem, budget)
    while True:
        pinned = problem.with_pins(first.device) if first.device else problem
        if first.device:  # a start need not keep the pins, and what is proved is about other plans
            budget = replace(budget, start=None, listener=Silence())
        try:
            proposal = planner.plan(pinned, budget, seed, on_progress)
            _check_proposal(problem, proposal, planner.name)
            # What is proved with units pinned says nothing about the problem without the pins.
            return Proposal(proposal.placement) if first.device else proposal
        except InfeasibleError as error:
            if isinstance(error, ProvedInfeasibleError) and not first.device:
                raise
            first.after(error)
