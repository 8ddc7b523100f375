"""Hypothesis strategies: small throughput problems of every shape a planner must take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from placewright.options import Options
from placewright.problem import Problem
from tests.strategies.common import problems

TIMES = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 0.1, 0.7])
BYTES = st.sampled_from([0.0, 1.0, 2.0, 4.0, 0.3])
LATENCIES = st.sampled_from([0.0, 0.1, 0.5])
PER_BYTE = st.sampled_from([0.0, 0.25, 1.0])


@st.composite
def options(draw, contiguous=True, replicate=None, shares="equal"):
    """Options of the objective; each either given or, where None, drawn."""
    replicates = draw(st.booleans()) if replicate is None else replicate
    drawn = draw(st.sampled_from(["equal", "unequal"])) if shares is None else shares
    return Options(
        objective="throughput",
        load=draw(st.sampled_from(["sum", "overlap", "duplex"])),
        contiguous=draw(st.booleans()) if contiguous is None else contiguous,
        schedule=draw(st.sampled_from(["pipedream", "gpipe"])),
        replicate=replicates,
        shares=drawn if replicates else "equal",
    )


@st.composite
def throughput_problems(
    draw,
    max_ops=6,
    max_devices=3,
    contiguous=True,
    replicate=None,
    staging=None,
    training=None,
    shares="equal",
):
    """A random graph, in training with backward ops, on devices of one to three kinds.

    In training each backward op is its forward op's twin and colocated with it, or orphaned;
    backward edges turn forward edges round, and some go from a forward to a backward op.
    """
    drawn_options = draw(options(contiguous, replicate, shares))
    trains = draw(st.booleans()) if training is None else training
    forward = draw(st.integers(1, max(1, max_ops // 2 if trains else max_ops)))
    twin = [-1] * forward
    if trains:
        for _ in range(draw(st.integers(0, max_ops - forward))):
            twin.append(draw(st.integers(-1, forward - 1)))
    n = len(twin)
    colocation = np.full(n, -1)
    for op in range(forward, n):
        if twin[op] >= 0:
            colocation[[op, twin[op]]] = twin[op]
    if draw(st.integers(0, 3)) == 0 and n > 1:  # a group that may close a circle
        pair = draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=2, unique=True))
        merged = {int(colocation[op]) for op in pair if colocation[op] >= 0}
        colocation[np.isin(colocation, list(merged))] = n
        colocation[pair] = n
    producer, size, consumers = _tensors(draw, forward, n)
    d = draw(st.integers(1, max_devices))
    kind = np.array(draw(st.lists(st.integers(0, 2), min_size=d, max_size=d)))
    if draw(st.booleans()):
        kind[:] = 0
    times = np.array([draw(st.lists(TIMES, min_size=n, max_size=n)) for _ in range(3)])
    if draw(st.integers(0, 2)) == 0:  # some ops unsupported on one kind
        times[draw(st.integers(1, 2)), draw(st.lists(st.integers(0, n - 1), max_size=2))] = np.inf
    pinned = np.full(n, -1)
    if draw(st.integers(0, 3)) == 0:
        op = draw(st.integers(0, n - 1))
        group = (colocation == colocation[op]) & (colocation[op] >= 0)
        group[op] = True
        pinned[group] = draw(st.integers(0, d - 1))
    memory = np.array(draw(st.lists(BYTES, min_size=n, max_size=n)))
    capacity = np.full(d, np.inf)
    if draw(st.booleans()):
        share = draw(st.sampled_from([0.5, 0.7, 1.0]))
        capacity = np.where(kind == 0, memory.sum() * share, capacity)
    chosen_staging = staging or draw(st.sampled_from(["host", "direct"]))
    return Problem(
        name="random",
        op_names=tuple(f"op{k}" for k in range(n)),
        op_types=("op",) * n,
        op_modules=("",) * n,
        op_time=times[kind].T,
        op_memory=memory,
        is_backward=np.arange(n) >= forward,
        forward_twin=np.array(twin),
        colocation=colocation,
        op_pinned=pinned,
        tensor_producer=np.array(producer, dtype=np.int32),
        tensor_bytes=np.array(size, dtype=float),
        consumer_offsets=np.concatenate([[0], np.cumsum([len(each) for each in consumers])]),
        consumers=np.array([op for each in consumers for op in each], dtype=np.int32),
        device_names=tuple(f"device{k}" for k in range(d)),
        device_kinds=tuple(f"kind{k}" for k in kind),
        device_memory=capacity,
        channel_offsets=np.zeros(d * d + 1, dtype=np.int64),
        channels=np.zeros(0, dtype=np.int32),
        channel_names=(),
        options=drawn_options,
        is_cpu=kind == 2,
        staging=chosen_staging,
        op_sync_bytes=np.where(np.arange(n) < forward, memory, 0.0) if trains else np.zeros(n),
        **_links(draw, d, kind),
    )


def _tensors(draw, forward, n):
    """Edges among forward ops up, among backward ops from the later twin to the earlier, across."""
    producer, size, consumers = [], [], []
    for op in range(n):
        later = range(op + 1, forward if op < forward else n)
        choices = [*later, *(range(forward, n) if op < forward else ())]
        for _ in range(draw(st.integers(0, 2)) if choices else 0):
            readers = draw(st.lists(st.sampled_from(choices), min_size=1, max_size=3, unique=True))
            producer.append(op)
            size.append(draw(BYTES))
            consumers.append(readers)
    return producer, size, consumers


def _links(draw, d, kind):
    """Links all alike, or of two hosts, or any; to host memory alike per kind, a CPU's free."""
    latency = np.full((d, d), draw(st.sampled_from([0.0, 0.1])))
    per_byte = np.full((d, d), draw(st.sampled_from([0.25, 0.5])))
    how = draw(st.sampled_from(["uniform", "uniform", "hosts", "any"]))
    if how == "hosts":
        host = np.array(draw(st.lists(st.integers(0, 1), min_size=d, max_size=d)))
        per_byte[host[:, None] != host[None, :]] = 1.0
    if how == "any":
        values = st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=d * d, max_size=d * d)
        per_byte = np.array(draw(values)).reshape(d, d)
    np.fill_diagonal(latency, 0.0)
    np.fill_diagonal(per_byte, 0.0)
    host_latency = np.where(kind == 2, 0.0, draw(st.sampled_from([0.0, 0.1])))
    ways = np.array([draw(st.sampled_from([0.25, 0.5])), draw(st.sampled_from([0.25, 0.5]))])
    return {
        "link_latency": latency,
        "link_seconds_per_byte": per_byte,
        "host_latency": np.stack([host_latency, host_latency]),
        "host_seconds_per_byte": ways[:, None] * np.where(kind == 2, 0.0, 1.0 + kind)[None, :],
    }


@st.composite
def pipelines(
    draw,
    max_ops=5,
    max_devices=3,
    contiguous=None,
    memory=True,
    replicate=False,
    shares="equal",
):
    """Random problems with every option; often with equal devices, sometimes with a pin."""
    chosen = draw(options(contiguous, replicate, shares))
    problem = draw(problems(max_ops, max_devices, options=chosen, memory=memory))
    n, d = problem.op_count, problem.device_count
    columns = {
        "staging": draw(st.sampled_from(["host", "direct"])),
        "is_backward": np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n))),
        "is_cpu": np.arange(d) == d - 1,
        "host_latency": np.array(draw(st.lists(LATENCIES, min_size=2 * d, max_size=2 * d))),
        "host_seconds_per_byte": np.array(draw(st.lists(PER_BYTE, min_size=2 * d, max_size=2 * d))),
    }
    for name in ("host_latency", "host_seconds_per_byte"):
        columns[name] = columns[name].reshape(2, d)
    if d > 1 and draw(st.booleans()):  # all but the last are alike
        time = problem.op_time.copy()
        time[:, : d - 1] = time[:, :1]
        columns["op_time"] = time
        for name in ("host_latency", "host_seconds_per_byte"):
            columns[name][:, : d - 1] = columns[name][:, :1]
        away = 1.0 - np.eye(d)
        columns["link_latency"] = 0.1 * away
        columns["link_seconds_per_byte"] = 0.5 * away
    problem = replace(problem, **columns)
    if draw(st.booleans()):
        unit = draw(st.integers(0, problem.unit_count - 1))
        allowed = np.flatnonzero(np.isfinite(problem.unit_time[unit]))
        if len(allowed):
            problem = problem.with_pins({unit: int(draw(st.sampled_from(allowed.tolist())))})
    return problem


@st.composite
def with_free_ops(draw, **how):
    """`throughput_problems` in which many ops take no time, some of them without bytes."""
    problem = draw(throughput_problems(**how))
    n = problem.op_count
    free = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))) > 0
    light = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n))) & free
    time = np.where(free[:, None] & np.isfinite(problem.op_time), 0.0, problem.op_time)
    return replace(
        problem,
        op_time=time,
        op_memory=np.where(light, 0.0, problem.op_memory),
        op_sync_bytes=np.where(light, 0.0, problem.op_sync_bytes),
    )
