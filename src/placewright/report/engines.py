"""A plan for an engine: its stages, and the price of the engine's limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from placewright.exporters.planning import EnginePlan
from placewright.exporters.stages import stage_records
from placewright.report.records import plan_record
from placewright.report.words import value_words
from placewright.units import format_bytes, format_seconds


def engine_record(found: EnginePlan, path: str | Path | None = None) -> dict[str, Any]:
    """The record of the plan, with `engine`, `stages`, `unrestricted` (null if none is known)."""
    free = found.free
    return {
        **plan_record(found.plan, path),
        "engine": found.engine.name,
        "stages": stage_records(found.by_blocks),
        "unrestricted": None
        if free is None
        else {"value": found.free_value, "bound": free.lower_bound},
    }


def engine_words(found: EnginePlan) -> list[str]:
    """The stages in a line each, what is held twice or fetched, and the price of the limits."""
    name, blocks = found.engine.name, found.by_blocks
    lines = [
        f"{name}, stage {number}: {blocks.device_name(stage)}, {_span(found, number - 1)}, "
        f"{format_bytes(stage.memory)}"
        for number, stage in enumerate(blocks.stages, 1)
    ]
    if copied := found.plan.planner_options.get("copied"):
        lines.append(f"held twice, for {name} gives each stage its own: the weights of {copied}")
    if helper := found.plan.planner_options.get("offload"):
        lines.append(
            f"{helper} computes what is on the CPU, after its weights have come, each time"
        )
    return [*lines, _price(found)]


def _span(found: EnginePlan, number: int) -> str:
    blocks = found.by_blocks
    stage, layers = blocks.stages[number], blocks.layers[number]
    first, last = blocks.blocks.names[stage.first], blocks.blocks.names[stage.last]
    span = first if first == last else f"{first} to {last}"
    return f"{span} ({layers} layer{'s' if layers != 1 else ''})"


def _price(found: EnginePlan) -> str:
    free, value, plan = found.free, found.free_value, found.plan
    if free is None or value is None:
        return f"without the limits of {found.engine.name}: nothing was found in the time there was"
    more = plan.value / value - 1 if value else 0.0
    return (
        f"without the limits of {found.engine.name}: {value_words(plan.problem)} "
        f"{format_seconds(value)} (lower bound {format_seconds(free.lower_bound)}); "
        f"they cost {more:.1%}"
    )
