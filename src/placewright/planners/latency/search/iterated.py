"""Iterated annealing: a long search of a graph as many short ones (iterated local search).

One annealing gains little from more than some thousand evaluations per op: where it ends was
decided while it was hot, and by chance. So a long search begins from its start a few times, each
time colder, and spends what is left on short annealings of the best plan so far, of temperatures
drawn on a log scale (Lourenço et al. 2003).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placewright.budget import Budget, Pace, Progress, Reporter
from placewright.plan import Placement
from placewright.planners.latency.search.refining import (
    Refinement,
    best_after,
    hot_for,
    makespan_per_op,
)
from placewright.problem import Problem

ENOUGH = 10_000  # evaluations per op; with fewer one annealing gains more
WARMTHS = (1.0, 0.5, 0.25)  # of the annealings from the start
START_SHARE = 0.15  # of the evaluations, for each of those
TURN = 1_000  # evaluations per op of one from the best
AGAIN_RANGE = 40.0
"""By how much colder an annealing from a given plan may be, drawn on a log scale."""


def annealed(
    problem: Problem,
    start: Placement,
    budget: Budget,
    limit: float,
    seed: int,
    on_progress: Progress,
    *,
    is_given: bool,
    priced: bool = False,
) -> tuple[Placement, bool]:
    """`start` annealed for `limit` evaluations or the budget's time, and whether Ctrl-C came.

    Never worse than `start`, which is a plan to go on from if it `is_given`, else a simple one.
    `priced`: see `refining.Refinement`.
    """
    refinement = Refinement(problem, seed, start, priced=priced)
    reporter = Reporter(budget, refinement.best_value)
    rng = np.random.default_rng(seed)

    def anneal() -> None:
        per_op = refinement.evaluations_in(budget, limit) / problem.op_count
        seconds, done = budget.left, 0.0
        for origin, warmth, share in _phases(refinement, start, is_given, per_op, rng):
            hot = warmth * hot_for(share * per_op) * makespan_per_op(problem, origin)
            pace = Pace(budget.part(share * seconds), share * limit)
            refinement.restart_from(origin)
            refinement.anneal(hot, pace, reporter, _within(on_progress, done, share))
            done += share

    return best_after(refinement, anneal)


def _within(on_progress: Progress, done: float, share: float) -> Progress:
    """For the progress of a part, that of the whole."""
    return lambda what, part: on_progress(what, min(done + share * part, 1.0))


def _phases(
    refinement: Refinement,
    start: Placement,
    is_given: bool,
    per_op: float,
    rng: np.random.Generator,
) -> Iterator[tuple[Placement, float, float]]:
    """A plan, the warmth and the share of the evaluations of one annealing after another."""
    if per_op < ENOUGH:
        yield start, AGAIN_RANGE ** -rng.random() if is_given else 1.0, 1.0
        return
    left = 1.0
    for warmth in () if is_given else WARMTHS:
        yield start, warmth, START_SHARE
        left -= START_SHARE
    turns = max(round(left * per_op / TURN), 1)
    for _ in range(turns):
        yield refinement.placement(), AGAIN_RANGE ** -rng.random(), left / turns
