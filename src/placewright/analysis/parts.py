"""Parts: pieces of a graph that follow one another in time, whatever the schedule.

Time is cut at every cut op (`analysis.modules`), so a schedule is a path over (boundary, device of
its cut op), and its makespan the sum of what the parts take between the devices of their ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from placewright.analysis.modules import Modules
from placewright.analysis.subproblem import Subproblem, subproblem
from placewright.graph import Flags, Floats, Ints, Wide
from placewright.plan import Placement
from placewright.problem import ROUNDING, Problem


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive modules between two cut ops, -1 for none at the ends of the chain."""

    whole: Problem
    ops: Ints
    before: int
    after: int

    @cached_property
    def sub(self) -> Subproblem:
        """Its ops, after the cut op before it, which has ended: no time, no memory."""
        if self.before < 0:
            return subproblem(self.whole, self.ops)
        sub = subproblem(self.whole, np.concatenate([[self.before], self.ops]))
        time, memory = sub.problem.op_time.copy(), sub.problem.op_memory.copy()
        time[0], memory[0] = 0.0, 0.0
        return replace(sub, problem=replace(sub.problem, op_time=time, op_memory=memory))

    def key(self) -> tuple[object, ...]:
        """Equal where two parts of one problem differ in names and numbers only."""
        after = np.flatnonzero(self.sub.ops == self.after)
        return (*self.sub.key(), self.before >= 0, after.tobytes())

    def restricted(self, placement: Placement) -> tuple[tuple[int, int], Placement]:
        """What a placement of the whole is here: its pair of devices, and its plan of the part."""
        here = self.sub.restricted(placement)
        return self.ends(here), here

    def ends(self, placement: Placement) -> tuple[int, int]:
        """The pair of devices of a placement of the part; device 0 at an end of the chain."""
        ops = self.sub.ops.tolist()
        source, target = (
            int(placement.device[ops.index(op)]) if op >= 0 else 0
            for op in (self.before, self.after)
        )
        return source, target

    def with_ends(self, device: Ints, source: int, target: int) -> Ints:
        """`[op]` devices, but for those of the units of the two cut ops."""
        unit, device = self.sub.problem.op_unit, device.copy()
        if self.before >= 0:
            device[unit == unit[0]] = source
        if self.after >= 0:
            device[unit == unit[self.sub.ops.tolist().index(self.after)]] = target
        return device

    def pins(self, source: int, target: int) -> dict[int, int]:
        """The devices of the cut ops, by their numbers in `sub`."""
        pins = {}
        if self.before >= 0:
            pins[0] = source
        if self.after >= 0:
            pins[int(np.flatnonzero(self.sub.ops == self.after)[0])] = target
        return pins

    def pinned(self, source: int, target: int) -> Subproblem:
        """With the cut op before it on device `source`, its own on `target`."""
        unit = self.sub.problem.op_unit
        pins = {int(unit[op]): device for op, device in self.pins(source, target).items()}
        return replace(self.sub, problem=self.sub.problem.with_pins(pins))


def parts_of(modules: Modules) -> list[Part]:
    """The modules, joined where ops that must be together lie in several of them.

    Those that can only be on one device are together anyway.
    """
    problem = modules.problem
    first, last = spans_of(modules)
    loose = problem.unit_allowed.sum(axis=1) > 1
    spans = np.bincount(first[loose], minlength=modules.count)
    spans -= np.bincount(last[loose], minlength=modules.count)
    kept = np.flatnonzero(np.cumsum(spans)[:-1] == 0)
    ends = [*kept.tolist(), modules.count - 1]
    parts, begin, before = [], 0, -1
    for end in ends:
        ops = np.concatenate([modules.ops(t) for t in range(begin, end + 1)])
        after = int(modules.cut_op[end]) if end < modules.count - 1 else -1
        parts.append(Part(problem, ops, before, after))
        begin, before = end + 1, after
    return parts


def spans_of(modules: Modules) -> tuple[Wide, Wide]:
    """`[unit]` the first and the last module with an op of it."""
    unit, count = modules.problem.op_unit, modules.problem.unit_count
    first, last = np.full(count, modules.count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    np.minimum.at(first, unit, modules.op_module)
    np.maximum.at(last, unit, modules.op_module)
    return first, last


def longest_paths(part: Part) -> Floats:
    """`[source, target]` the longest path, each op on its best device given what it reads.

    `inf` where a cut op cannot be; one device for both ends of the chain.
    """
    sub = part.sub
    problem = sub.problem
    time = np.where(problem.unit_allowed[problem.op_unit], problem.op_time, np.inf)
    first = _open(part.whole, part.before)
    finish = np.tile(time[:, None, :], (1, len(first), 1))  # [op, source, device]
    if part.before >= 0:
        finish[0] = np.where(np.eye(len(first), dtype=bool), finish[0], np.inf)
    offsets, edges = problem.op_inputs
    for op in problem.topological_order.tolist():
        start = np.zeros(finish.shape[1:])
        for edge in edges[offsets[op] : offsets[op + 1]].tolist():
            done = finish[problem.edge_producer[edge]]
            np.maximum(start, (done[:, :, None] + _moves(problem, edge)).min(axis=1), out=start)
        finish[op] += start
    if part.after >= 0:
        cost = finish[int(np.flatnonzero(sub.ops == part.after)[0])]
    else:
        cost = finish.min(axis=2).max(axis=0)[:, None]
    cost = cost * (1 - ROUNDING * len(sub.ops))
    cost[~(first[:, None] & _open(part.whole, part.after)[None, :])] = np.inf
    return np.asarray(cost)


def _open(problem: Problem, cut_op: int) -> Flags:
    """`[device]` whether the cut op can be there; one device for both ends of the chain."""
    if cut_op < 0:
        return np.ones(1, dtype=np.bool_)
    unit = problem.op_unit[cut_op]
    fits = problem.unit_memory[unit] <= problem.device_memory
    open_to: Flags = np.isfinite(problem.unit_time[unit]) & fits
    return open_to


def _moves(problem: Problem, edge: int) -> Floats:
    """`[source, target]` seconds of the edge's transfer; `inf` where its ops must be together."""
    size = problem.tensor_bytes[problem.edge_tensor[edge]]
    move: Floats = problem.link_latency + size * problem.link_seconds_per_byte
    unit = problem.op_unit
    if unit[problem.edge_producer[edge]] == unit[problem.consumers[edge]]:
        move = np.full_like(move, np.inf)
    else:
        move = move.copy()
    np.fill_diagonal(move, 0.0)
    return move
