"""How many sequences fit beside the weights, in words and as a record."""

from __future__ import annotations

from typing import Any

import numpy as np

from placewright.plan import Plan
from placewright.serving.capacity import CacheCapacity, cache_capacity
from placewright.units import format_bytes


def cache_record(plan: Plan) -> dict[str, Any]:
    """Of a plan that keeps a KV cache: bytes, and how many sequences fit (null: any number)."""
    capacity = cache_capacity(plan)
    if capacity is None:
        return {}
    return {
        "batch": capacity.samples,
        "cache_bytes": float(capacity.cache.sum()),
        "sequences": capacity.fit,
        "devices": [
            {
                "name": name,
                "weights": float(capacity.weights[d]),
                "cache": float(capacity.cache[d]),
                "sequences": capacity.at_device(d),
            }
            for d, name in enumerate(plan.problem.device_names)
        ],
    }


def cache_words(plan: Plan, context: int | None = None) -> str:
    """The same in a line; nothing for a plan without a KV cache."""
    capacity = cache_capacity(plan)
    if capacity is None:
        return ""
    of_tokens = f" of {context} tokens" if context else ""
    sequences = "1 sequence" if capacity.samples == 1 else f"{capacity.samples} sequences"
    return (
        f"KV cache {format_bytes(float(capacity.cache.sum()))} for {sequences}{of_tokens}; "
        f"{_fit(capacity, plan)}"
    )


def _fit(capacity: CacheCapacity, plan: Plan) -> str:
    if capacity.fit is None:
        return "memory has no limit"
    least = plan.problem.device_names[int(np.argmin(capacity.sequences))]
    return f"{capacity.fit} fit beside the weights (fewest on {least})"
