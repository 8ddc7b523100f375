"""How a rank that computes on a GPU talks to others: NCCL to GPUs, gloo to CPUs.

What goes to a CPU or comes from one passes through pinned memory of the host.

Two GPUs have an NCCL communicator of their own, whose sends and receives happen in the order in
which each end gives them; both ends have to give theirs in the same order, or they wait for each
other for ever. They do: a stage sends where the order of the whole program has the producer, and
the other posts its receive there, so that both go through the tensors between them in that order.
Communicators are made before the first call, pair by pair in one order for all ranks, since making
one waits for the other end.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from placewright.errors import ExecutionError, OptionError
from placewright.runtime.ranks.calls import Connection
from placewright.runtime.ranks.channels import GlooChannel
from placewright.runtime.ranks.joining import GlooConnection, barrier, channel_errors
from placewright.runtime.ranks.segment_channel import SegmentConnection
from placewright.runtime.ranks.segments import Segment
from placewright.runtime.stages.code import Transfer
from placewright.runtime.stages.layout import pack, unpack
from placewright.system.accelerators.handing import brought, hand, taken
from placewright.system.accelerators.places import CudaPlace

BACKEND = "nccl"


@dataclass(frozen=True)
class GpuRanks:
    """The ranks that compute on GPUs, and their process group; none where it is one rank."""

    ranks: frozenset[int]
    group: Any = None


def join_gpus(
    gpus: Sequence[int | None], rank: int, place: CudaPlace | None, timeout: float
) -> GpuRanks:
    """Join the GPUs of all ranks, each of which calls this; CPUs take no part afterwards.

    OptionError where two ranks are on one GPU; ExecutionError for a torch without NCCL.
    """
    ranks = [each for each, gpu in enumerate(gpus) if gpu is not None]
    if len(ranks) < 2:
        return GpuRanks(frozenset(ranks))
    for one, other in combinations(ranks, 2):
        if gpus[one] == gpus[other]:
            raise OptionError(
                f"ranks {one} and {other} both run on cuda {gpus[one]}, and NCCL joins different "
                "GPUs only; run the plan with --launcher local"
            )
    if BACKEND == "nccl" and not torch.distributed.is_nccl_available():
        raise ExecutionError(
            "the torch installed here is built without NCCL, by which GPUs of several processes "
            "send to each other; run the plan with --launcher local"
        )
    patience = datetime.timedelta(seconds=2 * timeout + 60)  # a rank itself says so before
    with channel_errors():
        made = torch.distributed.new_group(ranks, timeout=patience, backend=BACKEND)
        joined = GpuRanks(frozenset(ranks), made)
        for pair in combinations(ranks, 2):
            if rank in pair and place is not None:
                _meet(pair, rank, place, joined)
    barrier()
    return joined


def _meet(pair: tuple[int, int], rank: int, place: CudaPlace, joined: GpuRanks) -> None:
    """A byte there and one back, which makes the communicator of the two and connects it."""
    byte = place.driver.empty(1, place.ordinal).zero_()
    first, second = pair
    for source, target in ((first, second), (second, first)):
        if rank == source:
            work: Any = torch.distributed.isend(byte, target, group=joined.group)
        else:
            work = torch.distributed.irecv(byte, source, group=joined.group)
        work.wait()
    place.settle()


def connection_of(
    gpus: Sequence[int | None],
    rank: int,
    place: CudaPlace | None,
    timeout: float,
    segments: Sequence[Segment] = (),
) -> Connection:
    """How a rank talks to the others, of which some may be on GPUs; errors of `join_gpus`.

    CPUs of one machine have `segments`.
    """
    joined = join_gpus(gpus, rank, place, timeout)
    if place is not None:
        return GpuConnection(timeout, place, joined)
    return SegmentConnection(rank, segments, timeout) if segments else GlooConnection(timeout)


class GpuConnection:
    """See `calls.Connection`: one rank on a GPU among those of the default process group."""

    def __init__(self, timeout: float, place: CudaPlace, joined: GpuRanks) -> None:
        self._timeout, self._place, self._joined = timeout, place, joined

    def channel(self) -> GpuChannel:
        return GpuChannel(self._timeout, self._place, self._joined)

    def barrier(self) -> None:
        barrier()


Posted = tuple[Transfer, Tensor, Any]


class GpuChannel:
    """See the module. The thread has entered the `place`."""

    def __init__(self, timeout: float, place: CudaPlace, joined: GpuRanks) -> None:
        self.waited = 0.0
        self._place, self._joined = place, joined
        self._gloo = GlooChannel(timeout, self._pinned)
        self._waits = place.moments()
        self._sending: list[tuple[Any, Tensor]] = []

    def post(self, transfer: Transfer) -> Posted:
        if transfer.source not in self._joined.ranks:
            return self._gloo.post(transfer)
        flat = self._place.driver.empty(transfer.bytes, self._place.ordinal)
        if not transfer.elements:
            return transfer, flat, None
        with channel_errors():
            work = torch.distributed.irecv(
                flat, transfer.source, group=self._joined.group, tag=transfer.tag
            )
        return transfer, flat, work

    def wait(self, posted: Posted) -> Tensor:
        """The GPU's stream waits for another GPU; for a CPU this thread does."""
        transfer, flat, work = posted
        self._waits.mark()
        if transfer.source not in self._joined.ranks:
            self._gloo.wait(posted)
            flat = taken(brought(flat, self._place), self._place)
        elif work is not None:
            with channel_errors():
                work.wait()
        self._waits.mark()
        return unpack(transfer, flat)

    def send(self, transfer: Transfer, value: Tensor) -> None:
        if not transfer.elements:
            return
        flat = pack(transfer, value)
        if transfer.target not in self._joined.ranks:
            pinned = taken(hand(value, lambda: flat, self._place, None), None)
            self._gloo.send_flat(transfer, pinned)
            return
        with channel_errors():
            work = torch.distributed.isend(
                flat, transfer.target, group=self._joined.group, tag=transfer.tag
            )
        self._sending.append((work, flat))

    def finish(self) -> None:
        with channel_errors():
            for work, _ in self._sending:
                work.wait()
        self._sending.clear()
        self._gloo.finish()
        self._place.settle()
        self.waited = sum(self._waits.intervals()[::2])

    def _pinned(self, transfer: Transfer) -> Tensor:
        return self._place.driver.pinned((transfer.bytes,), torch.uint8)
