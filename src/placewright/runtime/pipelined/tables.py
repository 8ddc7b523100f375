"""Action tables: in which order each rank runs its stages forward and backward.

torch has schedules of its own for one stage a rank, and for as many on each in a round; where
the stages of a chain lie otherwise, a table made here says what each rank does. Rank by rank, in
torch's notation: ``2F0`` is the forward of stage 2 on micro-batch 0, ``2B0`` its backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["F", "B"]
Policy = Literal["gpipe", "1f1b"]


@dataclass(frozen=True)
class Action:
    """A stage run forward (``F``) or backward (``B``) on one micro-batch."""

    stage: int
    kind: Kind
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"


Table = list[list[Action]]


def action_table(rank_of: Sequence[int], micro_batches: int, policy: Policy) -> Table:
    """What each rank does, in order; `rank_of` has the rank of each stage of the chain.

    The table is what happens if every action takes one tick and each rank does at each tick the
    best of what is ready. ``gpipe``: all forwards of a rank, then all its backwards. ``1f1b``:
    a backward as soon as there is one, and no stage goes forward on more micro-batches than
    there are stages from it to the end before the first of them has come back.

    >>> [" ".join(map(str, row)) for row in action_table([0, 1], 2, "1f1b")]
    ['0F0 0F1 0B0 0B1', '1F0 1B0 1F1 1B1']
    """
    return _Ticks(rank_of, micro_batches, policy).table()


class _Ticks:
    """How many micro-batches each stage has done; they are done in their order."""

    def __init__(self, rank_of: Sequence[int], micro_batches: int, policy: Policy) -> None:
        self._rank_of = rank_of
        self._micro_batches = micro_batches
        self._policy = policy
        self._forward = [0] * len(rank_of)
        self._backward = [0] * len(rank_of)

    def table(self) -> Table:
        rows: Table = [[] for _ in range(max(self._rank_of) + 1)]
        while self._backward[0] < self._micro_batches:
            chosen = [self._best(rank) for rank in range(len(rows))]
            for row, action in zip(rows, chosen, strict=True):
                if action is not None:
                    row.append(action)
                    done = self._forward if action.kind == "F" else self._backward
                    done[action.stage] += 1
        return rows

    def _best(self, rank: int) -> Action | None:
        first = "F" if self._policy == "gpipe" else "B"
        return min(
            self._ready(rank),
            key=lambda action: (action.kind != first, action.micro_batch, action.stage),
            default=None,
        )

    def _ready(self, rank: int) -> Iterator[Action]:
        stages = [stage for stage, its in enumerate(self._rank_of) if its == rank]
        forwards_left = any(self._forward[stage] < self._micro_batches for stage in stages)
        for stage in stages:
            forward, backward = self._forward[stage], self._backward[stage]
            if forward < self._arrived(stage) and forward - backward < self._limit(stage):
                yield Action(stage, "F", forward)
            waits = self._policy == "gpipe" and forwards_left
            if not waits and backward < min(forward, self._returned(stage)):
                yield Action(stage, "B", backward)

    def _arrived(self, stage: int) -> int:
        return self._forward[stage - 1] if stage else self._micro_batches

    def _returned(self, stage: int) -> int:
        """The micro-batches whose gradient has come back from the stage after it."""
        last = stage == len(self._rank_of) - 1
        return self._forward[stage] if last else self._backward[stage + 1]

    def _limit(self, stage: int) -> int:
        if self._policy == "gpipe":
            return self._micro_batches
        return len(self._rank_of) - stage
