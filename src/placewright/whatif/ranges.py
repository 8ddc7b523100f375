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
from itertools import islice

import numpy as np

from placewright.graph import Floats, Ints
from placewright.outcome import BatchSchedule, Invocations, Schedule
from placewright.plan import Placement, Plan
from placewright.problem import COST_SPREADS, Problem
from placewright.simulate import invocation, throughput
from placewright.simulate.batch import batch_sequence, expand
from placewright.simulate.latency import makespans, schedule_sequence

SAMPLES = 400
MOST_WORK = 20_000_000  # times of ops and transfers in all samples together
LEAST_SAMPLES = 40
PERCENTILES = (5.0, 95.0)


def value_range(plan: Plan, seed: int = 0) -> tuple[float, float] | None:
    """Seconds: the 5th and 95th percentile of the value, or None where no cost says its source."""
    spread = cost_spread(plan.problem)
    if spread is None:
        return None
    values = _values(plan, spread, np.random.default_rng(seed))
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


def _values(plan: Plan, spread: Floats, rng: np.random.Generator) -> Floats:
    """`[sample]` seconds. Only the times of ops, or of their batches, are done anew for each."""
    problem, placement, outcome = plan.problem, plan.placement, plan.outcome
    timed, op, device = problem, np.arange(problem.op_count, dtype=np.int32), placement.device
    if isinstance(outcome, BatchSchedule):
        expansion = expand(problem, device)
        timed, op, device = expansion.problem, expansion.op, expansion.device
    chosen = timed.op_time[np.arange(timed.op_count), device]
    factors = _factors(problem, spread, op, device, rng)
    samples = (chosen * each for each in islice(factors, _count(problem)))
    if isinstance(outcome, BatchSchedule):
        return makespans(timed, Placement(device, batch_sequence(plan, outcome)), samples)
    if isinstance(outcome, Schedule):
        return makespans(timed, Placement(device, schedule_sequence(plan)), samples)
    if isinstance(outcome, Invocations):
        return invocation.sampled_values(problem, placement, samples)
    return throughput.sampled_values(problem, placement, samples)


def _factors(
    problem: Problem, spread: Floats, op: Ints, device: Ints, rng: np.random.Generator
) -> Iterator[Floats]:
    """Samples of factors on the times of ops `op` on `device`, both ``[item]``.

    One normal number per type of op and kind of device in each sample.
    """
    types, op_type = np.unique(np.array(problem.op_types), return_inverse=True)
    kinds, kind = np.unique(np.array(problem.device_kinds), return_inverse=True)
    own_type, own_kind, own_spread = op_type[op], kind[device], spread[op, device]
    while True:
        drawn = rng.standard_normal((len(types), len(kinds)))
        yield np.exp(drawn[own_type, own_kind] * own_spread)


def _count(problem: Problem) -> int:
    """Samples: fewer of a large problem."""
    items = problem.op_count + problem.edge_count
    if problem.options.objective != "latency":
        items *= problem.device_count * max(len(problem.batch_sizes), 1)
    return max(min(SAMPLES, MOST_WORK // items), LEAST_SAMPLES)
