"""Splits: in how many ways the inputs of an op can be shared out over devices, and which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placewright.errors import ProvedInfeasibleError
from placewright.graph import Flags, Floats, Ints, Wide
from placewright.kernels.batch.arrays import batches_of
from placewright.problem import Problem, once_per_problem

MOST_SPLITS = 2000  # of one kind of unit
MOST_WORK = 100_000_000  # of list scheduling: ops · splits · what each looks at


@dataclass(frozen=True)
class Splits:
    """``counts[offsets[k]:offsets[k + 1]]``: chunks per device, the splits of units of kind k.

    Units with the same allowed batch sizes on every device are of one kind (`unit_kind`). Of
    more than `_most_splits` those over fewest devices are kept, and of those over the next number
    of devices an even choice; then it is not `complete`.
    """

    unit_kind: Ints
    offsets: Wide
    counts: Wide
    complete: bool

    def of(self, unit: int) -> Wide:
        """`[split, device]` chunks."""
        kind = self.unit_kind[unit]
        return self.counts[self.offsets[kind] : self.offsets[kind + 1]]

    @cached_property
    def over_fewest(self) -> Splits:
        """Of each kind the splits over the fewest devices."""
        devices = (self.counts > 0).sum(axis=1)
        fewest = np.minimum.reduceat(devices, self.offsets[:-1])
        sizes = np.diff(self.offsets)
        chosen = devices == np.repeat(fewest, sizes)
        number = np.add.reduceat(chosen, self.offsets[:-1], dtype=np.int64)
        return Splits(self.unit_kind, np.cumsum([0, *number]), self.counts[chosen], False)


@once_per_problem
def splits_of(problem: Problem) -> Splits:
    """The splits of every unit; ProvedInfeasibleError if one has none."""
    b = batches_of(problem)
    kinds, first, unit_kind = np.unique(
        b.allowed.reshape(len(b.allowed), -1), axis=0, return_index=True, return_inverse=True
    )
    most = _most_splits(problem)
    found = [_enumerate(kind.reshape(b.allowed.shape[1:])[b.kind], most) for kind in kinds]
    tables = [table for table, _ in found]
    for kind, table in enumerate(tables):
        if not len(table):
            raise _unsplittable(problem, int(first[kind]))
    offsets = np.cumsum([0, *(len(table) for table in tables)])
    complete = all(has_all for _, has_all in found)
    return Splits(unit_kind.ravel().astype(np.int32), offsets, np.concatenate(tables), complete)


def split_seconds(problem: Problem, splits: Splits) -> list[Floats]:
    """Per unit, `[split]` seconds that all devices together are busy with it."""
    b = batches_of(problem)
    units = range(problem.unit_count)
    return [b.unit_time[u, b.kind, splits.of(u)].sum(axis=1) for u in units]


def _most_splits(problem: Problem) -> int:
    """`MOST_SPLITS`, or as many as a pass over a large problem has time for: one a device at least.

    Every op is tried in all of its splits, and of each all devices and chunks are looked at.
    """
    looks = problem.device_count + problem.options.batch // batches_of(problem).chunk
    affordable = MOST_WORK // max(problem.op_count * looks, 1)
    return min(MOST_SPLITS, max(affordable, problem.device_count))


def _enumerate(allowed: Flags, most: int) -> tuple[Wide, bool]:
    """`[split, device]` of ``allowed[device, count]``, those over fewer devices first.

    And whether these are all.
    """
    devices, chunks = allowed.shape[0], allowed.shape[1] - 1
    ways = _ways(allowed)
    rows: list[list[int]] = []
    for used in range(1, devices + 1):
        number, places = int(ways[0][used, chunks]), most - len(rows)
        chosen = range(number) if number <= places else _evenly(number, places)
        rows += [_split(allowed, ways, used, index) for index in chosen]
    has_all = len(rows) == sum(ways[0][1:, chunks])
    return np.array(rows, dtype=np.int64).reshape(-1, devices), bool(has_all)


def _ways(allowed: Flags) -> list[NDArray[np.object_]]:
    """``[d][used, chunks]``: ways to share `chunks` over exactly `used` of the devices from d on.

    Whole numbers of any size.
    """
    devices, columns = allowed.shape
    empty = np.zeros((devices + 1, columns), dtype=object)
    empty[0, 0] = 1
    ways = [empty]
    for d in reversed(range(devices)):
        after = ways[0]
        here = after.copy()
        for count in np.flatnonzero(allowed[d, 1:]) + 1:
            here[1:, count:] += after[:-1, : columns - count]
        ways.insert(0, here)
    return ways


def _split(allowed: Flags, ways: list[NDArray[np.object_]], used: int, index: int) -> list[int]:
    """Split number `index` of those over exactly `used` devices."""
    chunks = allowed.shape[1] - 1
    split = []
    for d in range(allowed.shape[0]):
        for count in np.flatnonzero(allowed[d, : chunks + 1]):
            more = 1 if count else 0
            here = int(ways[d + 1][used - more, chunks - count]) if used >= more else 0
            if index < here:
                break
            index -= here
        split.append(int(count))
        chunks -= int(count)
        used -= more
    return split


def _evenly(number: int, places: int) -> Iterator[int]:
    return (number * place // places for place in range(places))


def _unsplittable(problem: Problem, unit: int) -> ProvedInfeasibleError:
    op = problem.op_names[int(np.flatnonzero(problem.op_unit == unit)[0])]
    return ProvedInfeasibleError(
        f"no batch sizes of the devices that op '{op}' may run on add up to "
        f"{problem.options.batch} inputs; give the devices other batch_sizes"
    )
