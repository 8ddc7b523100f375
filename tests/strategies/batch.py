"""Hypothesis strategies: small problems of batches, with sizes that some devices do not take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from placewright.errors import InfeasibleError
from placewright.kernels.batch.arrays import batches_of
from placewright.options import Options
from placewright.planners.batch.splits import splits_of
from tests.strategies.common import problems

SECONDS = st.sampled_from([0.5, 0.0, 1.0, 1.5, 2.0, 3.0, 0.1, 0.7])


@st.composite
def batch_problems(draw, max_ops=8, max_devices=3, max_batch=6, contention=None, memory=True):
    """A problem whose every unit can be split in some way, memory aside."""
    options = Options(
        "batch-throughput",
        transfer_unit=draw(st.sampled_from(["tensor", "edge"])),
        contention=contention or draw(st.sampled_from(["none", "port", "link"])),
        batch=draw(st.integers(2, max_batch) | st.integers(1, max_batch)),
    )
    base = draw(problems(max_ops, max_devices, Options("latency", memory="resident"), memory))
    batch = options.batch
    sizes = draw(
        st.just(list(range(1, batch + 1)))
        | st.just([size for size in range(1, batch + 1) if (batch - size) % 2 == 0])
        | st.lists(st.integers(1, batch), min_size=1, unique=True).map(sorted)
    )
    n, d = base.op_count, base.device_count
    each = st.lists(SECONDS, min_size=d * len(sizes), max_size=d * len(sizes))
    kinds = draw(st.lists(each, min_size=1, max_size=3))
    batch_time = np.array([draw(st.sampled_from(kinds)) for _ in range(n)])
    batch_time = batch_time.reshape(n, d, len(sizes))
    for _ in range(draw(st.integers(0, 2))):  # a device takes no batches of some size
        batch_time[:, draw(st.integers(0, d - 1)), draw(st.integers(0, len(sizes) - 1))] = np.inf
    if draw(st.booleans()):  # one op less than others
        op, device = draw(st.integers(0, n - 1)), draw(st.integers(0, d - 1))
        batch_time[op, device, draw(st.integers(0, len(sizes) - 1))] = np.inf
    problem = replace(base, options=options, batch_sizes=np.array(sizes), batch_time=batch_time)
    if draw(st.integers(0, 3)) == 0:
        op, device = draw(st.integers(0, n - 1)), draw(st.integers(0, d - 1))
        problem = problem.with_pins({int(problem.op_unit[op]): device})
    try:
        splits_of(problem)
    except InfeasibleError:
        # Then every device takes all inputs at once, and no other batch.
        finite = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=n * d, max_size=n * d))
        sizes = sorted({*sizes, batch})
        whole = np.full((n, d, len(sizes)), np.inf)
        whole[:, :, -1] = np.array(finite).reshape(n, d)
        problem = replace(problem, batch_sizes=np.array(sizes), batch_time=whole)
    try:
        problem.check_feasible()
        splits_of(problem)
    except InfeasibleError:
        assume(False)
    return problem


@st.composite
def rows_of(draw, problem, most_splits=None):
    """Rows ``[unit, chunk]`` of allowed splits, of the first so many if given, memory aside."""
    splits = splits_of(problem)
    rows = []
    for unit in range(problem.unit_count):
        split = draw(st.sampled_from(splits.of(unit)[:most_splits].tolist()))
        rows.append(draw(st.permutations(np.repeat(np.arange(len(split)), split).tolist())))
    chunks = problem.options.batch // batches_of(problem).chunk
    return np.array(rows, dtype=np.int32).reshape(-1, chunks)


@st.composite
def op_orders(draw, problem):
    """A random topological order of the ops."""
    waiting = np.bincount(problem.consumers, minlength=problem.op_count)
    ready = np.flatnonzero(waiting == 0).tolist()
    order = []
    while ready:
        op = ready.pop(draw(st.integers(0, len(ready) - 1)))
        order.append(op)
        for edge in np.flatnonzero(problem.edge_producer == op):
            waiting[problem.consumers[edge]] -= 1
            if waiting[problem.consumers[edge]] == 0:
                ready.append(int(problem.consumers[edge]))
    return np.array(order, dtype=np.int32)
