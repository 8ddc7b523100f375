"""One rank of a run that torchrun started: on this host or on one of several.

Every rank exports the program itself, loads its own weights and talks over gloo at the address that
torchrun tells, GPUs among themselves over NCCL. Rank 0 gathers what the others measured and
computed, runs the whole program once in its own process to compare, and reports. Hosts have clocks
of their own, so each rank's times count from the barrier that begins a call.
"""

from __future__ import annotations

import io
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from placewright.errors import FormatError, OptionError
from placewright.runtime.links.stores import join
from placewright.runtime.ranks.calls import Caller, run_calls
from placewright.runtime.ranks.channels import ChannelError
from placewright.runtime.ranks.failures import failure_of
from placewright.runtime.ranks.gpus import connection_of
from placewright.runtime.ranks.job import Hear, Job, Results
from placewright.runtime.ranks.joining import channel_errors, connect, leave
from placewright.runtime.ranks.launch import loopback_interface
from placewright.runtime.ranks.worker import own_memory
from placewright.runtime.torchrun_summary import tell_torchrun
from placewright.runtime.weights.placed import loaded_on
from placewright.system.accelerators.places import CudaPlace
from placewright.system.allocator import keep_freed_memory
from placewright.system.memory import lift_limit
from placewright.system.pinning import pinned

_ADVICE = "start this with torchrun --nproc-per-node N --no-python placewright run …"


Doing = Callable[[str], None]


@dataclass(frozen=True)
class Torchrun:
    """What torchrun tells of this process: `rank` of `ranks`, which meet at `address`:`port`."""

    address: str
    port: int
    rank: int
    ranks: int

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Torchrun:
        """From torchrun's environment variables; OptionError for what is missing or no number."""
        names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
        missing = [name for name in names if not variables.get(name)]
        if missing:
            raise OptionError(f"{missing[0]} is not set; {_ADVICE}")
        address, *numbers = (variables[name] for name in names)
        for name, text in zip(names[1:], numbers, strict=True):
            if not text.isdecimal():
                raise OptionError(f"{name} is '{text}', which is no number; {_ADVICE}")
        port, rank, ranks = map(int, numbers)
        return cls(address, port, rank, ranks)


def launch_torchrun(job: Job, hear: Hear) -> Results | None:
    """This process's part of a job; on rank 0 the results of all, elsewhere None.

    OptionError where torchrun started another number of processes than the job has ranks, and
    ExecutionError if this rank fails or another does.
    """
    here = Torchrun.of(os.environ)
    if here.ranks != job.ranks:
        raise OptionError(
            f"torchrun started {here.ranks} processes, but the plan uses {job.ranks} devices; "
            f"start {job.ranks}"
        )
    cores, place = job.own.cores[here.rank], job.own.place(here.rank, job.timeout)
    with (
        pinned(cores) if cores else nullcontext(),
        place.entered() if place else nullcontext(),
        _told(here.rank) as doing,
    ):
        return _run(here, job, hear, doing, place)


def _run(
    here: Torchrun, job: Job, hear: Hear, doing: Doing, place: CudaPlace | None
) -> Results | None:
    doing("connecting to the other ranks")
    keep_freed_memory()
    torch.set_num_threads(job.own.threads[here.rank])
    _use(job.interface)
    store = join(here.address, here.port, job.timeout, prefix="placewright/run")
    connect(store, here.rank, here.ranks, job.timeout, under_parent=False)
    connection = connection_of(job.own.gpus, here.rank, place, job.timeout)
    peak = own_memory(job.memory_limits, here.rank, place)
    doing("loading its weights")
    weights = loaded_on(job.values.weights, job.weights_of(here.rank), place)
    doing("running its ops")
    kept, events = [], list[dict[str, Any]]()
    for number, stages in enumerate(job.cuts):
        caller = Caller(stages[here.rank], weights, job.values.inputs, job.calls.optimizer, place)

        def heard(kind: str, number: int = number, **fields: Any) -> None:
            events.append({"event": kind, "placement": number, **_from_barrier(fields)})

        kept.append(run_calls(caller, job.calls, connection, heard))
    events.append({"event": "saving", "peak_memory": peak.bytes})
    lift_limit()  # rank 0 has all outputs, and runs the whole program
    doing("gathering outputs on rank 0")
    results = _gather(here, store, (kept, events), hear)
    leave()
    return results


def _use(interface: str) -> None:
    """Let gloo talk over it; OptionError where this host has none of that name."""
    if not interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback_interface())
        return
    names = [name for _, name in socket.if_nameindex()]
    if interface not in names:
        raise OptionError(
            f"this host has no network interface '{interface}', only {', '.join(names)}; "
            "give one of them as --interface"
        )
    os.environ["GLOO_SOCKET_IFNAME"] = interface


def _from_barrier(fields: dict[str, Any]) -> dict[str, Any]:
    """Times of a call counted from its start: another host has another clock."""
    start = fields["started"]
    moved = {key: fields[key] - start for key in ("started", "finished")}
    if "ticks" in fields:
        moved["ticks"] = [tick - start for tick in fields["ticks"]]
    return {**fields, **moved}


def _gather(
    here: Torchrun, store: Any, told: tuple[list[Any], list[dict[str, Any]]], hear: Hear
) -> Results | None:
    """All ranks' results on rank 0, which hears their events; elsewhere None."""
    kept, events = told
    if here.rank:
        content = _bytes(kept)
        with channel_errors():
            store.set(f"{here.rank}", json.dumps({"events": events, "bytes": len(content)}))
            torch.distributed.send(content, 0, tag=here.rank)
        return None
    results = []
    for rank in range(here.ranks):
        if rank:
            with channel_errors():
                document = json.loads(store.get(f"{rank}"))
                content = torch.empty(document["bytes"], dtype=torch.uint8)
                torch.distributed.recv(content, rank, tag=rank)
            kept, events = _tensors(content, rank), document["events"]
        for event in events:
            hear(rank, event)
        results.append(kept)
    return results


def _bytes(kept: list[Any]) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(kept, file)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def _tensors(content: torch.Tensor, rank: int) -> list[Any]:
    try:
        found: list[Any] = torch.load(io.BytesIO(content.numpy().tobytes()), weights_only=True)
    except Exception as error:
        raise FormatError(
            f"rank {rank} sent outputs that are not understood; run the same version of "
            "placewright on all hosts"
        ) from error
    return found


@contextmanager
def _told(rank: int) -> Iterator[Doing]:
    """What a rank fails of, as one sentence: an op of its own, its memory, or another rank.

    It is told what the rank is doing.
    """
    done = ["starting"]
    try:
        yield done.append
    except Exception as error:
        failure = failure_of(rank, error, done[-1])
        tell_torchrun(str(failure), is_cause=not isinstance(error, ChannelError))
        raise failure from error
