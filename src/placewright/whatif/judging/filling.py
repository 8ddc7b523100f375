"""From what a placement says of some ops to a device for each of them.

A tool places modules or layers; a graph has ops besides that are of none: masks, positions, views.
"""

from __future__ import annotations

import numpy as np

from placewright.errors import FormatError
from placewright.graph import Flags, Ints
from placewright.problem import Problem

UNSAID = -1


def filled(problem: Problem, said: Ints, follows: Flags, where: str) -> tuple[Ints, list[str]]:
    """`[op]` its device, and what is worth saying; `said[op]` is a device, or `UNSAID`.

    Backward ops are with their forward ones. Colocated ops are where the one of them is said to be
    that takes longest. Ops that `follows` has, and keep nothing, are where what reads them is,
    else where what they read was made. FormatError, beginning with `where`, names an op that is
    left.
    """
    device = said.copy()
    twins = np.flatnonzero((device == UNSAID) & (problem.forward_twin >= 0))
    device[twins] = device[problem.forward_twin[twins]]
    remarks = _together(problem, device)
    may = follows & (problem.op_memory == 0) | problem.is_backward
    _follow_readers(problem, device, may)
    _follow_sources(problem, device, may)
    _together(problem, device)
    left = np.flatnonzero(device == UNSAID)
    if left.size:
        op = int(left[0])
        module = f", of module '{problem.op_modules[op]}'" if problem.op_modules[op] else ""
        more = f" and {left.size - 1} other ops" if left.size > 1 else ""
        raise FormatError(
            f"{where}: says nothing of op '{problem.op_names[op]}'{module}{more}; place its module"
        )
    return device, remarks


def _together(problem: Problem, device: Ints) -> list[str]:
    """Put colocated ops on one device; a remark for each group that was said to be parted."""
    remarks = []
    quickest = problem.op_time.min(axis=1)
    several = np.flatnonzero(np.bincount(problem.op_unit) > 1)
    for unit in several.tolist():
        ops = np.flatnonzero(problem.op_unit == unit)
        known = ops[device[ops] != UNSAID]
        if not known.size:
            continue
        chosen = device[known[np.argmax(quickest[known])]]
        apart = known[device[known] != chosen]
        if apart.size:
            one, two = (
                problem.op_names[apart[0]],
                problem.op_names[known[device[known] == chosen][0]],
            )
            remarks.append(
                f"'{one}' and '{two}' share a weight and are both counted on "
                f"{problem.device_names[chosen]}"
            )
        device[ops] = chosen
    return remarks


def _follow_readers(problem: Problem, device: Ints, may: Flags) -> None:
    offsets, tensors = problem.op_outputs
    rank = problem.topological_rank
    for op in problem.topological_order[::-1].tolist():
        if device[op] != UNSAID or not may[op]:
            continue
        readers = [
            reader
            for tensor in tensors[offsets[op] : offsets[op + 1]].tolist()
            for reader in problem.consumers[
                problem.consumer_offsets[tensor] : problem.consumer_offsets[tensor + 1]
            ].tolist()
            if device[reader] != UNSAID
        ]
        if readers:
            device[op] = device[min(readers, key=lambda reader: rank[reader])]


def _follow_sources(problem: Problem, device: Ints, may: Flags) -> None:
    offsets, edges = problem.op_inputs
    for op in problem.topological_order.tolist():
        if device[op] != UNSAID or not may[op]:
            continue
        sources = device[problem.edge_producer[edges[offsets[op] : offsets[op + 1]]]]
        known = sources[sources != UNSAID]
        if known.size:
            device[op] = known[-1]
