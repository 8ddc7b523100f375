"""What contiguous stages keep on one device, and which colocated ops are to blame.

Forward data goes up the row of stages; backward data all down it, or all up it: two *readings*.
With the edges of a reading put the one way, units in a circle must share a stage (Tarnawski et al.
2020, App. B): such a circle goes from one op of a unit through other ops to another op of it. So a
token embedding that shares its weights with the output head keeps all between the two with them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placewright.analysis.shares import harmonic
from placewright.errors import InfeasibleError
from placewright.graph import Floats, Ints, Wide
from placewright.kernels.common.components import strong_components
from placewright.problem import ROUNDING, Problem
from placewright.units import format_bytes, listed

SHOWN = 1  # groups that are named besides the first
LEFT = 0.5  # of the ops of a tie: what may stay together without those units that are named


@dataclass(frozen=True, eq=False)
class Tie:
    """`ops` that contiguous stages keep on one device, for the ops of each unit of `ends` are.

    `seconds[device]` is how long that takes there, `inf` where it cannot be, and in the share of
    one replica where a stage may have several; `memory` what the ops keep, in bytes.
    """

    problem: Problem
    ends: tuple[Ints, ...]
    ops: Ints
    seconds: Floats
    memory: float

    def __str__(self) -> str:
        """``'a' and 'b' are on one device (…), and contiguous stages keep 9 other ops there``."""
        first, *more = [self._named(unit) for unit in self.ends]
        groups = "".join(f", so are {each}" for each in more[:SHOWN])
        if len(more) > SHOWN:
            left = len(more) - SHOWN
            groups += f" and the ops of {left} more group{'s' if left != 1 else ''}"
        count = len(self.ops) - sum(len(unit) for unit in self.ends)
        others = f"{count} other op{'s' if count != 1 else ''} there too"
        return (
            f"{first} are on one device (colocated, as tied weights are){groups}, and contiguous "
            f"stages keep {others if count else 'all of them together'}"
        )

    def _named(self, unit: Ints) -> str:
        """The forward ops of a colocated group, along the data; all if it has fewer than two."""
        forward = unit[~self.problem.is_backward[unit]]
        ops = forward if len(forward) > 1 else unit
        ops = ops[np.argsort(self.problem.topological_rank[ops], kind="stable")]
        names = [f"'{self.problem.op_names[op]}'" for op in ops.tolist()]
        return listed(names)


def readings(problem: Problem) -> tuple[bool, ...]:
    """Whether backward edges are turned round: true, and false where some join backward ops."""
    backward = problem.is_backward
    several = (backward[problem.edge_producer] & backward[problem.consumers]).any()
    return (True, False) if several else (True,)


def ordered_edges(problem: Problem, op_group: Ints | Wide, mirrored: bool) -> tuple[Wide, Wide]:
    """Edges between groups of ops, backward ones turned round (`mirrored`), up the row of stages.

    Those between a forward and a backward op, which may go either way, are left out.
    """
    group = np.asarray(op_group, dtype=np.int64)
    source, target = group[problem.edge_producer], group[problem.consumers]
    backward = problem.is_backward[problem.edge_producer]
    counts = (backward == problem.is_backward[problem.consumers]) & (source != target)
    turned = backward & mirrored
    return (
        np.where(turned, target, source)[counts],
        np.where(turned, source, target)[counts],
    )


def largest_tie(problem: Problem) -> Tie | None:
    """The tie whose ops take longest, in the reading where that is least; None if one has none."""
    largest = []
    for mirrored in readings(problem):
        tied = list(_ties(problem, mirrored))
        if not tied:
            return None
        largest.append(max(tied, key=lambda tie: float(tie.seconds.min())))
    return min(largest, key=lambda tie: float(tie.seconds.min()))


def check_fits(problem: Problem) -> None:
    """InfeasibleError where ops that contiguous stages keep on one device fit on none."""
    if not problem.options.contiguous:
        return
    misfits = []
    for mirrored in readings(problem):
        ties = _ties(problem, mirrored)
        misfit = next((tie for tie in ties if not _fits(problem, tie).any()), None)
        if misfit is None:
            return
        misfits.append(misfit)
    tie = min(misfits, key=lambda each: each.memory)
    able = np.isfinite(tie.seconds)
    if not able.any():
        why = "and no device may run them all"
    else:
        most = format_bytes(float(problem.device_memory[able].max()))
        why = f"{format_bytes(tie.memory)} in all, and the largest that may hold them has {most}"
    raise InfeasibleError(
        f"there is no contiguous split: {tie}, {why}; allow stages that are not contiguous "
        "(--no-contiguous) or give the devices more memory"
    )


def _fits(problem: Problem, tie: Tie) -> NDArray[np.bool_]:
    room = problem.device_memory * (1 + ROUNDING)
    return np.asarray(np.isfinite(tie.seconds) & (tie.memory <= room))


def _ties(problem: Problem, mirrored: bool) -> Iterator[Tie]:
    """One for each circle of several units."""
    source, target = ordered_edges(problem, problem.op_unit, mirrored)
    unit_node, _ = strong_components(problem.unit_count, source, target)
    for node in np.flatnonzero(np.bincount(unit_node) > 1).tolist():
        units = np.flatnonzero(unit_node == node)
        inside = unit_node[problem.op_unit] == node
        yield Tie(
            problem,
            _ends(problem, inside, mirrored),
            np.flatnonzero(inside).astype(np.int32),
            _shared(problem, problem.unit_time[units].sum(axis=0)),
            float(problem.unit_memory[units].sum()),
        )


def _shared(problem: Problem, seconds: Floats) -> Floats:
    """`[device]` seconds, of one of as many replicas as there can be at most."""
    if not problem.options.replicate:
        return seconds
    if problem.options.shares == "unequal":  # in shares that have all devices take as long
        together = harmonic(seconds, np.ones(len(seconds)))
        return np.where(np.isfinite(seconds), together, np.inf)
    _, kind, count = np.unique(seconds, return_inverse=True, return_counts=True)
    return np.asarray(seconds / count[kind])


def _ends(problem: Problem, inside: NDArray[np.bool_], mirrored: bool) -> tuple[Ints, ...]:
    """The ops of the fewest units, those first whose ops are farthest apart, without whose ties
    what is `inside` falls apart.
    """
    by_unit = np.flatnonzero(inside)[np.argsort(problem.op_unit[inside], kind="stable")]
    members = np.split(by_unit, np.flatnonzero(np.diff(problem.op_unit[by_unit])) + 1)
    several = [ops for ops in members if len(ops) > 1]
    widest = sorted(several, key=lambda ops: -_span(problem, ops))

    def apart(number: int) -> bool:
        group = problem.op_unit.astype(np.int64)
        untied = np.concatenate(widest[:number])
        group[untied] = problem.unit_count + np.arange(len(untied))
        count = problem.unit_count + len(untied)
        node, _ = strong_components(count, *ordered_edges(problem, group, mirrored))
        return bool(np.bincount(node[group][inside]).max() <= LEFT * inside.sum())

    numbers = range(1, len(widest) + 1)
    needed = numbers[bisect_left(numbers, True, key=apart)]
    return tuple(ops.astype(np.int32) for ops in widest[:needed])


def _span(problem: Problem, ops: Wide) -> int:
    """How far apart ops of one pass are at most, in topological order."""
    rank, backward = problem.topological_rank[ops], problem.is_backward[ops]
    return max(int(np.ptp(rank[side])) for side in (backward, ~backward) if side.any())
