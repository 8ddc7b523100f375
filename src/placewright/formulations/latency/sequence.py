"""From the times of a program's solution back to a placement that the simulator can time."""

from __future__ import annotations

import heapq

import numpy as np

from placewright.graph import Floats, Ints
from placewright.problem import Problem


def sequence_by_time(problem: Problem, op_middle: Floats, edge_middle: Floats) -> Ints:
    """All ops and edges by the middle of when they run, never against precedence.

    A solver's times are off by its tolerance. The middles of two intervals that do not overlap
    are in the order of the intervals even if one of them has no length, where starts could
    change places.
    """
    middle = {op: float(when) for op, when in enumerate(op_middle)}
    middle |= {-1 - edge: float(when) for edge, when in enumerate(edge_middle)}
    input_offsets, _ = problem.op_inputs
    waiting = np.diff(input_offsets).tolist()
    output: list[list[int]] = [[] for _ in range(problem.op_count)]
    for edge, producer in enumerate(problem.edge_producer.tolist()):
        output[producer].append(edge)
    consumers = problem.consumers.tolist()
    ready = [(middle[op], op) for op, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    sequence = []
    while ready:
        _, item = heapq.heappop(ready)
        sequence.append(item)
        if item >= 0:
            for edge in output[item]:
                heapq.heappush(ready, (middle[-1 - edge], -1 - edge))
        else:
            consumer = consumers[-1 - item]
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                heapq.heappush(ready, (middle[consumer], consumer))
    return np.array(sequence, dtype=np.int32)
