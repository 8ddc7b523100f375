"""Which ranks run which stages, and which of them takes which micro-batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Groups:
    """Ranks in groups: those of one group are replicas, which run the same stages.

    `sizes` has the number of ranks of each group; they are numbered group by group. `group_of` has
    the group of each stage; neighbours are in different groups. Replicas take turns, as the plan
    counts it: micro-batch k goes to the replica k modulo their number.

    >>> groups = Groups((2, 1), (0, 1))
    >>> [groups.rank(0, number) for number in range(3)], groups.rank(1, 0)
    ([0, 1, 0], 2)
    """

    sizes: tuple[int, ...]
    group_of: tuple[int, ...]

    @classmethod
    def alone(cls, rank_of: Sequence[int]) -> Groups:
        """Without replicas: the rank of each stage."""
        return cls((1,) * (max(rank_of) + 1), tuple(rank_of))

    @property
    def count(self) -> int:
        """The number of ranks."""
        return sum(self.sizes)

    @property
    def round(self) -> int:
        """After so many micro-batches all replicas have had the same number of them."""
        return math.lcm(*self.sizes)

    @property
    def has_replicas(self) -> bool:
        return max(self.sizes) > 1

    def ranks(self, group: int) -> range:
        first = sum(self.sizes[:group])
        return range(first, first + self.sizes[group])

    def group(self, rank: int) -> int:
        return next(group for group in range(len(self.sizes)) if rank in self.ranks(group))

    def rank(self, stage: int, micro_batch: int) -> int:
        """The rank on which a stage runs a micro-batch."""
        ranks = self.ranks(self.group_of[stage])
        return ranks[micro_batch % len(ranks)]

    def stages(self, rank: int) -> tuple[int, ...]:
        own = self.group(rank)
        return tuple(stage for stage, group in enumerate(self.group_of) if group == own)

    def turns(self, rank: int, micro_batches: int) -> range:
        """The micro-batches that a rank takes."""
        ranks = self.ranks(self.group(rank))
        return range(rank - ranks.start, micro_batches, len(ranks))
