"""A task: one member of a portfolio for some seconds, on one problem. What workers do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from placewright import planners
from placewright.budget import Budget, no_progress
from placewright.coarsen import Coarser, coarsen
from placewright.errors import (
    InfeasibleError,
    MissingExtraError,
    OptionError,
    ProvedInfeasibleError,
)
from placewright.plan import Placement
from placewright.portfolio.members import Member
from placewright.problem import Problem
from placewright.solving import propose
from placewright.system.references import referred


@dataclass(frozen=True, eq=False)
class Task:
    """`member` with its `options`, for `seconds`, from `start`, the best plan so far (or None).

    `value` is that of `start`; `number` tells the tasks of a run apart.
    """

    number: int
    member: Member
    options: dict[str, str]
    seconds: float
    seed: int
    start: Placement | None
    value: float


@dataclass(frozen=True, eq=False)
class Found:
    """A placement, not judged yet."""

    placement: Placement


@dataclass(frozen=True)
class Proved:
    """A bound, in seconds."""

    lower_bound: float
    source: str


@dataclass(frozen=True)
class Ended:
    """The last word of a task: `refusal` says why the member is of no use for the problem.

    With `infeasible` it has proved that there is no plan at all. `error` is what should not have
    happened; `lost`, that it happened to the worker.
    """

    refusal: str = ""
    error: str = ""
    lost: bool = False
    infeasible: bool = False


Message = Found | Proved | Ended
Tell = Callable[[Message], None]


def perform(problem: Problem, task: Task, tell: Tell) -> None:
    """Do a task and tell what comes of it; the last message is `Ended`."""
    try:
        if task.member.prover:
            _prove(problem, task, tell)
        else:
            _plan(problem, task, tell)
    except ProvedInfeasibleError as error:
        tell(Ended(refusal=str(error), infeasible=True))
    except (InfeasibleError, MissingExtraError, OptionError) as error:
        tell(Ended(refusal=str(error)))
    except Exception as error:  # one member's fault must not end the others
        tell(Ended(error=f"{type(error).__name__}: {error}"))
    else:
        tell(Ended())


def _plan(problem: Problem, task: Task, tell: Tell) -> None:
    member = task.member
    planner = planners.create(member.name, task.options, problem.options.objective)
    contraction = _coarsened(problem, member.coarsening)
    refusal = planner.supports(contraction.problem if contraction else problem)
    if refusal:
        raise OptionError(refusal)
    budget = Budget(task.seconds, None if member.afresh else task.start, _Reporter(tell))
    proposal, _ = propose(problem, contraction, planner, budget, task.seed, no_progress)
    tell(Found(proposal.placement))
    if proposal.lower_bound > 0.0:
        tell(Proved(proposal.lower_bound, proposal.bound_source or member.name))


@lru_cache(maxsize=4)
def _coarsened(problem: Problem, coarsening: str) -> Coarser | None:
    """A worker's problem stays the same, and contracting a large one takes seconds."""
    return coarsen(problem, coarsening)


def _prove(problem: Problem, task: Task, tell: Tell) -> None:
    bound = referred(f"bounds.{task.member.prover}")(
        problem, Budget(task.seconds, task.start, _Reporter(tell)), task.value
    )
    tell(Proved(bound.value, bound.source))


@dataclass(frozen=True)
class _Reporter:
    """A planner's `Listener` that passes on what it hears."""

    tell: Tell

    def found(self, placement: Placement) -> None:
        self.tell(Found(placement))

    def proved(self, lower_bound: float, source: str) -> None:
        self.tell(Proved(lower_bound, source))
