"""The answer: one sentence, the figures behind it, what limits the plan, what its costs rest on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from placewright.plan import Plan
from placewright.report.blocks import block_words
from placewright.report.cache import cache_words
from placewright.report.costs import cost_shares
from placewright.report.html.drawing import Drawing
from placewright.report.remarks import remarks
from placewright.report.terminal import terms
from placewright.report.words import rate_words, value_words
from placewright.simulate.peak import used_memory
from placewright.units import format_bytes, format_seconds, listed
from placewright.whatif.ranges import value_range

FULL = 0.95  # of a device's memory: it is full


def answer_record(plan: Plan, shown: Drawing) -> dict[str, Any]:
    """Texts, and the figures as numbers beside them; `range` is 5th and 95th percentile or None."""
    return {
        "sentence": sentence(plan),
        "words": value_words(plan.problem),
        "value": plan.value,
        "bound": plan.lower_bound,
        "bound_source": plan.bound_source,
        "gap": plan.gap,
        "status": plan.status,
        "throughput": _rate(plan),
        "limits": [*shown.limits, *_full(plan)],
        "costs": cost_shares(plan),
        "range": value_range(plan),
        "notes": [each for each in (*shown.notes, *_remarks(plan)) if each],
        "provenance": terms(plan),
    }


def _remarks(plan: Plan) -> list[str]:
    return [block_words(plan), cache_words(plan), *remarks(plan)]


def sentence(plan: Plan) -> str:
    """What the plan comes to, and how good that provably is."""
    used, all_devices = len(plan.used_devices), plan.problem.device_count
    if used == all_devices:
        where = {1: "its one device", 2: "both devices"}.get(used, f"all {used} devices")
    else:
        where = f"{used} of {all_devices} devices"
    return f"{value_words(plan.problem)} {format_seconds(plan.value)} on {where}: {_proof(plan)}."


def _proof(plan: Plan) -> str:
    if plan.status == "optimal":
        return f"proven optimal, for no plan is faster ({plan.bound_source})"
    return (
        f"at most {plan.gap:.1%} of it could be saved, for no plan takes less than "
        f"{format_seconds(plan.lower_bound)} ({plan.bound_source})"
    )


def _rate(plan: Plan) -> str | None:
    rate = plan.throughput
    if rate is None or not np.isfinite(rate):
        return None
    return f"{rate:.4g} {rate_words(plan.problem)} per second"


def _full(plan: Plan) -> Iterator[str]:
    """A sentence on the devices whose memory is full."""
    capacity, used = plan.problem.device_memory, used_memory(plan)
    full = np.flatnonzero(np.isfinite(capacity) & (capacity > 0) & (used >= FULL * capacity))
    if not len(full):
        return
    names = [
        f"{plan.problem.device_names[d]} ({format_bytes(float(used[d]))} of "
        f"{format_bytes(float(capacity[d]))})"
        for d in full.tolist()
    ]
    yield f"The memory of {listed(names)} is full."
