"""Tensors handed from thread to thread of one process, as ``run --launcher local`` does.

Nothing is copied: what it takes is for the other thread to wake, and for its cores to read what
lies in the caches of others. So a transfer is timed from the moment a tensor is left until the
other thread has it, and by how much longer that thread then copies it than one of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from queue import SimpleQueue

import torch

from placewright.budget import Progress
from placewright.costs.profiles.reference import torch_reference
from placewright.costs.profiles.steady import COMPUTING, COPYING, Watch
from placewright.errors import ExecutionError
from placewright.runtime.links.pace import SIZES, Times, measured_times
from placewright.runtime.links.pairs import Cores, Pair, times_of_pairs
from placewright.runtime.ranks.channels import ChannelError
from placewright.runtime.ranks.local import ThreadConnection
from placewright.runtime.stages.code import Transfer
from placewright.system.accelerators.handing import Handed
from placewright.system.pinning import pinned

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
    with pinned(source):
        reference = torch_reference()
        with _Receiver(target) as receiver:
            return measured_times(receiver.transfers, Watch(reference, (COMPUTING, COPYING)), sizes)


class _Receiver:
    """A thread on `cores` that takes what this one leaves, and tells how long it took."""

    def __init__(self, cores: Cores) -> None:
        self._cores = cores
        self._connection = ThreadConnection(2, _PATIENCE_SECONDS)
        self._asked: SimpleQueue[tuple[int, int]] = SimpleQueue()
        self._told: SimpleQueue[tuple[float, float]] = SimpleQueue()
        self._thread = threading.Thread(target=self._receive, daemon=True)

    def __enter__(self) -> _Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._asked.put((0, 0))
        self._connection.abandon()
        self._thread.join()

    def transfers(self, size: int, count: int) -> list[float]:
        """Seconds of `count` transfers of `size` bytes."""
        self._asked.put((size, count))
        seconds = []
        for _ in range(count):
            value = torch.ones(size, dtype=torch.uint8)
            self._connection.barrier()
            left = time.perf_counter()
            self._connection.put(_transfer(size), Handed(value))
            try:
                taken, reading = self._told.get(timeout=_PATIENCE_SECONDS)
            except Exception as error:
                raise ExecutionError("the other thread does not answer; measure again") from error
            seconds.append(max(taken - left, 1e-9) + max(reading, 0.0))
        return seconds

    def _receive(self) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self._cores)
        torch.set_num_threads(len(self._cores))
        while True:
            size, count = self._asked.get()
            if not count:
                return
            for _ in range(count):
                own = torch.ones(size, dtype=torch.uint8)
                try:
                    self._connection.barrier()
                    value = self._connection.take(_transfer(size)).value
                except ChannelError:
                    return
                taken = time.perf_counter()
                value.clone()
                read = time.perf_counter()
                own.clone()
                self._told.put((taken, 2 * read - taken - time.perf_counter()))


def _transfer(size: int) -> Transfer:
    return Transfer(0, "value", 0, 1, (size,), (1,), "uint8", 1)
