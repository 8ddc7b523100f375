"""Plans and comparisons as plain records: what ``--json`` prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from placewright.plan import Plan
from placewright.report.blocks import block_record
from placewright.report.cache import cache_record
from placewright.report.costs import cost_shares
from placewright.report.remarks import remarks
from placewright.report.shares import share_record
from placewright.report.words import counts
from placewright.solving import Comparison
from placewright.whatif.ranges import value_range


class _Line(Protocol):
    """A planner in a comparison, and why it found nothing."""

    @property
    def planner(self) -> str: ...
    @property
    def error(self) -> str: ...


class _Valued(Protocol):
    @property
    def value(self) -> float: ...


_Found = TypeVar("_Found", bound=_Valued)


def plan_record(plan: Plan, path: str | Path | None = None) -> dict[str, Any]:
    """One plan: seconds and bytes; `plan` is the file it was written to, or None."""
    problem = plan.problem
    return {
        "objective": problem.options.objective,
        "value": plan.value,
        **_throughput(plan),
        "lower_bound": plan.lower_bound,
        "bound_source": plan.bound_source,
        "gap": plan.gap,
        "status": plan.status,
        "planner": plan.planner,
        **({"found_by": found_by} if (found_by := plan.planner_options.get("found_by")) else {}),
        "seconds": None if math.isnan(plan.seconds) else plan.seconds,
        "seed": plan.seed,
        "source": plan.source,
        "options": problem.options.to_document(),
        **{what.replace(" ", "_"): count for what, count in counts(plan).items()},
        "devices": [
            {
                "name": name,
                "load": load,
                "memory": memory,
                "capacity": None if math.isinf(capacity) else capacity,
            }
            for name, load, memory, capacity in zip(
                problem.device_names,
                plan.device_load.tolist(),
                plan.device_memory.tolist(),
                problem.device_memory.tolist(),
                strict=True,
            )
        ],
        **block_record(plan),
        **share_record(plan),
        **({"serving": capacity} if (capacity := cache_record(plan)) else {}),
        "costs": cost_shares(plan),
        "value_range": _range(plan),
        "remarks": remarks(plan),
        "plan": None if path is None else str(path),
    }


def _range(plan: Plan) -> dict[str, float] | None:
    """The 5th and 95th percentile of the value over what its costs may be."""
    span = value_range(plan)
    return None if span is None else dict(zip(("p5", "p95"), span, strict=True))


def _throughput(plan: Plan) -> dict[str, Any]:
    """Per second: samples, or inputs where `input_samples` is None; null if no op takes time."""
    rate = plan.throughput
    if rate is None:
        return {}
    return {
        "throughput": rate if math.isfinite(rate) else None,
        "input_samples": plan.problem.input_samples,
        **_per_sample(plan, rate),
    }


def _per_sample(plan: Plan, rate: float) -> dict[str, float]:
    """Seconds per sample, where it is known how many an input has and any time is taken."""
    known = plan.problem.input_samples is not None and 0 < rate < math.inf
    return {"seconds_per_sample": 1 / rate} if known else {}


def comparison_records(
    lines: Sequence[Comparison], path: str | Path | None = None
) -> list[dict[str, Any]]:
    """A record per planner, as `records_of_lines` has them."""
    return records_of_lines(lines, [line.plan for line in lines], plan_record, path)


def records_of_lines(
    lines: Sequence[_Line],
    found: Sequence[_Found | None],
    record: Callable[[_Found, str | Path | None], dict[str, Any]],
    path: str | Path | None,
) -> list[dict[str, Any]]:
    """A record for each planner, of what it `found`; without that ``value`` null and ``error``.

    `path` is the file that the best, the first of least value, was written to.
    """
    best = min(
        (each for each in found if each is not None), key=lambda each: each.value, default=None
    )
    return [
        record(each, path if each is best else None)
        if each is not None
        else {"planner": line.planner, "value": None, "status": "unknown", "error": line.error}
        for line, each in zip(lines, found, strict=True)
    ]
