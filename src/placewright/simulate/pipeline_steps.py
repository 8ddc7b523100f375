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

What else a stage reads has come by then. It comes from a stage further away, which is done sooner:
a pass takes at least what it receives from its neighbour and what it sends to the other one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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


def in_steps(problem: Problem, placement: Placement, between: Hops, loads: Loads) -> Loads:
    """`loads` of one micro-batch with the step that so many of them make, and its value."""
    count, row = problem.options.micro_batches, list(placement.row)
    assert count is not None
    passes = pass_seconds(placement, loads)
    is_training = bool(problem.is_backward.any())
    seconds = step_seconds(passes, between, count, is_gpipe=forward_first(problem))
    busy = count * passes.sum(axis=0)
    idle = np.clip(1.0 - busy / seconds, 0.0, 1.0) if seconds > 0 else np.zeros(len(row))
    step = Step(seconds, in_flight(problem.options, len(row), is_training=is_training), idle)
    return replace(loads, value=seconds / count, step=step)


def pass_seconds(placement: Placement, loads: Loads) -> Floats:
    """``[way, stage]`` of a micro-batch: what a stage receives, computes and sends, in turn."""
    found: Floats = (loads.compute + loads.incoming + loads.outgoing)[:, list(placement.row)]
    return found


def forward_first(problem: Problem) -> bool:
    """Whether all forward passes come before the first backward pass, or there is none."""
    return problem.options.schedule == "gpipe" or not problem.is_backward.any()


def step_seconds(passes: Floats, between: Hops, micro_batches: int, *, is_gpipe: bool) -> float:
    """Seconds of a step; ``passes[way, stage]`` seconds of a micro-batch, stages from the first."""
    stages = passes.shape[1]
    none = np.zeros(1)
    return float(
        step_of(
            Passes(
                forward=passes[FORWARD, ::-1].copy(),
                backward=passes[BACKWARD, ::-1].copy(),
                up=between.up[::-1].copy(),
                down=np.concatenate([between.down[:-1][::-1], none]),
                free=np.zeros(stages),
                ends=np.zeros((stages, micro_batches)),
            ),
            stages,
            micro_batches,
            is_gpipe,
        )
    )


def in_flight(options: Options, stages: int, *, is_training: bool) -> Ints:
    """`[stage]` micro-batches whose activations it keeps at a time."""
    count = options.micro_batches or 1
    if not is_training:
        return np.ones(stages, dtype=np.int32)
    if options.schedule == "gpipe":
        return np.full(stages, count, dtype=np.int32)
    return np.minimum(count, np.arange(stages, 0, -1)).astype(np.int32)


def kept_bytes(problem: Problem, placement: Placement) -> Floats:
    """`[device]` bytes that the ops there keep, with those of all micro-batches in flight."""
    count = problem.device_count
    kept = np.bincount(placement.device, problem.op_memory, count).astype(np.float64)
    row, stash = list(placement.row), problem.op_stash
    if row and stash.size:
        is_training = bool(problem.is_backward.any())
        flying = in_flight(problem.options, len(row), is_training=is_training)
        one = np.bincount(placement.device, stash, count)
        kept[row] += (flying - 1) * one[row]
    return kept
