"""What the stages of a batch send each other where replicas take turns.

Every message has a tag of its own, so ranks need not send in the order in which others receive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from placewright.runtime.pipelined.tables import Action
from placewright.runtime.ranks.joining import channel_errors


class Transfers:
    """The tensors that an action begins with, from the rank that made them.

    Empty tensors are not sent.
    """

    def __init__(self, micro_batches: int) -> None:
        self._micro_batches = micro_batches
        self._coming: dict[Action, tuple[list[Tensor], list[Any]]] = {}
        self._sending: list[tuple[Any, Tensor]] = []

    def expect(self, action: Action, source: int, examples: Sequence[Tensor]) -> None:
        """Make room for tensors like `examples`, which `take` waits for."""
        room = [torch.empty(each.shape, dtype=each.dtype) for each in examples]
        tag = self._tag(action)
        with channel_errors():
            works = [dist.irecv(each, source, tag=tag) for each in room if each.numel()]
        self._coming[action] = room, works

    def take(self, action: Action) -> list[Tensor]:
        """ChannelError where they do not come."""
        room, works = self._coming.pop(action)
        with channel_errors():
            for work in works:
                work.wait()
        return room

    def send(self, action: Action, target: int, values: Sequence[Tensor]) -> None:
        """Start sending what an action of rank `target` begins with."""
        tag = self._tag(action)
        with channel_errors():
            self._sending += [
                (dist.isend(value, target, tag=tag), value) for value in values if value.numel()
            ]

    def finish(self) -> None:
        """Until everything sent has left; only then may its memory go."""
        with channel_errors():
            for work, _ in self._sending:
                work.wait()
        self._sending.clear()

    def _tag(self, action: Action) -> int:
        number = action.stage * self._micro_batches + action.micro_batch
        return 2 * number + (action.kind == "B")
