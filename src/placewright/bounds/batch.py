"""Lower bounds on the time T to finish a batch of L inputs (DiviML §IV-A).

A *split* of an op says how many inputs n_d each device d takes, Σ_d n_d = L, each n_d > 0 a batch
size that the device takes for the op. Each argument prices an op by its cheapest split, found by
a dynamic program over the devices: no plan pays less. All hold under every transfer unit and
contention option, for they count computing alone. Memory enters as in `bounds.latency.paths`: with
prices μ_d ≥ 0 per byte, an op of m bytes pays μ_d m on each device that it uses, and a plan that
fits pays at most Σ_d μ_d M_d in all, which is taken off.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.bounds.bound import Bound
from placewright.bounds.latency.paths import longest_path
from placewright.bounds.prices import HopedFor
from placewright.graph import Floats, Ints, Wide
from placewright.kernels.batch.arrays import batches_of
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.common.ranks import upward_ranks
from placewright.problem import LONG_ROUNDING, ROUNDING, Problem

STEPS = 80
ROOM = 1 + LONG_ROUNDING  # of a device: what is full may be fuller by what sums are rounded
MOST_WINDOWS = 48  # heads, and tails, that windows begin and end with


def lower_bound(problem: Problem) -> Bound:
    """The best of the bounds below; of those that are equal but for rounding, the simplest."""
    whole, weight = _work(problem)
    bounds = (whole, mean_path(problem), windows(problem, weight))
    best = max(bound.value for bound in bounds)
    return next(bound for bound in bounds if bound.value >= best * (1 - LONG_ROUNDING))


def mean_path(problem: Problem) -> Bound:
    """The longest path, each op with the mean over the inputs of the batch that an input is in.

    On a path P an input's batches run one after another: T ≥ Σ_{o∈P} t[o, d(o, l), n(o, l)] for
    each input l. The mean over all l is Σ_{o∈P} Σ_d (n_d / L) t[o, d, n_d], at least the sum of
    the least such means, memory priced: other ops pay the least price of a split.
    """
    table = _op_table(problem)
    share = np.arange(table.time.shape[2]) / (table.time.shape[2] - 1)
    mean = table.weighted(np.broadcast_to(share, table.time.shape[1:]))
    values, _ = table.cheapest(mean)
    plain = best = longest_path(problem, values[table.kind])[0]
    limited, part = table.memory_parts(problem)
    price, hoped = np.zeros(problem.device_count), HopedFor(STEPS)
    free = np.where(np.isfinite(mean), 0.0, np.inf)
    while limited.any() and np.isfinite(plain):  # infinite: an op has no split at all
        values, counts = table.cheapest(_priced(mean, part, price))
        beside, counts_beside = table.cheapest(_priced(free, part, price))
        length, path = longest_path(problem, (values - beside)[table.kind])
        value = length + float(beside[table.kind].sum() - ROOM * price.sum())
        held = np.bincount(table.kind, minlength=len(beside))
        held_beside = held - np.bincount(table.kind[path], minlength=len(beside))
        used = (held - held_beside) @ ((counts > 0) * part)
        used += held_beside @ ((counts_beside > 0) * part)
        price = hoped.next_prices(price, value, np.where(limited, used - ROOM, 0.0))
        if hoped.given_up:
            break
    best = max(best, hoped.best)
    return Bound(best * (1 - ROUNDING), _named("mean path of an input", best, plain))


def work(problem: Problem) -> Bound:
    """All work, shared out over the devices in the best proportion, memory priced.

    Each device is busy for at most T. So for weights λ ≥ 0 with Σ λ = 1, T ≥ Σ_d λ_d load_d =
    Σ_u Σ_d λ_d t[u, d, n_d], over the units u (ops that are together and split alike), at least
    the sum over units of the least such cost of a split.
    """
    return _work(problem)[0]


def windows(problem: Problem, weight: Floats) -> Bound:
    """What comes before, the work of a set of ops, and what comes after.

    No batch of op o starts before head(o): an input in it has gone through all that o depends
    on, each op in a batch no quicker than its quickest; nor ends after T − tail(o), likewise. So
    the ops with head ≥ r and tail ≥ q do all their work within T − r − q, for which `work`'s
    argument gives a bound, with any weights: those of all work pick r and q, then the best for
    the set are sought.
    """
    table = _op_table(problem)
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
    most, _, _ = _share_out(table, number, np.zeros(problem.device_count, dtype=np.bool_), weight)
    best = max(float(total[start, end]), float(starts[start] + ends[end]) + most)
    return Bound(best * (1 - ROUNDING), "path before, work, path after")


@dataclass(frozen=True)
class _Table:
    """Kinds of ops (or units): ``time[kind, device, count]``, inf where not allowed.

    Those with equal times and memory are of one kind; `kind[op]` and ``memory[kind]``.
    """

    time: Floats
    memory: Floats
    kind: Ints

    @classmethod
    def of(cls, time: Floats, memory: Floats, device_kind: Ints) -> _Table:
        """From ``time[op or unit, kind of device, count]``."""
        columns = np.column_stack([time.reshape(len(time), -1), memory])
        _, first, kind = np.unique(columns, axis=0, return_index=True, return_inverse=True)
        return cls(time[first][:, device_kind], memory[first], kind.ravel().astype(np.int32))

    def weighted(self, weight: Floats) -> Floats:
        """Times by ``weight[device, count]``; what is not allowed stays so, whatever the weight."""
        finite = np.isfinite(self.time)
        cost: Floats = np.where(finite, np.where(finite, self.time, 0.0) * weight, np.inf)
        return cost

    def cheapest(self, cost: Floats) -> tuple[Floats, Wide]:
        """`[kind]` the least cost of a split for ``cost[kind, device, count]``, and its counts."""
        kinds, devices, columns = cost.shape
        least = np.full((kinds, columns), np.inf)
        least[:, 0] = 0.0
        taken = np.zeros((devices, kinds, columns), dtype=np.int64)
        for d in range(devices):
            before = least.copy()
            for count in np.flatnonzero(np.isfinite(cost[:, d]).any(axis=0)):
                if count == 0:
                    continue
                tried = before[:, : columns - count] + cost[:, d, count, None]
                better = tried < least[:, count:]
                least[:, count:][better] = tried[better]
                taken[d, :, count:][better] = count
        left = np.full(kinds, columns - 1)
        counts = np.zeros((kinds, devices), dtype=np.int64)
        for d in reversed(range(devices)):
            counts[:, d] = taken[d, np.arange(kinds), left]
            left = left - counts[:, d]
        return least[:, -1], counts

    def memory_parts(self, problem: Problem) -> tuple[NDArray[np.bool_], Floats]:
        """Which devices have limits, and `[kind, device]` the part of it that a kind needs."""
        limited = np.isfinite(problem.device_memory)
        capacity = np.where(limited & (problem.device_memory > 0), problem.device_memory, np.inf)
        return limited, self.memory[:, None] / capacity[None, :]

    @cached_property
    def quickest(self) -> Floats:
        """`[kind]` seconds of the quickest batch in any split."""
        possible = np.isfinite(self.time)
        kinds, devices, columns = possible.shape
        quickest = np.full(kinds, np.inf)
        for d in range(devices):
            rest = np.where(np.delete(possible, d, axis=1), 0.0, np.inf)
            fills = np.isfinite(_all_sums(rest))  # [kind, chunks] that the other devices can take
            for count in range(1, columns):
                usable = possible[:, d, count] & fills[:, columns - 1 - count]
                time = np.where(usable, self.time[:, d, count], np.inf)
                quickest = np.minimum(quickest, time)
        return quickest


def _all_sums(cost: Floats) -> Floats:
    """``[kind, chunks]`` 0 where devices with allowed counts (cost 0) can take so many in all."""
    least = np.full((cost.shape[0], cost.shape[2]), np.inf)
    least[:, 0] = 0.0
    for d in range(cost.shape[1]):
        before = least.copy()
        for count in range(1, cost.shape[2]):
            tried = before[:, :-count] + cost[:, d, count, None]
            least[:, count:] = np.minimum(least[:, count:], tried)
    return least


def _op_table(problem: Problem) -> _Table:
    b = batches_of(problem)
    time = np.where(b.allowed[problem.op_unit], b.time, np.inf)
    return _Table.of(time, problem.op_memory, b.kind)


def _unit_table(problem: Problem) -> _Table:
    b = batches_of(problem)
    time = np.where(b.allowed, b.unit_time, np.inf)
    return _Table.of(time, problem.unit_memory, b.kind)


def _work(problem: Problem) -> tuple[Bound, Floats]:
    """The bound, and the weights of the devices that gave the best one without memory."""
    table = _unit_table(problem)
    number = np.bincount(table.kind, minlength=len(table.time))
    limited, part = table.memory_parts(problem)
    even = np.full(problem.device_count, 1.0 / problem.device_count)
    best, plain, weight = _share_out(table, number, limited, even, part)
    return Bound(best * (1 - ROUNDING), _named("work over speeds", best, plain)), weight


def _share_out(
    table: _Table,
    number: NDArray[np.integer[Any]],
    limited: NDArray[np.bool_],
    weight: Floats,
    part: Floats | None = None,
) -> tuple[float, float, Floats]:
    """The best bound for so many of each kind, that without memory prices, and its weights.

    Multiplicative updates give weight to loaded devices, subgradient steps prices to full ones.
    """
    part = np.zeros(table.time.shape[:2]) if part is None else part
    price = np.zeros(len(weight))
    best = plain = -1.0
    best_weight = weight
    kinds = np.flatnonzero(number)
    table = _Table(table.time[kinds], table.memory[kinds], table.kind)
    number, part = number[kinds], part[kinds]
    rows, devices = np.arange(len(kinds))[:, None], np.arange(len(weight))
    for step in range(STEPS):
        priced = _priced(table.weighted(weight[:, None]), part, price)
        values, counts = table.cheapest(priced)
        value = float(values @ number - ROOM * price.sum())
        best = max(best, value)
        if not price.any() and value > plain:
            plain, best_weight = value, weight
        load = number @ table.time[rows, devices, counts]
        if load.max() == 0 or not np.isfinite(value):
            break
        weight = weight * np.exp(2.0 / np.sqrt(1.0 + step) * (load - load.mean()) / load.max())
        weight = weight / weight.sum()
        if step >= STEPS // 3:  # first the weights alone, then the prices too
            used = number @ ((counts > 0) * part)
            excess = np.where(limited, used - 1.0, 0.0)
            price = np.maximum(price + best * excess / (1.0 + step), 0.0)
    return max(best, 0.0), max(plain, 0.0), best_weight


def _priced(cost: Floats, part: Floats, price: Floats) -> Floats:
    """The price of memory on each device that is used at all."""
    if not price.any():
        return cost
    used = np.arange(cost.shape[2]) > 0
    return cost + (part * price)[:, :, None] * used


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


def _named(argument: str, best: float, plain: float) -> str:
    return f"{argument} with memory" if best > plain else argument
