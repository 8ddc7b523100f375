"""The judge: does a plan do what it says? Slow, obvious, and apart from everything that plans.

`verify` recomputes every claim of a plan from its problem alone, with the definitions of the
design and no code of the kernels, the simulator or a planner. Times may differ by rounding
(`TOLERANCE`, relative to the value), nothing else may. There is a judge per objective.
"""

from __future__ import annotations

import math

from placewright.outcome import BatchSchedule, Invocations, Loads, Schedule
from placewright.plan import Plan
from placewright.verify.batch import verify_batch
from placewright.verify.invocation import verify_invocation
from placewright.verify.latency import CHECKS, verify_latency
from placewright.verify.report import MAX_SHOWN, TOLERANCE, Report
from placewright.verify.throughput import verify_throughput

__all__ = ["CHECKS", "MAX_SHOWN", "TOLERANCE", "Report", "verify"]


def verify(plan: Plan) -> Report:
    """Judge `plan`; never raises for a wrong plan (see `Report.raise_if_failed`).

    >>> report = verify(plan)          # doctest: +SKIP
    >>> report.ok, report.violations   # doctest: +SKIP
    (True, ())
    """
    objective, outcome = plan.problem.options.objective, plan.outcome
    if objective == "latency" and isinstance(outcome, Schedule):
        return verify_latency(plan, outcome)
    if objective == "throughput" and isinstance(outcome, Loads):
        return verify_throughput(plan, outcome)
    if objective == "invocation-latency" and isinstance(outcome, Invocations):
        return verify_invocation(plan, outcome)
    if objective == "batch-throughput" and isinstance(outcome, BatchSchedule):
        return verify_batch(plan, outcome)
    wrong = f"the outcome is {type(outcome).__name__}, which no plan for {objective} has"
    return Report((wrong,), math.nan, (), ("the outcome is that of the objective",))
