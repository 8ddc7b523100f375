"""A problem in a file: the ``problem`` object of a ``placewright.plan/1`` file.

The times of devices that are alike are written once, in one column, where that makes the tables at
most 1 / `WORTH` as wide; how the routes of many devices are written is in `route_files`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placewright.cluster import Run
from placewright.errors import GraphError
from placewright.formats.routes import (
    WORTH,
    Numbers,
    bits,
    joined,
    lists,
    offsets_of,
    read_routes,
    refuse_huge,
    routes_document,
)
from placewright.formats.runs import read_run, run_document
from placewright.graph import Floats, given_up
from placewright.options import Options
from placewright.problem import Problem

if TYPE_CHECKING:
    from placewright.formats.schema import ProblemDevices, ProblemEntry

ROWS_AT_ONCE = 256


def problem_document(problem: Problem) -> dict[str, Any]:
    """The problem as plain lists; columns that say nothing are left out."""
    column, first = _time_columns(problem)
    document: dict[str, Any] = {
        "name": problem.name,
        "options": problem.options.to_document(),
        "ops": _ops(problem, first),
        "tensors": _tensors(problem),
        "devices": _devices(problem, column),
        "routes": _routes(problem),
    }
    if problem.input_samples is not None:
        document["input_samples"] = problem.input_samples
    if len(problem.batch_sizes):
        document["batches"] = {
            "sizes": problem.batch_sizes.tolist(),
            "time": _null_for_inf(problem.batch_time[:, first]),
        }
    return document


def read_problem(entry: ProblemEntry) -> Problem:
    """The problem of a plan file; GraphError where its columns do not fit together."""
    where = f"problem '{entry.name}'"
    ops, tensors, devices, routes = entry.ops, entry.tensors, entry.devices, entry.routes
    n = len(ops.name)
    batches = entry.batches
    _refuse_twice("ops", ops.name, where)
    _refuse_twice("devices", devices.name, where)

    def given(what: str, values: list[Any] | None, otherwise: Any) -> Any:
        """A column, or what stands for one that is left out; an empty one is neither."""
        if values is None:
            return otherwise
        if _is_empty(values):
            raise GraphError(f"{where}: {what} is empty; fill it, or leave it out")
        return values

    return Problem(
        name=entry.name,
        op_names=tuple(ops.name),
        op_types=tuple(given("ops.type", ops.type, [""] * n)),
        op_modules=tuple(given("ops.module", ops.module, [""] * n)),
        op_time=_per_device(ops.time, "op_time", entry, where),
        op_memory=np.array(ops.memory),
        is_backward=np.array(given("ops.backward", ops.backward, np.zeros(n, dtype=bool))),
        forward_twin=np.array(given("ops.twin", ops.twin, np.full(n, -1))),
        colocation=np.array(given("ops.colocation", ops.colocation, np.full(n, -1))),
        op_pinned=np.array(given("ops.pinned", ops.pinned, np.full(n, -1))),
        op_cost_source=_per_device(
            given("ops.cost_source", ops.cost_source, []), "op_cost_source", entry, where
        ),
        op_cost_spread=_per_device(
            given("ops.cost_spread", ops.cost_spread, []), "op_cost_spread", entry, where
        ),
        op_sync_bytes=np.array(given("ops.sync_bytes", ops.sync_bytes, [])),
        op_cache=np.array(given("ops.cache", ops.cache, [])),
        op_copied=np.array(given("ops.copied", ops.copied, [])),
        op_stash=np.array(given("ops.stash", ops.stash, [])),
        tensor_producer=np.array(tensors.producer),
        tensor_bytes=np.array(tensors.bytes),
        consumer_offsets=offsets_of(tensors.consumers),
        consumers=joined(tensors.consumers),
        device_names=tuple(devices.name),
        device_kinds=tuple(devices.kind),
        device_memory=_inf_for_null(devices.memory, "device_memory", where),
        is_cpu=np.array(given("devices.cpu", devices.cpu, [])),
        **read_routes(routes, len(devices.name), where),
        channel_names=tuple(routes.channel_names),
        staging=routes.staging,
        host_latency=given("routes.host_latency", routes.host_latency, []),
        host_seconds_per_byte=given(
            "routes.host_seconds_per_byte", routes.host_seconds_per_byte, []
        ),
        batch_sizes=np.array(batches.sizes if batches else []),
        batch_time=_per_device(
            given("batches.time", batches.time, []) if batches else [], "batch_time", entry, where
        ),
        options=Options(**entry.options.model_dump(exclude_none=True)),
        input_samples=entry.input_samples,
        device_runs=_runs(devices, where),
        device_hosts=tuple(given("devices.host", devices.host, ())),
    )


def _refuse_twice(what: str, names: list[str], where: str) -> None:
    """Ops and devices go by their names where a plan is shown, exported or planned again."""
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise GraphError(f"{where}: two {what} are named '{twice}'; names must be unique")


def _runs(devices: ProblemDevices, where: str) -> tuple[Run | None, ...]:
    if devices.run is None:
        return ()
    if len(devices.run) != len(devices.name):
        raise GraphError(
            f"{where}: devices.run has {len(devices.run)} entries for {len(devices.name)} "
            "devices; give one per device"
        )
    return tuple(map(read_run, devices.run, devices.name))


def _is_empty(values: Any) -> bool:
    """Whether lists, and lists in lists, hold nothing at all."""
    return isinstance(values, list) and all(map(_is_empty, values))


def _ops(problem: Problem, first: Numbers) -> dict[str, Any]:
    ops: dict[str, Any] = {"name": list(problem.op_names)}
    if any(problem.op_types):
        ops["type"] = list(problem.op_types)
    if any(problem.op_modules):
        ops["module"] = list(problem.op_modules)
    ops["time"] = _null_for_inf(problem.op_time[:, first])
    ops["memory"] = problem.op_memory.tolist()
    if problem.is_backward.any():
        ops["backward"] = problem.is_backward.tolist()
    for key, values in (
        ("twin", problem.forward_twin),
        ("colocation", problem.colocation),
        ("pinned", problem.op_pinned),
    ):
        if (values >= 0).any():
            ops[key] = values.tolist()
    if problem.op_cost_source.size:
        ops["cost_source"] = problem.op_cost_source[:, first].tolist()
    if problem.op_cost_spread.size:
        ops["cost_spread"] = problem.op_cost_spread[:, first].tolist()
    if problem.op_sync_bytes.any():
        ops["sync_bytes"] = problem.op_sync_bytes.tolist()
    if problem.op_cache.any():
        ops["cache"] = problem.op_cache.tolist()
    if problem.op_copied.any():
        ops["copied"] = problem.op_copied.tolist()
    if problem.op_stash.any():
        ops["stash"] = problem.op_stash.tolist()
    return ops


def _tensors(problem: Problem) -> dict[str, Any]:
    return {
        "producer": problem.tensor_producer.tolist(),
        "bytes": problem.tensor_bytes.tolist(),
        "consumers": lists(problem.consumer_offsets, problem.consumers),
    }


def _devices(problem: Problem, column: Numbers) -> dict[str, Any]:
    devices: dict[str, Any] = {
        "name": list(problem.device_names),
        "kind": list(problem.device_kinds),
        "memory": _null_for_inf(problem.device_memory),
    }
    if problem.is_cpu.any():
        devices["cpu"] = problem.is_cpu.tolist()
    if (column != np.arange(problem.device_count)).any():
        devices["time_column"] = column.tolist()
    if problem.device_runs:
        devices["run"] = [None if run is None else run_document(run) for run in problem.device_runs]
    if problem.device_hosts:
        devices["host"] = list(problem.device_hosts)
    return devices


# -- times by column -----------------------------------------------------------------------------


def _time_columns(problem: Problem) -> tuple[Numbers, Numbers]:
    """`(column[device], device[column])`: whose times are written, the first of its kind's."""
    count = problem.device_count
    first = np.zeros(count, dtype=np.int64)  # [device] the first device with the same times
    batches = problem.batch_time.swapaxes(1, 2).reshape(-1, count)
    sources = problem.op_cost_source.reshape(-1, count)
    spreads = bits(problem.op_cost_spread.reshape(-1, count))
    for table in (bits(problem.op_time), bits(batches), sources, spreads):
        for start in range(0, len(table), ROWS_AT_ONCE):
            first = _refined(first, table[start : start + ROWS_AT_ONCE])
    written, column = np.unique(first, return_inverse=True)
    if len(written) * WORTH > count:
        return np.arange(count), np.arange(count)
    return column, written


def _refined(first: Numbers, rows: NDArray[Any]) -> Numbers:
    """`first` where devices that differ in one of ``rows[row, device]`` are told apart."""
    if (rows == rows[:, first]).all():
        return first
    seen: dict[tuple[int, bytes], int] = {}
    columns = np.ascontiguousarray(rows.T)
    same = enumerate(zip(first.tolist(), columns, strict=True))
    return np.array([seen.setdefault((old, row.tobytes()), device) for device, (old, row) in same])


def _per_device(rows: list[Any], what: str, entry: ProblemEntry, where: str) -> Any:
    """The table of a file with a column for every device."""
    column = entry.devices.time_column
    if column is None or not rows:
        return _inf_for_null(rows, what, where)
    count, table = len(entry.devices.name), _inf_for_null(rows, what, where)
    if len(column) != count:
        raise GraphError(
            f"{where}: devices.time_column has {len(column)} entries for {count} devices; "
            "give one per device"
        )
    if table.ndim < 2:
        raise GraphError(f"{where}: {what} is no table; give a list of times per op")
    if max(column, default=0) >= table.shape[1]:
        raise GraphError(
            f"{where}: devices.time_column names column {max(column)}, but {what} has "
            f"{table.shape[1]}, numbered from 0"
        )
    refuse_huge(table.size // max(table.shape[1], 1) * count, where)
    return given_up(np.take(table, np.array(column), axis=1))


# -- routes --------------------------------------------------------------------------------------


def _routes(problem: Problem) -> dict[str, Any]:
    routes = routes_document(problem) | {"channel_names": list(problem.channel_names)}
    if problem.staging != "direct":
        routes["staging"] = problem.staging
        routes["host_latency"] = problem.host_latency.tolist()
        routes["host_seconds_per_byte"] = problem.host_seconds_per_byte.tolist()
    return routes


# -- null for infinity ---------------------------------------------------------------------------


def _null_for_inf(values: Floats) -> Any:  # lists in lists
    if np.isfinite(values).all():
        return values.tolist()
    objects = values.astype(object)
    objects[np.isinf(values)] = None
    return objects.tolist()


def _inf_for_null(values: list[Any], what: str, where: str) -> Floats:
    try:
        array = np.array(values, dtype=np.float64)  # null becomes NaN, which no file has
    except (ValueError, TypeError):
        raise GraphError(
            f"{where}: {what} is no array: its rows differ in length or hold what is no number"
        ) from None
    array[np.isnan(array)] = np.inf
    return given_up(array)
