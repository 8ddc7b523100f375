"""Joining units pair by pair, at random: how a multilevel search makes a problem coarser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Floats, Ints

POWERS = (0.5, 1.0, 2.0)  # of the weights: how much heavier pairs come first


class Forest:
    """Units joined into groups; a subclass says in `joined` which pairs may be, and what changes.

    Units whose labels `within` differ are never joined.
    """

    def __init__(self, count: int, within: NDArray[np.integer[Any]] | None) -> None:
        self.parent = list(range(count))
        self.count = count
        self.within = None if within is None else within.tolist()

    def find(self, unit: int) -> int:
        while self.parent[unit] != unit:
            self.parent[unit] = self.parent[self.parent[unit]]
            unit = self.parent[unit]
        return unit

    def join(self, one: int, two: int) -> bool:
        one, two = self.find(one), self.find(two)
        if one == two or (self.within is not None and self.within[one] != self.within[two]):
            return False
        if not self.joined(one, two):
            return False
        self.parent[two] = one
        self.count -= 1
        return True

    def joined(self, one: int, two: int) -> bool:
        """Whether the groups of these two may be one, which the first then stands for."""
        raise NotImplementedError

    def groups(self) -> Ints:
        roots = [self.find(unit) for unit in range(len(self.parent))]
        return np.unique(roots, return_inverse=True)[1].astype(np.int32)


def levels(
    forest: Forest, pairs: list[tuple[int, int]], target: int, smaller: float
) -> Iterator[Ints]:
    """`[unit]` group of every level, the finest (each unit its own) first.

    The coarsest has `target` groups, another as many as make the next coarser one a share
    `smaller` of it; levels that no pair leads to are left out.
    """
    units = forest.count
    yield np.arange(units, dtype=np.int32)
    sizes = [target]
    while sizes[-1] / smaller < units:
        sizes.append(int(sizes[-1] / smaller))
    for one, two in pairs:
        if forest.join(one, two) and forest.count <= sizes[-1]:
            yield forest.groups()
            sizes.pop()
            if not sizes:
                return


def in_random_order(ends: Ints, weight: Floats, rng: np.random.Generator) -> list[tuple[int, int]]:
    """The pairs, heavy ones more likely to come early."""
    if not len(weight):
        return []
    clock = rng.exponential(size=len(weight)) / np.maximum(weight, 1e-30) ** rng.choice(POWERS)
    pairs: list[tuple[int, int]] = ends[np.argsort(clock)].tolist()
    return pairs
