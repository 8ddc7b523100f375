"""How many sequences fit beside the weights, in words and as a record."""

from __future__ import annotations

from typing import Any

import numpy as np

from placewright.plan import Plan
from placewright.serving.room import Room, room_of
from placewright.units import format_bytes


def room_record(plan: Plan) -> dict[str, Any]:
    """Of a plan that keeps a KV cache: bytes, and how many sequences fit (null: any number)."""
    room = room_of(plan)
    if room is None:
        return {}
    return {
        "batch": room.samples,
        "cache_bytes": float(room.cache.sum()),
        "sequences": room.fit,
        "devices": [
            {
                "name": name,
                "weights": float(room.weights[d]),
                "cache": float(room.cache[d]),
                "sequences": room.at_device(d),
            }
            for d, name in enumerate(plan.problem.device_names)
        ],
    }


def room_words(plan: Plan, context: int | None = None) -> str:
    """The same in a line; nothing for a plan without a KV cache."""
    room = room_of(plan)
    if room is None:
        return ""
    of_tokens = f" of {context} tokens" if context else ""
    sequences = "1 sequence" if room.samples == 1 else f"{room.samples} sequences"
    return (
        f"KV cache {format_bytes(float(room.cache.sum()))} for {sequences}{of_tokens}; "
        f"{_fit(room, plan)}"
    )


def _fit(room: Room, plan: Plan) -> str:
    if room.fit is None:
        return "memory has no limit"
    least = plan.problem.device_names[int(np.argmin(room.sequences))]
    return f"{room.fit} fit beside the weights (fewest on {least})"
