"""Batches of inputs (DiviML §IV-A): the arrays that compiled code takes.

Inputs come in chunks of g, the greatest common divisor of their number and of all batch sizes:
sums of batch sizes are multiples of it. What is decided is a row per unit: the device of each
chunk. No batch is left out by that, and nothing is lost in the cases that
`formulations.batch.instance` tells. Under contention a chunk whose inputs part could be sent over
several links at once; no search looks for that.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

import numpy as np

from placewright.graph import Flags, Floats, Ints, Wide
from placewright.problem import Problem, once_per_problem


class Batches(NamedTuple):
    """What `Arrays` does not say of a problem of batches. A count is a number of chunks.

    Devices that take the same batches of every op in the same times are of one kind.
    """

    chunk: int  # inputs in a chunk
    kind: Ints  # [device]
    time: Floats  # [op, kind, count] seconds; 0 for none, inf where it takes no such batch
    allowed: Flags  # [unit, kind, count] whether the kind takes that of every op of the unit
    unit_time: Floats  # [unit, kind, count] seconds of all its ops
    op_unit: Ints
    unit_memory: Floats
    together: bool  # tensors of a batch follow one another, rather than go all at once
    producer: Ints  # [input edge, as in Arrays.inputs] the op that it comes from


@once_per_problem
def batches_of(problem: Problem) -> Batches:
    """The arrays of a problem with objective ``batch-throughput``."""
    chunk = gcd(problem.options.batch, *problem.batch_sizes.tolist())
    first, kind = _kinds(problem)
    time = _count_times(problem, chunk, first)
    unit_time = np.zeros((problem.unit_count, *time.shape[1:]))
    np.add.at(unit_time, problem.op_unit, time)
    allowed = np.isfinite(unit_time) & problem.unit_allowed[:, first, None]
    allowed[:, :, 0] = True
    return Batches(
        chunk,
        kind,
        time,
        allowed,
        unit_time,
        problem.op_unit,
        problem.unit_memory,
        problem.options.contention != "none",
        problem.edge_producer[problem.op_inputs[1]],
    )


def _kinds(problem: Problem) -> tuple[Wide, Ints]:
    """A device of each kind, and `[device]` its kind."""
    number: dict[bytes, int] = {}
    kind = np.empty(problem.device_count, dtype=np.int32)
    for device in range(problem.device_count):
        columns = problem.batch_time[:, device].tobytes(), problem.unit_allowed[:, device].tobytes()
        kind[device] = number.setdefault(b"".join(columns), len(number))
    return np.unique(kind, return_index=True)[1], kind


def _count_times(problem: Problem, chunk: int, first: Wide) -> Floats:
    counts = problem.options.batch // chunk
    time = np.full((problem.op_count, len(first), counts + 1), np.inf)
    time[:, :, 0] = 0.0
    for number, size in enumerate(problem.batch_sizes.tolist()):
        if size <= problem.options.batch:
            time[:, :, size // chunk] = problem.batch_time[:, first, number]
    return time
