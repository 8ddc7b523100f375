"""Modules: pieces of a graph with few edges, or channels, to the rest.

DiviML (Ghannane and Abdelfattah 2023), §IV-B, and what its dynamic program needs to know of them.

*One channel.* DiviML takes a graph with one input and one output, cuts it at articulation points
and bridges, and solves every module by itself. Any graph is made such a one by an input that
feeds all sources and an output that reads all sinks. An op is then an articulation point just
where every path from input to output meets it: where it is comparable with every other op and no
edge bypasses it, a *cut op* (`cut_positions`). So modules follow one another in time, whatever the
schedule: when a cut op ends, all earlier ops and transfers are done; no later one can have begun.
DiviML's dummy op stands at a cut op with no bridge beside it: the op belongs to the module that it
ends, and the next module begins with the same op on the same device.

*More channels.* DiviML takes the k-edge-connected components for k = channels + 1. Alone they make
poor modules of a DAG: an op of fewer than k edges is a component of its own, and contracting some
leaves cycles. What its dynamic program and its bound use is a chain of modules with few edges from
each prefix to the rest; so modules of one channel are cut further at *narrow cuts*, the least
downsets with at most `channels` outgoing edges (`kernels.latency.narrow_cuts`). These part no two
ops of one k-edge-connected component.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.analysis.capacity import Capacity
from placewright.errors import OptionError
from placewright.graph import Flags, Ints, Wide, frozen
from placewright.problem import Problem

MOST_CHANNELS = 4
"""How far one goes to make modules smaller (DiviML's experiments end there too)."""


def cut_positions(problem: Problem) -> Flags:
    """`[position]` in the topological order: whether a cut op stands there.

    Those are the ops comparable with every other op and bypassed by no edge. O(V + E). Take any
    topological order, and an op c at position i.

    *If c is a cut op*, no edge leads from a position before i to one after; an op before i cannot
    be a descendant, so it is an ancestor and no sink; an op after i is a descendant and no source.

    *Conversely*, let no edge bypass i, no sink stand before i and no source after i. From an
    op before i follow edges: the positions grow, there is an edge to follow until i is reached,
    and none jumps over i, so the walk meets c. Likewise backwards from any op after i. So c
    is comparable with all, and no edge bypasses it.

    >>> cut_positions(problem)          # a → (b, c) → d: all but b and c
    array([ True, False, False,  True])
    """
    count = problem.op_count
    position = problem.topological_rank
    start, end = position[problem.edge_producer], position[problem.consumers]
    bypassing = np.cumsum(
        np.bincount(start + 1, minlength=count + 1) - np.bincount(end, minlength=count + 1)
    )[:count]
    first_sink = np.flatnonzero(np.bincount(start, minlength=count) == 0)[0]
    last_source = np.flatnonzero(np.bincount(end, minlength=count) == 0)[-1]
    at = np.arange(count)
    found: Flags = (bypassing == 0) & (at <= first_sink) & (at >= last_source)
    return found


# -- what a split is -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Modules:
    """A chain of modules: edges lead to the same module or a later one.

    - `op_module[op]` its module, numbered along the chain;
    - `cut_op[t]` for the boundary after module t, t < count − 1: the cut op that is the last op
      of modules 0 … t, or -1 if the boundary is none. Every edge over such a boundary leaves
      `cut_op[t]`; the others of modules 0 … t are its ancestors, all later ops its descendants.

    With one channel every boundary has its cut op (`is_exact`) and, for v the device of
    `cut_op[t]`,

        dp(t, v) = min over u of dp(t − 1, u) + duration of module t from u to v

    is the optimum, memory aside (modules share it), where a duration begins as `cut_op[t - 1]`
    ends on u, includes all transfers from it, and ends as `cut_op[t]` ends on v. With more
    channels the other boundaries have at most that many edges (`channel_edges`).
    """

    problem: Problem
    op_module: Ints
    cut_op: Ints

    @property
    def count(self) -> int:
        return len(self.cut_op) + 1

    @property
    def largest(self) -> int:
        """Ops of the largest one."""
        return int(np.bincount(self.op_module).max())

    @property
    def is_exact(self) -> bool:
        """Whether every boundary is a cut op, so that modules never overlap in time."""
        return bool((self.cut_op >= 0).all())

    def ops(self, module: int) -> Ints:
        """Its ops in topological order."""
        return _row(self._members, module)

    def input_edges(self, module: int) -> Ints:
        """Edges to it from earlier modules, by number."""
        return _row(self._entering, module)

    def channel_edges(self, boundary: int) -> Ints:
        """Edges from modules 0 … `boundary` to later ones, by number."""
        return _row(self._over, boundary)

    @cached_property
    def _members(self) -> _Csr:
        order = self.problem.topological_order
        return _csr(self.op_module[order], order, self.count)

    @cached_property
    def _entering(self) -> _Csr:
        edges = self._crossing
        return _csr(self._reader[edges], edges, self.count)

    @cached_property
    def _over(self) -> _Csr:
        edges = self._crossing
        length = self._reader[edges] - self._home[edges]
        within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        boundary = np.repeat(self._home[edges], length) + within
        return _csr(boundary, np.repeat(edges, length), self.count)

    @cached_property
    def _crossing(self) -> Ints:
        return frozen(np.flatnonzero(self._home != self._reader), np.int32)

    @cached_property
    def _home(self) -> Ints:
        return self.op_module[self.problem.edge_producer]

    @cached_property
    def _reader(self) -> Ints:
        return self.op_module[self.problem.consumers]


_Csr = tuple[Wide, Ints]


def _csr(row: NDArray[Any], value: NDArray[Any], count: int) -> _Csr:
    """`(offsets[row], values)` with the values of a row in the order given."""
    by_row = np.argsort(row, kind="stable")
    offsets = np.searchsorted(row[by_row], np.arange(count + 1))
    return frozen(offsets, np.int64), frozen(value[by_row], np.int32)


def _row(csr: _Csr, row: int) -> Ints:
    offsets, values = csr
    return values[offsets[row] : offsets[row + 1]]


# -- splitting -------------------------------------------------------------------------------------


def split_modules(problem: Problem, channels: int = 1, max_ops: int | None = None) -> Modules:
    """The modules of `problem` that hang together by up to `channels` edges; see `Modules`.

    An edge is a pair of ops here, however many tensors go from one to the other. There are as
    many modules as the narrow cuts make; with `max_ops`, neighbours are joined where they
    together have no more ops, so that the fewest edges remain between modules (a cut op's
    count as one). A module that has more from the start stays as it is.

    OptionError unless `channels` ≥ 1 and `max_ops` ≥ 1.

    >>> modules = split_modules(problem)          # a → (b, c) → d → e
    >>> [modules.ops(t).tolist() for t in range(modules.count)], modules.cut_op.tolist()
    ([[0, 1, 2, 3], [4]], [3])
    """
    if channels < 1:
        raise OptionError(f"channels is {channels}; modules need at least one channel")
    if max_ops is not None and max_ops < 1:
        raise OptionError(f"max_ops is {max_ops}; a module has at least one op")
    module = _between_cut_ops(problem)
    if channels > 1:
        module = _at_narrow_cuts(problem, module, channels)
    modules = chained(problem, module)
    if max_ops is None:
        return modules
    return chained(problem, _joined(modules, max_ops)[modules.op_module])


def asked_channels(planner: str, text: str) -> int | None:
    """The value of a planner's option `channels`, None for ``auto``; OptionError if neither."""
    if text not in ("auto", *(str(n) for n in range(1, MOST_CHANNELS + 1))):
        raise OptionError(
            f"planner '{planner}': channels is '{text}'; give auto or 1 to {MOST_CHANNELS}"
        )
    return int(text) if text != "auto" else None


def ever_smaller(
    problem: Problem, channels: int | None, max_ops: Callable[[int], int | None], enough: int
) -> Iterator[Modules]:
    """The modules of so many channels or, of None, of ever more, up to `MOST_CHANNELS`.

    Until no module has more than `enough` ops; `max_ops` as of `split_modules`, by channels.
    """
    for number in (channels,) if channels else range(1, MOST_CHANNELS + 1):
        modules = split_modules(problem, number, max_ops(number))
        yield modules
        if modules.largest <= enough:
            return


def chained(problem: Problem, module: Ints) -> Modules:
    """`module`, a chain numbered from 0, with what is known of its boundaries."""
    last = np.zeros(int(module.max()) + 1, dtype=np.int64)
    np.maximum.at(last, module, problem.topological_rank)
    last = np.maximum.accumulate(last)[:-1]
    is_cut = cut_positions(problem)
    is_boundary = (np.cumsum(np.bincount(module))[:-1] == last + 1) & is_cut[last]
    cut_op = np.where(is_boundary, problem.topological_order[last], -1)
    return Modules(problem, frozen(module, np.int32), frozen(cut_op, np.int32))


def _between_cut_ops(problem: Problem) -> Ints:
    """`[op]` the module of one channel: a new one begins after a cut op.

    Not after one that begins a module itself: it has a bridge, or nothing, before it, and other
    ops than a bridge after it.
    """
    is_cut = cut_positions(problem)
    before = np.concatenate([[True], is_cut[:-1]])
    after = np.concatenate([is_cut[1:], [True]])
    ends = is_cut & ~(before & ~after)
    module = np.empty(problem.op_count, dtype=np.int32)
    module[problem.topological_order] = np.cumsum(ends) - ends
    return module


def _at_narrow_cuts(problem: Problem, block: Ints, channels: int) -> Ints:
    """`block` cut further; a cut op that two blocks share feeds the second from outside."""
    from placewright.kernels.latency.narrow_cuts import Network, narrow_cuts

    position = problem.topological_rank
    start, end = position[problem.edge_producer], position[problem.consumers]
    tail, reader = np.unique(np.stack([start, end], axis=1), axis=0).T
    at = np.arange(problem.op_count + 1)
    entering = np.argsort(reader, kind="stable")
    network = Network(
        np.ascontiguousarray(tail),
        np.ascontiguousarray(reader),
        np.searchsorted(tail, at),
        entering,
        np.searchsorted(reader[entering], at),
    )
    piece = narrow_cuts(network, np.cumsum(np.bincount(block)), channels)
    module: Ints = piece[position].astype(np.int32)
    return module


def _joined(modules: Modules, max_ops: int) -> Ints:
    """`[module]` the longer module it becomes part of: the cheapest path along the boundaries."""
    count = modules.count
    ends = np.cumsum(np.bincount(modules.op_module, minlength=count)).tolist()
    width = np.diff(modules._over[0])
    cost = [0, *np.where(modules.cut_op >= 0, 1, width[: count - 1]).tolist(), 0]
    total = [0] * (count + 1)  # the least cost of a path to the start of a module
    start_of = [0] * (count + 1)
    waiting: deque[int] = deque()  # starts in reach of the next end, ever more costly
    for end in range(1, count + 1):
        while waiting and total[waiting[-1]] > total[end - 1]:
            waiting.pop()
        waiting.append(end - 1)
        while waiting[0] < end - 1 and ends[end - 1] - _before(ends, waiting[0]) > max_ops:
            waiting.popleft()
        start_of[end] = waiting[0]
        total[end] = total[waiting[0]] + cost[end]
    starts = np.zeros(count, dtype=np.int64)
    end = count
    while end:
        end = start_of[end]
        starts[end] = 1
    return (np.cumsum(starts) - 1).astype(np.int32)


def _before(ends: list[int], module: int) -> int:
    return ends[module - 1] if module else 0


# -- groups to contract ----------------------------------------------------------------------------


def module_groups(problem: Problem, channels: int = 1, max_ops: int | None = None) -> Ints:
    """`[op]` the group it belongs to, for `contraction.contract`, numbered in topological order.

    A group is a module of `split_modules`. One that fits no device (as pinned, with all that is
    colocated with it; forward and backward ops stay apart), or has more than `max_ops` ops, is
    split with more channels, up to `MOST_CHANNELS`, and if that does not help left op by op.

    OptionError unless `channels` ≥ 1 and `max_ops` ≥ 1.
    """
    module = split_modules(problem, channels, max_ops).op_module
    for more in range(channels + 1, MOST_CHANNELS + 1):
        fits = _fit(problem, module, max_ops)
        if fits.all():
            break
        finer = split_modules(problem, more, max_ops).op_module
        module = _ranked(module, np.where(fits[module], 0, finer))
    alone = ~_fit(problem, module, max_ops)[module]
    return _ranked(module, np.where(alone, problem.topological_rank, 0))


def _ranked(major: NDArray[Any], minor: NDArray[Any]) -> Ints:
    """`[op]` the rank of its pair of numbers.

    Topological if edges never lead to smaller numbers of either kind.
    """
    pairs = np.stack([major, minor], axis=1)
    _, rank = np.unique(pairs, axis=0, return_inverse=True)
    return frozen(rank.ravel(), np.int32)


def _fit(problem: Problem, module: Ints, max_ops: int | None) -> Flags:
    """`[module]` whether it may be one group."""
    capacity = Capacity(problem)
    limit = max_ops or problem.op_count
    offsets, ops = _csr(module, np.arange(problem.op_count), int(module.max()) + 1)
    members = [ops[a:b].tolist() for a, b in pairwise(offsets.tolist())]
    return np.array([len(each) <= limit and capacity.together(each) for each in members])
