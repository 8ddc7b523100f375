"""Placements of a model on two devices: eight with a name, and those that `running` ranks by time.

All are made of units (ops that must be together). Their order is that in which the program has the
first op of each, or that of depth: when it could start at the earliest, were there any number of
devices. Where branches or chunks of a batch follow one another in the program, a split by depth
cuts all of them at the same place, into stages of a pipeline.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from placewright.plan import Plan
from placewright.problem import Problem
from placewright.simulate.latency import quicker_schedule

RUN_OF_UNITS = 20
RANKED = 6, 5  # placements of a model: as many as that, or at least so many
APART = 1.05  # times the next faster one: what is ranked is further apart than runs differ

Places = np.ndarray
"""`[k]` the device of the unit that is the k-th in the program."""


def named(best: Plan, planned: Callable[[str], Plan]) -> dict[str, Plan]:
    """The default planner's plan, which is `best`, and seven to compare it with.

    ``planned(planner)`` is another planner's.
    """
    units, draw = _Units(best), random.Random(0)
    coins = [draw.randrange(2) for _ in range(units.count // RUN_OF_UNITS + 1)]
    return {
        "auto": best,
        "heft": planned("heft"),
        "one device": units.placed(units.split(1.0)),
        "memory-fill": planned("memory-fill"),
        "even split": units.placed(units.split(0.5)),
        "in turns": units.placed(units.turns(8)),
        "random": units.placed(np.repeat(coins, RUN_OF_UNITS)[: units.count]),
        "op by op": units.placed(np.array([draw.randrange(2) for _ in range(units.count)])),
    }


def candidates(best: Plan) -> dict[str, Plan]:
    """What a model's ranked placements are chosen from, beside the named ones.

    Splits of the work at each tenth, blocks in turns, and runs of units drawn at random, of which
    the second device has more or less; each with the units by program and by depth.
    """
    found: dict[str, Plan] = {}
    for units in (_Units(best), _Units(best, by_depth=True)):
        made: dict[str, Places] = {}
        for tenth in range(1, 10):
            made[f"split at {tenth}/10"] = units.split(tenth / 10)
        for blocks in (4, 6, 12, 16, 32):
            made[f"{blocks} blocks"] = units.turns(blocks)
        for length, fifth in itertools.product((1, 5, 20, 50), (1, 2)):
            draw = np.random.default_rng([length, fifth])
            coins = draw.random(units.count // length + 1) < fifth / 5
            made[f"{fifth}/5 in {length}s"] = np.repeat(coins, length)[: units.count].astype(int)
        found |= {f"{name}{units.order}": units.placed(each) for name, each in made.items()}
    return found


def spread(
    predicted: Mapping[str, float], counts: tuple[int, ...] = RANKED, apart: float = APART
) -> list[str]:
    """Names of placements whose predicted seconds are spread, the fastest first.

    As many as the first of `counts` that is possible with each at least `apart` times as long as
    the one before; so many are chosen that the least of these ratios is as large as it can be.
    None where not even the last of `counts` is possible.

    >>> spread({"a": 1.0, "b": 1.01, "c": 1.1, "d": 1.3}, (3, 2))
    ['a', 'c', 'd']
    >>> spread({"a": 1.0, "b": 1.01, "c": 1.02}, (3, 2))
    []
    """
    ordered = sorted(predicted, key=lambda name: (predicted[name], name))
    pairs = itertools.combinations(ordered, 2)
    gaps = sorted({predicted[b] / predicted[a] for a, b in pairs} | {apart}, reverse=True)
    for count, gap in itertools.product(counts, gaps):
        chosen = _stepping(ordered, predicted, gap)
        if gap >= apart and len(chosen) >= count:
            return chosen[:count]
    return []


def _stepping(ordered: list[str], predicted: Mapping[str, float], gap: float) -> list[str]:
    """The first, and always the next that is `gap` times as long as the last taken."""
    chosen: list[str] = []
    for name in ordered:
        if not chosen or predicted[name] / predicted[chosen[-1]] >= gap:
            chosen.append(name)
    return chosen


class _Units:
    """The units of a plan's problem, in the program's order or by depth."""

    def __init__(self, best: Plan, *, by_depth: bool = False) -> None:
        self._best = best
        self.order = ", deep" if by_depth else ""
        problem = best.problem
        rank = _depth(problem) if by_depth else problem.topological_rank
        first = np.full(problem.unit_count, np.inf)
        np.minimum.at(first, problem.op_unit, rank)
        self._units = np.argsort(first, kind="stable")
        self._work = np.cumsum(problem.unit_time.min(axis=1)[self._units])

    @property
    def count(self) -> int:
        return len(self._units)

    def split(self, share: float) -> Places:
        """The first units, so many that theirs is that `share` of the work; then the others."""
        return (self._work > share * self._work[-1] * (1 + 1e-9)).astype(int)

    def turns(self, blocks: int) -> Places:
        """Blocks of as many units each, on one device and the other."""
        return np.arange(self.count) // (self.count // blocks + 1) % 2

    def placed(self, places: Places) -> Plan:
        """The plan with these places in its own, in the better of two orders.

        One has the ops with the longest way to go first, which lets chunks of a batch go through
        a stage all at once; the other goes by the program, chunk after chunk.
        """
        problem, unit_device = self._best.problem, np.empty(self.count, dtype=np.int32)
        unit_device[self._units] = places
        device = unit_device[problem.op_unit]
        placement, outcome = quicker_schedule(problem, device)
        return replace(self._best, placement=placement, outcome=outcome, value=outcome.makespan)


def _depth(problem: Problem) -> np.ndarray:
    """`[op]` seconds before which it cannot start: the longest way to it, transfers aside."""
    start, seconds = np.zeros(problem.op_count), problem.op_time.min(axis=1)
    offsets, inputs = problem.op_inputs
    for op in problem.topological_order.tolist():
        makers = problem.edge_producer[inputs[offsets[op] : offsets[op + 1]]]
        start[op] = (start[makers] + seconds[makers]).max(initial=0.0)
    return start
