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
from placewright.simulate.pipeline_steps import Hops, hops


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
    """The passes of a step of a plan with option `micro_batches`."""
    problem, row, loads = plan.problem, list(plan.placement.row), plan.outcome
    count = problem.options.micro_batches
    assert isinstance(loads, Loads) and count is not None
    is_training = bool(problem.is_backward.any())
    step = _Step(
        (loads.compute + loads.incoming + loads.outgoing)[:, row],
        hops(problem, plan.placement),
        count,
    )
    if problem.options.schedule == "gpipe" or not is_training:
        step.all_at_once(is_training)
    else:
        step.one_in_turn()
    return StepPasses(*(np.array(each) for each in zip(*step.rows, strict=True)))


class _Step:
    """Passes put one after the other, each as early as may be."""

    def __init__(self, seconds: Floats, between: Hops, count: int) -> None:
        """``seconds[way, stage]`` of a pass."""
        self.seconds, self.between, self.count = seconds, between, count
        self.stages = seconds.shape[1]
        self.rows: list[tuple[int, int, int, float, float]] = []
        self.free = [0.0] * self.stages
        self.ends: dict[tuple[int, int, int], float] = {}

    def all_at_once(self, is_training: bool) -> None:
        """All forward passes, and then all backward passes if there are any (GPipe)."""
        for number in range(self.count):
            self._forward(number, range(self.stages))
        for number in range(self.count if is_training else 0):
            self._backward(number)

    def one_in_turn(self) -> None:
        """A forward pass for each backward pass, once a stage has begun as many as it may (1F1B).

        Stage s is S − 1 − s micro-batches ahead when its first backward pass comes.
        """
        for number in range(self.count):
            for stage in range(self.stages):
                ahead = self.stages - 1 - stage
                first = 0 if number == 0 else number + ahead
                for each in range(first, min(number + ahead + 1, self.count)):
                    self._forward(each, [stage])
            self._backward(number)

    def _forward(self, number: int, stages: range | list[int]) -> None:
        for stage in stages:
            hop = float(self.between.up[stage - 1]) if stage else 0.0
            self._add(stage, FORWARD, number, stage - 1, hop)

    def _backward(self, number: int) -> None:
        for stage in reversed(range(self.stages)):
            self._add(stage, BACKWARD, number, stage + 1, float(self.between.down[stage]))

    def _add(self, stage: int, way: int, number: int, before: int, hop: float) -> None:
        """A pass that gets its data from stage `before`, which is busy with that for `hop`."""
        start = self.free[stage]
        if (sent := self.ends.get((before, way, number))) is not None:
            start = max(start, sent - hop)
        finish = start + float(self.seconds[way, stage])
        self.free[stage] = self.ends[stage, way, number] = finish
        self.rows.append((stage, way, number, start, finish))
