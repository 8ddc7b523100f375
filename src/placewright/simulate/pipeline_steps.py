"""Steps of micro-batches: a pipeline that fills, works, and drains (GPipe, and 1F1B with a flush).

The stages are in a row, a device each. Per micro-batch a stage has a forward and a backward pass:
it receives, computes and sends, in turn, as `simulate.throughput` counts them. It does one pass at
a time, in an order of its own. With S stages, stage s (from 1) of schedule ``pipedream`` (1F1B)
does S − s forward passes first, then a forward and a backward pass in turn, then the backward
passes that are left; of ``gpipe`` all forward passes and then all backward passes. So it keeps the
activations of min(M, S − s + 1), or of all M micro-batches; in inference of the one at hand.

Both ends of a transfer are busy with it, at the same time: a forward pass starts when the stage
before has nothing left of its own but to send to this one, a backward pass likewise with the stage
after. Where tensors go through host memory they are written first and then read, so it starts when
the other pass has ended. A step ends with its last pass.

With option `data_parallel` pipelines of equal stages share the micro-batches, each as many. When
all pipelines have done the last backward pass of a stage, its devices exchange gradients
(`exchange_seconds`), each stage by itself. The step ends with the last exchange.

What else a stage reads has come by then. It comes from a stage further away, which is done sooner:
a pass takes at least what it receives from its neighbour and what it sends to the other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from placewright.errors import OptionError
from placewright.graph import Floats, Ints
from placewright.kernels.throughput.steps import Passes, step_of
from placewright.options import Options
from placewright.outcome import BACKWARD, FORWARD, Loads, Step
from placewright.plan import Placement
from placewright.problem import Problem
from placewright.simulate.transfers import Stages, transfers_of


@dataclass(frozen=True, eq=False)
class Hops:
    """Seconds of transfers between neighbours of a row that both have in the same pass.

    `up[stage]` from a stage to the next in the forward pass, `down[stage]` from the next to it in
    the backward pass; none for the last.
    """

    up: Floats
    down: Floats


def hops(problem: Problem, placement: Placement) -> Hops:
    """Those of a placement with a `row`; OptionError without one."""
    row = placement.row
    if not row:
        raise OptionError("a placement for steps of micro-batches needs the row of its stages")
    up, down = np.zeros((2, len(row)))
    number = {device: stage for stage, device in enumerate(row)}
    stages = Stages(problem, placement)
    for tensor in range(problem.tensor_count if problem.staging == "direct" else 0):
        way = int(problem.is_backward[problem.tensor_producer[tensor]])
        for each in transfers_of(stages, tensor):
            if each.outgoing or each.way != way:
                continue
            source, target = number[each.other], number[each.stage]
            if way == FORWARD and target == source + 1:
                up[source] += each.seconds
            if way == BACKWARD and source == target + 1:
                down[target] += each.seconds
    return Hops(up, down)


def pipelines_of(placement: Placement) -> list[Placement]:
    """The placement of each pipeline by itself: of the only one, or of those of `replicas`."""
    if not (placement.row and placement.replicas):
        return [placement]
    found = []
    for row in placement.rows:
        moved = dict(zip(placement.row, row, strict=True))
        device = np.array([moved[each] for each in placement.device.tolist()], dtype=np.int32)
        found.append(Placement(device, row=row))
    return found


def exchange_seconds(problem: Problem, placement: Placement) -> Floats:
    """`[stage]` of a row: its devices in the pipelines add up the gradients of its weights."""
    found = np.zeros(len(placement.row))
    trains = bool(problem.is_backward.any())
    for number, members in enumerate(placement.replicas if trains else ()):
        size = problem.op_sync_bytes[placement.device == members[0]].sum()
        found[number] = ring_seconds(problem, size, members)
    return found


def ring_seconds(problem: Problem, size: Any, members: Sequence[int]) -> Any:
    """Seconds in which R devices add up what each has, so many bytes (an array, or a number).

    In a ring (Patarasu and Yuan 2009) each sends a part of 1/R to the next, 2 (R − 1) times, over
    ways that take as long as the slowest of any two.
    """
    count = len(members)
    latency, per_byte = _slowest_way(problem, members)
    return np.where(size > 0, 2 * (count - 1) * (latency + size / count * per_byte), 0.0)


def _slowest_way(problem: Problem, members: Sequence[int]) -> tuple[float, float]:
    """Latency and seconds per byte of the slowest way between two, or through host memory."""
    if problem.staging == "host":
        own = np.array(members)
        latency = problem.host_latency[:, own].max(axis=1).sum()
        return float(latency), float(problem.host_seconds_per_byte[:, own].max(axis=1).sum())
    apart = ~np.eye(len(members), dtype=bool)
    ways = np.ix_(members, members)
    return (
        float(problem.link_latency[ways][apart].max()),
        float(problem.link_seconds_per_byte[ways][apart].max()),
    )


def in_steps(
    problem: Problem, placement: Placement, between: Sequence[Hops], loads: Loads
) -> Loads:
    """`loads` of one micro-batch with the step that so many of them make, and its value.

    `between` the stages of each pipeline.
    """
    options, rows = problem.options, np.array(placement.rows)
    count = options.pipeline_micro_batches
    assert count is not None and options.micro_batches is not None
    is_gpipe, is_training = forward_first(problem), bool(problem.is_backward.any())
    passes = [pass_seconds(row, loads) for row in placement.rows]
    ends = [
        stage_ends(each, hop, count, is_gpipe=is_gpipe)
        for each, hop in zip(passes, between, strict=True)
    ]
    exchange = exchange_seconds(problem, placement)
    seconds = float((np.max(ends, axis=0) + exchange).max())
    sync = loads.sync.copy()
    sync[rows] = exchange / count
    busy = count * passes[0].sum(axis=0) + exchange
    idle = np.clip(1.0 - busy / seconds, 0.0, 1.0) if seconds > 0 else np.zeros(len(exchange))
    step = Step(seconds, in_flight(options, len(exchange), is_training=is_training), idle)
    return replace(
        loads, sync=sync, load=loads.load + sync, value=seconds / options.micro_batches, step=step
    )


def pass_seconds(row: Sequence[int], loads: Loads) -> Floats:
    """``[way, stage]`` of a micro-batch: what a stage receives, computes and sends, in turn."""
    found: Floats = (loads.compute + loads.incoming + loads.outgoing)[:, list(row)]
    return found


def forward_first(problem: Problem) -> bool:
    """Whether all forward passes come before the first backward pass, or there is none."""
    return problem.options.schedule == "gpipe" or not problem.is_backward.any()


def stage_ends(passes: Floats, between: Hops, micro_batches: int, *, is_gpipe: bool) -> Floats:
    """`[stage]` when its last pass of a step ends; ``passes[way, stage]`` of a micro-batch."""
    stages = passes.shape[1]
    none = np.zeros(1)
    found = Passes(
        forward=passes[FORWARD, ::-1].copy(),
        backward=passes[BACKWARD, ::-1].copy(),
        up=between.up[::-1].copy(),
        down=np.concatenate([between.down[:-1][::-1], none]),
        free=np.zeros(stages),
        ends=np.zeros((stages, micro_batches)),
    )
    step_of(found, stages, micro_batches, is_gpipe)
    return found.free[::-1]


def step_seconds(passes: Floats, between: Hops, micro_batches: int, *, is_gpipe: bool) -> float:
    """Seconds of a step of one pipeline, from its first to its last pass."""
    return float(stage_ends(passes, between, micro_batches, is_gpipe=is_gpipe).max())


def in_flight(options: Options, stages: int, *, is_training: bool) -> Ints:
    """`[stage]` micro-batches whose activations it keeps at a time."""
    count = options.pipeline_micro_batches or 1
    if not is_training:
        return np.ones(stages, dtype=np.int32)
    if options.schedule == "gpipe":
        return np.full(stages, count, dtype=np.int32)
    return np.minimum(count, np.arange(stages, 0, -1)).astype(np.int32)


def kept_bytes(problem: Problem, placement: Placement) -> Floats:
    """`[device]` bytes that the ops there keep, with those of all micro-batches in flight."""
    count, stash = problem.device_count, problem.op_stash
    kept = np.zeros(count)
    for each in pipelines_of(placement):
        kept += np.bincount(each.device, problem.op_memory, count)
        row = list(each.row)
        if row and stash.size:
            is_training = bool(problem.is_backward.any())
            flying = in_flight(problem.options, len(row), is_training=is_training)
            one = np.bincount(each.device, stash, count)
            kept[row] += (flying - 1) * one[row]
    return kept
