"""A plan with some ops on another device: what it comes to, and what forbids it.

All other ops stay where they are. The value is that of `simulate.evaluate`, which times every plan.
Under ``latency`` and ``batch-throughput`` the order is scheduled anew, under ``latency`` the plan's
own order is timed too, and the better of the two counts. Under ``invocation-latency`` the ops join
the subgraph of the accelerator, or make a new one, for which the value is least.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np

from placewright.errors import GraphError
from placewright.graph import Flags, Floats, Ints, Whole
from placewright.outcome import BatchSchedule, Invocations, Loads, Outcome, Schedule
from placewright.plan import Placement, Plan, numbered
from placewright.planners.throughput.contiguity import in_a_row
from placewright.planners.throughput.shares import balanced
from placewright.problem import LONG_ROUNDING, Problem
from placewright.simulate import evaluate
from placewright.simulate.invocation import op_slots
from placewright.simulate.latency import schedule_placement, schedule_sequence
from placewright.simulate.peak import used_memory

Blocked = Literal["", "support", "pin", "colocation", "memory", "contiguity", "replicas"]


@dataclass(frozen=True, eq=False)
class Move:
    """`ops`, which `what` names, on `device`, and all else as it is.

    - `value` seconds: of the plan so changed, infinite where it has none;
    - `computing` and `transferring`: how many seconds more all ops, and all transfers, take in sum;
    - `blocked`: what forbids it, "" if nothing does: ``support`` (an op does not run there),
      ``pin``, ``colocation`` (only some of the ops that must be together), ``memory`` (device
      `full` is `short` of so many bytes), ``contiguity`` (data would go in a circle over stages or
      subgraphs), ``replicas`` (the devices of the stage are not equally fast for it). `value` is
      then what it would be if pins, colocation, memory and contiguity did not matter;
    - `placement`: with the order in which it was timed; None where it was not.
    """

    what: str
    ops: Whole
    device: int
    placement: Placement | None
    value: float
    change: float
    computing: float = 0.0
    transferring: float = 0.0
    blocked: Blocked = ""
    short: float = 0.0
    full: int = -1


class Moving:
    """Moves ops of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.problem = plan.problem
        self.objective = plan.problem.options.objective
        self.before = spent(plan.problem, plan.placement, plan.outcome)

    def move(self, what: str, ops: Whole, device: int) -> Move:
        """The plan with `ops` on `device`."""
        blocked = self._forbidden(ops, device)
        if blocked == "support":
            return Move(what, ops, device, None, np.inf, np.inf, blocked=blocked)
        timed = self._timed(self.freed if blocked else self.problem, ops, device)
        if timed is None:
            return Move(what, ops, device, None, np.inf, np.inf, blocked="contiguity")
        placement, outcome = timed
        short, full = self._short(placement, outcome)
        if not blocked and short > 0:
            blocked = "memory"
            timed = self._timed(self.freed, ops, device)
            assert timed is not None  # memory decides over no circle
            placement, outcome = timed
        elif not blocked and self._circular(placement):
            blocked = "contiguity"
        computing, transferring = spent(self.problem, placement, outcome)
        return Move(
            what,
            ops,
            device,
            placement,
            outcome.value,
            outcome.value - self.plan.value,
            computing - self.before[0],
            transferring - self.before[1],
            blocked,
            *((short, full) if blocked == "memory" else ()),
        )

    @cached_property
    def freed(self) -> Problem:
        """The problem without pins, colocation and limits of memory."""
        nowhere = np.full(self.problem.op_count, -1)
        options = self.problem.options
        if self.objective == "latency":
            options = replace(options, memory="resident")
        return replace(
            self.problem,
            op_pinned=nowhere,
            colocation=nowhere,
            device_memory=np.full(self.problem.device_count, np.inf),
            options=options,
        )

    @cached_property
    def sequence(self) -> Ints:
        """The plan's own order."""
        return schedule_sequence(self.plan)

    # -- what forbids it -------------------------------------------------------------------------

    def _forbidden(self, ops: Whole, device: int) -> Blocked:
        problem = self.problem
        members = np.array(self._stage(device))
        times = problem.op_time[np.ix_(ops, members)]
        if not np.isfinite(times).all() or not self._takes_batch(ops, device):
            return "support"
        if (times != times[:, :1]).any() and problem.options.shares == "equal":
            return "replicas"
        pinned = problem.op_pinned[ops]
        if ((pinned >= 0) & (pinned != device)).any():
            return "pin"
        return "" if self._whole(ops) else "colocation"

    def _takes_batch(self, ops: Whole, device: int) -> bool:
        """Whether the device takes a batch of all inputs, where the objective is about batches."""
        problem = self.problem
        if not problem.options.row.by_input:
            return True
        size = np.flatnonzero(problem.batch_sizes == problem.options.batch)
        return len(size) > 0 and bool(np.isfinite(problem.batch_time[ops, device, size[0]]).all())

    def _whole(self, ops: Whole) -> bool:
        """Whether of ops that must be together all are there."""
        unit = self.problem.op_unit
        among: Flags = np.isin(unit, unit[ops])
        return int(among.sum()) == len(ops)

    def _short(self, placement: Placement, outcome: Outcome) -> tuple[float, int]:
        """Bytes that the fullest device lacks, 0 where all fits, and that device."""
        problem = self.problem
        used = used_memory(replace(self.plan, placement=placement, outcome=outcome))
        with np.errstate(invalid="ignore"):
            over: Floats = used - problem.device_memory
        over = np.where(used > problem.device_memory * (1 + LONG_ROUNDING), over, 0.0)
        full = int(np.argmax(over))
        return float(over[full]), full

    def _circular(self, placement: Placement) -> bool:
        options = self.problem.options
        if self.objective != "throughput" or not options.contiguous:
            return False
        return not in_a_row(self.problem, placement.device)

    # -- what it comes to ------------------------------------------------------------------------

    def _timed(self, problem: Problem, ops: Whole, device: int) -> tuple[Placement, Outcome] | None:
        """The best of the placements that the move may mean; None where none has an order.

        Those that fit are better than those that do not.
        """
        found: list[tuple[bool, float, Placement, Outcome]] = []
        for placement in self._placements(problem, ops, device):
            try:
                outcome = evaluate(problem, placement)
            except GraphError:  # subgraphs that wait for each other
                continue
            fits = problem is self.freed or self._short(placement, outcome)[0] <= 0
            found.append((not fits, outcome.value, placement, outcome))
        if not found:
            return None
        return min(found, key=lambda each: each[:2])[2:]

    def _placements(self, problem: Problem, ops: Whole, device: int) -> Iterator[Placement]:
        mine = self.plan.placement
        moved = mine.device.copy()
        moved[ops] = self._stage(device)[0]
        if self.objective == "latency":
            yield Placement(moved, self.sequence)
            if self._fits(problem, moved):
                yield schedule_placement(problem, moved)
        elif self.objective == "invocation-latency":
            yield from self._subgraphs(moved, ops, device)
        else:
            yield balanced(problem, self._with_replicas(moved))

    def _fits(self, problem: Problem, device: Ints) -> bool:
        """Whether what ops keep fits, without which nothing is scheduled."""
        kept = np.bincount(device, problem.op_memory, problem.device_count)
        return bool((kept <= problem.device_memory).all())

    def _stage(self, device: int) -> tuple[int, ...]:
        """The devices that act as one with it, the first first."""
        return next((each for each in self.plan.placement.replicas if device in each), (device,))

    def _with_replicas(self, device: Ints) -> Placement:
        """With those stages of replicas that still have ops, and their shares."""
        mine, used = self.plan.placement, set(np.unique(device).tolist())
        kept = [number for number, stage in enumerate(mine.replicas) if stage[0] in used]
        return Placement(
            device,
            replicas=tuple(mine.replicas[each] for each in kept),
            replica_shares=tuple(mine.replica_shares[each] for each in kept if mine.replica_shares),
        )

    def _subgraphs(self, moved: Ints, ops: Whole, device: int) -> Iterator[Placement]:
        """The ops of each pass in each subgraph of it there is, or in a new one between these."""
        problem = self.problem
        slots = op_slots(problem, self.plan.placement)
        number = np.array([-1 if slot is None else slot[1] for slot in slots], dtype=np.int32)
        number[ops] = -1
        if problem.is_cpu[device]:
            yield Placement(moved, subgraph=numbered(moved, number))
            return
        there = (moved == device) & (number >= 0)
        backward = problem.is_backward
        ways = [ops[backward[ops] == way] for way in (False, True)]
        choices = [
            _places(
                number[there], number[there & (backward == way)], problem.options.subgraphs, way
            )
            if len(mine)
            else [0]
            for way, mine in zip((False, True), ways, strict=True)
        ]
        for chosen in product(*choices):
            spread = np.where(number >= 0, _APART * number + _APART - 1, -1)
            for mine, place in zip(ways, chosen, strict=True):
                spread[mine] = place
            yield Placement(moved, subgraph=numbered(moved, spread.astype(np.int32)))


_APART = 3
"""Subgraphs are numbered so far apart that a new one of each pass goes between any two."""


def _places(all_there: Ints, of_pass: Ints, allowed: int, backward: bool) -> list[int]:
    """Numbers that ops of a pass may take, `_APART`: those `of_pass`, or new ones between all."""
    own = sorted({_APART * each + _APART - 1 for each in of_pass.tolist()})
    if len(own) >= allowed:
        return own
    last = int(all_there.max()) if len(all_there) else -1
    return [*own, *(_APART * each + backward for each in range(last + 2))]


def spent(problem: Problem, placement: Placement, outcome: Outcome) -> tuple[float, float]:
    """Seconds of computing and of transfers, each in sum."""
    if isinstance(outcome, Schedule):
        moves = outcome.transfers
        computing = outcome.op_finish - outcome.op_start
        return float(computing.sum()), float((moves.finish - moves.start).sum())
    if isinstance(outcome, Loads):
        return float(outcome.compute.sum()), float(outcome.incoming.sum() + outcome.outgoing.sum())
    if isinstance(outcome, Invocations):
        table = outcome.invocations
        times = problem.op_time[np.arange(problem.op_count), placement.device]
        return float(times.sum()), float(table.incoming.sum() + table.outgoing.sum())
    assert isinstance(outcome, BatchSchedule)
    batches, sent = outcome.batches, outcome.transfers
    return float((batches.finish - batches.start).sum()), float((sent.finish - sent.start).sum())
