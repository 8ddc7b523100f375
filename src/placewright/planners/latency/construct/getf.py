"""GETF: a linear program gives each op a group of devices, earliest start a device in it.

Su, Ren, Vardi & Wierman 2020, "Communication-aware scheduling of precedence-constrained tasks on
related machines". Devices of like speed form groups: group k holds speeds from γ^(k-1) up to γ^k
times the slowest. The program (after Chudak & Shmoys 1999), with t_ok the time of op o on a
device of kind k, n_k devices of the kind, m_u and M_k bytes:

    minimise T                                    makespan, transfers left out
    Σ_k x_uk = 1,  x ≥ 0                          share of unit u on each kind of device
    Σ_o t_ok x_u(o)k ≤ n_k T                      loads
    s_j ≥ s_i + Σ_k t_ik x_u(i)k                  where j reads what i produces
    T ≥ s_o + Σ_k t_ok x_u(o)k
    Σ_u m_u x_uk ≤ n_k M_k                        memory: not in the paper

A group ℓ is the fastest such that it and the faster ones hold at least half of the op; of ℓ and
the faster groups, the op gets the one with the largest total speed. Then, as in ETF, the pair of
ready op and device of its group that can start first, transfers counted.

Where this departs from the paper. Devices need not be related: the program has each op's own
times, and a device's speed is its mean over ops. Devices slower than 1/m of the fastest are kept,
for their memory. Ops colocated are one unit. A group takes units, in topological order, while
they fit its memory; others go to the group that holds the next largest share, and where packing
within a group fails, to any device with room. γ = log m / log log m is the paper's, at least 2.

The program leaves out constraints only, so its optimum is a lower bound on the makespan; what
is returned as such is computed again from the multipliers (`_certified`), not taken from the
solver. ``-O lp=`` as for m-sct: ``auto`` takes ``glop`` up to 60,000 entries of the merged
matrix, and above that ``descent``, whose bound is as valid and a little lower.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import ClassVar

import numpy as np

from placewright.analysis.orders import by_mean_rank, mean_op_time
from placewright.budget import Budget, Progress
from placewright.graph import Flags, Floats, Ints, frozen
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.earliest_start import earliest_start_placement
from placewright.kernels.latency.getf import assignment_descent, dual_value
from placewright.kernels.latency.units import units_of
from placewright.plan import Placement
from placewright.planners.base import LatencyPlanner, Proposal, no_room
from placewright.planners.latency.construct.favourite_child import (
    ITERATIONS,
    LinearProgram,
    OpPairs,
    Symmetry,
    Words,
    lp_options,
    number,
)
from placewright.problem import LONG_ROUNDING, Problem
from placewright.solvers.mathopt import SOLVER_ROUNDING

LARGEST_EXACT = 60_000  # entries of the merged matrix that `auto` leaves to simplex
MAX_RETRIES = 64


class Getf(LatencyPlanner):
    """Generalised Earliest Time First: earliest start within a group chosen by an LP."""

    name: ClassVar[str] = "getf"

    def __init__(self, *, lp: str = "auto", gamma: str = "", iterations: str = "") -> None:
        self.lp, self.iterations = lp_options(lp, iterations)
        self.gamma = number("gamma", gamma, above=1.0) if gamma else None

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        on_progress("assigning ops to groups of devices", 0.0)
        relaxed = relaxation(problem, self.lp, self.iterations)
        on_progress("placing", 0.9)
        speed = device_speed(problem)
        group = device_groups(speed, self.gamma or default_gamma(problem.device_count))
        chosen = assign_groups(problem, relaxed.share, group, speed)
        allowed = np.isfinite(problem.unit_time) & (group[None, :] == chosen[:, None])
        device = self._place(problem, allowed)
        return Proposal(
            Placement(device), relaxed.bound, "GETF's linear program (paths, loads and memory)"
        )

    def _place(self, problem: Problem, allowed: Flags) -> Ints:
        """ETF within `allowed[unit, device]`; units that find no room there may go anywhere."""
        order = by_mean_rank(problem)
        priority = np.empty(problem.op_count, dtype=np.int32)
        priority[order] = np.arange(problem.op_count)
        supported = np.isfinite(problem.unit_time)
        for _ in range(MAX_RETRIES):
            units = units_of(problem, problem.unit_pinned)._replace(allowed=allowed)
            failed = earliest_start_placement(arrays_of(problem), priority, units)
            if failed < 0:
                return frozen(units.device[problem.op_unit], np.int32)
            unit = int(problem.op_unit[failed])
            if (allowed[unit] == supported[unit]).all():
                break
            allowed[unit] = supported[unit]
        raise no_room(problem, unit, units.free, self.name)


# -- groups --------------------------------------------------------------------------------------


def device_speed(problem: Problem) -> Floats:
    """`[device]` how many times as fast as the mean device it runs the ops it supports.

    0 where it supports none; a device that takes no time at all is as fast as the fastest other.
    """
    supported = np.isfinite(problem.op_time)
    needed = np.where(supported, problem.op_time, 0.0).sum(axis=0)
    usual = np.where(supported, mean_op_time(problem)[:, None], 0.0).sum(axis=0)
    speed = np.divide(usual, needed, out=np.zeros(problem.device_count), where=needed > 0)
    timeless = supported.any(axis=0) & (needed == 0)
    return np.where(timeless, speed.max() or 1.0, speed)


def default_gamma(device_count: int) -> float:
    """γ = log m / log log m, which suits m → ∞; at least 2."""
    if device_count <= 2:
        return 2.0
    return max(2.0, log2(device_count) / log2(log2(device_count)))


def device_groups(speed: Floats, gamma: float) -> Ints:
    """`[device]` group, 0 the slowest; only groups with a device are numbered.

    >>> device_groups(np.array([8.0, 1.0, 1.9, 7.0]), 2.0).tolist()
    [2, 0, 0, 1]
    """
    slowest = speed[speed > 0].min(initial=np.inf)
    ratio = np.maximum(speed / slowest, 1.0)
    # A device on the border of two groups belongs to the upper one, whatever the rounding.
    power = np.floor(np.log(ratio * (1 + LONG_ROUNDING)) / np.log(gamma))
    return np.unique(power, return_inverse=True)[1].astype(np.int32)


def assign_groups(problem: Problem, share: Floats, group: Ints, speed: Floats) -> Ints:
    """`[unit]` group, from `share[unit, device]` of the program."""
    groups = int(group.max()) + 1
    member = group[:, None] == np.arange(groups)
    held = share @ member
    total_speed = speed @ member
    can = problem.unit_allowed @ member
    free = np.bincount(group, problem.device_memory, groups)
    slowest = _slowest_half(held)
    pinned = problem.unit_pinned >= 0
    chosen = np.where(pinned, group[problem.unit_pinned], -1).astype(np.int32)
    free -= np.bincount(chosen[pinned], problem.unit_memory[pinned], groups)
    for op in problem.topological_order:
        unit = int(problem.op_unit[op])
        if chosen[unit] >= 0:
            continue
        memory = problem.unit_memory[unit]
        wanted = [k for k in range(int(slowest[unit]), groups) if can[unit, k]]
        wanted.sort(key=lambda k: (-total_speed[k], -k))
        others = sorted(range(groups), key=lambda k, u=unit: (-held[u, k], -k))  # type: ignore[misc]
        order = [*wanted[:1], *(k for k in others if can[unit, k])]
        fitting = [k for k in order if memory <= free[k]]
        chosen[unit] = (fitting or order)[0]
        free[chosen[unit]] -= memory
    return chosen


def _slowest_half(held: Floats) -> Ints:
    """`[unit]` ℓ: the largest group such that it and the faster ones hold at least a half."""
    from_here_up = np.cumsum(held[:, ::-1], axis=1)[:, ::-1]
    enough = from_here_up >= 0.5 - SOLVER_ROUNDING
    enough[:, 0] = True
    return frozen(held.shape[1] - 1 - enough[:, ::-1].argmax(axis=1), np.int32)


# -- the linear program ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Relaxation:
    """`share[unit, device]`, and `bound` seconds: no schedule is shorter."""

    share: Floats
    bound: float


@dataclass(frozen=True, eq=False)
class Kinds:
    """Devices that no unit can tell apart, as one kind: times, memory and pins are the same."""

    of_device: Ints
    size: Floats
    op_time: Floats  # [op, kind]; 0 where not allowed
    unit_allowed: Flags  # [unit, kind]
    unit_fill: Floats  # [unit, kind] its share of all the kind's memory

    @classmethod
    def of(cls, problem: Problem) -> Kinds:
        fits = problem.unit_allowed
        times = np.where(fits[problem.op_unit], problem.op_time, np.inf)
        alike = np.concatenate([times, problem.device_memory[None, :]])
        _, first, kind = np.unique(alike, axis=1, return_index=True, return_inverse=True)
        size = np.bincount(kind).astype(np.float64)
        allowed = fits[:, first]
        capacity = problem.device_memory[first] * size
        limited = np.isfinite(capacity) & (capacity > 0)
        shared = np.where(limited, capacity, 1.0)
        fill = np.where(limited, problem.unit_memory[:, None] / shared, 0.0)
        op_time = np.where(np.isfinite(times[:, first]), times[:, first], 0.0)
        columns = map(np.ascontiguousarray, (op_time, allowed, fill))
        return cls(kind.astype(np.int32), size, *columns)

    def per_device(self, share: Floats) -> Floats:
        each: Floats = share[:, self.of_device] / self.size[self.of_device]
        return each


def relaxation(problem: Problem, lp: str = "auto", iterations: int = ITERATIONS) -> Relaxation:
    """Solve the program; the bound is proved by its multipliers.

    InfeasibleError if the memory does not suffice, even with ops split.
    """
    pairs = OpPairs.of(problem, np.zeros(problem.edge_count))
    kinds = Kinds.of(problem)
    homeless = np.flatnonzero(~kinds.unit_allowed.any(axis=1))
    if len(homeless):
        raise no_room(problem, int(homeless[0]), problem.device_memory, "getf")
    if lp != "descent":
        merged = Symmetry.of(pairs, _colours(problem, kinds), problem.op_unit)
        entries = (len(merged.producer) + 3 * len(merged.first)) * len(kinds.size)
        if lp != "auto" or entries <= LARGEST_EXACT:
            solver = "glop" if lp == "auto" else lp
            return _solve_exactly(problem, pairs, kinds, merged, solver)
    share, bound = assignment_descent(
        pairs.order, pairs.in_offsets, pairs.producer, pairs.is_last, problem.op_unit,
        kinds.op_time, kinds.unit_fill, kinds.unit_allowed, kinds.size, iterations,
    )  # fmt: skip
    return Relaxation(kinds.per_device(share), float(bound) * (1 - LONG_ROUNDING))


def _colours(problem: Problem, kinds: Kinds) -> Words:
    """`[op]` a number for its times, its memory and where it may be."""
    unit = problem.op_unit
    rows = np.column_stack([kinds.op_time, kinds.unit_allowed[unit], kinds.unit_fill[unit]])
    return np.unique(rows, axis=0, return_inverse=True)[1].astype(np.uint64)


def _solve_exactly(
    problem: Problem, pairs: OpPairs, kinds: Kinds, merged: Symmetry, solver: str
) -> Relaxation:
    """The program with variables per class; columns: share[unit, kind], T, start[op]."""
    first_unit, unit_class = np.unique(_unit_classes(problem, merged), return_inverse=True)
    op_unit = unit_class[problem.op_unit[merged.first]]
    units, count, ops = len(first_unit), len(kinds.size), len(merged.first)
    scale = float(kinds.op_time.max()) or 1.0
    time = kinds.op_time[merged.first] / scale
    latest, start = units * count, units * count + 1
    cost = np.zeros(start + ops)
    cost[latest] = 1.0
    upper = np.full(start + ops, np.inf)
    upper[:latest] = kinds.unit_allowed[first_unit].ravel()
    program = LinearProgram(
        upper, cost, "planner 'getf': the ops do not fit the devices' memory, even if each could "
        "be split; give the devices more memory",
    )  # fmt: skip
    share = np.arange(latest).reshape(units, count)
    program.add(np.ones(units), 1.0, (np.arange(units)[:, None], share, 1.0))
    load = np.zeros((units, count))
    np.add.at(load, op_unit, merged.size[:, None] * time)
    every = np.arange(count)
    loads = program.add(
        np.full(count, -np.inf), 0.0, (every, share, load), (every, latest, -kinds.size)
    )
    members = np.bincount(unit_class, minlength=units)
    fill = kinds.unit_fill[first_unit] * members[:, None]
    memory = program.add(np.full(count, -np.inf), 1.0, (every, share, fill))
    a, b = merged.producer, merged.consumer
    rows = np.arange(len(a))
    steps = program.add(
        np.zeros(len(a)), np.inf, (rows, start + b, 1.0), (rows, start + a, -1.0),
        (rows[:, None], share[op_unit[a]], -time[a]),
    )  # fmt: skip
    last = np.flatnonzero(pairs.is_last[merged.first])
    rows = np.arange(len(last))
    ends = program.add(
        np.zeros(len(last)), np.inf, (rows, latest, 1.0), (rows, start + last, -1.0),
        (rows[:, None], share[op_unit[last]], -time[last]),
    )  # fmt: skip
    values, dual = program.solve(solver)
    flow = np.zeros(ops)
    flow[last] = np.maximum(dual[ends], 0.0)
    bound = _certified(
        problem, pairs, kinds, merged, np.maximum(-dual[loads], 0.0) * kinds.size,
        np.maximum(-dual[memory], 0.0) * scale, flow, np.maximum(dual[steps], 0.0),
    )  # fmt: skip
    shares = np.clip(values[:latest].reshape(units, count), 0.0, 1.0)
    return Relaxation(kinds.per_device(shares[unit_class]), bound)


def _unit_classes(problem: Problem, merged: Symmetry) -> Ints:
    """`[unit]` one unit of its class: the first with ops of the same classes."""
    least = np.full(problem.unit_count, len(merged.first))
    np.minimum.at(least, problem.op_unit, merged.op_class)
    return frozen(problem.op_unit[merged.first[least]], np.int32)


def _certified(
    problem: Problem,
    pairs: OpPairs,
    kinds: Kinds,
    merged: Symmetry,
    load_weight: Floats,
    price: Floats,
    class_flow: Floats,
    step_weight: Floats,
) -> float:
    """The bound that these multipliers prove, whatever the solver's tolerance.

    T is at least any mean of the loads and of the lengths of chains, so with weights
    λ_k ≥ 0 and a flow φ along chains that add up to 1,
    T ≥ Σ_u min_k Σ_o t_ok (λ_k / n_k + φ_o) + price_k fill_uk − Σ_k price_k.
    The flow is made one, from the last ops back: what goes through an op comes in by its pairs,
    in proportion to their multipliers; where these are all 0 the chains begin.
    """
    total = load_weight.sum() + class_flow.sum()
    if total <= 0:
        return 0.0
    entering: list[list[int]] = [[] for _ in merged.first]
    for pair in np.flatnonzero(step_weight > 0).tolist():
        entering[merged.consumer[pair]].append(pair)
    # A class comes where the first of its ops does: that one reads ops of earlier classes.
    earliest = np.full(len(merged.first), len(pairs.order))
    np.minimum.at(earliest, merged.op_class[pairs.order], np.arange(len(pairs.order)))
    flow = class_flow / total
    for op in np.argsort(earliest)[::-1].tolist():
        into = entering[op]
        weights = step_weight[into]
        for pair, part in zip(into, weights / (weights.sum() or 1.0), strict=True):
            flow[merged.producer[pair]] += flow[op] * part
    op_flow = (flow / merged.size)[merged.op_class]
    weight = load_weight / total / kinds.size
    unit_cost = kinds.unit_fill * price
    np.add.at(unit_cost, problem.op_unit, kinds.op_time * (weight[None, :] + op_flow[:, None]))
    bound = float(dual_value(unit_cost, kinds.unit_allowed, price))
    return max(bound, 0.0) * (1 - LONG_ROUNDING)
