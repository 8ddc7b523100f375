"""How far off the value of a plan may be, given how far off its costs may be.

Placement and order are kept; only the times of ops vary, as `whatif.robustness` has it for one
noise of all. Here each time has the spread of its own source (`Problem.op_cost_spread`): samples
of a measurement, or errors of a prediction on ops that it was not fitted to. Ops of one type on
one kind of device are off together, by the same number of spreads: what makes one slower than
expected, a clock, a library, makes the others so, and errors must not cancel by their number.

>>> from placewright.planning import plan
>>> found = plan("zoo:gpt2?layers=2", "2x3090", planner="heft")
>>> low, high = value_range(found)
>>> low <= found.value <= high
True
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from placewright.graph import Floats, Ints
from placewright.plan import Placement, Plan
from placewright.problem import COST_SPREADS, Problem
from placewright.simulate import evaluate
from placewright.simulate.latency import makespans, schedule_sequence
from placewright.simulate.throughput import sampled_values

SAMPLES = 400
MOST_WORK = 20_000_000  # times of ops and transfers in all samples together
LEAST_SAMPLES = 40
PERCENTILES = (5.0, 95.0)


def value_range(plan: Plan, seed: int = 0) -> tuple[float, float] | None:
    """Seconds: the 5th and 95th percentile of the value, or None where no cost says its source."""
    problem, device = plan.problem, plan.placement.device
    spread = cost_spread(problem)
    if spread is None:
        return None
    draw = _Draws(problem, spread, np.random.default_rng(seed))
    objective = problem.options.objective
    if objective in ("latency", "throughput"):  # where only the times of ops are done anew
        chosen = problem.op_time[np.arange(problem.op_count), device]
        samples = (chosen * draw.of_ops(device) for _ in range(_count(problem)))
        if objective == "latency":
            placement = Placement(device, schedule_sequence(plan))
            values = makespans(problem, placement, samples)
        else:
            values = sampled_values(problem, plan.placement, samples)
    else:
        values = np.array([evaluate(each, plan.placement).value for each in _sampled(draw)])
    low, high = np.percentile(values, PERCENTILES).tolist()
    return min(low, plan.value), max(high, plan.value)


def cost_spread(problem: Problem) -> Floats | None:
    """`[op, device]` the spread of every time, or None where nobody says where it comes from."""
    if problem.op_cost_spread.size:
        return problem.op_cost_spread
    if not problem.op_cost_source.size:
        return None
    found: Floats = np.array(COST_SPREADS)[problem.op_cost_source]
    return found


class _Draws:
    """Factors on times: one normal number per type of op and kind of device in each sample."""

    def __init__(self, problem: Problem, spread: Floats, rng: np.random.Generator) -> None:
        self.problem = problem
        self.spread = spread
        self.rng = rng
        types, self.op_type = np.unique(np.array(problem.op_types), return_inverse=True)
        kinds, self.kind = np.unique(np.array(problem.device_kinds), return_inverse=True)
        self.shape = len(types), len(kinds)

    def of_ops(self, device: Ints) -> Floats:
        """`[op]` of one sample, on the devices given."""
        drawn = self.rng.standard_normal(self.shape)[self.op_type, self.kind[device]]
        found: Floats = np.exp(drawn * self.spread[np.arange(len(device)), device])
        return found

    def of_all(self) -> Floats:
        """`[op, device]` of one sample."""
        drawn = self.rng.standard_normal(self.shape)[self.op_type[:, None], self.kind[None, :]]
        found: Floats = np.exp(drawn * self.spread)
        return found


def _sampled(draw: _Draws) -> Iterator[Problem]:
    problem = draw.problem
    for _ in range(_count(problem)):
        factor = draw.of_all()
        batch_time = problem.batch_time * factor[:, :, None]
        yield replace(problem, op_time=problem.op_time * factor, batch_time=batch_time)


def _count(problem: Problem) -> int:
    """Samples: fewer of a large problem."""
    items = problem.op_count + problem.edge_count
    if problem.options.objective != "latency":
        items *= problem.device_count * max(len(problem.batch_sizes), 1)
    return max(min(SAMPLES, MOST_WORK // items), LEAST_SAMPLES)
