"""A plan for latency that is good when costs are not what was estimated.

`robust_plan` starts from a good plan and searches placement and order for the least 95th
percentile of the makespan over sampled costs (`whatif.samples`). Three kinds of samples keep it
honest: each round of the search trains on fresh ones, all candidates of a round on the same; what
a round finds has to be better on samples to validate with; and what is reported comes from the
samples of `robustness.makespan_percentiles`, which the search never sees.

>>> from placewright.planning import plan
>>> start = plan("zoo:gpt2?layers=2", "2x3090", planner="heft")
>>> found = robust_plan(start, 0.3, iterations=500)
>>> found.after.p95 <= found.before.p95
True
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from placewright.budget import Budget, Progress, no_progress
from placewright.errors import OptionError
from placewright.plan import Placement, Plan
from placewright.problem import Problem
from placewright.simulate.latency import schedule_sequence, time_placement
from placewright.verify import verify
from placewright.whatif.robust_search import RobustSearch
from placewright.whatif.robustness import SAMPLED, SAMPLES, Percentiles, makespan_percentiles
from placewright.whatif.samples import Costs, check_noise

SUFFIX = " + robust"  # to the name of the planner that made the start
# Evaluations without a time limit, fewer for a large graph: times items, each about 100 ns.
MOST_ITERATIONS = 200_000
MOST_WORK = 100_000_000


@dataclass(frozen=True)
class RobustPlan:
    """The plan found and the percentiles of both, `before` those of the plan to start from.

    Where nothing better was found, `plan` is the plan to start from; see `improved`.
    """

    plan: Plan
    before: Percentiles
    after: Percentiles

    @property
    def improved(self) -> bool:
        return self.after.p95 < self.before.p95


def robust_plan(
    plan: Plan,
    noise: float,
    *,
    seed: int = 0,
    samples: int = SAMPLES,
    distribution: str = "lognormal",
    time_limit: float = math.inf,
    iterations: int | None = None,
    on_progress: Progress | None = None,
) -> RobustPlan:
    """Search from `plan` for the least 95th percentile of the makespan; see the module.

    The answer is a plan for the same problem, with the same lower bound; its `value` is the
    makespan with the costs as estimated, which may be above the start's. `samples` and `seed` are
    those of `makespan_percentiles`, which gives the same `before` and `after`. With `iterations`
    (evaluations), or without a time limit, the same input gives the same answer. Ctrl-C ends the
    search with what was found.

    OptionError for an objective other than latency and for impossible numbers, VerificationError
    where `plan` does not hold.
    """
    check_noise(noise, samples, distribution)
    plan.problem.options.require_latency(SAMPLED)
    if iterations is not None and iterations < 1:
        raise OptionError(f"iterations is {iterations}; give a whole number above 0")
    started, budget = time.perf_counter(), Budget(time_limit)
    verify(plan).raise_if_failed()
    before = makespan_percentiles(plan, noise, samples, seed, distribution)
    judging = time.perf_counter() - started  # takes as long again in the end
    start = Placement(plan.placement.device, schedule_sequence(plan))
    search = RobustSearch(
        Costs(plan.problem, noise, distribution, seed),
        start,
        Budget(budget.left - judging),
        _limit(plan.problem, budget, iterations),
    )
    best = search.run(on_progress or no_progress)
    if best is start:
        return RobustPlan(plan, before, before)
    found = replace(_planned(plan, best), seconds=time.perf_counter() - started)
    after = makespan_percentiles(found, noise, samples, seed, distribution)
    if not after.p95 < before.p95:
        return RobustPlan(plan, before, before)
    return RobustPlan(found, before, after)


def _limit(problem: Problem, budget: Budget, iterations: int | None) -> int | float:
    """Evaluations that the search may make."""
    if iterations is not None:
        return iterations
    if budget.seconds < math.inf:
        return math.inf
    items = problem.op_count + problem.edge_count
    return min(MOST_ITERATIONS, MOST_WORK // items + 1)


def _planned(start: Plan, placement: Placement) -> Plan:
    """The start's problem and bound with another placement and order, timed and judged."""
    schedule = time_placement(start.problem, placement)
    found = replace(
        start,
        placement=replace(placement, sequence=None),
        outcome=schedule,
        value=schedule.value,
        planner=start.planner.removesuffix(SUFFIX) + SUFFIX,
        history=None,
    )
    verify(found).raise_if_failed()
    return found
