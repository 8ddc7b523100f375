"""Transfers of batches under contention, in CP-SAT's model of them.

What the inputs of one batch give to a batch elsewhere goes in one transfer, as long as there are
inputs in it, on all channels of its route at once (see `simulate.batch`). So there is an optional
interval for each tensor (transfer unit ``edge``: each edge), pair of devices and count of inputs.
Counts are those of single inputs: an instance under contention has chunks of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from placewright.formulations.batch.instance import Batch, BatchInstance
from placewright.graph import Floats, Ints
from placewright.kernels.common.arrays import NOT_SENT
from placewright.plan import Placement
from placewright.problem import Problem
from placewright.simulate.batch import Expansion, expand
from placewright.simulate.latency import sequence_of

ANY_READER = -1
Parcel = tuple[int, int, int, int]
"""A tensor, its reader (or `ANY_READER`: one transfer serves all), and the devices from and to."""


class Batches(Protocol):
    """What transfers need of the model of batches (`cp_model.BatchModel`)."""

    instance: BatchInstance
    problem: Problem
    model: Any
    latency: Any
    horizon: int
    start: dict[Batch, Any]

    def look(self) -> None:
        """At the clock."""

    def end(self, op: int, device: int) -> Any:
        """When a batch ends."""

    def sharing(self, one: int, two: int, u: int, v: int) -> dict[int, Any]:
        """By chunk: what holds if two units have it on devices u and v."""

    def ticks(self, time: float) -> int:
        """Whole ticks of scaled time, rounded down."""


@dataclass(frozen=True)
class Times:
    """Ticks at which batches and transfers of a solution start, and how long these take."""

    start: Mapping[Batch, int]
    begin: Mapping[Parcel, int]
    length: Mapping[Parcel, int]


class Transfers:
    """The intervals, added to the model of `batches` by the constructor."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self.model, self.problem = batches, batches.model, batches.problem
        offsets, channels, names = self.problem.active_channels
        self._route = [
            channels[first:last].tolist()
            for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        ]
        self._busy: list[list[Any]] = [[] for _ in names]
        self._loads: list[list[Any]] = [[] for _ in names]
        self.begin: dict[Parcel, Any] = {}
        self.counts: dict[Parcel, list[tuple[int, Any]]] = {}
        for tensor, readers in self._groups():
            batches.look()
            self._send(tensor, readers)
        for intervals, loads in zip(self._busy, self._loads, strict=True):
            if len(intervals) > 1:
                self.model.add_no_overlap(intervals)
                self.model.add(batches.latency >= sum(loads))

    def times(self, solver: Any, start: Mapping[Batch, int]) -> Times:
        """What the solver found, beside the starts of batches."""
        length = {
            parcel: sum(ticks * solver.value(literal) for ticks, literal in counts)
            for parcel, counts in self.counts.items()
        }
        return Times(start, {p: solver.value(x) for p, x in self.begin.items()}, length)

    def _groups(self) -> Iterator[tuple[int, list[int]]]:
        """A tensor and who reads it, all together or one by one."""
        problem = self.problem
        for tensor in range(problem.tensor_count):
            first, last = problem.consumer_offsets[tensor : tensor + 2].tolist()
            readers = list(dict.fromkeys(problem.consumers[first:last].tolist()))
            if problem.options.transfer_unit == "tensor":
                yield tensor, readers
            else:
                yield from ((tensor, [reader]) for reader in readers)

    def _send(self, tensor: int, readers: list[int]) -> None:
        batches, unit = self.batches, self.problem.op_unit
        producer = int(self.problem.tensor_producer[tensor])
        apart = [reader for reader in readers if unit[reader] != unit[producer]]
        targets = {d for reader in apart for d in batches.instance.devices(int(unit[reader]))}
        who = readers[0] if self.problem.options.transfer_unit == "edge" else ANY_READER
        for source in batches.instance.devices(int(unit[producer])):
            for target in sorted(targets - {source}):
                self._send_between(producer, apart, (tensor, who, source, target))

    def _send_between(self, producer: int, readers: list[int], parcel: Parcel) -> None:
        """One transfer, for as many inputs as go this way, and those who wait for it."""
        model, batches, unit = self.model, self.batches, self.problem.op_unit
        _, _, source, target = parcel
        sharing = {
            reader: batches.sharing(int(unit[producer]), int(unit[reader]), source, target)
            for reader in readers
            if target in batches.instance.devices(int(unit[reader]))
        }
        going: dict[int, list[Any]] = {}
        for shared in sharing.values():
            for chunk, literal in shared.items():
                going.setdefault(chunk, []).append(literal)
        if not going:
            return
        counts = [
            (self._ticks(parcel, count), count, model.new_bool_var(""))
            for count in range(1, len(going) + 1)
        ]
        model.add_at_most_one(literal for _, _, literal in counts)
        inputs = sum(count * literal for _, count, literal in counts)
        model.add(sum(self._any(literals) for literals in going.values()) <= inputs)
        begin = model.new_int_var(0, batches.horizon, "")
        model.add(begin >= batches.end(producer, source))
        self.begin[parcel] = begin
        self.counts[parcel] = [(ticks, literal) for ticks, _, literal in counts]
        length = sum(ticks * literal for ticks, _, literal in counts)
        for reader, shared in sharing.items():
            for literal in shared.values():
                waits = model.add(batches.start[reader, target] >= begin + length)
                if literal is not True:
                    waits.only_enforce_if(literal)
        self._occupy(parcel, begin)

    def _occupy(self, parcel: Parcel, begin: Any) -> None:
        """The channels of its route, for as long as it takes."""
        _, _, source, target = parcel
        for channel in self._route[source * self.problem.device_count + target]:
            for ticks, literal in self.counts[parcel]:
                self._busy[channel].append(
                    self.model.new_optional_fixed_size_interval_var(begin, ticks, literal, "")
                )
                self._loads[channel].append(ticks * literal)

    def _any(self, literals: list[Any]) -> Any:
        """One that holds where any of these does."""
        if any(each is True for each in literals) or len(literals) == 1:
            return literals[0] if len(literals) == 1 else True
        found = self.model.new_bool_var("")
        for each in literals:
            self.model.add_implication(each, found)
        return found

    def _ticks(self, parcel: Parcel, count: int) -> int:
        tensor, _, source, target = parcel
        problem = self.problem
        seconds = problem.link_latency[source, target] + (
            count * problem.tensor_bytes[tensor] * problem.link_seconds_per_byte[source, target]
        )
        return self.batches.ticks(seconds / self.batches.instance.scale)


def placement_in_order(problem: Problem, device: Ints, size: Floats, times: Times) -> Placement:
    """The placement ``device[op, input]`` whose batches and transfers run as they start.

    ``size[op, device]`` are the ticks that batches take.
    """
    expansion = expand(problem, device)
    inner = expansion.problem
    batches = list(zip(expansion.op.tolist(), expansion.device.tolist(), strict=True))
    start = np.array([times.start[batch] for batch in batches], dtype=np.float64)
    finish = start + size[expansion.op, expansion.device]
    parcels = _parcels(problem, expansion)
    begin = np.array([times.begin.get(each, NOT_SENT) for each in parcels], dtype=np.float64)
    length = np.array([times.length.get(each, 0) for each in parcels], dtype=np.float64)
    arrival = np.where(begin >= 0, begin + length, NOT_SENT)
    return Placement(device, sequence_of(inner, start, finish, begin, arrival))


def _parcels(problem: Problem, expansion: Expansion) -> list[Parcel]:
    """By the edges of an expansion: in which transfer each goes."""
    inner = expansion.problem
    tensor = expansion.tensor[inner.edge_tensor].tolist()
    source = expansion.device[inner.edge_producer].tolist()
    target = expansion.device[inner.consumers].tolist()
    together = problem.options.transfer_unit == "tensor"
    reader = [ANY_READER] * len(tensor) if together else expansion.op[inner.consumers].tolist()
    return list(zip(tensor, reader, source, target, strict=True))
