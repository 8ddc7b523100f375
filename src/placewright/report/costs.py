"""Where the times that a plan rests on come from."""

from __future__ import annotations

import numpy as np

from placewright.plan import Plan
from placewright.problem import COST_SOURCES
from placewright.units import format_seconds
from placewright.whatif.ranges import value_range


def cost_shares(plan: Plan) -> dict[str, float]:
    """Source → its share of the seconds of all ops where the plan has them, the largest first.

    Empty where the problem does not say, or no op takes time.
    """
    problem, device = plan.problem, plan.placement.device
    if not problem.op_cost_source.size:
        return {}
    # Of a batch every input has a device of its own.
    ops = np.arange(problem.op_count).reshape(-1, *(1,) * (device.ndim - 1))
    seconds = problem.op_time[ops, device]
    total = float(seconds.sum())
    if not total or not np.isfinite(total):
        return {}
    source = problem.op_cost_source[ops, device]
    by_source = np.bincount(source.ravel(), seconds.ravel(), len(COST_SOURCES)) / total
    shares = dict(zip(COST_SOURCES, by_source.tolist(), strict=True))
    return dict(sorted(((s, x) for s, x in shares.items() if x), key=lambda each: -each[1]))


def cost_words(plan: Plan) -> str:
    """``costs 92% measured, 8% datasheet: 10.1 ms to 11.9 ms (5-95%)``; empty where nobody says."""
    shares = cost_shares(plan)
    if not shares:
        return ""
    words = "costs " + ", ".join(f"{share:.0%} {source}" for source, share in shares.items())
    span = value_range(plan)
    if span is None or span[0] == span[1]:
        return words
    low, high = map(format_seconds, span)
    return f"{words}: {low} to {high} (5-95%)"
