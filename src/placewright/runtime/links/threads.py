"""Tensors handed from thread to thread of one process, as ``run --launcher local`` does.

Between CPUs nothing is copied: what it takes is for the other thread to wake, and for its cores to
read what lies in the caches of others, or in memory that a GPU has written to. So a transfer is
timed from the moment at which the sender has the tensor until the other thread has it, and by how
much longer a CPU then copies it than one of its own. A GPU has it when its stream could read it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from queue import SimpleQueue
from typing import Any

from placewright.budget import Progress
from placewright.costs.profiles.reference import cores_now, torch_reference, torch_watch
from placewright.costs.profiles.steady import COMPUTING, COPYING, Watch
from placewright.errors import ExecutionError
from placewright.runtime.links.ends import End
from placewright.runtime.links.pace import SIZES, Times, measured_times
from placewright.runtime.links.pairs import Cores, Pair, times_of_pairs
from placewright.runtime.ranks.channels import ChannelError
from placewright.runtime.ranks.local import ThreadConnection
from placewright.runtime.stages.code import Transfer

_PATIENCE_SECONDS = 60.0


def thread_times(
    cores: Sequence[Cores],
    *,
    sizes: Sequence[int] = SIZES,
    on_progress: Progress | None = None,
) -> dict[Pair, Times]:
    """Times between threads on each two of `cores`, by pairs of places in them."""
    return times_of_pairs("threads", cores, _times, sizes, on_progress)


def _times(source: Cores, target: Cores, sizes: Sequence[int]) -> Times:
    return handed_times(End(None, tuple(source)), End(None, tuple(target)), sizes)


def handed_times(source: End, target: End, sizes: Sequence[int] = SIZES) -> Times:
    """Times from a thread of `source` to one of `target`; ExecutionError if that is stuck."""
    place, everywhere = source.place or target.place, cores_now()
    with source.entered():
        if place is None:
            watch = Watch(torch_reference(), (COMPUTING, COPYING))
        else:
            watch = torch_watch(place)
        with Receiver(source, target, everywhere) as receiver:
            return measured_times(receiver.transfers, watch, sizes)


class Receiver:
    """A thread of `target` that takes what this one, of `source`, leaves.

    That of a GPU may be on the cores `everywhere`, as in a run (none: on those of this thread).
    """

    def __init__(self, source: End, target: End, everywhere: Collection[int] = ()) -> None:
        self._source, self._target, self._everywhere = source, target, everywhere
        self._connection = ThreadConnection(2, _PATIENCE_SECONDS, (source.place, target.place))
        self._asked: SimpleQueue[tuple[int, int]] = SimpleQueue()
        self._told: SimpleQueue[tuple[float, float]] = SimpleQueue()
        self._thread = threading.Thread(target=self._receive, daemon=True)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._asked.put((0, 0))
        self._connection.abandon()
        self._thread.join()

    def transfers(self, size: int, count: int) -> list[float]:
        """Seconds of `count` transfers of `size` bytes."""
        self._asked.put((size, count))
        end = self._connection.of(0)
        channel = end.channel()
        seconds = []
        for _ in range(count):
            value = self._source.ones(size)
            end.barrier()
            left = time.perf_counter()
            channel.send(_transfer(size), value)
            try:
                taken, reading = self._told.get(timeout=_PATIENCE_SECONDS)
            except Exception as error:
                raise ExecutionError("the other thread does not answer; measure again") from error
            seconds.append(max(taken - left, 1e-9) + max(reading, 0.0))
        return seconds

    def _receive(self) -> None:
        with self._target.joined(self._everywhere):
            while True:
                size, count = self._asked.get()
                if not count:
                    return
                end = self._connection.of(1)
                channel = end.channel()
                for _ in range(count):
                    own = self._target.ones(size)
                    try:
                        end.barrier()
                        value = channel.wait(channel.post(_transfer(size)))
                    except ChannelError:
                        return
                    self._target.settle()
                    self._told.put(self._read(value, own))

    def _read(self, value: Any, own: Any) -> tuple[float, float]:
        """When the `value` was there, and how much longer than one's `own` a CPU copies it."""
        taken = time.perf_counter()
        if self._target.place is not None:
            return taken, 0.0
        value.clone()
        read = time.perf_counter()
        own.clone()
        return taken, 2 * read - taken - time.perf_counter()


def _transfer(size: int) -> Transfer:
    return Transfer(0, "value", 0, 1, (size,), (1,), "uint8", 1)
