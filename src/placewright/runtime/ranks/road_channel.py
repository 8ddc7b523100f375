"""A rank's end of the roads to the others, see `roads`."""

from __future__ import annotations

import errno
import mmap
import os
import select
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from placewright.runtime.ranks.channels import ChannelTimeoutError, GlooChannel, waiting_for
from placewright.runtime.ranks.joining import barrier
from placewright.runtime.ranks.roads import Road, room
from placewright.runtime.stages.code import Transfer
from placewright.runtime.stages.layout import empty, pack, unpack
from placewright.system.memory import ShortageError


class RoadConnection:
    """See `calls.Connection`: the ranks of the process group, some at the other end of a road."""

    def __init__(self, rank: int, roads: Sequence[Road], timeout: float) -> None:
        self._timeout = timeout
        self._out = {road.target: _Out(road) for road in roads if road.source == rank}
        self._in = {road.source: _In(road, timeout) for road in roads if road.target == rank}

    def channel(self) -> RoadChannel:
        """For a new call: all places are free."""
        return RoadChannel(self._out, self._in, GlooChannel(self._timeout))

    def barrier(self) -> None:
        barrier()


@dataclass(frozen=True)
class Posted:
    """The tensor that is the `number`-th on its road, and lies in that `place`."""

    transfer: Transfer
    place: Tensor
    number: int


class RoadChannel:
    """See `channels.Channel`; `gloo` takes what has no road, or no room on its road."""

    def __init__(self, out: dict[int, _Out], in_: dict[int, _In], gloo: GlooChannel) -> None:
        self._out, self._in, self._gloo = out, in_, gloo
        self._used: defaultdict[_End, int] = defaultdict(int)  # bytes, in this call
        self._waited = 0.0

    @property
    def waited(self) -> float:
        return self._waited + self._gloo.waited

    def post(self, transfer: Transfer) -> Any:
        road = self._in.get(transfer.source)
        place = self._place(road, transfer.bytes)
        if road is None or place is None:
            return self._gloo.post(transfer)
        return Posted(transfer, place, road.posted())

    def wait(self, posted: Any) -> Tensor:
        if not isinstance(posted, Posted):
            return self._gloo.wait(posted)
        started = time.perf_counter()
        self._in[posted.transfer.source].await_(posted)
        self._waited += time.perf_counter() - started
        return unpack(posted.transfer, empty(posted.transfer).copy_(posted.place))

    def send(self, transfer: Transfer, value: Tensor) -> None:
        if not transfer.elements:
            return
        flat = pack(transfer, value)
        road = self._out.get(transfer.target)
        place = self._place(road, transfer.bytes)
        if road is None or place is None:
            self._gloo.send_flat(transfer, flat)
            return
        place.copy_(flat)
        road.tell()

    def finish(self) -> None:
        self._gloo.finish()

    def _place(self, road: _End | None, size: int) -> Tensor | None:
        """The next `size` bytes of a road; None where there is none, or too little of it."""
        if road is None or not size or self._used[road] + size > len(road.memory):
            return None
        start = self._used[road]
        self._used[road] += room(size)
        return road.memory[start : start + size]


class _End:
    """One end of a road, in this process."""

    def __init__(self, road: Road) -> None:
        self.memory = _mapped(road)
        self._count = road.count


class _Out(_End):
    def tell(self) -> None:
        """That one more tensor is there."""
        os.eventfd_write(self._count, 1)


class _In(_End):
    def __init__(self, road: Road, timeout: float) -> None:
        super().__init__(road)
        self._timeout = timeout
        self._posted = self._arrived = 0
        self._poll = select.poll()
        self._poll.register(self._count, select.POLLIN)

    def posted(self) -> int:
        """The number of one more tensor that will come."""
        self._posted += 1
        return self._posted

    def await_(self, posted: Posted) -> None:
        """Until it is there. ChannelTimeoutError after the timeout."""
        deadline = time.monotonic() + self._timeout
        while self._arrived < posted.number:
            left = deadline - time.monotonic()
            if not self._poll.poll(max(1000 * left, 0)):
                what = waiting_for(posted.transfer)
                raise ChannelTimeoutError(f"{what} for {self._timeout:g} s")
            self._arrived += os.eventfd_read(self._count)


def _mapped(road: Road) -> Tensor:
    try:
        return torch.frombuffer(mmap.mmap(road.memory, road.size), dtype=torch.uint8)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise ShortageError(road.size) from error
        raise
