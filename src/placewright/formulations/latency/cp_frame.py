"""What a model is about: some ops, and what the rest of a schedule leaves to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from placewright.formulations.time_windows import TimeWindows, Ways, edge_delays, time_windows
from placewright.graph import Flags, Floats, Ints
from placewright.problem import Problem


@dataclass(frozen=True)
class Owed:
    """That an op behind the frame waits for a tensor: `tail` seconds from its arrival to the end.

    `late`: from the finish of the producer, on the device `late_from`, to the end, if the tensor
    is sent behind the frame as it is now; None if it is not.
    """

    tail: float
    late: float | None = None
    late_from: int = -1


@dataclass(eq=False)
class Parcel:
    """What contends for channels: a tensor, or one edge of it, that is sent within the frame.

    - `edges`, those to ops of the frame, and `outer` ones, to ops behind it;
    - `producer`, an op of the frame, or -1: then it is `ready` on the device `source`, and on the
      devices `there` without being sent again (`Frame.head` has when);
    - `owed[device]`: what waits for it there behind the frame.
    """

    tensor: int
    edges: list[int]
    producer: int = -1
    outer: list[int] = field(default_factory=list)
    source: int = -1
    ready: float = 0.0
    there: frozenset[int] = frozenset()
    owed: dict[int, Owed] = field(default_factory=dict)


@dataclass(eq=False)
class Frame:
    """Ops of a problem that are to be scheduled, and what surrounds them. Seconds and bytes.

    - `ops`, in a topological order; `allowed[unit, device]`, one device where a unit is to stay;
    - `head[k, device]`: op ``ops[k]`` cannot start sooner there for what is outside the frame;
      `tail[k, device]`: from its finish to the end it is no less (both 0 if nothing is outside);
    - `release[channel]` and `channel_tail[channel]`, the same for transfers;
    - `capacity[device]`: memory for the frame's units;
    - `chains`: pairs of ops that keep their order, on one device;
    - `parcels`: all transfers where they contend (elsewhere they are delays and nothing else);
    - `floor`: the makespan is no less whatever the ops do;
    - `price[device]`: seconds that each byte there costs besides, None where none does.
    """

    problem: Problem
    ops: list[int]
    allowed: Flags
    head: Floats
    tail: Floats
    release: Floats
    channel_tail: Floats
    capacity: Floats
    chains: list[tuple[int, int]]
    parcels: list[Parcel]
    floor: float = 0.0
    is_whole: bool = False
    price: Floats | None = None

    def inner_edges(self) -> Iterator[int]:
        """Edges between two ops of the frame."""
        inside = np.zeros(self.problem.op_count, dtype=bool)
        inside[self.ops] = True
        problem = self.problem
        both = inside[problem.edge_producer] & inside[problem.consumers]
        yield from np.flatnonzero(both).tolist()


def whole(problem: Problem) -> Frame:
    """The frame of all ops, with nothing around it."""
    n, d = problem.op_count, problem.device_count
    channels = len(problem.active_channels[2])
    # Under `peak` it matters when a copy arrives, whether or not transfers contend.
    are_sent = problem.options.memory == "peak" or problem.options.contention != "none"
    edges = np.arange(problem.edge_count if are_sent else 0, dtype=np.int32)
    return Frame(
        problem=problem,
        ops=problem.topological_order.tolist(),
        allowed=problem.unit_allowed,
        head=np.zeros((n, d)),
        tail=np.zeros((n, d)),
        release=np.zeros(channels),
        channel_tail=np.zeros(channels),
        capacity=problem.device_memory,
        chains=[],
        parcels=[
            Parcel(tensor, together, int(problem.tensor_producer[tensor]))
            for tensor, together in _as_sent(problem, edges)
        ],
        is_whole=True,
    )


def parcels_of(problem: Problem, edges: Ints) -> Iterator[tuple[int, list[int]]]:
    """The edges as they are sent: by tensor, or one by one; nothing without contention."""
    if problem.options.contention != "none":
        yield from _as_sent(problem, edges)


def _as_sent(problem: Problem, edges: Ints) -> Iterator[tuple[int, list[int]]]:
    if problem.options.transfer_unit == "edge":
        for edge in edges.tolist():
            yield int(problem.edge_tensor[edge]), [edge]
        return
    by_tensor: dict[int, list[int]] = {}
    for edge in edges.tolist():
        by_tensor.setdefault(int(problem.edge_tensor[edge]), []).append(edge)
    yield from by_tensor.items()


def transfer_times(problem: Problem, tensor: int) -> Floats:
    """`[source, target]` seconds; 0 on one device."""
    time: Floats = (
        problem.link_latency + problem.tensor_bytes[tensor] * problem.link_seconds_per_byte
    )
    time = time.copy()
    np.fill_diagonal(time, 0.0)
    return time


def windows_of(frame: Frame, horizon: float) -> tuple[TimeWindows, dict[int, Floats]]:
    """When the ops of a frame can be where, rows as `ops`; and the delay of each edge within it.

    Delays are ``[source, target]``, `inf` where the horizon rules it out.
    """
    problem, ops = frame.problem, np.array(frame.ops, dtype=np.int32)
    place = np.full(problem.op_count, -1, dtype=np.int32)
    place[ops] = rank = np.arange(len(ops), dtype=np.int32)
    edges = np.array(list(frame.inner_edges()), dtype=np.int32)
    delay = edge_delays(problem, edges)
    producer, consumer = place[problem.edge_producer[edges]], place[problem.consumers[edges]]
    ways = Ways(producer, consumer, delay, rank)
    bounds = frame.head, frame.tail
    unit = problem.op_unit[ops]
    found = time_windows(frame.allowed, problem.op_time[ops], unit, ways, bounds, horizon)
    before, after = (found.head + found.time)[producer], (found.time + found.tail)[consumer]
    delay[before[:, :, None] + delay + after[:, None, :] > horizon] = np.inf
    return found, dict(zip(edges.tolist(), delay, strict=True))
