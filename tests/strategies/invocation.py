"""Hypothesis strategies: small problems of objective ``invocation-latency``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from placewright.graph import GraphBuilder
from placewright.options import Options
from placewright.problem import Problem
from tests.strategies.common import graph_columns

TIMES = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 0.1])
SLOW_TIMES = st.sampled_from([0.0, 0.5, 4.0, 10.0, 20.0, 1.0])
BYTES = st.sampled_from([0.0, 1.0, 2.0, 4.0, 0.3])


@st.composite
def invocation_problems(draw, max_ops=5, max_accelerators=2, training=None, max_subgraphs=2):
    """A random DAG, forward ops before backward ones, on accelerators and perhaps CPUs."""
    n = draw(st.integers(1, max_ops))
    with_backward = draw(st.booleans()) if training is None else training
    turn = draw(st.integers(1, n)) if with_backward else n
    names = draw(st.permutations(range(n)))  # op numbers are no topological order
    rank = np.argsort(names)
    builder = GraphBuilder("random")
    group = draw(st.lists(st.sampled_from([None, None, "a", "b"]), min_size=n, max_size=n))
    for op in range(n):
        builder.add_op(
            f"op{op}",
            "op",
            parameter_bytes=draw(BYTES),
            colocate=group[op],
            backward=bool(rank[op] >= turn),
        )
    for place in range(n - 1):
        for _ in range(draw(st.integers(0, 2))):
            later = draw(
                st.lists(st.integers(place + 1, n - 1), min_size=1, max_size=3, unique=True)
            )
            tensor = builder.add_tensor(names[place], draw(BYTES))
            for reader in later:
                builder.connect(tensor, names[reader])
    graph = builder.build()
    accelerators = draw(st.integers(1, max_accelerators))
    cpus = draw(st.integers(0, 1))
    d = accelerators + cpus
    equal = draw(st.booleans())
    times = np.zeros((n, d))
    for device in range(d):
        if device == 0 or device >= accelerators or not equal:
            source = TIMES if device < accelerators else SLOW_TIMES
            times[:, device] = draw(st.lists(source, min_size=n, max_size=n))
        else:
            times[:, device] = times[:, 0]
    if cpus and draw(st.booleans()):
        times[draw(st.integers(0, n - 1)), :accelerators] = np.inf
    memory = np.full(d, np.inf)
    if draw(st.booleans()):
        share = draw(st.sampled_from([0.4, 0.6, 1.0]))
        memory[:accelerators] = graph.op_parameter_bytes.sum() * share + 2.0
    host = st.sampled_from([0.0, 0.1, 0.5])
    columns = [
        np.array(draw(st.lists(host, min_size=2 * d, max_size=2 * d))).reshape(2, d)
        for _ in range(2)
    ]
    for column in columns:
        column[:, accelerators:] = 0.0
        if equal:
            column[:, :accelerators] = column[:, :1]
    pinned = np.full(n, -1)
    if draw(st.integers(0, 3)) == 0:
        op = draw(st.integers(0, n - 1))
        pinned[op] = draw(st.sampled_from(np.flatnonzero(np.isfinite(times[op])).tolist()))
        mates = (graph.colocation == graph.colocation[op]) & (graph.colocation[op] >= 0)
        pinned[mates] = pinned[op]
    return Problem(
        name="random",
        **graph_columns(graph),
        op_time=times,
        op_memory=graph.op_parameter_bytes,
        op_pinned=pinned,
        device_names=tuple(f"device{k}" for k in range(d)),
        device_kinds=("acc",) * accelerators + ("cpu",) * cpus,
        device_memory=memory,
        link_latency=np.zeros((d, d)),
        link_seconds_per_byte=np.zeros((d, d)),
        channel_offsets=np.zeros(d * d + 1),
        channels=np.zeros(0),
        channel_names=(),
        options=Options(
            objective="invocation-latency", subgraphs=draw(st.integers(1, max_subgraphs))
        ),
        is_cpu=np.arange(d) >= accelerators,
        staging="host",
        host_latency=columns[0],
        host_seconds_per_byte=columns[1],
    )


@st.composite
def tight_invocation_problems(draw, max_ops=5):
    """As `invocation_problems`, with two CPUs or none, in any order, and little that fits.

    Each device has memory of its own, and any op may be unsupported anywhere.
    """
    problem = draw(invocation_problems(max_ops, max_accelerators=2, max_subgraphs=3))
    if draw(st.booleans()):
        problem = _with_another_cpu(draw, problem)
    order = np.array(draw(st.permutations(range(problem.device_count))))
    times = problem.op_time[:, order].copy()
    for _ in range(draw(st.integers(0, 3))):
        op = draw(st.integers(0, problem.op_count - 1))
        times[op, draw(st.integers(0, problem.device_count - 1))] = np.inf
    needed = problem.op_memory.sum()
    shares = st.sampled_from([0.5, 0.3, 0.7, 1.0, np.inf])
    memory = np.array([np.ceil(needed * draw(shares)) if needed else 0.0 for _ in order])
    rank = np.argsort(order)
    pinned = np.where(problem.op_pinned < 0, -1, rank[problem.op_pinned])
    return replace(
        problem,
        op_time=times,
        op_pinned=pinned,
        device_kinds=tuple(problem.device_kinds[d] for d in order),
        device_memory=memory,
        is_cpu=problem.is_cpu[order],
        host_latency=problem.host_latency[:, order],
        host_seconds_per_byte=problem.host_seconds_per_byte[:, order],
    )


def _with_another_cpu(draw, problem):
    n, d = problem.op_count, problem.device_count
    times = np.array(draw(st.lists(SLOW_TIMES, min_size=n, max_size=n)))
    return replace(
        problem,
        op_time=np.column_stack([problem.op_time, times]),
        device_names=(*problem.device_names, f"device{d}"),
        device_kinds=(*problem.device_kinds, "cpu"),
        device_memory=np.append(problem.device_memory, np.inf),
        link_latency=np.zeros((d + 1, d + 1)),
        link_seconds_per_byte=np.zeros((d + 1, d + 1)),
        channel_offsets=np.zeros((d + 1) ** 2 + 1),
        is_cpu=np.append(problem.is_cpu, True),
        host_latency=np.column_stack([problem.host_latency, np.zeros(2)]),
        host_seconds_per_byte=np.column_stack([problem.host_seconds_per_byte, np.zeros(2)]),
    )


@st.composite
def invocation_slots(draw, problem):
    """`(device[op], number[op])`, units together on devices that support them; memory aside."""
    device = np.zeros(problem.op_count, dtype=np.int64)
    for unit in range(problem.unit_count):
        allowed = np.flatnonzero(np.isfinite(problem.unit_time[unit])).tolist()
        device[problem.op_unit == unit] = draw(st.sampled_from(allowed)) if allowed else 0
    count, q = problem.op_count, problem.options.subgraphs
    number = np.array(draw(st.lists(st.integers(0, q - 1), min_size=count, max_size=count)))
    return device, number
