"""A step of micro-batches through a row of stages: when its last pass ends.

Stages are numbered from the last one, so that a number says how many stages come after, and with it
how far a stage goes ahead: it does so many forward passes before its first backward pass under
1F1B, and then one of each in turn; under GPipe it does all of them first.
"""

from __future__ import annotations

from typing import NamedTuple

from placewright.graph import Floats
from placewright.kernels.compiled import inner, kernel


class Passes(NamedTuple):
    """What stages take, numbered from the last one, and room for when their passes end."""

    forward: Floats  # [stage] seconds of a micro-batch
    backward: Floats  # [stage]
    up: Floats  # [stage] of its forward pass, in which the stage after it takes part already
    down: Floats  # [stage] of its backward pass, in which the stage before it does
    free: Floats  # [stage] when it has done what it has begun
    ends: Floats  # [stage, micro-batch] of forward passes


@kernel
def step_of(p, stages, micro_batches, is_gpipe):
    """Seconds of a step of the first so many stages of `p`, from its first to its last pass."""
    return step_seconds(p, stages, micro_batches, is_gpipe)


@inner
def step_seconds(p, stages, micro_batches, is_gpipe):
    """As `step_of`, for kernels."""
    for k in range(stages):
        p.free[k] = 0.0
    for m in range(micro_batches):
        for k in range(stages - 1, -1, -1):
            ahead = micro_batches if is_gpipe else k
            first = 0 if m == 0 else m + ahead
            for j in range(first, min(m + ahead + 1, micro_batches)):
                start = p.free[k]
                if k + 1 < stages:
                    start = max(start, p.ends[k + 1, j] - p.up[k + 1])
                p.free[k] = start + p.forward[k]
                p.ends[k, j] = p.free[k]
        for k in range(stages):
            start = p.free[k]
            if k > 0:
                start = max(start, p.free[k - 1] - p.down[k - 1])
            p.free[k] = start + p.backward[k]
    last = 0.0
    for k in range(stages):
        last = max(last, p.free[k])
    return last
