"""Lower bounds on the latency of a single run.

Both arguments hold under every transfer unit, contention and memory option, for they count
computing alone and only the bytes that ops keep (which ``peak`` needs too).

Memory enters by Lagrangian relaxation. For any prices μ[device] ≥ 0 (seconds per byte), any
feasible placement and any set S of ops,

    Σ_{o in S} t[o, d(o)]  ≥  Σ_{o in S} min_d (t[o, d] + μ_d m_o)  −  Σ_d μ_d M_d,

because the placement pays Σ_{o in S} μ_{d(o)} m_o ≤ Σ_d μ_d M_d. Good prices are sought by
subgradient steps; every price vector gives a valid bound, so the best seen counts.

Devices that are alike (`analysis.devices.kinds`) have one price: the bound is concave in the
prices and does not change when alike devices change theirs, so equal ones are as good as any. A
class of them is one column with a `count`, and a cluster of a thousand devices costs no more than
one of its kinds.
"""

from __future__ import annotations

import numpy as np

from placewright.analysis.devices import one_of_each
from placewright.bounds.bound import Bound, nowhere
from placewright.bounds.prices import HopedFor
from placewright.graph import Floats, Ints
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.common.ranks import upward_ranks
from placewright.problem import ROUNDING, Problem

STEPS = 60


def lower_bound(problem: Problem) -> Bound:
    """The best of the bounds below."""
    if none := nowhere(problem):
        return none
    problem, count = one_of_each(problem)
    bounds = _critical_path(problem, count), _work(problem, count)
    return max(bounds, key=lambda bound: bound.value)


def critical_path(problem: Problem) -> Bound:
    """The longest path with each op on its fastest device, memory priced."""
    return nowhere(problem) or _critical_path(*one_of_each(problem))


def work(problem: Problem) -> Bound:
    """All work, shared out over the devices in the best proportion, memory priced."""
    return nowhere(problem) or _work(*one_of_each(problem))


def _critical_path(problem: Problem, count: Floats) -> Bound:
    """The longest path with each op on its fastest device, memory priced.

    Ops on a path run one after another, so their times add up, on whatever devices; the path
    and the placement inequality above give the bound for S = the path.
    """
    times = _allowed_times(problem)
    fastest = times.min(axis=1)
    plain = longest_path(problem, fastest)[0]
    best = plain
    limited = np.isfinite(problem.device_memory)
    capacity = np.where(limited & (problem.device_memory > 0), problem.device_memory, np.inf)
    if limited.any():
        price = np.zeros(problem.device_count)  # μ_d M_d: seconds for all of a device's memory
        share = problem.op_memory[:, None] / capacity[None, :]
        hoped = HopedFor(STEPS)
        while not hoped.given_up:
            priced = times + share * price[None, :]
            choice = priced.argmin(axis=1)
            length, path = longest_path(problem, priced[np.arange(len(choice)), choice])
            used = np.bincount(choice[path], share[path, choice[path]], len(count))
            value = float(length - (count * price).sum())
            price = hoped.next_prices(price, value, np.where(limited, used - count, 0.0))
        best = max(best, hoped.best)
    return Bound(best * (1 - ROUNDING), _named("critical path", best, plain))


def _work(problem: Problem, count: Floats) -> Bound:
    """All work, shared out over the devices in the best proportion, memory priced.

    Each device's load is at most the makespan T, so for weights λ ≥ 0 with Σ λ = 1,
    T ≥ Σ_d λ_d load_d ≥ Σ_o min_d (λ_d t[o, d] + μ_d m_o) − Σ_d μ_d M_d. This is the dual of
    the linear program "fractions of ops on devices, largest load least".
    """
    times = _allowed_times(problem)
    limited = np.isfinite(problem.device_memory)
    capacity = np.where(limited & (problem.device_memory > 0), problem.device_memory, np.inf)
    share = problem.op_memory[:, None] / capacity[None, :]
    weight = np.full(problem.device_count, 1.0 / count.sum())
    price = np.zeros(problem.device_count)
    rows = np.arange(problem.op_count)
    plain = best = 0.0
    for step in range(STEPS):
        cost = _weighted(times, weight) + share * price[None, :]
        choice = cost.argmin(axis=1)
        value = float(cost[rows, choice].sum() - (count * price).sum())
        best = max(best, value)
        if not price.any():
            plain = max(plain, value)
        load = np.bincount(choice, times[rows, choice], problem.device_count) / count
        used = np.bincount(choice, share[rows, choice], problem.device_count) / count
        scale = load.max()
        if scale == 0:
            break
        weight = weight * np.exp(2.0 / np.sqrt(1.0 + step) * (load - load.mean()) / scale)
        weight /= (count * weight).sum()
        if step >= STEPS // 3:  # first the weights alone, then the prices too
            excess = np.where(limited, used - 1.0, 0.0)
            price = np.maximum(price + best * excess / (1.0 + step), 0.0)
    return Bound(best * (1 - ROUNDING), _named("work over speeds", best, plain))


def _allowed_times(problem: Problem) -> Floats:
    """`[op, device]` seconds, `inf` where the op's whole unit cannot be."""
    return np.where(problem.unit_allowed[problem.op_unit], problem.op_time, np.inf)


def _weighted(times: Floats, weight: Floats) -> Floats:
    """λ_d t[o, d], with 0 · inf taken as inf: an op cannot go where it is not allowed."""
    return np.where(np.isinf(times), np.inf, np.where(np.isinf(times), 0.0, times) * weight)


def longest_path(problem: Problem, op_weight: Floats) -> tuple[float, Ints]:
    """Length of the heaviest path, and its ops."""
    rank = upward_ranks(
        op_weight, np.zeros(problem.edge_count), problem.topological_order, arrays_of(problem)
    )
    following = _following(problem, rank)
    path = [int(rank.argmax())]
    while following[path[-1]] >= 0:
        path.append(following[path[-1]])
    return float(rank.max()), np.array(path, dtype=np.int32)


def _following(problem: Problem, rank: Floats) -> list[int]:
    """`[op]` its reader with the highest rank, the first of several; -1 for an op without any."""
    producer, reader = problem.edge_producer, problem.consumers
    order = np.lexsort((-rank[reader], producer))
    ops, first = np.unique(producer[order], return_index=True)
    following = np.full(problem.op_count, -1)
    following[ops] = reader[order[first]]
    found: list[int] = following.tolist()
    return found


def _named(argument: str, best: float, plain: float) -> str:
    return f"{argument} with memory" if best > plain else argument
