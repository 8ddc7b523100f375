"""The judge: does a plan do what it says? Slow, obvious, and apart from everything that plans.

`verify` recomputes every claim of a plan from its problem alone, with the definitions of the
design and no code of the kernels, the simulator or a planner. Times may differ by rounding
(`TOLERANCE`, relative to the value), nothing else may. There is a judge per objective.
"""

from __future__ import annotations

from placewright.outcome import BatchSchedule, Invocations, Loads
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
    if isinstance(plan.outcome, Loads):
        return verify_throughput(plan, plan.outcome)
    if isinstance(plan.outcome, Invocations):
        return verify_invocation(plan, plan.outcome)
    if isinstance(plan.outcome, BatchSchedule):
        return verify_batch(plan, plan.outcome)
    return verify_latency(plan, plan.outcome)
