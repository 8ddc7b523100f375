"""A plan for an engine: its stages, and the price of the engine's limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from placewright.exporters.planning import EnginePlan
from placewright.exporters.stages import Stage, stage_records, step_of
from placewright.plan import Plan
from placewright.report.records import plan_record
from placewright.report.words import value_words
from placewright.units import format_bytes, format_seconds


def engine_record(found: EnginePlan, path: str | Path | None = None) -> dict[str, Any]:
    """The record of the plan, with `engine`, `stages`, `unrestricted` (null if none is known)."""
    free = found.free
    return {
        **plan_record(found.plan, path),
        **_step_record(found.plan),
        "engine": found.engine.name,
        "stages": stage_records(found.by_blocks),
        "unrestricted": None
        if free is None
        else {"value": found.free_value, "bound": free.lower_bound},
    }


def _step_record(plan: Plan) -> dict[str, Any]:
    """With micro-batches: seconds of a step, and the share of it that the devices are idle."""
    step = step_of(plan)
    if step is None:
        return {}
    return {
        "micro_batches": plan.problem.options.micro_batches,
        "seconds_per_step": step.seconds,
        "bubble": float(step.idle.mean()),
    }


def engine_words(found: EnginePlan) -> list[str]:
    """The stages in a line each, what is held twice or fetched, and the price of the limits."""
    name, blocks = found.engine.name, found.by_blocks
    lines = [
        f"{name}, stage {number}: {blocks.device_name(stage)}, {_span(found, number - 1)}, "
        f"{format_bytes(stage.memory)}{_flight_words(found.plan, stage)}"
        for number, stage in enumerate(blocks.stages, 1)
    ]
    lines += _step_words(found.plan)
    if copied := found.plan.planner_options.get("copied"):
        lines.append(f"held twice, for {name} gives each stage its own: the weights of {copied}")
    if helper := found.plan.planner_options.get("offload"):
        lines.append(
            f"{helper} computes what is on the CPU, after its weights have come, each time"
        )
    return [*lines, _price(found)]


def _flight_words(plan: Plan, stage: Stage) -> str:
    """What micro-batches in flight take of the stage's memory, and how long it is idle."""
    step = step_of(plan)
    if step is None:
        return ""
    number = plan.placement.row.index(stage.device)
    idle = f", idle {step.idle[number]:.0%}"
    if not plan.problem.op_stash.size:
        return idle
    count = int(step.in_flight[number])
    stash = count * float(plan.problem.op_stash[plan.device_ops[stage.device]].sum())
    some = "1 micro-batch" if count == 1 else f"{count} micro-batches"
    return f" ({format_bytes(stash)} of it activations of {some} in flight){idle}"


def _step_words(plan: Plan) -> list[str]:
    step, options = step_of(plan), plan.problem.options
    if step is None:
        return []
    trains = bool(plan.problem.is_backward.any())
    how = f" ({'GPipe' if options.schedule == 'gpipe' else '1F1B'})" if trains else ""
    return [
        f"a step of {options.micro_batches} micro-batches{how} takes "
        f"{format_seconds(step.seconds)}; devices are idle for "
        f"{step.idle.mean():.1%} of it while the pipeline fills and drains"
    ]


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
    full = " and in a pipeline kept full" if step_of(plan) else ""
    return (
        f"without the limits of {found.engine.name}{full}: {value_words(plan.problem)} "
        f"{format_seconds(value)} (lower bound {format_seconds(free.lower_bound)}); "
        f"they cost {more:.1%}"
    )
