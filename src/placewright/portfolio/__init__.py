"""The default planner ``auto``: quick planners, then searches and proofs in turns on all cores.

- `members` says who takes part, `scheduler` whose turn it is, `work` what a turn is;
- `workers` are the processes that do it, `ray_workers` those on a Ray cluster, `run` the outline;
- `incumbent` keeps the best plan, judged, and the best bound; `checkpoint` keeps it in a file;
- `events` is what is told on the way, `limits` when it ends; `warm_up` compiles first.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from placewright.budget import Progress, no_progress
from placewright.plan import Placement, Plan
from placewright.planners.base import Proposal
from placewright.portfolio.events import Event, Observer, warn_of_failures
from placewright.portfolio.incumbent import Origin
from placewright.portfolio.limits import DEFAULT_SECONDS, Limits
from placewright.portfolio.run import Run
from placewright.portfolio.settings import Settings
from placewright.problem import Problem
from placewright.solving import check_feasible
from placewright.system.interrupts import noticed_interrupts
from placewright.system.ray_connection import connected

__all__ = ["DEFAULT_SECONDS", "Event", "Limits", "best_plan", "best_proposal"]


def best_plan(
    problem: Problem,
    limits: Limits | None = None,
    *,
    seed: int = 0,
    processes: int | None = None,
    ray: str = "",
    start: Placement | None = None,
    source: str = "",
    checkpoint: str | Path | None = None,
    on_event: Observer = warn_of_failures,
    on_progress: Progress = no_progress,
) -> Plan:
    """The best verified plan that all members together find within `limits`.

    `processes` (as many as cores): with 1 all work is done in this process, in which case a
    member that overruns its time overruns the limit. With `ray`, the address of a Ray cluster
    (see `ray_connection`), they work there, as many as it has CPUs; connecting is not counted as
    planning. `start` is a plan to better. `checkpoint` is a plan file that the best so far is
    written to every few seconds. Ctrl-C ends the run and keeps the best plan; SIGTERM too, and then
    the process, by SystemExit, where this is not a command's work.

    Raises InfeasibleError if no member found a plan, OptionError if there is no such cluster.
    """
    path = None if checkpoint is None else Path(checkpoint)
    settings = Settings(Origin(source, seed), processes, ray, path, on_event, on_progress)
    return _run(problem, limits, settings, start).plan()


def best_proposal(
    problem: Problem,
    limits: Limits | None = None,
    *,
    seed: int = 0,
    processes: int | None = None,
    ray: str = "",
    start: Placement | None = None,
    on_progress: Progress = no_progress,
) -> Proposal:
    """The same as a planner's proposal, the sequence of a schedule included."""
    settings = Settings(Origin("", seed), processes, ray, on_progress=on_progress)
    run = _run(problem, limits, settings, start)
    plan = run.plan()
    assert run.incumbent.placement is not None  # or there would be no plan
    return Proposal(run.incumbent.placement, plan.lower_bound, plan.bound_source)


def _run(
    problem: Problem, limits: Limits | None, settings: Settings, start: Placement | None
) -> Run:
    """A run that has come to its end."""
    check_feasible(problem)
    with noticed_interrupts(raising=False) as interrupts:
        if settings.ray:
            settings.on_progress("connecting to Ray", 0.0)
        with connected(settings.ray) if settings.ray else nullcontext() as cluster:
            run = Run(problem, limits or Limits.of(), settings, interrupts, cluster)
            run.go(start)
    return run
