"""How a plan for latency fares when costs are not what was estimated.

The placement is kept, and the order too: every device runs its ops, and every channel its
transfers, in the order of the plan's schedule, each as early as that allows. Only the times vary.

>>> from placewright.planning import plan
>>> found = plan("zoo:gpt2?layers=2", "2x3090", planner="heft")
>>> low, middle, high = makespan_percentiles(found, 0.1)
>>> low <= middle <= high
True
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placewright.graph import Floats
from placewright.plan import Plan
from placewright.simulate.latency import schedule_sequence
from placewright.whatif.samples import Costs, check_noise

SAMPLES = 1000
SAMPLED = "varying costs are sampled"
PERCENTILES = (5.0, 50.0, 95.0)


class Percentiles(NamedTuple):
    """Seconds that the makespan stays under in 5 %, 50 % and 95 % of the samples."""

    p5: float
    p50: float
    p95: float


def makespan_percentiles(
    plan: Plan,
    noise: float,
    samples: int = SAMPLES,
    seed: int = 0,
    distribution: str = "lognormal",
) -> Percentiles:
    """The 5th, 50th and 95th percentile of the makespan when every cost varies on its own.

    See `sampled_makespans`; OptionError for a plan of another objective.
    """
    values = sampled_makespans(plan, noise, samples, seed, distribution)
    return Percentiles(*np.percentile(values, PERCENTILES).tolist())


def sampled_makespans(
    plan: Plan,
    noise: float,
    samples: int = SAMPLES,
    seed: int = 0,
    distribution: str = "lognormal",
) -> Floats:
    """`[sample]` seconds: the makespan with each op's and each transfer's time times a factor.

    The factors are independent, of the `distribution` lognormal or uniform, and drawn as
    `whatif.samples` says.
    """
    check_noise(noise, samples, distribution)
    plan.problem.options.require_latency(SAMPLED)
    costs = Costs(plan.problem, noise, distribution, seed)
    return costs.makespans(plan.placement.device, schedule_sequence(plan), samples, costs.rng())
