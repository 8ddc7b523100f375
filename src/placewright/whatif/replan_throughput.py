"""How `replan` repairs pipelines (``throughput``), and what it looks at between the ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np

from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.graph import Flags, Floats, Ints
from placewright.plan import Placement, Plan
from placewright.planners.base import Planner
from placewright.planners.throughput.board import Board, boards
from placewright.problem import Problem
from placewright.whatif.changes import held_before
from placewright.whatif.given import GivenPipeline
from placewright.whatif.pipeline_moves import Changes, descend, renamed, under
from placewright.whatif.pipeline_repair import PipelineRepair, Stages
from placewright.whatif.pipeline_split import Key, Pipeline, Split
from placewright.whatif.trade import Archive

LEVELS = 8  # limits on the loads that are tried between the ends
LOWER = (0.995, 0.98, 0.95)  # limits as shares of the best value, where no end is better


class ThroughputWays:
    """Borders of stages, modules, single nodes, whole devices and replicas move."""

    def __init__(self, old: Plan, problem: Problem) -> None:
        self.old, self.problem = old, problem
        self.held = held_before(old, problem)
        self.forced = float(self._pipeline(Budget(), 0.0).least_coming.sum())

    @cached_property
    def stages(self) -> Stages | None:
        """What is left of the plan's stages; None where they are none of the problem."""
        try:
            return Stages(self.old, self.problem)
        except InfeasibleError:
            return None

    @property
    def board(self) -> Board:
        return boards(self.problem)[0] if self.stages is None else self.stages.board

    def _pipeline(
        self, budget: Budget, work: float, kept: Archive[Split] | None = None
    ) -> Pipeline:
        return Pipeline(self.board, self.held, budget, work, kept)

    def repairer(self, budget: Budget, work: float) -> Planner:
        """The repair, as a planner; InfeasibleError where it finds none."""
        pipeline = self._pipeline(budget, work)
        stages = self.stages or Stages(self.old, self.problem)  # which says why there are none
        repair = PipelineRepair(pipeline, stages).best()
        return GivenPipeline(pipeline.placement(repair))

    def renamed(self, plan: Plan, budget: Budget, work: float) -> Placement | None:
        """The plan with devices exchanged so that fewer bytes move; None if none are."""
        pipeline = self._pipeline(budget, work)
        start = pipeline.of_placement(plan.placement)
        found = None if start is None else renamed(pipeline, start)
        return None if found is None or found is start else pipeline.placement(found)

    def between(
        self,
        ends: Sequence[Plan],
        limit: float,
        price: Callable[[float, float], float],
        budget: Budget,
        work: float,
        on_progress: Progress,
        kept: Archive[Split],
    ) -> None:
        """Fill what is `kept`: from both ends under falling limits on the loads, then the price."""
        pipeline = self._pipeline(budget, work, kept)
        found = [pipeline.of_placement(end.placement) for end in ends]
        splits = [split for split in found if split is not None and pipeline.holds(split)]
        if not splits:
            return
        for split in splits:
            kept.offer(split)
        first, last = splits[0], splits[-1]
        changes = Changes(pipeline, pipeline.movable, self._targets(last), whole=True)
        limits = list(_limits(first, last))
        for number, each in enumerate(limits):
            on_progress("between", number / (len(limits) + 1))
            for start in dict.fromkeys((first, last)):
                share = pipeline.work_left / (2 * (len(limits) - number) + 2)
                with pipeline.at_most(share):
                    ended = under(changes, start, each, limit)
                if start is first and ended.over <= 0 and ended.moved <= limit:
                    first = ended  # the next limit is lower: go on from here
        self._polish(changes, kept, limit, price)

    def _polish(
        self,
        changes: Changes,
        kept: Archive[Split],
        limit: float,
        price: Callable[[float, float], float],
    ) -> None:
        """Descend by the price from the split that would be chosen."""
        allowed = [split for split in kept if split.moved <= limit]
        if not allowed:
            return
        best = min(allowed, key=lambda each: price(each.value, each.moved))
        anywhere: Flags = np.ones(len(best.node_device), dtype=np.bool_)

        def measure(each: Split) -> Key:
            return each.over, price(each.value, each.moved), each.unevenness

        descend(changes, best, measure, lambda each: anywhere, limit)

    def _targets(self, last: Split) -> list[Ints]:
        """Where nodes are in the free replan, and where they were before if that is still there."""
        targets = [last.node_device]
        if self.stages is not None and (self.stages.home >= 0).all():
            targets.append(self.stages.home)
        return targets

    def given(self, placement: Placement) -> Planner:
        return GivenPipeline(placement)

    def placement(self, state: Split) -> Placement:
        return Placement(state.node_device[self.board.graph.op_node], replicas=state.replicas)


def _limits(first: Split, last: Split) -> Iterator[Floats]:
    """`[pass]` limits on the loads, falling; under ``gpipe`` in the shares of the last split."""
    largest = last.loads.max(axis=1)
    shares = largest / largest.sum() if largest.sum() > 0 else np.ones(len(largest))
    for level in range(LEVELS - 1, -1, -1):
        if first.value > last.value:
            yield shares * (last.value + (first.value - last.value) * level / LEVELS)
    best = min(first.value, last.value)
    for share in LOWER:
        yield shares * best * share
