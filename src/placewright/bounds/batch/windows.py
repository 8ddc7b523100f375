"""What comes before, the work of a set of ops, and what comes after."""

from __future__ import annotations

import numpy as np

from placewright.bounds.batch.splits import op_splits
from placewright.bounds.batch.work import share_out
from placewright.bounds.bound import Bound
from placewright.graph import Floats
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.common.ranks import upward_ranks
from placewright.problem import ROUNDING, Problem

MOST_WINDOWS = 48  # heads, and tails, that windows begin and end with


def windows(problem: Problem, weight: Floats) -> Bound:
    """What comes before, the work of a set of ops, and what comes after.

    No batch of op o starts before head(o): an input in it has gone through all that o depends
    on, each op in a batch no quicker than its quickest; nor ends after T − tail(o), likewise. So
    the ops with head ≥ r and tail ≥ q do all their work within T − r − q, for which `work`'s
    argument gives a bound, with any weights: those of all work pick r and q, then the best for
    the set are sought.
    """
    table = op_splits(problem)
    head, tail = _heads_and_tails(problem, table.quickest[table.kind])
    cost = table.cheapest(table.weighted(weight[:, None]))[0][table.kind]
    starts, ends = _thresholds(head), _thresholds(tail)
    sums = np.zeros((len(starts), len(ends)))
    before = np.searchsorted(starts, head, side="right") - 1
    after = np.searchsorted(ends, tail, side="right") - 1
    np.add.at(sums, (before, after), cost)
    sums = sums[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
    total = np.where(sums > 0, starts[:, None] + ends[None, :] + sums, 0.0)
    start, end = np.unravel_index(int(total.argmax()), total.shape)
    inside = (head >= starts[start]) & (tail >= ends[end])
    number = np.bincount(table.kind[inside], minlength=len(table.time))
    most, _, _ = share_out(table, number, np.zeros(problem.device_count, dtype=np.bool_), weight)
    best = max(float(total[start, end]), float(starts[start] + ends[end]) + most)
    return Bound(best * (1 - ROUNDING), "path before, work, path after")


def _heads_and_tails(problem: Problem, weight: Floats) -> tuple[Floats, Floats]:
    """`[op]` the heaviest path that ends before the op, and that begins after it."""
    nothing = np.zeros(problem.edge_count)
    ranks = upward_ranks(weight, nothing, problem.topological_order, arrays_of(problem))
    head = np.zeros(problem.op_count)
    offsets, edges = problem.op_inputs
    for op in problem.topological_order:
        feeders = problem.edge_producer[edges[offsets[op] : offsets[op + 1]]]
        if len(feeders):
            head[op] = (head[feeders] + weight[feeders]).max()
    return head, ranks - np.where(np.isfinite(weight), weight, 0.0)


def _thresholds(values: Floats) -> Floats:
    """0 and values to compare with, an even choice of many."""
    distinct = np.unique(np.append(values, 0.0))
    if len(distinct) <= MOST_WINDOWS:
        return distinct
    return distinct[np.linspace(0, len(distinct) - 1, MOST_WINDOWS).astype(np.int64)]
