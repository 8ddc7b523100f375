"""Exact rebalancing: the units of two or three devices are placed anew, all at once.

Where loads are within a percent of each other a better plan is many moves away: what one device
sheds must fit another, and every move changes what is cut. With all but a few devices' units
fixed the program of `max_load_program` is small enough for CP-SAT to solve within seconds, and
going over the pairs of devices finds what annealing does not (large neighbourhood search, Shaw
1998). No window lets a load rise above the largest one; each minimises how much the loads exceed
a target in all, for lowering the largest load alone leads nowhere where several are as large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, islice

import numpy as np

from placewright.analysis.nets import Pipeline, pipeline_of
from placewright.budget import Budget
from placewright.formulations.throughput.max_load_program import MaxLoadProgram
from placewright.graph import Floats, Ints
from placewright.kernels.throughput.loads import value
from placewright.planners.throughput.joining import Forest, in_random_order, shared_nets
from placewright.planners.throughput.multilevel import Found, on_groups
from placewright.planners.throughput.pairs import is_for, sharings
from placewright.problem import Problem
from placewright.solvers.mathopt import HORIZON, OutOfTimeError
from placewright.solvers.rounded import solve_whole

FINER = 10.0  # times the resolution of the program of the whole problem
MOST_UNITS = 150  # that a window places; of more, those that share nets are joined
FEW_UNITS = 16  # a device with so few is in every window
MOST_WINDOWS = 1000
PAIR_STEPS, PROGRAM_STEPS = 20_000, 100_000  # of annealing that take as long
# How far below the largest load the target is, and CP-SAT's deterministic time: what is tried in
# turn with a window until the units of its devices change.
ATTEMPTS = ((0.0005, 0.1), (0.002, 0.1), (0.002, 0.4), (0.006, 0.4), (0.0005, 0.4), (0.002, 1.6))
TARGETS = (0.0005, 0.002, 0.006)  # likewise, where all ways to share a pair are known
ROUNDING = 1e-12
WORTH = 1e-7  # of the value: by how much less excess must be to be less
WORST_SHARE = 0.5  # of the windows have the device with the largest load


@dataclass
class Window:
    """Some devices, and what is left to try while their units stay as in `versions`."""

    devices: tuple[int, int]
    versions: tuple[int, ...] = ()
    attempts: list[tuple[float, float]] = field(default_factory=list)

    def refresh(self, version: list[int]) -> None:
        now = tuple(version[device] for device in self.devices)
        if now != self.versions:
            self.versions, self.attempts = now, list(ATTEMPTS)


class Rebalancing:
    """The search, from a plan that fits; it can be stopped and gone on with at any window.

    >>> search = Rebalancing(problem, seed=0, start=unit_device)    # doctest: +SKIP
    >>> search.run(Budget(5.0)).value                               # doctest: +SKIP
    """

    def __init__(self, problem: Problem, seed: int, start: Ints) -> None:
        self.problem, self.pipeline = problem, pipeline_of(problem)
        self.rng = np.random.default_rng(seed)
        self.version = [0] * problem.device_count  # of a device's units
        self.steps = 0  # of annealing that would have taken as long
        self._by_pairs = is_for(self.pipeline)
        self.adopt(start)

    def adopt(self, unit_device: Ints) -> None:
        """Go on from another plan, which must fit."""
        self._enter(np.array(unit_device, dtype=np.int32))
        devices = self.rng.permutation(self._devices).tolist()
        pairs = islice(combinations(devices, 2), MOST_WINDOWS)
        self.windows = [Window(each) for each in pairs]

    @property
    def settled(self) -> bool:
        """Whether all windows have been tried in vain."""
        return not self._left()

    def run(self, budget: Budget, most_steps: float = math.inf) -> Found:
        """Until all is tried or a limit is reached; Ctrl-C is the caller's care."""
        most_steps += self.steps
        while self.steps < most_steps and budget.left > 0 and self.best.value > 0:
            left = self._left()
            if not left:
                break
            try:
                self._try(self._chosen(left), budget)
            except OutOfTimeError:
                break
        return self.best

    # -- which window --------------------------------------------------------------------------

    @cached_property
    def _devices(self) -> list[int]:
        """Those that some unit could be on or not."""
        choice = self.pipeline.allowed.sum(axis=1) > 1
        return [int(d) for d in np.flatnonzero(self.pipeline.allowed[choice].any(axis=0))]

    def _left(self) -> list[Window]:
        for window in self.windows:
            window.refresh(self.version)
        return [window for window in self.windows if window.attempts]

    def _chosen(self, left: list[Window]) -> Window:
        """A random one of those least tried, often with the device of the largest load."""
        if self.rng.random() < WORST_SHARE:
            worst = int(self.loads.sum(axis=0).argmax())
            left = [window for window in left if worst in window.devices] or left
        most = max(len(window.attempts) for window in left)
        left = [window for window in left if len(window.attempts) == most]
        return left[self.rng.integers(len(left))]

    def _try(self, window: Window, budget: Budget) -> None:
        if self._by_pairs and self._share(window):
            return
        below, effort = window.attempts.pop(0)
        inside = self._inside(window.devices)
        over = self.loads[:, inside] > (1 - below) * self.loads.max(axis=1, keepdims=True)
        if not over.any():
            return
        self.steps += PROGRAM_STEPS
        excess = Excess(self.loads.max(axis=1), below)
        before = excess.of(self.loads)
        group, program, placed = self._program(inside, excess, budget)
        answer = solve_whole(
            program.program,
            budget,
            program.named(placed),
            workers=1,
            seed=int(self.rng.integers(2**31)),
            effort=effort,
            relaxed=False,
        )
        if answer.values is not None:
            self._offer(program.device_of(answer.values)[group], excess)
        # Solved to the end, more time is of no use.
        if answer.infeasible or answer.bound * program.scale >= before - WORTH * self.best.value:
            window.attempts = [each for each in window.attempts if each[0] != below]

    def _share(self, window: Window) -> bool:
        """Look at all ways to share the pair's units; False if there are too many."""
        pair, top = list(window.devices), float(self.loads.max())
        now = self.loads[0, pair]
        if now.max() <= (1 - max(TARGETS)) * top:
            window.attempts = []
            return True
        here = self.best.unit_device
        found = sharings(self.pipeline, here, (pair[0], pair[1]), now, top * (1 + ROUNDING))
        if found is None:
            return False
        self.steps += PAIR_STEPS
        window.attempts = []
        for below in self.rng.permutation(TARGETS).tolist():
            excess = Excess(np.array([top]), below)
            over = np.maximum(found.loads - excess.targets, 0.0).sum(axis=0)
            place = int(np.lexsort((found.loads.sum(axis=0), over))[0])
            if over[place] < excess.of(now[None]) - WORTH * top:
                self._offer(found.placed(here, place), excess)
                return True
        return True

    def _inside(self, devices: tuple[int, ...]) -> list[int]:
        count = np.bincount(self.best.unit_device, minlength=self.problem.device_count)
        return [d for d in self._devices if d in devices or count[d] <= FEW_UNITS]

    def _program(
        self, inside: list[int], excess: Excess, budget: Budget
    ) -> tuple[Ints, WindowProgram, Ints]:
        """`[unit]` group, the program of the groups, and where they are now."""
        here = self.best.unit_device
        free = np.isin(here, inside)
        # A group for each unit inside, and one for each device outside.
        labels = np.where(free, self.problem.device_count + np.arange(len(here)), here)
        group = np.unique(labels, return_inverse=True)[1].astype(np.int32)
        level = self.pipeline.contracted(group)
        most = MOST_UNITS + int(level.unit_count - free.sum())
        if level.unit_count > most:
            group = self._joined(level, on_groups(group, here), most)[group]
            level = self.pipeline.contracted(group)
        placed = on_groups(group, here)
        level = _confined(level, placed, inside)
        scale = self.best.value / (HORIZON * FINER)
        return group, WindowProgram(level, scale, excess, budget), placed

    def _joined(self, level: Pipeline, placed: Ints, most: int) -> Ints:
        forest = Forest(level, placed)
        for one, two in in_random_order(*shared_nets(level), self.rng):
            if forest.join(one, two) and forest.count <= most:
                break
        return forest.groups()

    # -- keeping -------------------------------------------------------------------------------

    def _enter(self, unit_device: Ints) -> None:
        state = self.pipeline.loads(unit_device)
        self.best = Found(unit_device, float(value(state)))
        self.loads = state.load[: self.pipeline.ways]

    def _offer(self, unit_device: Ints, excess: Excess) -> None:
        """Take the plan if it fits and is better, or as good with less excess."""
        state = self.pipeline.loads(unit_device)
        found = float(state.best_value[0])  # infinite if it does not fit
        less = excess.of(self.loads) - excess.of(state.load[: self.pipeline.ways])
        as_good = found <= self.best.value * (1 + ROUNDING)
        if found < self.best.value or (as_good and less > WORTH * self.best.value):
            for device in range(self.problem.device_count):
                one, two = (plan == device for plan in (self.best.unit_device, unit_device))
                self.version[device] += int(not np.array_equal(one, two))
            self._enter(np.array(unit_device, dtype=np.int32))


@dataclass
class Excess:
    """How much loads are above targets, `below` each pass's largest load (in shares of it)."""

    tops: Floats
    below: float

    @property
    def targets(self) -> Floats:
        return self.tops * (1 - self.below)

    def of(self, loads: Floats) -> float:
        """Of ``loads[way, device]``, in the same unit as the largest."""
        return float(np.maximum(loads - self.targets[:, None], 0.0).sum())


class WindowProgram(MaxLoadProgram):
    """Least excess of all loads over a target that is `below` the largest, in shares of it.

    No load may be above the largest one now (of its pass). Devices keep their names: what is fixed
    tells them apart.
    """

    def __init__(self, pipeline: Pipeline, scale: float, excess: Excess, limit: Budget) -> None:
        self.tops, self.targets = excess.tops / scale, excess.targets / scale
        super().__init__(pipeline, scale, limit)

    def _loads(self) -> None:
        total = self.program.variable(0.0, HORIZON * FINER * self.problem.device_count)
        self.program.minimise(total)
        row = [(total, 1.0)]
        for way in range(self.pipeline.ways):
            for device in self.devices:
                excess = self.program.variable(0.0, HORIZON * FINER)
                row.append((excess, -1.0))
                for part in self._parts(way, device):
                    terms = [(x, -seconds) for x, seconds in part]
                    self.program.row([(excess, 1.0), *terms], lower=-float(self.targets[way]))
                    self.program.row(part, upper=float(self.tops[way]))
        self.program.row(row, lower=0.0)

    def _equal_devices(self) -> None:
        pass

    def named(self, placed: Ints) -> dict[int, float]:
        """The placement variables of a plan."""
        return {x: float(placed[u] == d) for u, on in enumerate(self.on) for d, x in on.items()}


def _confined(level: Pipeline, placed: Ints, inside: list[int]) -> Pipeline:
    """Units on the devices `inside` may be on any of them, others stay where they are."""
    units = np.arange(len(placed))
    allowed = np.zeros_like(level.allowed)
    allowed[:, inside] = level.allowed[:, inside]
    allowed[~np.isin(placed, inside)] = False
    allowed[units, placed] = True
    return replace(level, allowed=allowed)
