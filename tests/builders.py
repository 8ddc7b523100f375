"""Small problems made by hand, which several tests share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from placewright.graph import GraphBuilder
from placewright.options import Options
from placewright.problem import Problem
from tests.strategies import graph_columns

A, B, C, D, E = range(5)
X, Y, Z = range(3)
ACC0, ACC1, CPU = 0, 1, 2


def plain(ops: int, devices: int) -> dict[str, Any]:
    """The columns of a problem in which no op and no device is anything special."""
    return {
        "name": "by hand",
        "op_names": tuple(f"o{k}" for k in range(ops)),
        "op_types": ("op",) * ops,
        "op_modules": ("",) * ops,
        "op_memory": [1.0] * ops,
        "is_backward": [False] * ops,
        "forward_twin": [-1] * ops,
        "colocation": [-1] * ops,
        "op_pinned": [-1] * ops,
        "device_names": tuple(f"device{k}" for k in range(devices)),
        "device_kinds": ("kind",) * devices,
        "device_memory": [np.inf] * devices,
        "channel_offsets": np.zeros(devices**2 + 1),
        "channels": [],
        "channel_names": (),
    }


def chain(
    kept: list[float], capacity: list[float], tensor_bytes: float = 0.0, **options: Any
) -> Problem:
    """Ops o0 → o1 → … that take 1 s on device x and 2 s on y, and keep `kept` bytes."""
    n = len(kept)
    columns = {
        "name": "chain",
        "op_time": np.tile([1.0, 2.0], (n, 1)),
        "op_memory": np.array(kept),
        "tensor_producer": np.arange(n - 1),
        "tensor_bytes": np.full(n - 1, tensor_bytes),
        "consumer_offsets": np.arange(n),
        "consumers": np.arange(1, n),
        "device_names": ("x", "y"),
        "device_kinds": ("fast", "slow"),
        "device_memory": np.array(capacity),
        "link_latency": np.array([[0.0, 0.5], [0.5, 0.0]]),
        "link_seconds_per_byte": np.array([[0.0, 0.1], [0.1, 0.0]]),
        "channel_offsets": np.array([0, 0, 1, 2, 2]),
        "channels": np.array([0, 1]),
        "channel_names": ("x → y", "y → x"),
        "options": Options(**options),
    }
    return Problem(**plain(n, 2) | columns)


def small(**changes: Any) -> Problem:
    """Four ops a → b, c → d on devices x and y; b and c colocated."""
    columns: dict[str, Any] = {
        "name": "small",
        "op_names": ("a", "b", "c", "d"),
        "op_time": [[1, 2], [2, 4], [3, 6], [1, np.inf]],
        "op_memory": [4, 3, 2, 1],
        "colocation": [-1, 7, 7, -1],
        "tensor_producer": [0, 1, 2],
        "tensor_bytes": [8, 4, 2],
        "consumer_offsets": [0, 2, 3, 4],
        "consumers": [1, 2, 3, 3],
        "device_names": ("x", "y"),
        "device_kinds": ("fast", "slow"),
        "device_memory": [20, np.inf],
        "link_latency": [[0, 0.5], [0.5, 0]],
        "link_seconds_per_byte": [[0, 1], [1, 0]],
        "channel_offsets": [0, 0, 1, 2, 2],
        "channels": [0, 1],
        "channel_names": ("x → y", "y → x"),
    }
    return Problem(**plain(4, 2) | columns | changes)


def judged(**changes: Any) -> Problem:
    """Ops a to e on devices x, y and z, each with a channel to each other; a and d pinned."""
    apart = 1.0 - np.eye(3)
    columns: dict[str, Any] = {
        "name": "judged",
        "op_names": ("a", "b", "c", "d", "e"),
        "op_time": [[1, 2, 2], [2, 2, 2], [3, 2, 2], [1, 1, 1], [1, 1, 1]],
        "colocation": [-1, -1, 0, 0, -1],
        "op_pinned": [X, -1, -1, Y, -1],
        "tensor_producer": [A, B, C],
        "tensor_bytes": [2.0, 1.0, 1.0],
        "consumer_offsets": [0, 2, 3, 4],
        "consumers": [B, C, D, D],
        "device_names": ("x", "y", "z"),
        "link_latency": 0.5 * apart,
        "link_seconds_per_byte": apart,
        "channel_offsets": [0, 0, 1, 2, 3, 3, 4, 5, 6, 6],
        "channels": range(6),
        "channel_names": tuple(f"channel {k}" for k in range(6)),
    }
    return Problem(**plain(5, 3) | columns | changes)


def batches_of_four(**changes: Any) -> Problem:
    """Four inputs of op a, then b; on x a second per input, on y two; one channel for both ways."""
    columns: dict[str, Any] = {
        "name": "judged",
        "op_names": ("a", "b"),
        "op_time": [[1, 2], [1, 2]],
        "op_memory": [1.0, 2.0],
        "tensor_producer": [A],
        "tensor_bytes": [1.0],
        "consumer_offsets": [0, 1],
        "consumers": [B],
        "device_names": ("x", "y"),
        "link_latency": [[0, 0.5], [0.5, 0]],
        "link_seconds_per_byte": [[0, 1], [1, 0]],
        "channel_offsets": [0, 0, 1, 2, 2],
        "channels": [0, 0],
        "channel_names": ("cable",),
        "options": Options("batch-throughput", batch=4),
        "batch_sizes": [1, 2, 3, 4],
        "batch_time": [[[1, 2, 3, 4], [2, 4, 6, 8]]] * 2,
    }
    return Problem(**plain(2, 2) | columns | changes)


def throughput_chain(**changes: Any) -> Problem:
    """a → b → c → d, one second each (d two), tensors of 1, 2 and 3 bytes; acc, acc, CPU."""
    columns: dict[str, Any] = {
        "name": "chain",
        "op_names": ("a", "b", "c", "d"),
        "op_types": ("",) * 4,
        "op_time": [[1, 1, 9], [1, 1, 9], [1, 1, 9], [2, 2, 9]],
        "tensor_producer": [0, 1, 2],
        "tensor_bytes": [1, 2, 3],
        "consumer_offsets": [0, 1, 2, 3],
        "consumers": [1, 2, 3],
        "device_names": ("x", "y", "cpu"),
        "device_kinds": ("fast", "fast", "cpu"),
        "device_memory": [3, 3, 9],
        "link_latency": np.where(np.eye(3), 0, 0.5),
        "link_seconds_per_byte": np.where(np.eye(3), 0, 1.0),
        "is_cpu": [False, False, True],
        "staging": "host",
        "host_latency": [[0, 0, 0], [0, 0, 0]],
        "host_seconds_per_byte": [[1, 1, 0], [1, 1, 0]],
        "options": Options(objective="throughput"),
    }
    return Problem(**plain(4, 3) | columns | changes)


def invocation_chain(options=None, colocate=(), backward=(), unsupported=(), memory=np.inf):
    """Ops a → b → c → d and a → d; 1 s each on accelerators, 5 s on the CPU, 1 s per transfer."""
    builder = GraphBuilder("chain")
    for name in "abcd":
        builder.add_op(
            name,
            "op",
            parameter_bytes=1.0,
            colocate="together" if name in colocate else None,
            backward=name in backward,
        )
    for producer, readers in ((0, (1, 3)), (1, (2,)), (2, (3,))):
        tensor = builder.add_tensor(producer, 1.0)
        for reader in readers:
            builder.connect(tensor, reader)
    graph = builder.build()
    times = np.tile([1.0, 1.0, 5.0], (4, 1))
    for op, device in unsupported:
        times[op, device] = np.inf
    return Problem(
        name="chain",
        **graph_columns(graph),
        op_time=times,
        op_memory=graph.op_parameter_bytes,
        op_pinned=np.array([-1, -1, -1, -1]),
        device_names=("acc0", "acc1", "cpu"),
        device_kinds=("acc", "acc", "cpu"),
        device_memory=np.array([memory, memory, np.inf]),
        link_latency=np.zeros((3, 3)),
        link_seconds_per_byte=np.zeros((3, 3)),
        channel_offsets=np.zeros(10),
        channels=np.zeros(0),
        channel_names=(),
        options=options or Options(objective="invocation-latency", subgraphs=2),
        is_cpu=np.array([False, False, True]),
        staging="host",
        host_latency=np.zeros((2, 3)),
        host_seconds_per_byte=np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]]),
    )


def row_of_ops(seconds: list[float], **changes: Any) -> Problem:
    """Ops of so many seconds and no bytes in a row, 1 byte between them, on two equal devices."""
    problem = chain(seconds, [np.inf, np.inf], tensor_bytes=1.0)
    columns = {
        "op_time": np.repeat(np.array(seconds)[:, None], 2, axis=1),
        "op_memory": np.zeros(len(seconds)),
        "options": Options("throughput"),
    }
    return replace(problem, **columns | changes)


def tied_row(ties: list[int], capacity: float = 100.0, **options: bool) -> Problem:
    """Ops o0 → o1 → … of 1 s and 1 byte each, `ties[op]` its colocation, on two equal devices."""
    n = len(ties)
    return replace(
        chain([1.0] * n, [capacity, capacity]),
        op_time=np.ones((n, 2)),
        colocation=np.array(ties),
        options=Options("throughput", **options),
    )
