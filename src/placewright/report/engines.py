"""A plan for an engine: its stages, and the price of the engine's limits."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from placewright.exporters.engines import ENGINES, Engine
from placewright.exporters.planning import EnginePlan
from placewright.exporters.requests import EngineRequests
from placewright.exporters.stages import BlockPlan, Stage, stage_records, step_of
from placewright.outcome import Step
from placewright.plan import Plan
from placewright.report.records import plan_record
from placewright.report.remarks import recompute_words
from placewright.report.serving import serving_record
from placewright.report.words import value_words
from placewright.simulate.pipeline_steps import exchange_seconds
from placewright.units import format_bytes, format_seconds

MUCH_IDLE = 0.1  # of a step, on average


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
        else {"value": found.free_value, "bound": found.free_bound},
    }


def _step_record(plan: Plan) -> dict[str, Any]:
    """With micro-batches: seconds of a step, and the share of it that the devices are idle."""
    step = step_of(plan)
    if step is None:
        return {}
    return {
        "micro_batches": plan.problem.options.micro_batches,
        "data_parallel": plan.problem.options.data_parallel,
        "seconds_per_step": step.seconds,
        "bubble": float(step.idle.mean()),
    }


def requests_record(found: EngineRequests, path: str | Path | None = None) -> dict[str, Any]:
    """As `engine_record`, of requests: `serving`, and `tried` batches where the best was sought."""
    free = found.free
    record = {
        **serving_record(found.served, path),
        "engine": found.engine.name,
        "stages": stage_records(found.by_blocks),
        "unrestricted": None
        if free is None
        else {"value": found.free_value, "bound": free.lower_bound},
    }
    if found.tried:
        record["tried"] = [asdict(each) for each in found.tried]
    return record


def engine_words(found: EnginePlan) -> list[str]:
    """The stages in a line each, what is held twice, fetched or recomputed, the limits' price."""
    what = value_words(found.plan.problem)
    full = " and in a pipeline kept full" if step_of(found.plan) else ""
    price = _price(found.engine, found.plan.value, found.free_value, found.free_bound, what, full)
    again = recompute_words(found.plan)
    return [*_stage_words(found.engine, found.by_blocks), *([again] if again else []), price]


def requests_words(found: EngineRequests) -> list[str]:
    """The same of requests; of several kinds nothing is looked for without the limits."""
    served, free = found.served, found.free
    if len(served.kinds) > 1:
        return _stage_words(found.engine, found.by_blocks)
    what = "time per request" if served.plan.throughput is not None else "request"
    bound = None if free is None else free.lower_bound
    price = _price(found.engine, served.value, found.free_value, bound, what)
    return [*_stage_words(found.engine, found.by_blocks), price]


def _stage_words(engine: Engine, blocks: BlockPlan) -> list[str]:
    name, said = engine.name, blocks.plan.planner_options
    lines = [
        f"{name}, stage {number}: {blocks.device_name(stage)}, {_span(blocks, number - 1)}, "
        f"{format_bytes(stage.memory)}{_flight_words(blocks.plan, stage)}"
        f"{_again_words(blocks, stage)}"
        for number, stage in enumerate(blocks.stages, 1)
    ]
    lines += _step_words(blocks.plan)
    if copied := said.get("copied"):
        lines.append(f"held twice, for {name} gives each stage its own: the weights of {copied}")
    if helper := said.get("offload"):
        lines.append(
            f"{helper} computes what is on the CPU, after its weights have come, each time"
        )
    return lines


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


def _again_words(blocks: BlockPlan, stage: Stage) -> str:
    """How many of a stage's layers run again, where some do and some do not."""
    if len(blocks.recomputed) in (0, sum(blocks.layers)):
        return ""
    again = len(blocks.again_in(stage))
    return f", {again} layer{'s' if again != 1 else ''} recomputed"


def _step_words(plan: Plan) -> list[str]:
    step, options = step_of(plan), plan.problem.options
    if step is None:
        return []
    trains = bool(plan.problem.is_backward.any())
    how = f" ({'GPipe' if options.schedule == 'gpipe' else '1F1B'})" if trains else ""
    count = options.data_parallel
    shared = (
        f", {options.pipeline_micro_batches} in each of {count} pipelines," if count > 1 else ""
    )
    lines = [
        f"a step of {options.micro_batches} micro-batches{how}{shared} takes "
        f"{format_seconds(step.seconds)}; devices are idle for "
        f"{step.idle.mean():.1%} of it while the pipeline fills and drains{_advice(plan, step)}"
    ]
    if count > 1:
        exchange = exchange_seconds(plan.problem, plan.placement).max()
        lines.append(
            f"then the {count} devices of each stage add up gradients, for up to "
            f"{format_seconds(float(exchange))}"
        )
    return lines


def _advice(plan: Plan, step: Step) -> str:
    """Where one pipeline is idle for long, and the engine has more: to look for these."""
    limits = ENGINES[plan.planner_options["engine"]].limits
    able = limits is not None and limits.data_parallel and len(plan.placement.row) > 1
    if not able or plan.problem.options.data_parallel > 1 or step.idle.mean() < MUCH_IDLE:
        return ""
    return "; --data-parallel best looks for pipelines that share the micro-batches"


def _span(blocks: BlockPlan, number: int) -> str:
    stage, layers = blocks.stages[number], blocks.layers[number]
    first, last = blocks.blocks.names[stage.first], blocks.blocks.names[stage.last]
    span = first if first == last else f"{first} to {last}"
    return f"{span} ({layers} layer{'s' if layers != 1 else ''})"


def _price(
    engine: Engine,
    engines: float,
    value: float | None,
    bound: float | None,
    what: str,
    full: str = "",
) -> str:
    """What the limits of an engine cost: its own value `engines` beside the one without them."""
    if bound is None or value is None:
        return (
            f"without the limits of {engine.name}: no plan is known; a longer --time-limit looks "
            "for one"
        )
    more = engines / value - 1 if value else 0.0
    return (
        f"without the limits of {engine.name}{full}: {what} {format_seconds(value)} (lower bound "
        f"{format_seconds(bound)}); they cost {more:.1%}"
    )
