"""The naive twin of `simulate.batch.expand`, tensor by tensor and input by input."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from placewright.graph import Ints
from placewright.options import Options
from placewright.problem import Problem
from placewright.simulate.batch import Expansion


def expand(problem: Problem, device: Ints) -> Expansion:
    """The latency problem of a placement ``device[op, input]``; batches by op, then device."""
    batch_of: dict[tuple[int, int], int] = {}
    ops: list[int] = []
    devices: list[int] = []
    sizes: list[int] = []
    for op, row in enumerate(device):
        for where, size in zip(*np.unique(row, return_counts=True), strict=True):
            batch_of[op, int(where)] = len(ops)
            ops.append(op)
            devices.append(int(where))
            sizes.append(int(size))
    index = np.searchsorted(problem.batch_sizes, sizes)
    index = np.minimum(index, len(problem.batch_sizes) - 1)
    time = problem.batch_time[ops, devices, index]
    time = np.where(problem.batch_sizes[index] == sizes, time, np.inf)
    op_time = np.full((len(ops), problem.device_count), np.inf)
    op_time[np.arange(len(ops)), devices] = time
    tensors, inputs, producers, consumers = _tensors(problem, device, batch_of)
    nbytes = problem.tensor_bytes[tensors]
    if problem.options.contention != "none":
        nbytes = nbytes * inputs
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in consumers])])
    expanded = replace(
        problem,
        op_names=tuple(
            f"{problem.op_names[op]} × {size} on {problem.device_names[where]}"
            for op, where, size in zip(ops, devices, sizes, strict=True)
        ),
        op_types=tuple(problem.op_types[op] for op in ops),
        op_modules=tuple(problem.op_modules[op] for op in ops),
        op_time=op_time,
        op_memory=problem.op_memory[ops],
        op_sync_bytes=problem.op_sync_bytes[ops],
        is_backward=problem.is_backward[ops],
        forward_twin=np.full(len(ops), -1),
        colocation=np.full(len(ops), -1),
        op_pinned=np.array(devices),
        tensor_producer=np.array(producers, dtype=np.int32),
        tensor_bytes=nbytes,
        consumer_offsets=offsets,
        consumers=np.array([each for some in consumers for each in some], dtype=np.int32),
        batch_sizes=np.zeros(0, dtype=np.int32),
        batch_time=np.zeros(0),
        options=Options(
            transfer_unit=problem.options.transfer_unit, contention=problem.options.contention
        ),
    )
    whole = [np.array(each, dtype=np.int32) for each in (ops, devices, sizes, tensors, inputs)]
    return Expansion(expanded, *whole)


def _tensors(
    problem: Problem, device: Ints, batch_of: dict[tuple[int, int], int]
) -> tuple[list[int], list[int], list[int], list[list[int]]]:
    """Per tensor of the expansion: the original, how many inputs, producer and consumers.

    One for each tensor, device it is made on and device it is read on (transfer unit ``edge``:
    and consumer there).
    """
    by_edge = problem.options.transfer_unit == "edge"
    found: tuple[list[int], list[int], list[int], list[list[int]]] = ([], [], [], [])
    offsets = problem.consumer_offsets.tolist()
    for tensor, producer in enumerate(problem.tensor_producer.tolist()):
        source = device[producer]
        readers = problem.consumers[offsets[tensor] : offsets[tensor + 1]].tolist()
        for group in [[each] for each in readers] if by_edge else [readers]:
            moved: dict[tuple[int, int], set[int]] = defaultdict(set)
            served: dict[tuple[int, int], list[int]] = defaultdict(list)
            for reader in group:
                for pair in sorted(set(zip(source.tolist(), device[reader].tolist(), strict=True))):
                    same = (source == pair[0]) & (device[reader] == pair[1])
                    moved[pair].update(np.flatnonzero(same).tolist())
                    served[pair].append(batch_of[reader, pair[1]])
            for pair in sorted(moved):
                found[0].append(tensor)
                found[1].append(len(moved[pair]))
                found[2].append(batch_of[producer, pair[0]])
                found[3].append(served[pair])
    return found
