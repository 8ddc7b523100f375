"""When each pass of a step of micro-batches begins and ends, for timelines and traces.

The rules are those of `simulate.pipeline_steps`; its kernel keeps no more than it needs to know how
long a step takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placewright.graph import Floats, Ints
from placewright.outcome import BACKWARD, FORWARD, Loads
from placewright.plan import Plan
from placewright.simulate.pipeline_steps import (
    Hops,
    forward_first,
    hops,
    pass_seconds,
    pipelines_of,
)


@dataclass(frozen=True, eq=False)
class StepPasses:
    """Columns, one entry per pass, in an order in which they can be done; seconds.

    `stage` and `micro_batch` count from 0, `way` is `FORWARD` or `BACKWARD`.
    """

    stage: Ints
    way: Ints
    micro_batch: Ints
    start: Floats
    finish: Floats

    def __len__(self) -> int:
        return len(self.stage)


def step_passes(plan: Plan) -> StepPasses:
    """The passes of a step of a plan with option `micro_batches`, in its first pipeline."""
    problem, loads = plan.problem, plan.outcome
    count = problem.options.pipeline_micro_batches
    assert isinstance(loads, Loads) and count is not None
    first = pipelines_of(plan.placement)[0]
    step = _Step(pass_seconds(first.row, loads), hops(problem, first))
    step.do(count, forward_first=forward_first(problem), trains=bool(problem.is_backward.any()))
    return StepPasses(*(np.array(each) for each in zip(*step.rows, strict=True)))


class _Step:
    """Passes put one after the other, each as early as may be."""

    def __init__(self, seconds: Floats, between: Hops) -> None:
        """``seconds[way, stage]`` of a pass."""
        self.seconds, self.between = seconds, between
        self.stages = seconds.shape[1]
        self.rows: list[tuple[int, int, int, float, float]] = []
        self.free = [0.0] * self.stages
        self.ends: dict[tuple[int, int, int], float] = {}

    def do(self, count: int, *, forward_first: bool, trains: bool) -> None:
        """The passes of so many micro-batches, round by round.

        Before its first backward pass stage s has begun S − 1 − s micro-batches more, or all.
        """
        for number in range(count):
            for stage in range(self.stages):
                ahead = count if forward_first else self.stages - 1 - stage
                first = 0 if number == 0 else number + ahead
                for each in range(first, min(number + ahead + 1, count)):
                    hop = float(self.between.up[stage - 1]) if stage else 0.0
                    self._add(stage, FORWARD, each, stage - 1, hop)
            for stage in reversed(range(self.stages if trains else 0)):
                self._add(stage, BACKWARD, number, stage + 1, float(self.between.down[stage]))

    def _add(self, stage: int, way: int, number: int, before: int, hop: float) -> None:
        """A pass that gets its data from stage `before`, which is busy with that for `hop`."""
        start = self.free[stage]
        if (sent := self.ends.get((before, way, number))) is not None:
            start = max(start, sent - hop)
        finish = start + float(self.seconds[way, stage])
        self.free[stage] = self.ends[stage, way, number] = finish
        self.rows.append((stage, way, number, start, finish))
