"""The judge: does a plan do what it says? Slow, obvious, and apart from everything that plans.

`verify` recomputes every claim of a plan from its problem alone, with the definitions of the
design and no code of the kernels, the simulator or a planner. Times may differ by rounding
(`TOLERANCE`, relative to the value), nothing else may. There is a judge per objective.
"""

from __future__ import annotations

import math
from pathlib import Path

from placewright.plan import Plan
from placewright.system.references import referred
from placewright.verify.latency import CHECKS
from placewright.verify.report import MAX_SHOWN, TOLERANCE, Report

__all__ = ["CHECKS", "MAX_SHOWN", "TOLERANCE", "Report", "verify"]


def verify(plan: Plan | str | Path) -> Report:
    """Judge `plan` or a plan file; never raises for a wrong plan (see `Report.raise_if_failed`).

    FormatError for a file that is no plan.

    >>> report = verify(plan)          # doctest: +SKIP
    >>> report.ok, report.violations   # doctest: +SKIP
    (True, ())
    """
    if not isinstance(plan, Plan):
        plan = Plan.load(plan)
    row = plan.problem.options.row
    if not isinstance(plan.outcome, referred(row.outcome)):
        wrong = f"the outcome is {type(plan.outcome).__name__}, which no plan for {row.name} has"
        return Report((wrong,), math.nan, (), ("the outcome is that of the objective",))
    report: Report = referred(row.verify)(plan, plan.outcome)
    return report
