"""Virtual stages: how a non-contiguous split is run as a pipeline (Tarnawski et al. 2020, §5.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placewright.graph import Ints, frozen
from placewright.plan import Placement
from placewright.problem import Problem


@dataclass(frozen=True, eq=False)
class VirtualStage:
    """`ops` that run on `device` (the first of its replicas) without waiting for other stages."""

    device: int
    backward: bool
    ops: Ints


def virtual_stages(problem: Problem, placement: Placement) -> tuple[VirtualStage, ...]:
    """Stages in an order that all data goes along, forward stages before backward ones.

    Each op belongs to one stage, on its device. Ops start at the level that their inputs force
    (one more whenever data changes the device); then stages of one device are merged as long as
    no circle of stages arises. A contiguous split keeps one stage per device and pass. Samples
    follow each other through the stages; those of one device take turns, so its load is what it
    was (`simulate.throughput`).
    """
    stage_of = _levels(problem, placement.device)
    stage_of = _merged(problem, placement.device, stage_of)
    order = _in_order(problem, stage_of)
    return tuple(
        VirtualStage(
            int(placement.device[ops[0]]), bool(problem.is_backward[ops[0]]), frozen(ops, np.int32)
        )
        for ops in (np.flatnonzero(stage_of == stage) for stage in order)
    )


def _levels(problem: Problem, device: Ints) -> Ints:
    """`[op]` number of its finest stage: one per pass, level and device."""
    level = np.zeros(problem.op_count, dtype=np.int64)
    inputs, edges = problem.op_inputs
    for op in problem.topological_order:
        for edge in edges[inputs[op] : inputs[op + 1]]:
            before = problem.edge_producer[edge]
            level[op] = max(level[op], level[before] + int(device[before] != device[op]))
    key = np.stack([problem.is_backward.astype(np.int64), level, device], axis=1)
    found: Ints = np.unique(key, axis=0, return_inverse=True)[1].ravel().astype(np.int32)
    return found


def _merged(problem: Problem, device: Ints, stage_of: Ints) -> Ints:
    """Merge each stage into an earlier one of its device and pass where that makes no circle."""
    stage_of = stage_of.copy()
    kept: dict[tuple[bool, int], list[int]] = {}
    for stage in range(int(stage_of.max()) + 1):
        first = int(np.flatnonzero(stage_of == stage)[0])
        rivals = kept.setdefault((bool(problem.is_backward[first]), int(device[first])), [])
        for other in reversed(rivals):
            tried = np.where(stage_of == stage, other, stage_of)
            if _in_order(problem, tried):
                stage_of = tried
                break
        else:
            rivals.append(stage)
    return stage_of


def _in_order(problem: Problem, stage_of: Ints) -> list[int]:
    """Stages in a topological order, all forward ones first; empty if there is none."""
    import rustworkx as rx

    used = np.unique(stage_of).tolist()
    digraph = rx.PyDiGraph()
    number = dict(zip(used, digraph.add_nodes_from(used), strict=True))
    source, target = stage_of[problem.edge_producer], stage_of[problem.consumers]
    between = source != target
    pairs = np.unique(np.stack([source[between], target[between]], axis=1), axis=0)
    digraph.add_edges_from_no_data([(number[a], number[b]) for a, b in pairs.tolist()])
    backward = dict(zip(stage_of.tolist(), problem.is_backward.tolist(), strict=True))
    if not rx.is_directed_acyclic_graph(digraph):
        return []
    return list(
        rx.lexicographical_topological_sort(
            digraph, key=lambda stage: f"{backward[stage]:d}{stage:09d}"
        )
    )
