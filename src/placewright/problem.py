"""`Problem`: what a planner sees. Arrays only; no framework, no file, no device name matters.

Seconds and bytes. Index order is stated by each name: ``op_time[op, device]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from placewright.cluster import Run, used_twice
from placewright.errors import GraphError, OptionError, ProvedInfeasibleError
from placewright.graph import (
    Flags,
    Floats,
    Ints,
    ReadOnly,
    Wide,
    check_consumers,
    check_total,
    checked_samples,
    frozen,
    topological_order,
)
from placewright.options import Options
from placewright.units import format_bytes

Staging = Literal["direct", "host"]
T = TypeVar("T")

DEFAULT_OPTIONS = Options()
# Relative: more than sums of bytes or seconds are rounded by, and sums of very many, with prices
# in them. Values that differ by less than the second are one.
ROUNDING, LONG_ROUNDING = 1e-12, 1e-9


def _nothing() -> Any:
    """The default of a column that most problems do not have: `Problem` puts zeros there."""
    return np.zeros(0)


COST_SOURCES = ("datasheet", "predicted", "regressed", "measured", "given")
"""Where a time comes from: figures of the device's makers, a fit to other devices' measurements,
one to its own (of other ops or smaller batches), the device itself, or the file that the graph
came in."""
DATASHEET, PREDICTED, REGRESSED, MEASURED, GIVEN = range(len(COST_SOURCES))
COST_SPREADS = (0.75, 0.3, 0.2, 0.1, 0.0)
"""How far times of each source are off where nobody says: the standard deviation of the log.

That of datasheets is what ops of half a millisecond and more are off on the CPU that
`benchmarks/cost_accuracy.py` was run on; what a file gives counts as exact.
"""


@dataclass(frozen=True, eq=False)
class Problem(ReadOnly):
    """Ops with times and memory on given devices, tensors between them, routes for transfers.

    - `op_time[op, device]` seconds, `inf` where unsupported; `op_memory[op]` bytes resident
      where the op is placed; `colocation[op]` group or -1; `op_pinned[op]` device or -1;
    - `tensor_producer`, `tensor_bytes`; consumers in CSR. An *edge* is a tensor with one of its
      consumers; its number is its position in `consumers`;
    - `device_memory[device]` bytes (`inf` unlimited);
    - moving tensor t from a to b takes ``link_latency[a, b] + tensor_bytes[t] ·
      link_seconds_per_byte[a, b]``, nothing when a = b, and under contention ``link`` keeps the
      channels ``channels[channel_offsets[k]:channel_offsets[k + 1]]``, k = a·devices + b, busy;
    - `is_cpu[device]`; every other device is an accelerator;
    - `staging`: a tensor goes to another device ``direct``, or through ``host`` memory: written
      there once in ``host_latency[0, a] + bytes · host_seconds_per_byte[0, a]`` and read by b
      with row 1 of both (objectives ``throughput`` and ``invocation-latency``);
    - `op_cache[op]` bytes of `op_memory` that are a KV cache, of all `input_samples` sequences;
      empty where there is none;
    - `op_copied[op]` bytes of `op_memory` that are copies of weights which other ops hold too;
      empty where there are none;
    - `op_stash[op]` bytes of `op_memory` that each micro-batch in flight takes again: activations
      that training keeps for the backward pass; empty where nobody says;
    - `op_sync_bytes[op]` weights that replicas of the op keep equal, per input (training);
    - `batch_sizes[size]`, rising, and `batch_time[op, device, size]` seconds, `inf` where the
      device takes no such batch (objective ``batch-throughput``);
    - `input_samples`: how many samples one input has, None where that is not known;
    - `op_cost_source[op, device]`: where the time comes from, a number of `COST_SOURCES`; empty
      where nobody says; `op_cost_spread[op, device]`: how far it may be off, the standard deviation
      of log(true / said); empty where that follows from the source (`COST_SPREADS`);
    - `device_runs[device]`: what the device is on the machine at hand, or None; empty where no
      device says;
    - `device_hosts[device]`: the machine it is part of, as its cluster names it; empty where that
      is one machine. No planner looks at these four, nor at `op_cache`, `op_copied` and `op_stash`.
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
    consumer_offsets: Wide
    consumers: Ints
    device_names: tuple[str, ...]
    device_kinds: tuple[str, ...]
    device_memory: Floats
    link_latency: Floats
    link_seconds_per_byte: Floats
    channel_offsets: Wide
    channels: Ints
    channel_names: tuple[str, ...]
    options: Options = DEFAULT_OPTIONS
    is_cpu: Flags = field(default_factory=_nothing)
    staging: Staging = "direct"
    host_latency: Floats = field(default_factory=_nothing)
    host_seconds_per_byte: Floats = field(default_factory=_nothing)
    op_sync_bytes: Floats = field(default_factory=_nothing)
    batch_sizes: Ints = field(default_factory=_nothing)
    batch_time: Floats = field(default_factory=_nothing)
    input_samples: int | None = None
    op_cost_source: NDArray[np.int8] = field(default_factory=_nothing)
    op_cost_spread: Floats = field(default_factory=_nothing)
    device_runs: tuple[Run | None, ...] = ()
    op_cache: Floats = field(default_factory=_nothing)
    op_copied: Floats = field(default_factory=_nothing)
    op_stash: Floats = field(default_factory=_nothing)
    device_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        missing = self._optional_shapes()
        for column, dtype in _ARRAYS.items():
            try:
                values = getattr(self, column)
                if column in missing and np.size(values) == 0:
                    values = np.zeros(missing[column])
                object.__setattr__(self, column, frozen(values, dtype))
            except (ValueError, TypeError, OverflowError):
                raise GraphError(
                    f"problem '{self.name}': {column} is no array: its rows differ in length or "
                    "hold what is no number"
                ) from None
        samples = checked_samples(self.input_samples, f"problem '{self.name}'")
        object.__setattr__(self, "input_samples", samples)
        if not any(self.device_runs):
            object.__setattr__(self, "device_runs", ())
        if len(set(self.device_hosts)) < 2:
            object.__setattr__(self, "device_hosts", ())
        _check(self)

    def _optional_shapes(self) -> dict[str, tuple[int, ...]]:
        n, d = len(self.op_names), len(self.device_names)
        return {
            "is_cpu": (d,),
            "host_latency": (2, d),
            "host_seconds_per_byte": (2, d),
            "op_sync_bytes": (n,),
            "op_cache": (n,) if np.size(self.op_cache) else (0,),
            "op_copied": (n,) if np.size(self.op_copied) else (0,),
            "op_stash": (n,) if np.size(self.op_stash) else (0,),
            "batch_sizes": (np.size(self.batch_sizes),),
            "batch_time": (n, d, np.size(self.batch_sizes)),
            "op_cost_source": (n, d) if np.size(self.op_cost_source) else (0,),
            "op_cost_spread": (n, d) if np.size(self.op_cost_spread) else (0,),
        }

    def __getstate__(self) -> dict[str, Any]:
        """Without what `once_per_problem` keeps: another process makes that for itself."""
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    @cached_property
    def _kept(self) -> dict[Callable[..., Any], Any]:
        """What functions made of the problem, by function (see `once_per_problem`)."""
        return {}

    def __repr__(self) -> str:
        size = f"{self.op_count} ops, {self.device_count} devices"
        return f"<Problem {self.name}: {size}, {self.options.objective}>"

    @property
    def op_count(self) -> int:
        return len(self.op_names)

    @property
    def device_count(self) -> int:
        return len(self.device_names)

    def device_run(self, device: int) -> Run | None:
        return self.device_runs[device] if self.device_runs else None

    def device_host(self, device: int) -> str:
        """The machine it is part of, as its `run` or its cluster says; empty if neither does."""
        run = self.device_run(device)
        if run is not None and run.host:
            return run.host
        return self.device_hosts[device] if self.device_hosts else ""

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
    def op_inputs(self) -> tuple[Wide, Ints]:
        """CSR `(offsets[op], edges)`: the edges each op reads."""
        edges = np.argsort(self.consumers, kind="stable")
        offsets = np.searchsorted(self.consumers[edges], np.arange(self.op_count + 1))
        return frozen(offsets, np.int64), frozen(edges, np.int32)

    @cached_property
    def op_outputs(self) -> tuple[Wide, Ints]:
        """CSR `(offsets[op], tensors)`: the tensors each op produces."""
        tensors = np.argsort(self.tensor_producer, kind="stable")
        offsets = np.searchsorted(self.tensor_producer[tensors], np.arange(self.op_count + 1))
        return frozen(offsets, np.int64), frozen(tensors, np.int32)

    @cached_property
    def topological_order(self) -> Ints:
        return topological_order(
            self.op_count, self.edge_producer, self.consumers, names=self.op_names
        )

    @cached_property
    def topological_rank(self) -> Wide:
        """`[op]` its place in the topological order."""
        rank = np.empty(self.op_count, dtype=np.int64)
        rank[self.topological_order] = np.arange(self.op_count)
        return frozen(rank, np.int64)

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

    def unit_device(self, device: Ints) -> Ints:
        """`[unit]` its device, of ``device[op]`` the same for all ops of a unit."""
        found = np.empty(self.unit_count, dtype=np.int32)
        found[self.op_unit] = device
        return found

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
    def unit_allowed(self) -> Flags:
        """`[unit, device]` whether the unit can be there: supported, and room for it alone."""
        fits = self.unit_memory[:, None] <= self.device_memory[None, :] * (1 + ROUNDING)
        return frozen(np.isfinite(self.unit_time) & fits, np.bool_)

    @cached_property
    def unit_pinned(self) -> Ints:
        """`[unit]` the device one of its ops is pinned to, or -1."""
        device = np.full(self.unit_count, -1)
        np.maximum.at(device, self.op_unit, self.op_pinned)
        return frozen(device, np.int32)

    @cached_property
    def port_channels(self) -> tuple[Wide, Ints, tuple[str, ...]]:
        """The channels of contention ``port``: one out of and one into each device."""
        count = self.device_count
        source, target = np.divmod(np.arange(count * count), count)
        used = np.where(source != target, 2, 0)
        offsets = np.concatenate([[0], np.cumsum(used)])
        pairs = np.stack([source, count + target], axis=1)[source != target]
        names = tuple(f"{way} {name}" for way in ("out of", "into") for name in self.device_names)
        return frozen(offsets, np.int64), frozen(pairs.ravel(), np.int32), names

    @property
    def active_channels(self) -> tuple[Wide, Ints, tuple[str, ...]]:
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

    @property
    def may_overflow(self) -> bool:
        """Whether some device could not hold all ops."""
        return bool((self.op_memory.sum() > self.device_memory).any())

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
        self._check_pins()
        for unit in np.flatnonzero(~self.unit_allowed.any(axis=1)):
            ops = np.flatnonzero(self.op_unit == unit)
            who = f"op '{self.op_names[ops[0]]}'"
            if len(ops) > 1:
                who += f" with the {len(ops) - 1} ops colocated with it"
            if not np.isfinite(self.unit_time[unit]).any():
                raise ProvedInfeasibleError(f"{who} is supported by no device it may run on")
            raise ProvedInfeasibleError(
                f"{who} ({format_bytes(self.unit_memory[unit])}) fits on no device that "
                f"supports it: the largest has {format_bytes(self._largest(int(unit)))}"
            )
        held = self.unit_pinned >= 0
        pinned = np.bincount(self.unit_pinned[held], self.unit_memory[held], self.device_count)
        for device in np.flatnonzero(pinned > self.device_memory * (1 + ROUNDING)):
            raise ProvedInfeasibleError(
                f"the ops pinned to '{self.device_names[device]}' need "
                f"{format_bytes(pinned[device])}, it has {format_bytes(self.device_memory[device])}"
            )
        usable = np.isfinite(self.unit_time).any(axis=0)
        needed, available = float(self.op_memory.sum()), float(self.device_memory[usable].sum())
        if needed > available * (1 + ROUNDING):
            raise ProvedInfeasibleError(
                f"the model needs {format_bytes(needed)}, the devices"
                f"{'' if usable.all() else ' that may be used'} have {format_bytes(available)} in "
                "all"
            )

    def _check_pins(self) -> None:
        """OptionError for ops that must be together and are pinned apart."""
        pinned = np.flatnonzero(self.op_pinned >= 0)
        for op in pinned:
            one, other = int(self.op_pinned[op]), int(self.unit_pinned[self.op_unit[op]])
            if one != other:
                same = pinned[self.op_unit[pinned] == self.op_unit[op]]
                rival = next(each for each in same if self.op_pinned[each] == other)
                raise OptionError(
                    f"op '{self.op_names[op]}' is pinned to '{self.device_names[one]}' and "
                    f"'{self.op_names[rival]}' to '{self.device_names[other]}', and the two must "
                    "be on one device; pin them alike"
                )

    def _largest(self, unit: int) -> float:
        return float(self.device_memory[np.isfinite(self.unit_time[unit])].max())


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
    "is_cpu": np.bool_,
    "host_latency": np.float64,
    "host_seconds_per_byte": np.float64,
    "op_sync_bytes": np.float64,
    "op_cache": np.float64,
    "op_copied": np.float64,
    "op_stash": np.float64,
    "batch_sizes": np.int32,
    "batch_time": np.float64,
    "op_cost_source": np.int8,
    "op_cost_spread": np.float64,
}


def once_per_problem(function: Callable[[Problem], T]) -> Callable[[Problem], T]:
    """`function` with its result kept for as long as the problem is.

    For what several modules ask of a problem that knows nothing of them.
    """

    @wraps(function)
    def kept(problem: Problem) -> T:
        results = problem._kept
        if function not in results:
            results[function] = function(problem)
        return results[function]  # type: ignore[no-any-return]

    return kept


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
        "channel_offsets": (d * d + 1,), **problem._optional_shapes(),
    }  # fmt: skip
    for column, shape in expected.items():
        if np.shape(getattr(problem, column)) != shape:
            raise GraphError(
                f"{where}: {column} has shape {np.shape(getattr(problem, column))}, "
                f"expected {shape}"
            )
    _check_amounts(problem, where)
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
    check_consumers(problem.consumer_offsets, problem.consumers, n, where)
    if problem.staging not in get_args(Staging):
        raise GraphError(f"{where}: staging is '{problem.staging}'; choose direct or host")
    for column in ("device_runs", "device_hosts"):
        if (given := len(getattr(problem, column))) not in (0, d):
            raise GraphError(
                f"{where}: {column} has {given} entries for {d} devices; give one per device"
            )
    runs = problem.device_runs
    if runs and (shared := used_twice(problem.device_names, runs)):
        raise GraphError(f"{where}: {shared}")
    _check_batch(problem, where)
    sources = problem.op_cost_source
    if sources.size and not (sources.min() >= 0 and sources.max() < len(COST_SOURCES)):
        raise GraphError(
            f"{where}: op_cost_source has an entry outside 0 … {len(COST_SOURCES) - 1}"
        )
    spread = problem.op_cost_spread
    if spread.size and not (spread.min() >= 0 and np.isfinite(spread).all()):
        raise GraphError(f"{where}: op_cost_spread has an entry below 0 or without an end")
    problem.topological_order  # noqa: B018  (raises on a cycle)


def _check_amounts(problem: Problem, where: str) -> None:
    """Of times, bytes and the like."""
    for column in ("op_time", "device_memory", "batch_time"):
        if not (getattr(problem, column) >= 0).all():
            raise GraphError(f"{where}: {column} has an entry that is negative or not a number")
    for column in (
        "op_memory", "tensor_bytes", "link_latency", "link_seconds_per_byte",
        "host_latency", "host_seconds_per_byte", "op_sync_bytes", "op_cache", "op_copied",
        "op_stash",
    ):  # fmt: skip
        values = getattr(problem, column)
        if not (np.isfinite(values) & (values >= 0)).all():
            raise GraphError(f"{where}: {column} has an entry that is not finite and ≥ 0")
        check_total(values, column, where)
    if not np.isfinite(_most_seconds(problem)):
        raise GraphError(
            f"{where}: the times of its ops and transfers add up to more than a number can hold; "
            "check the units of times, bytes and bandwidths"
        )


def _most_seconds(problem: Problem) -> float:
    """More than any schedule takes in which something always runs."""
    with np.errstate(over="ignore"):
        times = problem.op_time.max(axis=1, initial=0.0, where=np.isfinite(problem.op_time))
        pairs = problem.tensor_count * problem.device_count**2
        slowest = problem.link_seconds_per_byte.max(initial=0.0)
        sent = problem.tensor_bytes.max(initial=0.0) * slowest
        return float(times.sum() + pairs * (problem.link_latency.max() + sent))


def _check_batch(problem: Problem, where: str) -> None:
    sizes = problem.batch_sizes
    if problem.options.objective == "batch-throughput" and not len(sizes):
        raise GraphError(f"{where}: objective batch-throughput needs batch_sizes and batch_time")
    if (np.diff(sizes, prepend=0) <= 0).any():
        raise GraphError(f"{where}: batch_sizes must rise, from 1 or more")
