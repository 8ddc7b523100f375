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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placewright.errors import OptionError, VerificationError
from placewright.graph import Floats, Ints
from placewright.kernels.arrays import NOT_SENT
from placewright.outcome import Schedule
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.simulate.latency import sequence_of
from placewright.whatif.samples import Costs, check_noise

SAMPLES = 1000
PERCENTILES = (5.0, 50.0, 95.0)


class Percentiles(NamedTuple):
    """Seconds that the makespan stays under in 5 %, 50 % and 95 % of the samples."""

    p5: float
    p50: float
    p95: float


@dataclass(frozen=True)
class Robust:
    """The plan chosen, and the percentiles of all, in the order of the plans given."""

    plan: Plan
    percentiles: tuple[Percentiles, ...]


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


def robust(
    problem: Problem,
    plans: Sequence[Plan],
    noise: float,
    samples: int = SAMPLES,
    seed: int = 0,
    distribution: str = "lognormal",
) -> Robust:
    """Of several plans for `problem`, such as those of `compare`, the one with the least p95.

    All are timed with the same costs: a sample's factor of an op is the same in each. Ties go to
    the better value, then to the first.
    """
    if not plans:
        raise OptionError("there is no plan to choose from; give at least one")
    for plan in plans:
        same = (plan.problem.op_names, plan.problem.device_names, plan.problem.options)
        if same != (problem.op_names, problem.device_names, problem.options):
            raise OptionError(
                f"the plan of '{plan.planner}' is for '{plan.problem.name}', not for "
                f"'{problem.name}'; give plans for one problem"
            )
    found = tuple(makespan_percentiles(plan, noise, samples, seed, distribution) for plan in plans)
    best = min(range(len(plans)), key=lambda k: (found[k].p95, plans[k].value))
    return Robust(plans[best], found)


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
    require_latency(plan)
    costs = Costs(plan.problem, noise, distribution, seed)
    return costs.makespans(plan.placement.device, schedule_sequence(plan), samples, costs.rng())


def schedule_sequence(plan: Plan) -> Ints:
    """The plan's schedule as one order of ops and edges (`Placement.sequence`).

    A transfer is the item of the first edge that it serves; the edges it serves besides, and
    those within a device, come when their tensor is there.
    """
    problem, schedule, device = plan.problem, plan.schedule, plan.placement.device
    sent, count = schedule.transfers, problem.device_count
    by_tensor = problem.options.transfer_unit == "tensor"
    target = device[problem.consumers]
    if by_tensor:
        edge_key = problem.edge_tensor.astype(np.int64) * count + target
        sent_key = sent.tensor.astype(np.int64) * count + sent.target
    else:
        edge_key = problem.edge_tensor.astype(np.int64) * problem.op_count + problem.consumers
        sent_key = sent.tensor.astype(np.int64) * problem.op_count + sent.consumer
    remote = np.flatnonzero(device[problem.edge_producer] != target)
    order = np.argsort(sent_key, kind="stable")
    at = np.searchsorted(sent_key[order], edge_key[remote])
    serving = order[np.minimum(at, max(len(order) - 1, 0))] if len(order) else at
    if len(serving) and (len(order) == 0 or (sent_key[serving] != edge_key[remote]).any()):
        raise VerificationError(
            f"the plan for '{problem.name}' lacks a transfer between two devices; plan it again"
        )
    edge_start = np.full(problem.edge_count, NOT_SENT)
    edge_finish = np.full(problem.edge_count, NOT_SENT)
    edge_finish[remote] = sent.finish[serving]
    _, first = np.unique(edge_key[remote], return_index=True)
    edge_start[remote[first]] = sent.start[serving[first]]
    return sequence_of(
        problem, *_in_step(problem, schedule, edge_start, edge_finish), edge_start, edge_finish
    )


def _in_step(
    problem: Problem, schedule: Schedule, edge_start: Floats, edge_finish: Floats
) -> tuple[Floats, Floats]:
    """Starts and finishes of ops, no start before an input is there, not by a rounding error.

    A schedule may be off by rounding where it was written by hand; its order must not be.
    """
    start, finish = schedule.op_start.copy(), schedule.op_finish.copy()
    local = edge_finish < 0
    there = np.where(local, finish[problem.edge_producer], edge_finish)
    early = (there > start[problem.consumers]).any()
    early |= ((edge_start >= 0) & (edge_start < finish[problem.edge_producer])).any()
    if not early:
        return start, finish
    offsets, inputs = problem.op_inputs
    for op in problem.topological_order.tolist():
        for edge in inputs[offsets[op] : offsets[op + 1]].tolist():
            ready = finish[problem.edge_producer[edge]]
            if not local[edge]:
                if edge_start[edge] >= 0:
                    edge_start[edge] = max(edge_start[edge], ready)
                edge_finish[edge] = max(edge_finish[edge], ready, edge_start[edge])
                ready = edge_finish[edge]
            start[op] = max(start[op], ready)
        finish[op] = max(finish[op], start[op])
    return start, finish


def require_latency(plan: Plan) -> None:
    """OptionError for a plan of another objective: only latency has a schedule to keep to."""
    objective = plan.problem.options.objective
    if objective != "latency":
        raise OptionError(f"varying costs are sampled for objective latency, not for {objective}")
