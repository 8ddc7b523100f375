"""Ranks as threads of this process: a thread per device, each on its cores.

Operators of torch release the interpreter's lock, so that devices compute at the same time. A
tensor is handed over as it is, without a copy: nobody writes to one, and weights get their new
values only when every rank has ended its call.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from placewright.errors import ExecutionError, OptionError
from placewright.runtime.ranks.calls import Caller, Calls, run_calls
from placewright.runtime.ranks.channels import ChannelError
from placewright.runtime.ranks.failures import failure_of
from placewright.runtime.ranks.job import Hear, Job, Results
from placewright.runtime.stages.code import Transfer
from placewright.system.allocator import keep_freed_memory

_GRACE_SECONDS = 5.0
_SWITCH_SECONDS = 5e-5  # a thread that waits for the interpreter's lock has it after so long


def launch_threads(job: Job, hear: Hear) -> Results:
    """Run a job on threads; ExecutionError, all having ended, if one fails or waits too long."""
    if job.memory_limits:
        raise OptionError("threads of one process share its memory; limit it with processes")
    results: Results = [[] for _ in range(job.ranks)]
    keep_freed_memory()
    lock = threading.Lock()
    names = set().union(*map(job.weights_of, range(job.ranks)))
    weights = job.values.weights.load(names)
    for number, stages in enumerate(job.cuts):
        callers = [
            Caller(stage, weights, job.values.inputs, job.calls.optimizer) for stage in stages
        ]
        connection = ThreadConnection(job.ranks, job.timeout)

        def told(rank: int, kind: str, number: int = number, **fields: Any) -> None:
            with lock:
                hear(rank, {"event": kind, "placement": number, **fields})

        threads = [_Rank(rank, callers[rank], job, connection, told) for rank in range(job.ranks)]
        with _switching(_SWITCH_SECONDS):
            _run(threads, connection)
        for rank, thread in enumerate(threads):
            results[rank].append(thread.results)
    return results


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
        self._connection = connection
        self._told = told

    def run(self) -> None:
        threads, cores = self._own
        try:
            if cores and hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(0, cores)  # of this thread and those it starts
            torch.set_num_threads(threads)  # of this thread's operators
            self.results = run_calls(self._caller, self._calls, self._connection, self._hear)
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
        own = [each for each in failed if not isinstance(each.error, ChannelError)]
        first = (own or failed)[0]
        assert first.error is not None
        raise failure_of(first.rank, first.error) from first.error


@contextmanager
def _switching(seconds: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class ThreadConnection:
    """See `calls.Connection`: where the threads of one job meet and leave tensors."""

    def __init__(self, ranks: int, timeout: float) -> None:
        self._timeout = timeout
        self._barrier = threading.Barrier(ranks)
        self._changed = threading.Condition()
        self._left: dict[int, Tensor] = {}
        self._broken = False

    def channel(self) -> ThreadChannel:
        return ThreadChannel(self)

    def barrier(self) -> None:
        try:
            self._barrier.wait(self._timeout)
        except threading.BrokenBarrierError as error:
            raise ChannelError("another rank has ended, or is stuck") from error

    def put(self, transfer: Transfer, value: Tensor) -> None:
        with self._changed:
            self._left[transfer.tag] = value
            self._changed.notify_all()

    def take(self, transfer: Transfer) -> Tensor:
        tag = transfer.tag
        with self._changed:
            there = self._changed.wait_for(lambda: self._broken or tag in self._left, self._timeout)
            if self._broken:
                raise ChannelError("another rank has ended")
            if not there:
                raise ExecutionError(
                    f"rank {transfer.target} waited {self._timeout:g} s for the output of op "
                    f"'{transfer.tensor}' from rank {transfer.source}; give a longer timeout if "
                    "the model is slow"
                )
            return self._left.pop(tag)

    def abandon(self) -> None:
        """Let nobody wait any longer."""
        self._barrier.abort()
        with self._changed:
            self._broken = True
            self._changed.notify_all()


class ThreadChannel:
    """One rank's end of a `ThreadConnection`, for one call."""

    def __init__(self, connection: ThreadConnection) -> None:
        self.waited = 0.0
        self._connection = connection

    def post(self, transfer: Transfer) -> Transfer:
        return transfer

    def wait(self, posted: Transfer) -> Tensor:
        started = time.perf_counter()
        value = self._connection.take(posted)
        self.waited += time.perf_counter() - started
        return value

    def send(self, transfer: Transfer, value: Tensor) -> None:
        self._connection.put(transfer, value)

    def finish(self) -> None:
        self._connection.barrier()
