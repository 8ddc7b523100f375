"""Ranks as threads of this process: a thread per device, each on its cores or its GPU.

Operators of torch release the interpreter's lock, so that devices compute at the same time. A
tensor is handed over as it is, without a copy: nobody writes to one, and weights get their new
values only when every rank has ended its call. To and from a GPU it is copied, see
`system.accelerators.handing`: its thread gives the GPU what there is to do and goes on, and both
ends of a call are those of the GPU.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from placewright.errors import OptionError
from placewright.runtime.ranks.calls import Caller, Calls, run_calls
from placewright.runtime.ranks.channels import (
    ChannelError,
    ChannelTimeoutError,
    waiting_for,
)
from placewright.runtime.ranks.failures import failure_of
from placewright.runtime.ranks.job import Hear, Job, Results
from placewright.runtime.stages.code import Transfer
from placewright.runtime.stages.cutting import Stage
from placewright.runtime.stages.layout import pack, unpack
from placewright.runtime.weights.placed import loaded_on
from placewright.system.accelerators.handing import Handed, hand, taken
from placewright.system.accelerators.places import CpuMoments, CudaPlace, Moments
from placewright.system.allocator import keep_freed_memory
from placewright.system.openmp import release_team

_GRACE_SECONDS = 5.0
_SWITCH_SECONDS = 5e-5  # a thread that waits for the interpreter's lock has it after so long


def launch_threads(job: Job, hear: Hear) -> Results:
    """Run a job on threads; ExecutionError, all having ended, if one fails or waits too long."""
    if job.memory_limits:
        raise OptionError("threads of one process share its memory; limit it with processes")
    results: Results = [[] for _ in range(job.ranks)]
    keep_freed_memory()
    lock = threading.Lock()
    places = [job.own.place(rank) for rank in range(job.ranks)]
    weights = _weights(job, places)
    for number, stages in enumerate(job.cuts):
        callers = [
            _caller(stage, weights[rank], job, places[rank]) for rank, stage in enumerate(stages)
        ]
        connection = ThreadConnection(job.ranks, job.timeout, places)

        def told(rank: int, kind: str, number: int = number, **fields: Any) -> None:
            with lock:
                hear(rank, {"event": kind, "placement": number, **fields})

        threads = [_Rank(rank, callers[rank], job, connection, told) for rank in range(job.ranks)]
        release_team()  # this thread has one if it has computed, and the ranks are to have theirs
        with _switching(_SWITCH_SECONDS):
            _run(threads, connection)
        for rank, thread in enumerate(threads):
            results[rank].append(thread.results)
    return results


def _weights(job: Job, places: Sequence[CudaPlace | None]) -> list[dict[str, Tensor]]:
    """`[rank]` its weights: those of CPUs are shared, each GPU has its own."""
    on_cpus = [job.weights_of(rank) for rank, place in enumerate(places) if place is None]
    shared = job.values.weights.load(set().union(*on_cpus))
    return [
        shared if place is None else loaded_on(job.values.weights, job.weights_of(rank), place)
        for rank, place in enumerate(places)
    ]


def _caller(stage: Stage, weights: dict[str, Tensor], job: Job, place: CudaPlace | None) -> Caller:
    with nullcontext() if place is None else place.entered():
        made = Caller(stage, weights, job.values.inputs, job.calls.optimizer, place)
        if place is not None:
            place.settle()
        return made


class _Rank(threading.Thread):
    """One rank's calls; `error` is what ended it, if anything did."""

    def __init__(
        self, rank: int, caller: Caller, job: Job, connection: ThreadConnection, told: Any
    ) -> None:
        super().__init__(name=f"rank {rank}", daemon=True)
        self.rank = rank
        self.results: list[list[Any]] = []
        self.error: BaseException | None = None
        self._caller = caller
        self._calls: Calls = job.calls
        self._own = (job.own.threads[rank], job.own.cores[rank])
        self._place = connection.places[rank]
        self._connection = connection
        self._told = told

    def run(self) -> None:
        threads, cores = self._own
        try:
            if cores and hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(0, cores)  # of this thread and those it starts
            torch.set_num_threads(threads)  # of this thread's operators
            with nullcontext() if self._place is None else self._place.entered():
                end = self._connection.of(self.rank)
                self.results = run_calls(self._caller, self._calls, end, self._hear)
        except BaseException as error:
            self.error = error
            self._connection.abandon()

    def _hear(self, kind: str, **fields: Any) -> None:
        self._told(self.rank, kind, **fields)


def _run(threads: Sequence[_Rank], connection: ThreadConnection) -> None:
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # in turns, so that Ctrl-C is heard
                thread.join(0.2)
    except BaseException:
        connection.abandon()
        for thread in threads:
            thread.join(_GRACE_SECONDS)
        raise
    failed = [thread for thread in threads if thread.error is not None]
    if failed:
        first = min(failed, key=_blame)
        assert first.error is not None
        raise failure_of(first.rank, first.error) from first.error


def _blame(thread: _Rank) -> tuple[bool, bool]:
    """Errors of a rank's own first, then waits that took too long, then those that follow."""
    error = thread.error
    return isinstance(error, ChannelError), not isinstance(error, ChannelTimeoutError)


@contextmanager
def _switching(seconds: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class ThreadConnection:
    """Where the threads of one job meet and leave tensors.

    `places` has the GPU of each rank, None for a CPU.
    """

    def __init__(self, ranks: int, timeout: float, places: Sequence[CudaPlace | None] = ()) -> None:
        self.places = tuple(places) or (None,) * ranks
        self._timeout = timeout
        self._barrier = threading.Barrier(ranks)
        self._changed = threading.Condition()
        self._left: dict[int, Handed] = {}
        self._idle: set[int] = set()  # those that wait for others
        self._broken = False

    def of(self, rank: int) -> ThreadEnd:
        return ThreadEnd(self, rank)

    def barrier(self, rank: int) -> None:
        self._idle.add(rank)
        try:
            self._barrier.wait(self._timeout)
        except threading.BrokenBarrierError as error:
            raise self._not_met() from error
        self._idle.discard(rank)

    def _not_met(self) -> ChannelError:
        """Some did not come to the barrier, or have ended; whoever notices tells all."""
        with self._changed:
            if self._broken:
                return ChannelError("another rank has ended")
            busy = sorted(set(range(len(self.places))) - self._idle)
            self._break()
        late = " and ".join(f"rank {rank}" for rank in busy)
        return ChannelTimeoutError(f"has waited for {late} for {self._timeout:g} s")

    def put(self, transfer: Transfer, value: Handed) -> None:
        with self._changed:
            self._left[transfer.tag] = value
            self._changed.notify_all()

    def take(self, transfer: Transfer) -> Handed:
        tag = transfer.tag
        with self._changed:
            self._idle.add(transfer.target)
            there = self._changed.wait_for(lambda: self._broken or tag in self._left, self._timeout)
            if self._broken:
                raise ChannelError("another rank has ended")
            if not there:
                raise ChannelTimeoutError(f"{waiting_for(transfer)} for {self._timeout:g} s")
            self._idle.discard(transfer.target)
            return self._left.pop(tag)

    def abandon(self) -> None:
        """Let nobody wait any longer."""
        with self._changed:
            self._break()
        self._barrier.abort()

    def _break(self) -> None:
        self._broken = True
        self._changed.notify_all()


class ThreadEnd:
    """See `calls.Connection`: a `ThreadConnection` as one rank has it."""

    def __init__(self, connection: ThreadConnection, rank: int) -> None:
        self._connection, self._rank = connection, rank

    def channel(self) -> ThreadChannel:
        return ThreadChannel(self._connection, self._rank)

    def barrier(self) -> None:
        self._connection.barrier(self._rank)


class ThreadChannel:
    """One rank's end of a `ThreadConnection`, for one call.

    What a GPU waits for tensors is told by its own events, and known when the call has ended.
    """

    def __init__(self, connection: ThreadConnection, rank: int) -> None:
        self.waited = 0.0
        self._connection, self._rank = connection, rank
        self._place = place = connection.places[rank]
        self._waits: Moments = CpuMoments() if place is None else place.moments()

    def post(self, transfer: Transfer) -> Transfer:
        return transfer

    def wait(self, posted: Transfer) -> Tensor:
        self._waits.mark()
        handed = self._connection.take(posted)
        value = taken(handed, self._place)
        self._waits.mark()
        return unpack(posted, value) if handed.is_flat else value

    def send(self, transfer: Transfer, value: Tensor) -> None:
        target = self._connection.places[transfer.target]
        flat = partial(pack, transfer, value)
        self._connection.put(transfer, hand(value, flat, self._place, target))

    def finish(self) -> None:
        if self._place is not None:
            self._place.settle()
        self.waited = sum(self._waits.intervals()[::2])  # from before each wait to after it
        self._connection.barrier(self._rank)
