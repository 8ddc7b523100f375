"""What a placement comes to: an `Outcome` per objective, made by `simulate`, judged by `verify`.

| objective            | outcome         |                                                         |
|----------------------|-----------------|---------------------------------------------------------|
| latency              | `Schedule`      | when each op and transfer starts and ends               |
| throughput           | `Loads`         | what each device does per input                         |
| invocation-latency   | `Invocations`   | when each accelerator is invoked for which subgraph     |
| batch-throughput     | `BatchSchedule` | when each batch and transfer starts and ends            |

Seconds everywhere; arrays are read-only. Of each `value` is what the objective minimises,
`device_load` how long devices are busy, `to_document` what a plan file holds, which `read` takes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from placewright.errors import GraphError
from placewright.graph import Floats, Ints, frozen

if TYPE_CHECKING:
    from placewright.problem import Problem

FORWARD, BACKWARD = 0, 1


class _Columns:
    """Freezes the fields, and checks that those of one table are equally long."""

    _whole: ClassVar[tuple[str, ...]] = ()
    _table: ClassVar[str] = ""

    def __post_init__(self) -> None:
        lengths = set()
        for field in fields(self):  # type: ignore[arg-type]
            dtype = np.int32 if field.name in self._whole else np.float64
            column = frozen(getattr(self, field.name), dtype)
            object.__setattr__(self, field.name, column)
            lengths.add(len(column))
        if self._table and len(lengths) > 1:
            raise GraphError(f"the columns of {self._table} differ in length")

    def __len__(self) -> int:
        return len(getattr(self, self._whole[0]))

    def to_document(self) -> dict[str, Any]:
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return {name: getattr(self, name).tolist() for name in names}


@dataclass(frozen=True, eq=False)
class Transfers(_Columns):
    """Columns, one entry per transfer: the tensor, from `source` to `target` device.

    `consumer` is the op it is for, or -1 where one transfer serves all consumers on the target.
    """

    _whole = ("tensor", "consumer", "source", "target")
    _table = "schedule.transfers"

    tensor: Ints
    consumer: Ints
    source: Ints
    target: Ints
    start: Floats
    finish: Floats


@dataclass(frozen=True, eq=False)
class Schedule:
    """`op_start[op]`, `op_finish[op]` and the transfers; seconds from the start of the run."""

    op_start: Floats
    op_finish: Floats
    transfers: Transfers

    def __post_init__(self) -> None:
        for name in ("op_start", "op_finish"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))

    @property
    def makespan(self) -> float:
        return float(self.op_finish.max())

    @property
    def value(self) -> float:
        return self.makespan

    def device_load(self, problem: Problem, device: Ints) -> Floats:
        return _compute(problem, device)

    @classmethod
    def read(cls, content: dict[str, Any], value: float) -> Self:
        return cls(content["op_start"], content["op_finish"], Transfers(**content["transfers"]))

    def to_document(self) -> dict[str, Any]:
        return {
            "op_start": self.op_start.tolist(),
            "op_finish": self.op_finish.tolist(),
            "transfers": self.transfers.to_document(),
        }


@dataclass(frozen=True, eq=False)
class Step:
    """A step of all micro-batches through a row of stages, from empty to empty.

    `seconds` it takes; `in_flight[stage]` micro-batches whose activations a stage keeps at a time,
    at most; `idle[stage]` the share of the step in which it does nothing (the bubble).
    """

    seconds: float
    in_flight: Ints
    idle: Floats

    def __post_init__(self) -> None:
        object.__setattr__(self, "in_flight", frozen(self.in_flight, np.int32))
        object.__setattr__(self, "idle", frozen(self.idle, np.float64))


@dataclass(frozen=True, eq=False)
class Loads:
    """Seconds per input: ``compute[way, device]``, ``incoming``, ``outgoing``, `sync` and `load`.

    `way` 0 is the forward and 1 the backward pass (all zeros in inference). What a stage does is
    shared out over its replicas, each of which has `sync[device]` besides. `load[device]` is how
    long the device is busy per input; `value` the time per input of the whole pipeline. With option
    `micro_batches` that is the time of a `step` over their number.
    """

    compute: Floats
    incoming: Floats
    outgoing: Floats
    sync: Floats
    load: Floats
    value: float
    step: Step | None = None

    def __post_init__(self) -> None:
        for name in ("compute", "incoming", "outgoing", "sync", "load"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))

    def device_load(self, problem: Problem, device: Ints) -> Floats:
        return self.load

    @classmethod
    def read(cls, content: dict[str, Any], value: float) -> Self:
        step = content.get("step")
        made = None if step is None else Step(**step)
        return cls(**{**content, "step": made}, value=value)

    def to_document(self) -> dict[str, Any]:
        names = ("compute", "incoming", "outgoing", "sync", "load")
        document = {name: getattr(self, name).tolist() for name in names}
        if self.step is not None:
            document["step"] = {
                "seconds": self.step.seconds,
                "in_flight": self.step.in_flight.tolist(),
                "idle": self.step.idle.tolist(),
            }
        return document


@dataclass(frozen=True, eq=False)
class InvocationTable(_Columns):
    """Columns, one entry per invocation: accelerator, its subgraph's number, and when.

    From `start`, `incoming` seconds of reading host memory, `compute`, `outgoing` of writing.
    """

    _whole = ("device", "subgraph")
    _table = "invocations"

    device: Ints
    subgraph: Ints
    start: Floats
    incoming: Floats
    compute: Floats
    outgoing: Floats


@dataclass(frozen=True, eq=False)
class Invocations:
    """`op_finish[op]`: when the op's output is in host memory; and the invocations."""

    op_finish: Floats
    invocations: InvocationTable

    def __post_init__(self) -> None:
        object.__setattr__(self, "op_finish", frozen(self.op_finish, np.float64))

    @property
    def value(self) -> float:
        return float(self.op_finish.max())

    def device_load(self, problem: Problem, device: Ints) -> Floats:
        return _compute(problem, device)

    @classmethod
    def read(cls, content: dict[str, Any], value: float) -> Self:
        return cls(content["op_finish"], InvocationTable(**content["invocations"]))

    def to_document(self) -> dict[str, Any]:
        return {
            "op_finish": self.op_finish.tolist(),
            "invocations": self.invocations.to_document(),
        }


@dataclass(frozen=True, eq=False)
class Batches(_Columns):
    """Columns, one entry per batch: `size` inputs of the op on the device, all at once."""

    _whole = ("op", "device", "size")
    _table = "batches"

    op: Ints
    device: Ints
    size: Ints
    start: Floats
    finish: Floats


@dataclass(frozen=True, eq=False)
class BatchTransfers(_Columns):
    """Columns as of `Transfers`; `inputs` is how many inputs' tensors go together."""

    _whole = ("tensor", "consumer", "source", "target", "inputs")
    _table = "transfers"

    tensor: Ints
    consumer: Ints
    source: Ints
    target: Ints
    inputs: Ints
    start: Floats
    finish: Floats


@dataclass(frozen=True, eq=False)
class BatchSchedule:
    """When each batch runs and each transfer goes; seconds from the start of the run."""

    batches: Batches
    transfers: BatchTransfers

    @property
    def value(self) -> float:
        return float(self.batches.finish.max())

    def device_load(self, problem: Problem, device: Ints) -> Floats:
        batches = self.batches
        busy = np.bincount(batches.device, batches.finish - batches.start, problem.device_count)
        return busy.astype(np.float64)

    @classmethod
    def read(cls, content: dict[str, Any], value: float) -> Self:
        return cls(Batches(**content["batches"]), BatchTransfers(**content["transfers"]))

    def to_document(self) -> dict[str, Any]:
        return {"batches": self.batches.to_document(), "transfers": self.transfers.to_document()}


Outcome = Schedule | Loads | Invocations | BatchSchedule


def _compute(problem: Problem, device: Ints) -> Floats:
    """`[device]` seconds of the ops there."""
    times = problem.op_time[np.arange(problem.op_count), device]
    return np.bincount(device, times, problem.device_count).astype(np.float64)
