"""`Problem`: what a planner sees. Arrays only; no framework, no file, no device name matters.

Seconds and bytes. Index order is stated by each name: ``op_time[op, device]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from placewright.errors import GraphError, InfeasibleError, OptionError
from placewright.graph import Flags, Floats, Ints, frozen, topological_order
from placewright.units import format_bytes

TransferUnit = Literal["tensor", "edge"]
Contention = Literal["none", "port", "link"]
Memory = Literal["resident", "peak"]

OBJECTIVES = ("latency", "invocation-latency", "throughput", "batch-throughput")


@dataclass(frozen=True)
class Options:
    """What exactly is being minimised, and on what kind of machine.

    - `transfer_unit`: a ``tensor`` is sent once to each device that needs it, or once per
      consumer (``edge``: the papers' model);
    - `contention`: ``none``; ``port``: transfers that leave one device, or enter one, do not
      overlap (Moirai eq. 8); ``link``: transfers over one channel do not overlap;
    - `memory`: ``resident``: what the ops keep on a device fits it; ``peak``: weights stay,
      and each tensor lives from its production to its last use on that device.
    """

    objective: str = "latency"
    transfer_unit: TransferUnit = "tensor"
    contention: Contention = "link"
    memory: Memory = "resident"

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise OptionError(f"no objective '{self.objective}'; there are {', '.join(OBJECTIVES)}")
        if self.objective != "latency":
            raise OptionError(
                f"objective '{self.objective}' is not built yet; this version plans for latency"
            )
        for name, allowed in (
            ("transfer_unit", get_args(TransferUnit)),
            ("contention", get_args(Contention)),
            ("memory", get_args(Memory)),
        ):
            if getattr(self, name) not in allowed:
                raise OptionError(
                    f"{name.replace('_', '-')} is '{getattr(self, name)}'; "
                    f"choose {', '.join(allowed)}"
                )

    def to_document(self) -> dict[str, str]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, eq=False)
class Problem:
    """Ops with times and memory on given devices, tensors between them, routes for transfers.

    - `op_time[op, device]` seconds, `inf` where unsupported; `op_memory[op]` bytes resident
      where the op is placed; `colocation[op]` group or -1; `op_pinned[op]` device or -1;
    - `tensor_producer`, `tensor_bytes`; consumers in CSR. An *edge* is a tensor with one of its
      consumers; its number is its position in `consumers`;
    - `device_memory[device]` bytes (`inf` unlimited);
    - moving tensor t from a to b takes ``link_latency[a, b] + tensor_bytes[t] ·
      link_seconds_per_byte[a, b]``, nothing when a = b, and under contention ``link`` keeps the
      channels ``channels[channel_offsets[k]:channel_offsets[k + 1]]``, k = a·devices + b, busy.
    """

    name: str
    op_names: tuple[str, ...]
    op_types: tuple[str, ...]
    op_modules: tuple[str, ...]
    op_time: Floats
    op_memory: Floats
    is_backward: Flags
    forward_twin: Ints
    colocation: Ints
    op_pinned: Ints
    tensor_producer: Ints
    tensor_bytes: Floats
    consumer_offsets: NDArray[np.int64]
    consumers: Ints
    device_names: tuple[str, ...]
    device_kinds: tuple[str, ...]
    device_memory: Floats
    link_latency: Floats
    link_seconds_per_byte: Floats
    channel_offsets: NDArray[np.int64]
    channels: Ints
    channel_names: tuple[str, ...]
    options: Options = Options()

    def __post_init__(self) -> None:
        for column, dtype in _ARRAYS.items():
            try:
                object.__setattr__(self, column, frozen(getattr(self, column), dtype))
            except (ValueError, TypeError, OverflowError):
                raise GraphError(
                    f"problem '{self.name}': {column} is no array: its rows differ in length or "
                    "hold what is no number"
                ) from None
        _check(self)

    @property
    def op_count(self) -> int:
        return len(self.op_names)

    @property
    def device_count(self) -> int:
        return len(self.device_names)

    @property
    def tensor_count(self) -> int:
        return len(self.tensor_producer)

    @property
    def edge_count(self) -> int:
        return len(self.consumers)

    @cached_property
    def edge_tensor(self) -> Ints:
        """`[edge]` the tensor it carries."""
        counts = np.diff(self.consumer_offsets)
        return frozen(np.repeat(np.arange(self.tensor_count), counts), np.int32)

    @cached_property
    def edge_producer(self) -> Ints:
        """`[edge]` the op that produces its tensor; its consumer is ``consumers[edge]``."""
        return frozen(self.tensor_producer[self.edge_tensor], np.int32)

    @cached_property
    def op_inputs(self) -> tuple[NDArray[np.int64], Ints]:
        """CSR `(offsets[op], edges)`: the edges each op reads."""
        edges = np.argsort(self.consumers, kind="stable")
        offsets = np.searchsorted(self.consumers[edges], np.arange(self.op_count + 1))
        return frozen(offsets, np.int64), frozen(edges, np.int32)

    @cached_property
    def op_outputs(self) -> tuple[NDArray[np.int64], Ints]:
        """CSR `(offsets[op], tensors)`: the tensors each op produces."""
        tensors = np.argsort(self.tensor_producer, kind="stable")
        offsets = np.searchsorted(self.tensor_producer[tensors], np.arange(self.op_count + 1))
        return frozen(offsets, np.int64), frozen(tensors, np.int32)

    @cached_property
    def topological_order(self) -> Ints:
        return topological_order(
            self.op_count, self.edge_producer, self.consumers, names=self.op_names
        )

    # Ops that must be together form a unit: the thing a planner gives a device to. An op without
    # a colocation group is a unit of its own.

    @cached_property
    def op_unit(self) -> Ints:
        grouped = self.colocation >= 0
        key = np.where(grouped, self.colocation, -1 - np.arange(self.op_count))
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        by_first_op = np.empty(len(first), dtype=np.int32)
        by_first_op[np.argsort(first)] = np.arange(len(first))
        return frozen(by_first_op[inverse], np.int32)

    @property
    def unit_count(self) -> int:
        return int(self.op_unit.max()) + 1

    @cached_property
    def unit_memory(self) -> Floats:
        """`[unit]` bytes resident on the unit's device."""
        return frozen(np.bincount(self.op_unit, self.op_memory, self.unit_count), np.float64)

    @cached_property
    def unit_time(self) -> Floats:
        """`[unit, device]` seconds of all its ops; `inf` where one cannot be."""
        total = np.zeros((self.unit_count, self.device_count))
        np.add.at(total, self.op_unit, self.op_time)
        for op in np.flatnonzero(self.op_pinned >= 0):
            elsewhere = np.arange(self.device_count) != self.op_pinned[op]
            total[self.op_unit[op], elsewhere] = np.inf
        return frozen(total, np.float64)

    @cached_property
    def unit_pinned(self) -> Ints:
        """`[unit]` the device one of its ops is pinned to, or -1."""
        device = np.full(self.unit_count, -1)
        np.maximum.at(device, self.op_unit, self.op_pinned)
        return frozen(device, np.int32)

    @cached_property
    def port_channels(self) -> tuple[NDArray[np.int64], Ints, tuple[str, ...]]:
        """The channels of contention ``port``: one out of and one into each device."""
        count = self.device_count
        source, target = np.divmod(np.arange(count * count), count)
        used = np.where(source != target, 2, 0)
        offsets = np.concatenate([[0], np.cumsum(used)])
        pairs = np.stack([source, count + target], axis=1)[source != target]
        names = tuple(f"{way} {name}" for way in ("out of", "into") for name in self.device_names)
        return frozen(offsets, np.int64), frozen(pairs.ravel(), np.int32), names

    @property
    def active_channels(self) -> tuple[NDArray[np.int64], Ints, tuple[str, ...]]:
        """`(offsets[pair], channels, names)` under the contention option (empty for ``none``)."""
        if self.options.contention == "port":
            return self.port_channels
        if self.options.contention == "link":
            return self.channel_offsets, self.channels, self.channel_names
        return (
            frozen(np.zeros(self.device_count**2 + 1), np.int64),
            frozen([], np.int32),
            (),
        )

    def free_memory(self, unit_device: Ints) -> Floats:
        """`[device]` bytes left beside the units placed so far (`unit_device[unit]` or -1)."""
        placed = unit_device >= 0
        used = np.bincount(unit_device[placed], self.unit_memory[placed], self.device_count)
        return self.device_memory - used

    def with_pins(self, unit_device: Mapping[int, int]) -> Problem:
        """The same problem with whole units pinned to devices."""
        pinned = self.op_pinned.copy()
        for unit, device in unit_device.items():
            pinned[self.op_unit == unit] = device
        return replace(self, op_pinned=pinned)

    def with_device_memory(self, device_memory: Floats) -> Problem:
        return replace(self, device_memory=device_memory)

    def check_feasible(self) -> None:
        """Say before planning, with the arithmetic, why no plan can exist, where that is known."""
        fits = np.isfinite(self.unit_time) & (
            self.unit_memory[:, None] <= self.device_memory[None, :]
        )
        for unit in np.flatnonzero(~fits.any(axis=1)):
            ops = np.flatnonzero(self.op_unit == unit)
            who = f"op '{self.op_names[ops[0]]}'"
            if len(ops) > 1:
                who += f" with the {len(ops) - 1} ops colocated with it"
            if not np.isfinite(self.unit_time[unit]).any():
                raise InfeasibleError(f"{who} is supported by no device it may run on")
            raise InfeasibleError(
                f"{who} ({format_bytes(self.unit_memory[unit])}) fits on no device that "
                f"supports it: the largest has {format_bytes(self._largest(int(unit)))}"
            )
        held = self.unit_pinned >= 0
        pinned = np.bincount(self.unit_pinned[held], self.unit_memory[held], self.device_count)
        for device in np.flatnonzero(pinned > self.device_memory):
            raise InfeasibleError(
                f"the ops pinned to '{self.device_names[device]}' need "
                f"{format_bytes(pinned[device])}, it has {format_bytes(self.device_memory[device])}"
            )
        needed, available = float(self.op_memory.sum()), float(self.device_memory.sum())
        if needed > available:
            raise InfeasibleError(
                f"the model needs {format_bytes(needed)}, the devices have "
                f"{format_bytes(available)} in all"
            )

    def _largest(self, unit: int) -> float:
        return float(self.device_memory[np.isfinite(self.unit_time[unit])].max())

    # -- files (part of a plan file) -------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """The problem as the ``problem`` object of a ``placewright.plan/1`` file."""
        ops: dict[str, Any] = {"name": list(self.op_names)}
        if any(self.op_types):
            ops["type"] = list(self.op_types)
        if any(self.op_modules):
            ops["module"] = list(self.op_modules)
        ops["time"] = _null_for_inf(self.op_time)
        ops["memory"] = self.op_memory.tolist()
        if self.is_backward.any():
            ops["backward"] = self.is_backward.tolist()
        for key, values in (
            ("twin", self.forward_twin),
            ("colocation", self.colocation),
            ("pinned", self.op_pinned),
        ):
            if (values >= 0).any():
                ops[key] = values.tolist()
        offsets = self.consumer_offsets
        count = self.device_count
        channels = [
            self.channels[self.channel_offsets[k] : self.channel_offsets[k + 1]].tolist()
            for k in range(count * count)
        ]
        return {
            "name": self.name,
            "options": self.options.to_document(),
            "ops": ops,
            "tensors": {
                "producer": self.tensor_producer.tolist(),
                "bytes": self.tensor_bytes.tolist(),
                "consumers": [
                    self.consumers[offsets[t] : offsets[t + 1]].tolist()
                    for t in range(self.tensor_count)
                ],
            },
            "devices": {
                "name": list(self.device_names),
                "kind": list(self.device_kinds),
                "memory": _null_for_inf(self.device_memory),
            },
            "routes": {
                "latency": self.link_latency.tolist(),
                "seconds_per_byte": self.link_seconds_per_byte.tolist(),
                "channels": [channels[a * count : (a + 1) * count] for a in range(count)],
                "channel_names": list(self.channel_names),
            },
        }

    @classmethod
    def from_entry(cls, entry: Any) -> Problem:
        """The problem of a plan file, from its validated `formats.ProblemEntry`."""
        ops, tensors, devices, routes = entry.ops, entry.tensors, entry.devices, entry.routes
        n = len(ops.name)
        if any(len(row) != len(devices.name) for row in routes.channels):
            raise GraphError(f"problem '{entry.name}': routes.channels is no square matrix")
        channels = [pair for row in routes.channels for pair in row]
        return cls(
            name=entry.name,
            op_names=tuple(ops.name),
            op_types=tuple(ops.type or [""] * n),
            op_modules=tuple(ops.module or [""] * n),
            op_time=_inf_for_null(ops.time),
            op_memory=ops.memory,
            is_backward=ops.backward or np.zeros(n, dtype=bool),
            forward_twin=ops.twin or np.full(n, -1),
            colocation=ops.colocation or np.full(n, -1),
            op_pinned=ops.pinned or np.full(n, -1),
            tensor_producer=tensors.producer,
            tensor_bytes=tensors.bytes,
            consumer_offsets=_offsets(tensors.consumers),
            consumers=np.array([op for each in tensors.consumers for op in each], dtype=np.int32),
            device_names=tuple(devices.name),
            device_kinds=tuple(devices.kind),
            device_memory=_inf_for_null(devices.memory),
            link_latency=routes.latency,
            link_seconds_per_byte=routes.seconds_per_byte,
            channel_offsets=_offsets(channels),
            channels=np.array([each for pair in channels for each in pair], dtype=np.int32),
            channel_names=tuple(routes.channel_names),
            options=Options(**entry.options.model_dump()),
        )


_ARRAYS: Mapping[str, Any] = {
    "op_time": np.float64,
    "op_memory": np.float64,
    "is_backward": np.bool_,
    "forward_twin": np.int32,
    "colocation": np.int32,
    "op_pinned": np.int32,
    "tensor_producer": np.int32,
    "tensor_bytes": np.float64,
    "consumer_offsets": np.int64,
    "consumers": np.int32,
    "device_memory": np.float64,
    "link_latency": np.float64,
    "link_seconds_per_byte": np.float64,
    "channel_offsets": np.int64,
    "channels": np.int32,
}


def _null_for_inf(values: Floats) -> list[Any]:
    listed = values.tolist()
    if np.isfinite(values).all():
        return listed  # type: ignore[no-any-return]
    if values.ndim == 2:
        return [[None if v == np.inf else v for v in row] for row in listed]
    return [None if v == np.inf else v for v in listed]


def _inf_for_null(values: list[Any]) -> Any:  # lists in lists; `frozen` makes the array
    return [
        _inf_for_null(each) if isinstance(each, list) else np.inf if each is None else each
        for each in values
    ]


def _offsets(lists: list[list[int]]) -> NDArray[np.int64]:
    offsets = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in lists], out=offsets[1:])
    return offsets


def _check(problem: Problem) -> None:
    """GraphError if columns disagree or a figure is impossible."""
    where = f"problem '{problem.name}'"
    n, d, t = problem.op_count, problem.device_count, problem.tensor_count
    if not n or not d:
        raise GraphError(f"{where} has no {'devices' if n else 'ops'}")
    expected = {
        "op_types": (n,), "op_modules": (n,), "op_time": (n, d), "op_memory": (n,),
        "is_backward": (n,), "forward_twin": (n,), "colocation": (n,), "op_pinned": (n,),
        "tensor_bytes": (t,), "consumer_offsets": (t + 1,), "device_kinds": (d,),
        "device_memory": (d,), "link_latency": (d, d), "link_seconds_per_byte": (d, d),
        "channel_offsets": (d * d + 1,),
    }  # fmt: skip
    for column, shape in expected.items():
        if np.shape(getattr(problem, column)) != shape:
            raise GraphError(
                f"{where}: {column} has shape {np.shape(getattr(problem, column))}, "
                f"expected {shape}"
            )
    for column in ("op_time", "device_memory"):
        if not (getattr(problem, column) >= 0).all():
            raise GraphError(f"{where}: {column} has an entry that is negative or not a number")
    for column in ("op_memory", "tensor_bytes", "link_latency", "link_seconds_per_byte"):
        values = getattr(problem, column)
        if not (np.isfinite(values) & (values >= 0)).all():
            raise GraphError(f"{where}: {column} has an entry that is not finite and ≥ 0")
    for column, count in (
        ("tensor_producer", n),
        ("consumers", n),
        ("channels", len(problem.channel_names)),
    ):
        values = getattr(problem, column)
        if values.size and (values.min() < 0 or values.max() >= count):
            raise GraphError(f"{where}: {column} has an entry outside 0 … {count - 1}")
    for column, count in (("op_pinned", d), ("forward_twin", n)):
        if getattr(problem, column).max() >= count:
            raise GraphError(f"{where}: {column} has an entry above {count - 1}")
    for column, length in (
        ("consumer_offsets", problem.edge_count),
        ("channel_offsets", len(problem.channels)),
    ):
        offsets = getattr(problem, column)
        if offsets[0] != 0 or offsets[-1] != length or (np.diff(offsets) < 0).any():
            raise GraphError(f"{where}: {column} do not fit")
    problem.topological_order  # noqa: B018  (raises on a cycle)
