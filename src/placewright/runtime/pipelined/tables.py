"""Action tables: in which order each rank runs its stages forward and backward.

torch has schedules of its own for one stage a rank, and for as many on each in a round; where
the stages of a chain lie otherwise, or have replicas, a table made here says what each rank does.
Rank by rank, in torch's notation: ``2F0`` is the forward of stage 2 on micro-batch 0, ``2B0`` its
backward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from placewright.runtime.pipelined.groups import Groups

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

    @classmethod
    def parse(cls, text: str) -> Action:
        """What `str` wrote.

        >>> Action.parse("2F0")
        Action(stage=2, kind='F', micro_batch=0)
        """
        kind: Kind = "F" if "F" in text else "B"
        stage, micro_batch = text.split(kind)
        return cls(int(stage), kind, int(micro_batch))


Table = list[list[Action]]


def action_table(groups: Groups, micro_batches: int, policy: Policy) -> Table:
    """What each rank does, in order.

    The table is what happens if every action takes one tick and each rank does at each tick the
    best of what is ready. ``gpipe``: all forwards of a rank, then all its backwards. ``1f1b``:
    a backward as soon as there is one, and no rank goes forward with a stage on more
    micro-batches, before the first of them has come back, than keep the stages from it to the end
    busy: that is their number, and with replicas its share of the ranks they have.

    >>> [" ".join(map(str, row)) for row in action_table(Groups.alone([0, 1]), 2, "1f1b")]
    ['0F0 0F1 0B0 0B1', '1F0 1B0 1F1 1B1']
    """
    return _Ticks(groups, micro_batches, policy).table()


class _Ticks:
    """What is done; each rank takes its micro-batches in their order."""

    def __init__(self, groups: Groups, micro_batches: int, policy: Policy) -> None:
        self._policy = policy
        self._stages = len(groups.group_of)
        self._own = [groups.stages(rank) for rank in range(groups.count)]
        self._turns = [groups.turns(rank, micro_batches) for rank in range(groups.count)]
        self._left = 2 * self._stages * micro_batches
        self._done: set[Action] = set()
        self._count: Counter[tuple[int, int, Kind]] = Counter()  # by rank, stage and kind
        sizes = [groups.sizes[group] for group in groups.group_of]
        self._limit = [
            micro_batches if policy == "gpipe" else -(-sum(sizes[stage:]) // sizes[stage])
            for stage in range(self._stages)
        ]

    def table(self) -> Table:
        rows: Table = [[] for _ in self._own]
        while self._left:
            chosen = [self._best(rank) for rank in range(len(rows))]
            for rank, action in enumerate(chosen):
                if action is not None:
                    rows[rank].append(action)
                    self._done.add(action)
                    self._count[rank, action.stage, action.kind] += 1
                    self._left -= 1
        return rows

    def _best(self, rank: int) -> Action | None:
        first = "F" if self._policy == "gpipe" else "B"
        return min(
            self._ready(rank),
            key=lambda action: (action.kind != first, action.micro_batch, action.stage),
            default=None,
        )

    def _ready(self, rank: int) -> Iterator[Action]:
        own, turns = self._own[rank], self._turns[rank]
        forwards_left = any(self._count[rank, stage, "F"] < len(turns) for stage in own)
        for stage in own:
            forward, backward = (self._count[rank, stage, kind] for kind in ("F", "B"))
            if forward < len(turns) and forward - backward < self._limit[stage]:
                action = Action(stage, "F", turns[forward])
                if not stage or Action(stage - 1, "F", action.micro_batch) in self._done:
                    yield action
            waits = self._policy == "gpipe" and forwards_left
            if not waits and backward < forward:
                action = Action(stage, "B", turns[backward])
                if self._has_come_back(action):
                    yield action

    def _has_come_back(self, action: Action) -> bool:
        """Whether the gradient is there that a backward begins with."""
        after = Action(action.stage + 1, "B", action.micro_batch)
        return after.stage == self._stages or after in self._done
