"""Measured times of groups of ops that an engine fuses: what names a group, and its share per op.

A group's time is kept in the store like an op's, by a signature of its own: those of its calls, and
who of them reads whom. A problem has times of ops, so the group's time is shared out over its ops,
in the ratio of their own; together they then take what was measured.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from placewright.cluster import Device
from placewright.costs.profiles.entry import op_name
from placewright.costs.profiles.lookup import known_costs, library_of
from placewright.graph import Floats, Graph, Ints
from placewright.problem import MEASURED, Problem

PREFIX = "fused"
SHOWN = 60  # characters of the operators' names


def fused_groups(graph: Graph, op_group: Ints) -> dict[tuple[int, ...], str]:
    """The groups of two ops or more, in the program's order, and the signature of each.

    Two groups share it if their calls do, in the same order and reading each other alike. Left out
    are groups of which an op has no signature.
    """
    if not any(graph.op_signatures):
        return {}
    members: dict[int, list[int]] = {}
    wires: dict[int, list[str]] = {}
    for op, group in enumerate(op_group.tolist()):
        members.setdefault(group, []).append(op)
    place = {op: at for ops in members.values() for at, op in enumerate(ops)}
    producer, consumer = graph.edges
    inside = op_group[producer] == op_group[consumer]
    for a, b in sorted(zip(producer[inside].tolist(), consumer[inside].tolist(), strict=True)):
        wires.setdefault(int(op_group[a]), []).append(f"{place[a]} {place[b]}")
    found = {}
    for group, ops in members.items():
        signatures = [graph.op_signatures[op] for op in ops]
        if len(ops) > 1 and all(signatures):
            found[tuple(ops)] = _signature(signatures, wires.get(group, []))
    return found


def with_fused_times(
    problem: Problem,
    graph: Graph,
    op_group: Ints,
    devices: Sequence[Device],
    profiles: str | Path | None,
) -> Problem:
    """`problem`, of `graph` on `devices`, with measured groups' times shared out over their ops.

    Devices whose kind the graph has times for keep those, as does what was not measured.
    """
    groups = fused_groups(graph, op_group)
    known = known_costs(set(groups.values()), library_of(graph), devices, profiles)
    if not known:
        return problem
    times, sources = problem.op_time.copy(), problem.op_cost_source.copy()
    spreads = problem.op_cost_spread.copy()
    for number, device in enumerate(devices):
        if device.name not in known or device.kind in graph.times:
            continue
        for ops, signature in groups.items():
            if (measured := known[device.name].get(signature)) is not None:
                place = (list(ops), number)
                times[place] = _ratio(problem.op_time[place]) * measured.seconds
                sources[place] = MEASURED
                if spreads.size:
                    spreads[place] = measured.spread
    return replace(problem, op_time=times, op_cost_source=sources, op_cost_spread=spreads)


def _ratio(own: Floats) -> Floats:
    """Shares in the ratio of `own` times; equal ones where those are 0."""
    total = own.sum()
    return own / total if total > 0 else np.full(len(own), 1 / len(own))


def _signature(signatures: Sequence[str], wires: Sequence[str]) -> str:
    text = "\n".join([*signatures, *wires])
    names = "+".join(op_name(each).removeprefix("aten.").partition(".")[0] for each in signatures)
    return f"{PREFIX}.{names[:SHOWN]}({hashlib.sha256(text.encode()).hexdigest()[:32]})"
