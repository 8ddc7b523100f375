"""A rank's end of the segments to the others, see `segments`."""

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
from placewright.runtime.ranks.segments import Segment, room
from placewright.runtime.stages.code import Transfer
from placewright.runtime.stages.layout import empty, pack, unpack
from placewright.system.memory import ShortageError


class SegmentConnection:
    """See `calls.Connection`: ranks of the process group, some at the other end of a segment."""

    def __init__(self, rank: int, segments: Sequence[Segment], timeout: float) -> None:
        self._timeout = timeout
        self._out = {
            segment.target: _Out(segment) for segment in segments if segment.source == rank
        }
        self._in = {
            segment.source: _In(segment, timeout) for segment in segments if segment.target == rank
        }

    def channel(self) -> SegmentChannel:
        """For a new call: all places are free."""
        return SegmentChannel(self._out, self._in, GlooChannel(self._timeout))

    def barrier(self) -> None:
        barrier()


@dataclass(frozen=True)
class Posted:
    """The tensor that is the `number`-th in its segment, and lies in that `place`."""

    transfer: Transfer
    place: Tensor
    number: int


class SegmentChannel:
    """See `channels.Channel`; `gloo` takes what has no segment, or no room in it."""

    def __init__(self, out: dict[int, _Out], in_: dict[int, _In], gloo: GlooChannel) -> None:
        self._out, self._in, self._gloo = out, in_, gloo
        self._used: defaultdict[_End, int] = defaultdict(int)  # bytes, in this call
        self._waited = 0.0

    @property
    def waited(self) -> float:
        return self._waited + self._gloo.waited

    def post(self, transfer: Transfer) -> Any:
        segment = self._in.get(transfer.source)
        place = self._place(segment, transfer.bytes)
        if segment is None or place is None:
            return self._gloo.post(transfer)
        return Posted(transfer, place, segment.posted())

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
        segment = self._out.get(transfer.target)
        place = self._place(segment, transfer.bytes)
        if segment is None or place is None:
            self._gloo.send_flat(transfer, flat)
            return
        place.copy_(flat)
        segment.tell()

    def finish(self) -> None:
        self._gloo.finish()

    def _place(self, segment: _End | None, size: int) -> Tensor | None:
        """The next `size` bytes of a segment; None where there is none, or too little of it."""
        if segment is None or not size or self._used[segment] + size > len(segment.memory):
            return None
        start = self._used[segment]
        self._used[segment] += room(size)
        return segment.memory[start : start + size]


class _End:
    """One end of a segment, in this process."""

    def __init__(self, segment: Segment) -> None:
        self.memory = _mapped(segment)
        self._count = segment.count


class _Out(_End):
    def tell(self) -> None:
        """That one more tensor is there."""
        os.eventfd_write(self._count, 1)


class _In(_End):
    def __init__(self, segment: Segment, timeout: float) -> None:
        super().__init__(segment)
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


def _mapped(segment: Segment) -> Tensor:
    try:
        return torch.frombuffer(mmap.mmap(segment.memory, segment.size), dtype=torch.uint8)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise ShortageError(segment.size) from error
        raise
