"""Why ops are where they are: other places, moves that nearly tie, and what they wait for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placewright.analysis.waiting import Step, Waits
from placewright.graph import Whole
from placewright.plan import Plan
from placewright.whatif.explain.moved import Move, Moving
from placewright.whatif.explain.named import Kind, Named, enclosing

TIES = 5
MOST_WORK = 10_000_000  # evaluations × items, beside those that are asked for


@dataclass(frozen=True)
class Wait:
    """Consecutive steps of a chain on one device, or one transfer; `start` to `finish` seconds.

    `first` and `last` are ops; of a transfer both are the op that makes the tensor, and `device` is
    where it comes from, `target` where it goes (else -1). `idle` seconds passed before it in which
    nothing of the chain ran. `steps` is how many there are.
    """

    device: int
    target: int
    first: int
    last: int
    steps: int
    start: float
    finish: float
    idle: float


@dataclass(frozen=True, eq=False)
class PlaceExplanation:
    """Why `ops`, which `name` names, are on `devices`.

    - `together`: how many other ops move with them because they must be together;
    - `moves`: to every device where not all of them are, the best first;
    - `parted`: where ops must be together, the moves of the named ones alone that would be better
      than the plan is;
    - `ties`: the allowed moves of them, or of what they are part of, that change the value least;
    - `chain`: what led to the start of the first of them, in the order of time, under ``latency``;
      empty elsewhere. `critical`: whether one of them is on the critical path;
    - `slowest`: the device with the largest load.
    """

    plan: Plan
    kind: Kind
    name: str
    ops: Whole
    devices: tuple[int, ...]
    together: int
    moves: tuple[Move, ...]
    parted: tuple[Move, ...]
    ties: tuple[Move, ...]
    chain: tuple[Wait, ...]
    critical: bool
    slowest: int


def explain_place(plan: Plan, target: Named) -> PlaceExplanation:
    """Why the ops of `target` are where they are."""
    problem, moving = plan.problem, Moving(plan)
    unit = problem.op_unit
    ops = np.flatnonzero(np.isin(unit, unit[target.ops]))
    here = devices_of(plan, ops)
    elsewhere = [d for d in range(problem.device_count) if here != (d,)]
    moves = [moving.move(target.name, ops, device) for device in elsewhere]
    parted = []
    if len(ops) > len(target.ops):
        alone = (moving.move(target.name, target.ops, device) for device in elsewhere)
        parted = [each for each in alone if each.blocked == "colocation" and each.change < 0]
    wider = list(_wider(moving, ops))
    allowed = [each for each in [*moves, *wider] if not each.blocked]
    chain, critical = _waiting(plan, target.ops)
    return PlaceExplanation(
        plan=plan,
        kind=target.kind,
        name=target.name,
        ops=target.ops,
        devices=devices_of(plan, target.ops),
        together=len(ops) - len(target.ops),
        moves=tuple(sorted(moves, key=lambda each: (each.value, each.device))),
        parted=tuple(parted),
        ties=tuple(sorted(allowed, key=lambda each: abs(each.change))[:TIES]),
        chain=chain,
        critical=critical,
        slowest=int(np.argmax(plan.device_load)),
    )


def devices_of(plan: Plan, ops: Whole) -> tuple[int, ...]:
    """The devices of `ops`, replicas and all inputs included."""
    found = set(np.unique(plan.placement.device[ops]).tolist())
    for stage in plan.placement.replicas:
        found |= set(stage) if stage[0] in found else set()
    return tuple(sorted(found))


def evaluations(plan: Plan) -> int:
    """How many moves are worth trying beside those asked for; fewer of a large problem."""
    problem = plan.problem
    items = problem.op_count + problem.edge_count
    if plan.problem.options.row.by_input:
        items *= plan.problem.options.batch
    return max(MOST_WORK // (items + 1000), 1)


def _wider(moving: Moving, ops: Whole) -> Iterator[Move]:
    """Moves of the block and the modules around `ops`, the smaller first."""
    problem, left = moving.problem, evaluations(moving.plan)
    for each in enclosing(problem, ops):
        here = devices_of(moving.plan, each.ops)
        for device in range(problem.device_count):
            if here != (device,) and left > 0:
                left -= 1
                yield moving.move(each.name, each.ops, device)


def _waiting(plan: Plan, ops: Whole) -> tuple[tuple[Wait, ...], bool]:
    """The chain to the first of `ops` to start, and whether one of them is critical."""
    if plan.problem.options.objective != "latency":
        return (), False
    waits = Waits(plan)
    start = plan.schedule.op_start[ops]
    first = int(ops[np.lexsort((plan.problem.topological_rank[ops], start))[0]])
    on_path = {step.item for step in waits.path() if not step.is_transfer}
    chain = waits.chain(Step(False, first))
    return tuple(_joined(plan, waits, chain)), not on_path.isdisjoint(ops.tolist())


def _joined(plan: Plan, waits: Waits, chain: list[Step]) -> Iterator[Wait]:
    """Steps of a chain, those that follow one another on a device as one."""
    moves = plan.schedule.transfers
    now: Wait | None = None
    clock = 0.0
    for step in chain:
        start, finish = waits.times(step)
        idle, clock = max(start - clock, 0.0), finish
        if step.is_transfer:
            op = int(plan.problem.tensor_producer[moves.tensor[step.item]])
            device, target = int(moves.source[step.item]), int(moves.target[step.item])
        else:
            op, device, target = step.item, int(plan.placement.device[step.item]), -1
            if now is not None and (now.device, now.target) == (device, -1) and not idle:
                now = Wait(device, -1, now.first, op, now.steps + 1, now.start, finish, now.idle)
                continue
        if now is not None:
            yield now
        now = Wait(device, target, op, op, 1, start, finish, idle)
    if now is not None:
        yield now
