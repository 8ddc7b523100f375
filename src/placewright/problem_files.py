"""A problem in a file: the ``problem`` object of a ``placewright.plan/1`` file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placewright.errors import GraphError
from placewright.graph import Floats
from placewright.options import Options
from placewright.problem import Problem

if TYPE_CHECKING:
    from placewright.formats import ProblemEntry


def problem_document(problem: Problem) -> dict[str, Any]:
    """The problem as plain lists; columns that say nothing are left out."""
    document = {
        "name": problem.name,
        "options": problem.options.to_document(),
        "ops": _ops(problem),
        "tensors": _tensors(problem),
        "devices": _devices(problem),
        "routes": _routes(problem),
    }
    if len(problem.batch_sizes):
        document["batches"] = {
            "sizes": problem.batch_sizes.tolist(),
            "time": _null_for_inf(problem.batch_time),
        }
    return document


def read_problem(entry: ProblemEntry) -> Problem:
    """The problem of a plan file; GraphError where its columns do not fit together."""
    ops, tensors, devices, routes = entry.ops, entry.tensors, entry.devices, entry.routes
    n = len(ops.name)
    if any(len(row) != len(devices.name) for row in routes.channels):
        raise GraphError(f"problem '{entry.name}': routes.channels is no square matrix")
    channels = [pair for row in routes.channels for pair in row]
    batches = entry.batches
    return Problem(
        name=entry.name,
        op_names=tuple(ops.name),
        op_types=tuple(ops.type or [""] * n),
        op_modules=tuple(ops.module or [""] * n),
        op_time=_inf_for_null(ops.time),
        op_memory=np.array(ops.memory),
        is_backward=np.array(ops.backward or np.zeros(n, dtype=bool)),
        forward_twin=np.array(ops.twin or np.full(n, -1)),
        colocation=np.array(ops.colocation or np.full(n, -1)),
        op_pinned=np.array(ops.pinned or np.full(n, -1)),
        op_sync_bytes=np.array(ops.sync_bytes or []),
        tensor_producer=np.array(tensors.producer),
        tensor_bytes=np.array(tensors.bytes),
        consumer_offsets=_offsets(tensors.consumers),
        consumers=np.array([op for each in tensors.consumers for op in each], dtype=np.int32),
        device_names=tuple(devices.name),
        device_kinds=tuple(devices.kind),
        device_memory=_inf_for_null(devices.memory),
        is_cpu=np.array(devices.cpu or []),
        link_latency=routes.latency,  # type: ignore[arg-type]  # `Problem` says what is wrong
        link_seconds_per_byte=routes.seconds_per_byte,  # type: ignore[arg-type]
        channel_offsets=_offsets(channels),
        channels=np.array([each for pair in channels for each in pair], dtype=np.int32),
        channel_names=tuple(routes.channel_names),
        staging=routes.staging,
        host_latency=routes.host_latency or [],  # type: ignore[arg-type]
        host_seconds_per_byte=routes.host_seconds_per_byte or [],  # type: ignore[arg-type]
        batch_sizes=np.array(batches.sizes if batches else []),
        batch_time=_inf_for_null(batches.time if batches else []),
        options=Options(**entry.options.model_dump(exclude_none=True)),
    )


def _ops(problem: Problem) -> dict[str, Any]:
    ops: dict[str, Any] = {"name": list(problem.op_names)}
    if any(problem.op_types):
        ops["type"] = list(problem.op_types)
    if any(problem.op_modules):
        ops["module"] = list(problem.op_modules)
    ops["time"] = _null_for_inf(problem.op_time)
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
    if problem.op_sync_bytes.any():
        ops["sync_bytes"] = problem.op_sync_bytes.tolist()
    return ops


def _tensors(problem: Problem) -> dict[str, Any]:
    offsets = problem.consumer_offsets
    return {
        "producer": problem.tensor_producer.tolist(),
        "bytes": problem.tensor_bytes.tolist(),
        "consumers": [
            problem.consumers[offsets[t] : offsets[t + 1]].tolist()
            for t in range(problem.tensor_count)
        ],
    }


def _devices(problem: Problem) -> dict[str, Any]:
    devices: dict[str, Any] = {
        "name": list(problem.device_names),
        "kind": list(problem.device_kinds),
        "memory": _null_for_inf(problem.device_memory),
    }
    if problem.is_cpu.any():
        devices["cpu"] = problem.is_cpu.tolist()
    return devices


def _routes(problem: Problem) -> dict[str, Any]:
    count, offsets = problem.device_count, problem.channel_offsets
    channels = [
        problem.channels[offsets[pair] : offsets[pair + 1]].tolist() for pair in range(count**2)
    ]
    routes = {
        "latency": problem.link_latency.tolist(),
        "seconds_per_byte": problem.link_seconds_per_byte.tolist(),
        "channels": [channels[a * count : (a + 1) * count] for a in range(count)],
        "channel_names": list(problem.channel_names),
    }
    if problem.staging != "direct":
        routes["staging"] = problem.staging
        routes["host_latency"] = problem.host_latency.tolist()
        routes["host_seconds_per_byte"] = problem.host_seconds_per_byte.tolist()
    return routes


def _null_for_inf(values: Floats) -> Any:  # lists in lists
    if np.isfinite(values).all():
        return values.tolist()
    return _replaced(values.tolist(), np.inf, None)


def _inf_for_null(values: list[Any]) -> Any:  # lists in lists; `Problem` makes the array
    return _replaced(values, None, np.inf)


def _replaced(values: Any, old: float | None, new: float | None) -> Any:
    if isinstance(values, list):
        return [_replaced(each, old, new) for each in values]
    return new if values == old else values


def _offsets(lists: list[list[int]]) -> NDArray[np.int64]:
    offsets = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in lists], out=offsets[1:])
    return offsets
