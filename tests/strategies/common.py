"""Hypothesis strategies: small random problems of every shape a planner must take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from placewright.graph import Graph, GraphBuilder
from placewright.options import Options
from placewright.problem import Problem

TIMES = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 0.1, 0.7])
BYTES = st.sampled_from([0.0, 1.0, 2.0, 4.0, 0.3])


def graph_columns(graph: Graph) -> dict[str, Any]:
    """The columns of a problem that are its graph's own."""
    names = (
        "op_names", "op_types", "op_modules", "is_backward", "forward_twin", "colocation",
        "tensor_producer", "tensor_bytes", "consumer_offsets", "consumers",
    )  # fmt: skip
    return {name: getattr(graph, name) for name in names}


@st.composite
def graphs(draw, max_ops=12, training=False):
    """A random DAG; ops in a random order, so that numbers are not a topological order."""
    n = draw(st.integers(1, max_ops))
    builder = GraphBuilder("random")
    renamed = draw(st.permutations(range(n)))
    group = draw(st.lists(st.sampled_from([None, None, None, "a", "b"]), min_size=n, max_size=n))
    for op in range(n):
        builder.add_op(
            f"op{op}",
            "op",
            parameter_bytes=draw(BYTES),
            flops=draw(st.sampled_from([0.0, 1e9, 3e9])),
            bytes_written=draw(BYTES),
            colocate=group[op],
        )
    for rank in range(n - 1):
        for _ in range(draw(st.integers(0, 2))):
            later = draw(
                st.lists(st.integers(rank + 1, n - 1), min_size=1, max_size=3, unique=True)
            )
            tensor = builder.add_tensor(renamed[rank], draw(BYTES))
            for consumer in later:
                builder.connect(tensor, renamed[consumer])
    return builder.build()


@st.composite
def graphs_of_blocks(draw, most_blocks=8):
    """A few ops, a random block of ops again and again, a few ops; and [op] its place in a block.

    Each block reads the one before it, and some also an op at the very beginning. The place is -1
    for ops that are in no block.
    """
    length, count = draw(st.integers(4, 6)), draw(st.integers(4, most_blocks))
    ahead, behind = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    place = [-1] * ahead + list(range(length)) * count + [-1] * behind
    figures = st.tuples(BYTES, BYTES, st.sampled_from([0.0, 1e9]))
    drawn = [draw(figures) for _ in range(length)]
    builder = GraphBuilder("blocks")
    for op, at in enumerate(place):
        memory, nbytes, flops = drawn[at] if at >= 0 else draw(figures)
        builder.add_op(f"op{op}", "op", parameter_bytes=memory, flops=flops, bytes_written=nbytes)
    inner = {
        at: draw(st.lists(st.integers(at + 1, length - 1), max_size=2, unique=True))
        for at in range(length - 1)
    }
    skip = draw(st.booleans())  # a residual connection past a whole block
    for op, at in enumerate(place[:-1]):
        consumers = [op + later - at for later in inner.get(at, ())]
        if at in (-1, length - 1):
            consumers.append(op + 1)
        if at == length - 1 and skip and op + length < len(place):
            consumers.append(op + length)
        if consumers:
            tensor = builder.add_tensor(op, drawn[at][1] if at >= 0 else 1.0)
            for consumer in sorted(set(consumers)):
                builder.connect(tensor, consumer)
    if draw(st.booleans()):
        tensor = builder.add_tensor(0, 2.0)
        for start in range(ahead + 1, ahead + length * count, length):
            builder.connect(tensor, start)
    return builder.build(), np.array(place)


@st.composite
def problems_of_blocks(draw, **arguments):
    """A problem whose graph has equal blocks in a row, with equal times; and [op] the place."""
    graph, place = draw(graphs_of_blocks())
    problem = draw(problems(graph=st.just(graph), **arguments))
    like = np.arange(graph.op_count)
    first = {at: op for op, at in reversed(list(enumerate(place.tolist())))}
    like[place >= 0] = [first[at] for at in place[place >= 0].tolist()]
    return replace(problem, op_time=problem.op_time[like]), place


@st.composite
def problems(draw, max_ops=12, max_devices=4, options=None, memory=True, graph=None):
    """A random graph with random times, memory, routes and options; always connected."""
    graph = draw(graphs(max_ops) if graph is None else graph)
    n, d = graph.op_count, draw(st.integers(1, max_devices))
    times = np.array(draw(st.lists(TIMES, min_size=n * d, max_size=n * d))).reshape(n, d)
    if d > 1 and draw(st.booleans()):  # some ops unsupported on the last device
        unsupported = draw(st.lists(st.integers(0, n - 1), max_size=3))
        times[unsupported, d - 1] = np.inf
    latency = np.array(
        draw(st.lists(st.sampled_from([0.0, 0.1, 0.5]), min_size=d * d, max_size=d * d))
    ).reshape(d, d)
    per_byte = np.array(
        draw(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=d * d, max_size=d * d))
    ).reshape(d, d)
    np.fill_diagonal(latency, 0.0)
    np.fill_diagonal(per_byte, 0.0)
    channel_count = draw(st.integers(1, 3))
    offsets, channels = [0], []
    for pair in range(d * d):
        if pair // d != pair % d:
            channels += draw(st.lists(st.integers(0, channel_count - 1), max_size=2, unique=True))
        offsets.append(len(channels))
    op_memory = graph.op_parameter_bytes
    capacity = np.full(d, np.inf)
    if memory and draw(st.booleans()):
        share = draw(st.sampled_from([0.6, 1.0, 2.0]))
        capacity = np.full(d, op_memory.sum() * share + 4.0)
    if options is None:
        options = Options(
            transfer_unit=draw(st.sampled_from(["tensor", "edge"])),
            contention=draw(st.sampled_from(["none", "port", "link"])),
            memory=draw(st.sampled_from(["resident", "resident", "peak"]))
            if memory
            else "resident",
        )
    return Problem(
        name="random",
        **graph_columns(graph),
        op_time=times,
        op_memory=op_memory,
        op_pinned=np.full(n, -1),
        device_names=tuple(f"device{k}" for k in range(d)),
        device_kinds=("kind",) * d,
        device_memory=capacity,
        link_latency=latency,
        link_seconds_per_byte=per_byte,
        channel_offsets=np.array(offsets),
        channels=np.array(channels, dtype=np.int32),
        channel_names=tuple(f"channel{k}" for k in range(channel_count)),
        options=options,
    )


@st.composite
def tight(draw, drawn):
    """A drawn problem whose devices have hardly more memory than one placement of it needs.

    Resident memory; ops keep whole bytes of many sizes. The placement may be one that devices do
    not support, or that the objective does not allow.
    """
    problem = draw(drawn)
    sizes = st.sampled_from([1.0, 2.0, 3.0, 5.0, 7.0, 0.0])
    n, d = problem.op_count, problem.device_count
    kept = np.array(draw(st.lists(sizes, min_size=n, max_size=n)))
    problem = replace(problem, op_memory=kept, options=replace(problem.options, memory="resident"))
    units = problem.unit_count
    where = draw(st.lists(st.integers(0, d - 1), min_size=units, max_size=units))
    spare = draw(st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.0]), min_size=d, max_size=d))
    return problem.with_device_memory(np.bincount(where, problem.unit_memory, d) + spare)


@st.composite
def placements(draw, problem):
    """A device per op that keeps units together and supported, memory aside."""
    units = []
    for unit in range(problem.unit_count):
        allowed = np.flatnonzero(np.isfinite(problem.unit_time[unit])).tolist()
        units.append(draw(st.sampled_from(allowed)) if allowed else 0)
    return np.array(units, dtype=np.int32)[problem.op_unit]


@st.composite
def sequences(draw, problem):
    """A random topological sequence of all ops and edges."""
    waiting = dict.fromkeys(range(problem.op_count), 0)
    for consumer in problem.consumers.tolist():
        waiting[consumer] += 1
    ready = [op for op, count in waiting.items() if count == 0]
    items = []
    while ready:
        item = ready.pop(draw(st.integers(0, len(ready) - 1)))
        items.append(item)
        if item >= 0:
            ready += [-1 - e for e in range(problem.edge_count) if problem.edge_producer[e] == item]
        else:
            consumer = int(problem.consumers[-1 - item])
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                ready.append(consumer)
    return np.array(items, dtype=np.int32)


@st.composite
def short_of_peaks(draw, max_ops=7, max_devices=3):
    """A problem whose devices have room for what ops keep and a few tensors."""
    problem = draw(
        problems(max_ops, max_devices, memory=False).map(
            lambda each: replace(each, options=replace(each.options, memory="peak"))
        )
    )
    share = st.sampled_from([0.5, 0.7, 1.0, 1.5])
    total = float(problem.op_memory.sum() + problem.tensor_bytes.sum())
    memory = [draw(share) * total / problem.device_count + 2.0 for _ in problem.device_names]
    return problem.with_device_memory(np.array(memory))


def tiny(options, **limits):
    """Small enough for brute force, which tries every order of the transfers too."""
    any_size = options.flatmap(lambda chosen: problems(5, 3, options=chosen, **limits))
    return any_size.filter(lambda problem: problem.edge_count <= 7)
