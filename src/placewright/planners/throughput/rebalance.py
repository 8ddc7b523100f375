"""Rebalancing of pairs of devices: the units of two devices are shared anew, all at once.

Where loads are within a percent of each other a better plan is many moves away: what one device
sheds must fit another, and every move changes what is cut. With all other units fixed a dynamic
program (`pairs`) looks at all good ways to share the units of two devices, and going over the
pairs finds what annealing does not (large neighbourhood search, Shaw 1998): 0.3 to 0.5 % of the
value on ResNet-50 and Inception-v3 in training and inference, in the same time. No pair lets a
load rise above the largest one; each lowers how much the loads exceed a target in all, for
lowering the largest load alone leads nowhere where several are as large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice

import numpy as np

from placewright.analysis.contracted import unit_graph
from placewright.budget import Budget
from placewright.graph import Floats, Ints
from placewright.kernels.throughput.loads import value
from placewright.planners.throughput.multilevel import Found
from placewright.planners.throughput.pairs import is_for, sharings
from placewright.problem import ROUNDING, Problem

MOST_PAIRS = 1000
PAIR_STEPS = 20_000  # of annealing that take as long
TARGETS = (0.0005, 0.002, 0.006)  # how far below the largest load, in a random order
WORTH = 1e-7  # of the value: by how much less excess must be to be less
WORST_SHARE = 0.5  # of the pairs have the device with the largest load


@dataclass
class Pair:
    """Two devices, and the `versions` of their units that were shared in vain."""

    devices: tuple[int, int]
    versions: tuple[int, ...] = ()

    def now(self, version: list[int]) -> tuple[int, ...]:
        return tuple(version[device] for device in self.devices)


class Rebalancing:
    """The search, from a plan that fits; it can be stopped and gone on with at any pair.

    >>> search = Rebalancing(problem, seed=0, start=unit_device)    # doctest: +SKIP
    >>> search.run(Budget(5.0)).value                               # doctest: +SKIP
    """

    def __init__(self, problem: Problem, seed: int, start: Ints) -> None:
        self.problem, self.graph = problem, unit_graph(problem)
        self.rng = np.random.default_rng(seed)
        self.version = [0] * problem.device_count  # of a device's units
        self.steps = 0  # of annealing that would have taken as long
        self.adopt(start)

    def adopt(self, unit_device: Ints) -> None:
        """Go on from another plan, which must fit."""
        self._enter(np.array(unit_device, dtype=np.int32))
        devices = self.rng.permutation(self._devices).tolist()
        self.pairs = [Pair(each) for each in islice(combinations(devices, 2), MOST_PAIRS)]

    @property
    def settled(self) -> bool:
        """Whether all pairs have been tried in vain."""
        return not self._left()

    def run(self, budget: Budget, most_steps: float = math.inf) -> Found:
        """Until all is tried or a limit is reached; Ctrl-C is the caller's care."""
        most_steps += self.steps
        while self.steps < most_steps and budget.left > 0 and self.best.value > 0:
            left = self._left()
            if not left:
                break
            self._share(self._chosen(left))
        return self.best

    # -- pairs ---------------------------------------------------------------------------------

    @cached_property
    def _devices(self) -> list[int]:
        """Those that some unit could be on or not; none where pairs cannot be looked at alone."""
        if not is_for(self.graph):
            return []
        choice = self.graph.allowed.sum(axis=1) > 1
        return [int(d) for d in np.flatnonzero(self.graph.allowed[choice].any(axis=0))]

    def _left(self) -> list[Pair]:
        return [each for each in self.pairs if each.versions != each.now(self.version)]

    def _chosen(self, left: list[Pair]) -> Pair:
        """A random one, often with the device of the largest load."""
        if self.rng.random() < WORST_SHARE:
            worst = int(self.loads.argmax())
            left = [each for each in left if worst in each.devices] or left
        return left[self.rng.integers(len(left))]

    def _share(self, pair: Pair) -> None:
        """Share the pair's units in the way with the least excess over some target."""
        pair.versions = pair.now(self.version)
        devices, top = list(pair.devices), float(self.loads.max())
        now = self.loads[devices]
        if now.max() <= (1 - max(TARGETS)) * top:
            return
        self.steps += PAIR_STEPS
        here = self.best.unit_device
        found = sharings(self.graph, here, pair.devices, now, top * (1 + ROUNDING))
        if found is None:
            return
        for below in self.rng.permutation(TARGETS).tolist():
            target = top * (1 - below)
            excess = np.maximum(found.loads - target, 0.0).sum(axis=0)
            place = int(np.lexsort((found.loads.sum(axis=0), excess))[0])
            if excess[place] < _excess(now, target) - WORTH * top:
                self._offer(found.placed(here, place), target)
                return

    # -- keeping -------------------------------------------------------------------------------

    def _enter(self, unit_device: Ints) -> None:
        state = self.graph.loads(unit_device)
        self.best = Found(unit_device, float(value(state)))
        self.loads = state.load.sum(axis=0)

    def _offer(self, unit_device: Ints, target: float) -> None:
        """Take the plan if it fits and is better, or as good with less excess."""
        state = self.graph.loads(unit_device)
        found = float(state.best_value[0])  # infinite if it does not fit
        less = _excess(self.loads, target) - _excess(state.load.sum(axis=0), target)
        as_good = found <= self.best.value * (1 + ROUNDING)
        if found < self.best.value or (as_good and less > WORTH * self.best.value):
            moved = unit_device != self.best.unit_device
            for device in np.union1d(unit_device[moved], self.best.unit_device[moved]).tolist():
                self.version[device] += 1
            self._enter(np.array(unit_device, dtype=np.int32))


def _excess(loads: Floats, target: float) -> float:
    return float(np.maximum(loads - target, 0.0).sum())
