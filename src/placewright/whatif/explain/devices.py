"""What a device does for a plan: load, idle time and why, memory, and the plan without it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placewright.analysis.waiting import Step, Waits
from placewright.bounds import lower_bound
from placewright.coarsen.blocks import named_blocks
from placewright.errors import InfeasibleError
from placewright.graph import Whole
from placewright.plan import Plan
from placewright.simulate.peak import used_memory
from placewright.solving import best_of, compare, solve
from placewright.whatif.changes import forwarders, home_devices, without_devices
from placewright.whatif.explain.moved import Move, Moving
from placewright.whatif.explain.places import TIES, devices_of, evaluations
from placewright.whatif.moves import unit_sets
from placewright.whatif.repair import Repair

MOST_UNITS = 200  # of a device that are tried elsewhere


@dataclass(frozen=True)
class Without:
    """The plan's problem without a device.

    `value` seconds of a plan for it, None where none was found, which `error` says; `lower_bound`
    of every such plan. `planner` is who made it: ``replan`` left all other ops where they are.
    `forwards`: routes between other devices go over the device and are taken to stay.
    """

    value: float | None
    lower_bound: float | None
    planner: str
    error: str
    forwards: bool


@dataclass(frozen=True, eq=False)
class DeviceExplanation:
    """What `device` does for the plan.

    - `load` and `idle` seconds of the value; `waits`: what the idle time is spent on, under
      ``latency``, else nothing: "transfers a → b", "work on a", …;
    - `memory` bytes as the plan counts them, and `capacity`;
    - `without` it: a quick plan, None where no op is there;
    - `leaving`: of its units and blocks, each with the best allowed move to another device, those
      that change the value most for the better, or least for the worse; `tried` of `movable` were.
    """

    plan: Plan
    device: int
    load: float
    idle: float
    waits: tuple[tuple[str, float], ...]
    memory: float
    capacity: float
    ops: int
    slowest: bool
    without: Without | None
    leaving: tuple[Move, ...]
    tried: int
    movable: int


def explain_device(plan: Plan, device: int) -> DeviceExplanation:
    """What a device does for the plan."""
    load = plan.device_load
    ops = plan.device_ops[device]
    leaving, tried, movable = _leaving(plan, device)
    return DeviceExplanation(
        plan=plan,
        device=device,
        load=float(load[device]),
        idle=max(plan.value - float(load[device]), 0.0),
        waits=tuple(_waits(plan, device)),
        memory=float(used_memory(plan)[device]),
        capacity=float(plan.problem.device_memory[device]),
        ops=len(ops),
        slowest=bool(load[device] >= load.max()) and len(ops) > 0,
        without=without(plan, device) if len(ops) else None,
        leaving=leaving,
        tried=tried,
        movable=movable,
    )


# -- idle time -------------------------------------------------------------------------------


def _waits(plan: Plan, device: int) -> list[tuple[str, float]]:
    """What the device waits for, and how long in all, the longest first."""
    if plan.problem.options.objective != "latency":
        return []
    found: dict[str, float] = defaultdict(float)
    for what, seconds in _gaps(plan, device):
        found[what] += seconds
    least = 1e-9 * plan.value
    kept = [(what, seconds) for what, seconds in found.items() if seconds > least]
    return sorted(kept, key=lambda each: -each[1])


def _gaps(plan: Plan, device: int) -> Iterator[tuple[str, float]]:
    schedule, waits = plan.schedule, Waits(plan)
    ops = np.flatnonzero(plan.placement.device == device)
    ops = ops[np.lexsort((schedule.op_finish[ops], schedule.op_start[ops]))]
    clock = 0.0
    for op in ops.tolist():
        start, finish = waits.times(Step(False, op))
        if start > clock:
            yield from _gap(plan, waits, waits.cause(Step(False, op)), clock, start)
        clock = max(clock, finish)
    yield ("nothing more to do" if len(ops) else "nothing to do"), plan.value - clock


def _gap(
    plan: Plan, waits: Waits, cause: Step | None, clock: float, start: float
) -> Iterator[tuple[str, float]]:
    """What a device did not work for from `clock` to `start`: its op's input was on the way."""
    names, moves = plan.problem.device_names, plan.schedule.transfers
    if cause is None or not cause.is_transfer:
        yield "its turn, or room in memory", start - clock
        return
    source, target = int(moves.source[cause.item]), int(moves.target[cause.item])
    begun, ended = waits.times(cause)
    begun, ended = max(begun, clock), max(ended, clock)
    yield f"work on {names[source]}", begun - clock
    yield f"transfers {names[source]} → {names[target]}", ended - begun
    yield "its turn, or room in memory", start - ended


# -- without it ------------------------------------------------------------------------------


def without(plan: Plan, device: int) -> Without:
    """A quick plan for the problem without the device, and a bound on every one.

    Under ``latency`` what was there goes to the best of the others and the rest stays; elsewhere
    it is the best of the quick planners.
    """
    problem = plan.problem
    name = problem.device_names[device]
    forwards = bool(forwarders(problem, [name]))
    try:
        left = without_devices(problem, [name])
        bound = lower_bound(left)
    except InfeasibleError as error:
        return Without(None, None, "", str(error), forwards)
    least = bound.value if np.isfinite(bound.value) else None
    try:
        if problem.options.objective == "latency":
            repair = Repair(home_devices(plan, left), unit_sets(left))
            found = solve(left, repair, bound=bound)
        else:
            found = best_of(compare(left))
    except InfeasibleError as error:
        return Without(None, least, "", str(error), forwards)
    return Without(found.value, found.lower_bound, found.planner, "", forwards)


# -- what could leave ------------------------------------------------------------------------


def _leaving(plan: Plan, device: int) -> tuple[tuple[Move, ...], int, int]:
    """The best allowed moves away from the device, how many sets were tried, and of how many."""
    problem, moving = plan.problem, Moving(plan)
    sets = list(_sets(plan, device))
    others = [d for d in range(problem.device_count) if d != device]
    most = min(MOST_UNITS, evaluations(plan) // max(len(others), 1) + 1)
    found: list[Move] = []
    for name, ops in sets[:most]:
        moves = [moving.move(name, ops, other) for other in others]
        allowed = [each for each in moves if not each.blocked]
        found += [min(allowed, key=lambda each: each.change)] if allowed else []
    best = sorted(found, key=lambda each: each.change)[:TIES]
    return tuple(best), min(most, len(sets)), len(sets)


def _sets(plan: Plan, device: int) -> Iterator[tuple[str, Whole]]:
    """Blocks that are there, then units, those of most seconds first."""
    problem = plan.problem
    here = np.zeros(problem.op_count, dtype=np.bool_)
    here[plan.device_ops[device]] = True
    seen: set[bytes] = set()
    blocks, unit = named_blocks(problem), problem.op_unit
    for number, name in enumerate(blocks.names if blocks else ()):
        assert blocks is not None
        mine = np.flatnonzero(np.isin(unit, unit[blocks.op_block == number]))
        if len(mine) and device in devices_of(plan, mine):
            seen.add(mine.tobytes())
            yield name, mine
    seconds = np.bincount(unit, np.where(here, problem.op_time[:, device], 0.0))
    memory = np.bincount(unit, np.where(here, problem.op_memory, 0.0))
    worth = np.flatnonzero(np.bincount(unit, here) > 0)
    worth = worth[(seconds[worth] > 0) | (memory[worth] > 0)]
    for each in worth[np.lexsort((-memory[worth], -seconds[worth]))].tolist():
        ops = np.flatnonzero(unit == each)
        if ops.tobytes() not in seen:
            yield problem.op_names[int(ops[0])], ops
