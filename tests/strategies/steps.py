"""Hypothesis strategies: problems of training, or inference, in pieces that data goes along."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from placewright.options import Options
from tests.strategies.throughput import BYTES, TIMES, throughput_problems


@st.composite
def step_problems(draw, max_pieces=4, max_devices=3, staging=None, stash=True):
    """`(problem, op_piece)`: forward ops in a row of pieces, each with its backward op if any.

    Data goes to the next piece and at times further; some forward tensors are read by backward ops,
    of the same or of another piece.
    """
    count = draw(st.integers(1, max_pieces))
    trains = draw(st.booleans())
    n = 2 * count if trains else count
    base = draw(throughput_problems(max_ops=1, max_devices=max_devices, training=False,
                                    staging=staging))  # fmt: skip
    d = base.device_count
    kind = np.array([int(each.removeprefix("kind")) for each in base.device_kinds])
    times = np.array([draw(st.lists(TIMES, min_size=n, max_size=n)) for _ in range(3)])
    edges = [(k, k + 1) for k in range(count - 1)]
    far = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges += [(a, b) for a, b in draw(st.lists(far, max_size=2)) if a < b]
    if trains:
        edges += [(count + b, count + a) for a, b in edges]
        edges += [(a, count + b) for a, b in draw(st.lists(far, max_size=3))]
    producer = [a for a, _ in edges]
    piece = np.concatenate([np.arange(count)] * (2 if trains else 1)).astype(np.int32)
    memory = np.array(draw(st.lists(BYTES, min_size=n, max_size=n)))
    kept = np.where(np.arange(n) < count, draw(st.sampled_from([0.0, 0.5, 1.0])), 0.0) * memory
    room = draw(st.sampled_from([np.inf, 1.0, 1.5, 3.0]))
    options = Options(
        objective="throughput",
        schedule=draw(st.sampled_from(["pipedream", "gpipe"])),
        micro_batches=draw(st.integers(1, 6)),
    )
    problem = replace(
        base,
        op_names=tuple(f"op{k}" for k in range(n)),
        op_types=("op",) * n,
        op_modules=("",) * n,
        op_time=times[kind].T,
        op_memory=memory,
        op_stash=kept if trains and stash else (),
        is_backward=np.arange(n) >= count,
        forward_twin=np.where(np.arange(n) < count, -1, np.arange(n) - count),
        colocation=np.concatenate([np.arange(count)] * (2 if trains else 1)),
        op_pinned=np.full(n, -1),
        op_sync_bytes=np.zeros(n),
        batch_time=np.zeros((n, d, 0)),
        tensor_producer=np.array(producer, dtype=np.int32),
        tensor_bytes=np.array(draw(st.lists(BYTES, min_size=len(edges), max_size=len(edges)))),
        consumer_offsets=np.arange(len(edges) + 1),
        consumers=np.array([b for _, b in edges], dtype=np.int32),
        device_memory=np.full(d, room * max(float(memory.sum()), 1.0)),
        options=options,
    )
    return problem, piece
