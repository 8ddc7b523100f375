"""Rows under construction, and the placement that finished rows come to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placewright.analysis.orders import m_topo
from placewright.errors import InfeasibleError, ProvedInfeasibleError
from placewright.formulations.fit import fit
from placewright.graph import Floats, Ints, Wide
from placewright.kernels.batch.arrays import batches_of
from placewright.kernels.batch.lists import UNPLACED
from placewright.plan import Placement
from placewright.planners.base import no_room
from placewright.planners.batch.splits import Splits, splits_of
from placewright.problem import Problem, once_per_problem
from placewright.simulate.batch import Expansion, expand, run_batches
from placewright.simulate.latency import schedule_placement, sequence_of, time_placement

MOST_FIRST = 8, 64  # units that are placed before all others: split in any way, and in few parts


class Draft:
    """Rows being filled, ``rows[unit, chunk]`` devices or ``UNPLACED``, and what is free."""

    def __init__(self, problem: Problem, splits: Splits) -> None:
        self.problem = problem
        self.splits = splits
        chunks = problem.options.batch // batches_of(problem).chunk
        self.rows: Ints = np.full((problem.unit_count, chunks), UNPLACED, dtype=np.int32)
        self.free = problem.device_memory.copy()
        self.waiting = float(problem.unit_memory.sum())
        for unit in np.flatnonzero(problem.unit_pinned >= 0):
            self.place(int(unit), self.splits.of(int(unit))[0])

    def place(self, unit: int, split: Wide) -> None:
        self.rows[unit] = np.repeat(np.arange(len(split)), split)
        self.free -= np.where(split > 0, self.problem.unit_memory[unit], 0.0)
        self.waiting -= self.problem.unit_memory[unit]

    def place_all(self, cost: Callable[[int], Floats | Wide]) -> int:
        """Give each unit without a row the split that costs least; -1, or the unit without room.

        Of those that fit, in topological order; ``cost(unit)[split]``.
        """
        problem = self.problem
        for op in problem.topological_order:
            unit = int(problem.op_unit[op])
            if self.rows[unit, 0] >= 0:
                continue
            fitting = self.fitting(unit)
            if not len(fitting):
                return unit
            self.place(unit, self.splits.of(unit)[fitting[cost(unit)[fitting].argmin()]])
        return -1

    def fitting(self, unit: int) -> Wide:
        """Numbers of the splits of `unit` for which there is room.

        On each of its devices and, for copies beyond the first, beside all units that wait.
        """
        used = self.splits.of(unit) > 0
        memory = self.problem.unit_memory[unit]
        here = (~used | (memory <= self.free)).all(axis=1)
        copies = used.sum(axis=1)
        beside = (copies == 1) | ((copies - 1) * memory + self.waiting <= self.free.sum())
        return np.flatnonzero(here & beside)

    def place_emptiest(self, unit: int) -> bool:
        """On the fewest devices, those with most memory left; False if there is none."""
        fitting = self.fitting(unit)
        if not len(fitting):
            return False
        used = self.splits.of(unit)[fitting] > 0
        tightest = np.where(used, self.free, np.inf).min(axis=1)
        best = np.lexsort((-tightest, used.sum(axis=1)))[0]
        self.place(unit, self.splits.of(unit)[fitting[best]])
        return True


def fill(problem: Problem, planner: str, attempt: Callable[[Draft], int]) -> Draft:
    """A draft that `attempt` has completed; it returns -1, or the unit that found no room.

    Such a unit is placed before all others, and the attempt made again; where that does not help,
    every unit is split over as few devices as it can be, for copies take the room in small pieces,
    and where that does not, all are placed as a search says that they fit. InfeasibleError if it
    finds no way (not NoRoomError: pinned whole to one device, its batch may have no allowed size),
    ProvedInfeasibleError if it has proved that there is none.
    """
    splits = splits_of(problem)
    for choice, most_first in zip((splits, splits.over_fewest), MOST_FIRST, strict=True):
        first: list[int] = []
        while len(first) <= most_first:
            draft = Draft(problem, choice)
            failed = next((unit for unit in first if not draft.place_emptiest(unit)), -1)
            if failed < 0:
                failed = attempt(draft)
                if failed < 0:
                    return draft
            if failed in first:
                break
            first.append(failed)
    fitted = _fitted(problem, splits)
    if fitted is None:
        raise InfeasibleError(str(no_room(problem, failed, draft.free, planner)))
    attempt(fitted)
    return fitted


def _fitted(problem: Problem, splits: Splits) -> Draft | None:
    """A draft with a split of every unit, such that there is room; None if none is found.

    ProvedInfeasibleError if there is none.
    """
    chosen = _chosen(problem)
    if chosen is None:
        return None
    draft = Draft(problem, splits)
    for unit in np.flatnonzero(problem.unit_pinned < 0).tolist():
        draft.place(unit, splits.of(unit)[chosen[unit]])
    return draft


@once_per_problem
def _chosen(problem: Problem) -> list[int] | None:
    """`[unit]` the split of a draft that fits: several planners ask, and it takes a second."""
    splits, pinned = splits_of(problem), problem.unit_pinned >= 0
    table = [splits.of(u)[:1] if pinned[u] else splits.of(u) for u in range(problem.unit_count)]
    try:
        return fit(problem.unit_memory, [each > 0 for each in table], problem.device_memory)
    except ProvedInfeasibleError:  # of the splits that are looked at
        if splits.complete:
            raise
        return None


def input_devices(problem: Problem, rows: Ints) -> Ints:
    """`[op, input]` the device, from ``rows[unit, chunk]``."""
    return np.repeat(rows[problem.op_unit], batches_of(problem).chunk, axis=1)


def rows_of(problem: Problem, placement: Placement) -> Ints | None:
    """``rows[unit, chunk]`` of a placement, or None if it parts inputs of a chunk.

    Inputs are alike: they are put in lexicographic order of where they go first.
    """
    device = placement.device
    by_path = device[:, np.lexsort(device[::-1])]
    chunks = by_path.reshape(len(device), -1, batches_of(problem).chunk)
    if not (chunks == chunks[:, :, :1]).all():
        return None
    rows = np.empty((problem.unit_count, chunks.shape[1]), dtype=np.int32)
    rows[problem.op_unit] = chunks[:, :, 0]
    return rows


def order_of(problem: Problem, placement: Placement) -> Ints:
    """The ops by their first batches in the placement's sequence; breadth first without one.

    Topological, for a batch comes after those that it reads, each the first of its op or later.
    """
    if placement.sequence is None:
        return m_topo(problem)
    items = placement.sequence[placement.sequence >= 0]
    first = np.unique(expand(problem, placement.device).op[items], return_index=True)[1]
    return np.argsort(first).astype(np.int32)


def never_worse(problem: Problem, start: Placement | None, found: Placement) -> Placement:
    """The better of the two, the start where they are equal."""
    if start is None:
        return found
    values = [run_batches(problem, each).value for each in (start, found)]
    return start if values[0] <= values[1] else found


def placement_of(
    problem: Problem, rows: Ints, order: Ints, times: tuple[Floats, Floats] | None = None
) -> Placement:
    """The placement with the best of three sequences.

    Ops in `order`, as `kernels.batch.timing.settle` takes them; by the planner's own `times`
    (``start[op, device]`` and finish), if it has them; or by list scheduling into gaps.
    """
    device = input_devices(problem, rows)
    expansion = expand(problem, device)
    inner = expansion.problem
    sequences = [schedule_placement(inner, expansion.device).sequence, listed(expansion, order)]
    if times is not None:
        start, finish = (each[expansion.op, expansion.device] for each in times)
        nowhere = np.full(inner.edge_count, -1.0)
        sequences.append(sequence_of(inner, start, finish, nowhere, nowhere))
    values = [
        time_placement(inner, Placement(expansion.device, sequence)).makespan
        for sequence in sequences
    ]
    return Placement(device, sequences[int(np.argmin(values))])


def listed(expansion: Expansion, order: Ints) -> Ints:
    """The sequence of `timing.settle`: for each op its batches, then its transfers."""
    inner = expansion.problem
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    n, edges = inner.op_count, inner.edge_count
    items = np.concatenate([np.arange(n), -1 - np.arange(edges)])
    of_op = rank[expansion.op]
    block = np.concatenate([of_op, of_op[inner.edge_producer]])
    return items[np.lexsort((np.arange(n + edges), block))].astype(np.int32)
