"""A part of a problem as a problem of its own, and the way back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from placewright.graph import Flags, Ints, frozen
from placewright.plan import Placement
from placewright.problem import Problem

ELSEWHERE = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class Subproblem:
    """`problem` has some ops of another; `ops[op]` and `edges[edge]` say which they are there."""

    problem: Problem
    ops: Ints
    edges: Ints

    def items(self, placement: Placement, skipped: int = 0) -> Ints:
        """The placement's sequence in the numbers of the whole, less its first `skipped` ops.

        The edges of the ops that are left out stay. ValueError without a sequence.
        """
        if placement.sequence is None:
            raise ValueError("the placement has no sequence")
        sequence = placement.sequence[(placement.sequence < 0) | (placement.sequence >= skipped)]
        is_op = sequence >= 0
        items = np.empty_like(sequence)
        items[is_op] = self.ops[sequence[is_op]]
        items[~is_op] = -1 - self.edges[-1 - sequence[~is_op]]
        return frozen(items, np.int32)

    def restricted(self, placement: Placement) -> Placement:
        """The whole's placement in this part's numbers, in the same order."""
        device = placement.device[self.ops]
        if placement.sequence is None:
            return Placement(device)
        # Items, ops and edges, are numbered around 0: edges below, ops from there on.
        shift = max(0, -int(placement.sequence.min()))
        number = np.full(len(placement.sequence), ELSEWHERE)
        number[self.ops + shift] = np.arange(len(self.ops))
        number[-1 - self.edges + shift] = -1 - np.arange(len(self.edges))
        items = number[placement.sequence + shift]
        return Placement(device, frozen(items[items != ELSEWHERE], np.int32))

    def key(self) -> tuple[bytes, ...]:
        """Equal where two parts of one problem differ in names and numbers only."""
        problem = self.problem
        return tuple(
            array.tobytes()
            for array in (
                problem.op_time, problem.op_memory, problem.op_unit, problem.op_pinned,
                problem.tensor_producer, problem.tensor_bytes, problem.consumer_offsets,
                problem.consumers, problem.device_memory,
            )
        )  # fmt: skip


def subproblem(problem: Problem, ops: Ints, kept: Flags | None = None) -> Subproblem:
    """The problem of `ops` alone, numbered in the order given, with the edges between them.

    Of `kept[edge]` only those of that.

    Tensors keep their bytes and lose the other consumers; those without any left are gone.
    Pins and colocation stay, the devices and the options are the same.

    >>> subproblem(problem, np.array([1, 2])).problem.op_names     # of a → b → c
    ('b', 'c')
    """
    number = np.full(problem.op_count, -1, dtype=np.int32)
    number[ops] = np.arange(len(ops))
    inside = (number[problem.edge_producer] >= 0) & (number[problem.consumers] >= 0)
    edges = np.flatnonzero(inside if kept is None else inside & kept)
    # Parts that look the same are to have the same arrays: by producer, then as they were.
    edges = edges[np.argsort(number[problem.edge_producer[edges]], kind="stable")]
    tensors, first = np.unique(problem.edge_tensor[edges], return_index=True)
    tensors = tensors[np.argsort(first)]
    starts = np.append(np.sort(first), len(edges))
    twin = problem.forward_twin[ops]
    part = replace(
        problem,
        **op_columns(problem, ops),
        forward_twin=np.where(twin >= 0, number[twin], -1),
        tensor_producer=number[problem.tensor_producer[tensors]],
        tensor_bytes=problem.tensor_bytes[tensors],
        consumer_offsets=starts,
        consumers=number[problem.consumers[edges]],
    )
    return Subproblem(part, frozen(ops, np.int32), frozen(edges, np.int32))


def op_columns(problem: Problem, ops: Ints) -> dict[str, Any]:
    """The fields of a problem that have an entry per op, of those ops; not `forward_twin`."""
    chosen = ops.tolist()
    return {
        "op_names": tuple(problem.op_names[op] for op in chosen),
        "op_types": tuple(problem.op_types[op] for op in chosen),
        "op_modules": tuple(problem.op_modules[op] for op in chosen),
        "op_time": problem.op_time[ops],
        "op_memory": problem.op_memory[ops],
        "is_backward": problem.is_backward[ops],
        "colocation": problem.colocation[ops],
        "op_pinned": problem.op_pinned[ops],
        "op_sync_bytes": problem.op_sync_bytes[ops],
        "batch_time": problem.batch_time[ops],
        "op_cost_source": problem.op_cost_source[ops] if problem.op_cost_source.size else (),
        "op_cost_spread": problem.op_cost_spread[ops] if problem.op_cost_spread.size else (),
        "op_cache": problem.op_cache[ops] if problem.op_cache.size else (),
        "op_copied": problem.op_copied[ops] if problem.op_copied.size else (),
        "op_stash": problem.op_stash[ops] if problem.op_stash.size else (),
    }
