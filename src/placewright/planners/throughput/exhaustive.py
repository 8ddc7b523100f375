"""Every split tried, but for those that begin worse than the best: for a handful of units.

The devices are grouped into stages in every way that replication allows, and each unit is given to
each stage in turn. Two things end a branch: a stage has no room, or its computing alone takes as
long as the best split known. Of complete splits the judge's definition of a load decides
(`simulate.throughput`), so every option of the objective is taken. What is left at the end is
optimal, whatever the kinds of devices and links.

Where shares of replicas may differ, the best shares of a split are known on few devices
(`planners.throughput.best_shares`), and on more where what a stage sends does not depend on them
(`planners.throughput.shares`), so only such problems are taken.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from placewright.analysis.reductions.free_nodes import links_alike
from placewright.analysis.shares import harmonic
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError, ProvedInfeasibleError
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.planners.base import Proposal
from placewright.planners.throughput.best_shares import MOST_DEVICES, best_shared
from placewright.planners.throughput.contiguity import in_a_row
from placewright.planners.throughput.reporting import PipelineReporter
from placewright.planners.throughput.shares import balanced
from placewright.problem import ROUNDING, Problem
from placewright.simulate.throughput import loads

MOST_SPLITS = 2_000_000
HUGE = 1e300
MOST_GROUPED = 6  # devices, of which there are 203 groupings
LOOKS = 256  # branches between two looks at the clock

Stage = tuple[int, ...]
"""The devices that run the same ops."""


class Exhaustive:
    """Depth-first over the units, those that take longest first, each on every stage."""

    name: ClassVar[str] = "exhaustive"
    objective: ClassVar[str] = "throughput"

    def supports(self, problem: Problem) -> str | None:
        if reason := _shares_unknown(problem):
            return reason
        splits = split_count(problem)
        if splits <= MOST_SPLITS:
            return None
        return f"it tries every split, and there are about {splits:.0e}; leave it to small models"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        search = _Search(problem, budget)
        groupings = list(groups_of(problem))
        for number, stages in enumerate(groupings):
            on_progress("all splits", number / len(groupings))
            search.over(stages)
        return search.answer()


def _shares_unknown(problem: Problem) -> str | None:
    """Why the best shares of a split are not known exactly, or None."""
    if problem.options.shares == "equal" or problem.device_count <= MOST_DEVICES:
        return None
    if problem.options.schedule == "gpipe" and problem.is_backward.any():
        return (
            "its best shares of replicas are of one limit for both passes; leave out --shares, or "
            "plan with schedule pipedream"
        )
    alike = links_alike(problem)
    if problem.staging == "host":
        ways = (problem.host_latency, problem.host_seconds_per_byte)
        alike = all((way == way[:, :1]).all() for way in ways)
    if not alike:
        return (
            "what replicas send depends on their shares, as transfers are not as fast for all "
            "devices, and it proves its shares best only where they are; leave out --shares, or "
            "use ideal-dp, which bounds such plans"
        )
    return None


def split_count(problem: Problem) -> float:
    """How many splits there are at most, `HUGE` for more; those with replicas if that matters."""

    def over(stages: int) -> float:
        return math.pow(stages, min(problem.unit_count, math.log(HUGE, max(stages, 2))))

    alone = over(problem.device_count)
    if not problem.options.replicate or alone > MOST_SPLITS:
        return alone
    if problem.device_count > MOST_GROUPED:
        return HUGE
    return sum(over(len(stages)) for stages in groups_of(problem))


def groups_of(problem: Problem) -> Iterator[list[Stage]]:
    """Every way to group the devices into stages, each device alone first."""
    count = problem.device_count
    yield [(device,) for device in range(count)]
    if not problem.options.replicate:
        return
    for labels in itertools.product(range(count), repeat=count):
        first = all(label <= max(labels[:k], default=-1) + 1 for k, label in enumerate(labels))
        if first and max(labels) + 1 < count:
            yield [
                tuple(device for device in range(count) if labels[device] == label)
                for label in range(max(labels) + 1)
            ]


@dataclass
class _Table:
    """`[unit, stage]` seconds per input of a replica, infinite where the stage cannot run it."""

    stages: list[Stage]
    seconds: Floats
    memory: Floats
    """`[stage]` the room of its smallest device."""


class _Search:
    """The best split so far, and the branch that is looked at."""

    def __init__(self, problem: Problem, budget: Budget) -> None:
        self.problem, self.budget = problem, budget
        reporter = PipelineReporter(problem, budget)
        self.best, self.value = reporter.start, reporter.start_value
        self.least = math.inf  # of the splits that were timed, with any shares
        mean = np.where(np.isfinite(problem.unit_time), problem.unit_time, 0.0).mean(axis=1)
        self.order = np.argsort(-mean, kind="stable").tolist()
        self.done = True  # unless time was up
        self._looks = 0

    def over(self, stages: list[Stage]) -> None:
        """Try all splits over these stages."""
        table = stage_table(self.problem, stages)
        unit_stage = np.zeros(self.problem.unit_count, dtype=np.int64)
        self._descend(table, unit_stage, 0, np.zeros(len(stages)), table.memory.copy())

    def _descend(
        self, table: _Table, unit_stage: NDArray[np.int64], depth: int, busy: Floats, room: Floats
    ) -> None:
        if self._is_late():
            return
        if depth == len(self.order):
            self._take(table.stages, unit_stage)
            return
        unit = self.order[depth]
        needed = self.problem.unit_memory[unit]
        for stage in np.argsort(busy + table.seconds[unit], kind="stable").tolist():
            after = busy[stage] + table.seconds[unit, stage]
            if not after < self.value * (1 - ROUNDING):
                return  # nor are those behind it any faster
            if needed > room[stage]:
                continue
            unit_stage[unit] = stage
            before, left = busy[stage], room[stage]
            busy[stage], room[stage] = after, left - needed
            self._descend(table, unit_stage, depth + 1, busy, room)
            busy[stage], room[stage] = before, left

    def _is_late(self) -> bool:
        self._looks += 1
        if self._looks % LOOKS == 0 and self.budget.left <= 0:
            self.done = False
        return not self.done

    def _take(self, stages: list[Stage], unit_stage: NDArray[np.int64]) -> None:
        problem = self.problem
        first = np.array([stage[0] for stage in stages], dtype=np.int32)
        device = first[unit_stage][problem.op_unit]
        used = {int(stage) for stage in unit_stage}
        replicas = tuple(stages[each] for each in sorted(used) if len(stages[each]) > 1)
        placement, least = self._with_best_shares(Placement(device, replicas=replicas))
        if not least < self.value * (1 - ROUNDING):
            return
        if problem.options.contiguous and not in_a_row(problem, device):
            return
        self.least = min(self.least, least)
        value = loads(problem, placement).value
        if value < self.value * (1 - ROUNDING):
            self.best, self.value = placement, value
            self.budget.listener.found(placement)

    def _with_best_shares(self, placement: Placement) -> tuple[Placement, float]:
        """The placement, and what no shares of its replicas are better than."""
        problem = self.problem
        if problem.options.shares == "unequal" and problem.device_count <= MOST_DEVICES:
            return best_shared(problem, placement)
        found = balanced(problem, placement)
        return found, loads(problem, found).value

    def answer(self) -> Proposal:
        """The best split, and its value as a bound if all were tried."""
        if self.best is None and self.done:
            raise ProvedInfeasibleError(
                "no split fits the memory of the devices and keeps every rule: all were tried; "
                "give a device more memory, or set fewer pins"
            )
        if self.best is None:
            raise InfeasibleError("no split was found in this time; give a longer --time-limit")
        proved = min(self.value, self.least) * (1 - ROUNDING) if self.done else 0.0
        return Proposal(self.best, proved, Exhaustive.name)


def stage_table(problem: Problem, stages: list[Stage]) -> _Table:
    """What the units take on each stage: equal devices can be replicas, and pins forbid it.

    With shares of any size all that can run it can be; then it is what a unit takes at least.
    """
    unequal = problem.options.shares == "unequal"
    seconds = np.full((problem.unit_count, len(stages)), np.inf)
    pinned = problem.unit_pinned >= 0
    for number, stage in enumerate(stages):
        times = np.where(problem.unit_allowed, problem.unit_time, np.inf)[:, list(stage)]
        if len(stage) > 1:
            op_times = problem.op_time[:, list(stage)]
            differs = (op_times != op_times[:, :1]).any(axis=1)
            differs = np.bincount(problem.op_unit, differs, problem.unit_count) > 0
            forbids = pinned if unequal else differs | pinned
            times = np.where(forbids[:, None], np.inf, times)
        seconds[:, number] = times.max(axis=1) / len(stage)
        if unequal:
            shared = harmonic(times, np.ones(len(stage)))
            seconds[:, number] = np.where(np.isinf(times).any(axis=1), np.inf, shared)
    memory = np.array([problem.device_memory[list(stage)].min() for stage in stages])
    return _Table(stages, seconds, memory * (1 + ROUNDING))
