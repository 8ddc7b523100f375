"""Topological orders of the ops, named as in Celeritas (Xu et al. 2022, §4.2 and §5.1).

- ``cpd`` (CPD-TOPO): depth first, and of several ready ops the one on the longest path first;
- ``dfs`` (DFS-TOPO): depth first, in the order of the op numbers;
- ``m-topo`` (M-TOPO): breadth first, as Baechi does.

Depth first, ops that feed each other stand together, so cutting the order cuts few tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.errors import OptionError
from placewright.graph import Floats, Ints, Wide
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.common.ranks import upward_ranks
from placewright.kernels.latency.sequential import (
    breadth_first_order,
    depth_first_order,
    order_by_label,
    top_levels,
)
from placewright.problem import Problem
from placewright.simulate.latency import rank_order

EQUAL_PATHS = 1e-9
"""Paths whose lengths differ by less than this share of the longest count as equal."""


def order_named(name: str, problem: Problem) -> Ints:
    """The order `name` of the ops of `problem`; OptionError if there is none of that name.

    >>> order_named("cpd", problem)  # doctest: +SKIP
    array([0, 2, 3, 1], dtype=int32)
    """
    check_order(name)
    return ORDERS[name](problem)


def check_order(name: str) -> str:
    """The same name; OptionError if there is no such order."""
    if name not in ORDERS:
        raise OptionError(f"order is '{name}'; choose {', '.join(ORDERS)}")
    return name


def cpd_topo(problem: Problem) -> Ints:
    """Critical-path-based depth-first order (Celeritas Alg. 1, CPD_Topo).

    Ready ops wait on a stack. What an op makes ready goes on top, the op on the longest path
    (`path_lengths`) last, so that it comes next. Equal paths come in the order of op numbers.
    """
    length = path_lengths(problem)
    longest = float(length.max())
    steps = np.round(length / (longest * EQUAL_PATHS)) if longest > 0 else length
    return _depth_first(problem, steps)


def dfs_topo(problem: Problem) -> Ints:
    """Depth-first order (Celeritas §4.2.2): what an op makes ready comes next, by op number."""
    return _depth_first(problem, np.zeros(problem.op_count))


def m_topo(problem: Problem) -> Ints:
    """Breadth-first order: ops in the order in which they become ready (Celeritas §4.2.2)."""
    by_producer = np.argsort(problem.edge_producer, kind="stable")
    return _walk(problem, breadth_first_order, by_producer)


def by_label(problem: Problem, order: Ints, label: Ints) -> Ints:
    """`order` rearranged so that ops with one label (`label[op]` ≥ 0) stand together.

    Goes through `order`, but stays with a label as long as one of its ops is ready. Where the
    ops of each label are neighbours in `order` already, it comes back as it is.
    """
    position = np.empty(problem.op_count, dtype=np.int64)
    position[order] = np.arange(problem.op_count)
    by_producer = np.argsort(problem.edge_producer, kind="stable")
    return _walk(problem, order_by_label, by_producer, position, label)


def by_mean_rank(problem: Problem) -> Ints:
    """Ops by decreasing upward rank, with mean times: a topological order (HEFT's)."""
    return rank_order(problem, mean_op_time(problem), mean_edge_time(problem))


def path_lengths(problem: Problem) -> Floats:
    """`[op]` seconds of the longest path through the op, transfers included (eqs. 2 and 3).

    The sum of its t-level and its b-level, with the times of `mean_op_time` and
    `mean_edge_time`.
    """
    arrays, order = arrays_of(problem), problem.topological_order
    op_weight, edge_weight = mean_op_time(problem), mean_edge_time(problem)
    top: Floats = top_levels(op_weight, edge_weight, order, arrays)
    bottom: Floats = upward_ranks(op_weight, edge_weight, order, arrays)
    return top + bottom


def mean_op_time(problem: Problem) -> Floats:
    """`[op]` seconds averaged over the devices that support the op."""
    supported = np.isfinite(problem.op_time)
    total: Floats = np.where(supported, problem.op_time, 0.0).sum(axis=1)
    mean: Floats = total / np.maximum(supported.sum(axis=1), 1)
    return mean


def mean_edge_time(problem: Problem, inputs: int = 1) -> Floats:
    """`[edge]` seconds of its transfer, averaged over all pairs of different devices.

    Of so many `inputs` at once, where tensors are those of one.
    """
    pairs = max(problem.device_count * (problem.device_count - 1), 1)
    latency = problem.link_latency.sum() / pairs
    seconds_per_byte = problem.link_seconds_per_byte.sum() / pairs
    nbytes = inputs * problem.tensor_bytes[problem.edge_tensor]
    mean: Floats = latency + nbytes * seconds_per_byte
    return mean


ORDERS: MappingProxyType[str, Callable[[Problem], Ints]] = MappingProxyType(
    {"cpd": cpd_topo, "dfs": dfs_topo, "m-topo": m_topo}
)


def _depth_first(problem: Problem, priority: Floats) -> Ints:
    """The op of the highest priority first, then of the least number, of what is ready."""
    last = -np.arange(problem.op_count)
    by_producer = np.lexsort(
        (last[problem.consumers], priority[problem.consumers], problem.edge_producer)
    )
    return _walk(problem, depth_first_order, by_producer, roots_by=np.lexsort((last, priority)))


def _walk(
    problem: Problem,
    walk: Callable[..., Ints],
    by_producer: Wide,
    *more: NDArray[np.integer[Any]],
    roots_by: Wide | None = None,
) -> Ints:
    """Run one of `latency.sequential`'s walks; `roots_by` is an order of the ops for the roots."""
    edges = np.bincount(problem.edge_producer, minlength=problem.op_count)
    offsets = np.concatenate([[0], np.cumsum(edges)])
    waiting = np.bincount(problem.consumers, minlength=problem.op_count)
    ops = np.arange(problem.op_count) if roots_by is None else roots_by
    roots = ops[waiting[ops] == 0].astype(np.int32)
    return walk(offsets, problem.consumers[by_producer], waiting, roots, *more)
