"""The judge of plans for invocation latency (Tarnawski et al. 2020, §4)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from placewright.outcome import Invocations
from placewright.plan import Plan
from placewright.units import format_seconds
from placewright.verify.report import MAX_SHOWN, TOLERANCE, Placed, Report, claims, overlaps

CHECKS = (
    "every op is on one device that supports it, its pinned device if it has one",
    "colocated ops are together",
    "what each accelerator keeps fits its memory",
    "an accelerator has no more subgraphs than allowed, numbered in their order; a CPU has none",
    "each subgraph is contiguous, and none wait for each other",
    "an invocation reads, computes and writes as long as its ops need, one at a time",
    "an invocation starts when its inputs are in host memory",
    "outputs are in host memory when their invocation, or their op on a CPU, has ended",
    "the value is the last of these times, the lower bound is not above it, the status is theirs",
)

Slot = tuple[int, int]


def verify_invocation(plan: Plan, outcome: Invocations) -> Report:
    """Judge a plan for objective ``invocation-latency``."""
    violations = list(_check_shapes(plan, outcome))
    value = math.nan
    memory: tuple[float, ...] = ()
    if not violations:
        judge = _Judge(plan, outcome)
        value = max(judge.op_finish)
        memory = tuple(judge.placed.kept())
        violations += judge.placed.placement()
        violations += judge.placed.colocation()
        violations += judge.placed.memory(memory)
        violations += judge.numbers()
        violations += judge.subgraphs()
        violations += judge.invocations()
        violations += judge.inputs()
        violations += judge.outputs()
        violations += claims(plan, value, judge.slack, "the last output's time")
    return Report(tuple(violations[:MAX_SHOWN]), value, memory, CHECKS)


def _check_shapes(plan: Plan, outcome: Invocations) -> Iterator[str]:
    problem = plan.problem
    n, d = problem.op_count, problem.device_count
    if plan.placement.device.shape != (n,):
        yield f"placement has {len(plan.placement.device)} entries for {n} ops"
    for device in sorted(set(plan.placement.device.ravel().tolist())):
        if not 0 <= device < d:
            yield f"the placement names device {device}, but devices go from 0 to {d - 1}"
    subgraph = plan.placement.subgraph
    if subgraph is None:
        yield "the plan does not say which subgraph each op belongs to"
    elif subgraph.shape != (n,):
        yield f"subgraph has {subgraph.size} entries for {n} ops"
    if len(outcome.op_finish) != n:
        yield f"op_finish has {len(outcome.op_finish)} entries for {n} ops"
    table = outcome.invocations
    times = (outcome.op_finish, table.start, table.incoming, table.compute, table.outgoing)
    if not all(math.isfinite(t) and t >= 0 for column in times for t in column.tolist()):
        yield "a time is negative or not finite"


class _Judge:
    """The plan as plain lists and dictionaries, and one method per check."""

    def __init__(self, plan: Plan, outcome: Invocations) -> None:
        problem = self.problem = plan.problem
        self.device: list[int] = plan.placement.device.tolist()
        self.placed = Placed(plan, [[device] for device in self.device])
        self.op_finish: list[float] = outcome.op_finish.tolist()
        self.slack = TOLERANCE * max(max(self.op_finish), 1e-12)
        assert plan.placement.subgraph is not None
        self.number: list[int] = plan.placement.subgraph.tolist()
        self.slot: list[Slot | None] = [
            None if problem.is_cpu[device] else (device, number)
            for device, number in zip(self.device, self.number, strict=True)
        ]
        self.members: dict[Slot, list[int]] = defaultdict(list)
        for op, slot in enumerate(self.slot):
            if slot is not None:
                self.members[slot].append(op)
        self.edges = list(
            zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
        )
        table = outcome.invocations
        self.rows = list(
            zip(
                zip(table.device.tolist(), table.subgraph.tolist(), strict=True),
                table.start.tolist(),
                table.incoming.tolist(),
                table.compute.tolist(),
                table.outgoing.tolist(),
                strict=True,
            )
        )
        self.end = {row[0]: sum(row[1:]) for row in self.rows}

    def name(self, slot: Slot) -> str:
        known = 0 <= slot[0] < self.problem.device_count
        where = self.placed.device(slot[0]) if known else f"device {slot[0]}"
        return f"subgraph {slot[1]} of {where}"

    def numbers(self) -> Iterator[str]:
        """On a CPU -1; on an accelerator from 0, in the order of the invocations."""
        for op, (slot, number) in enumerate(zip(self.slot, self.number, strict=True)):
            if slot is None and number != -1:
                yield f"op {self.placed.op(op)} is on a CPU, but in subgraph {number}; -1 is none"
        start = {row[0]: row[1] for row in self.rows}
        for device, slots in self.by_device().items():
            numbers = [number for _, number in slots]
            if numbers != list(range(len(numbers))):
                named = " and ".join(map(str, numbers))
                yield (
                    f"subgraphs of {self.placed.device(device)} are numbered {named}, not from 0 "
                    "in their order"
                )
            for before, after in pairwise(slots):
                if start.get(before, 0.0) > start.get(after, math.inf) + self.slack:
                    yield f"{self.name(after)} starts before subgraph {before[1]}"

    def by_device(self) -> dict[int, list[Slot]]:
        """The subgraphs of each accelerator, by number."""
        found: dict[int, list[Slot]] = defaultdict(list)
        for slot in sorted(self.members):
            found[slot[0]].append(slot)
        return found

    def subgraphs(self) -> Iterator[str]:
        allowed = self.problem.options.subgraphs
        for way, what in ((False, "forward"), (True, "backward")):
            per_device: dict[int, int] = defaultdict(int)
            for slot, ops in self.members.items():
                per_device[slot[0]] += any(self.problem.is_backward[op] == way for op in ops)
            for device, count in per_device.items():
                if count > allowed:
                    yield (
                        f"device {self.placed.device(device)} has {count} {what} subgraphs, "
                        f"{allowed} allowed"
                    )
        contiguous = True
        for slot, ops in self.members.items():
            if len({bool(self.problem.is_backward[op]) for op in ops}) > 1:
                yield f"{self.name(slot)} has forward and backward ops"
            if (through := self._path_through(set(ops))) is not None:
                contiguous = False
                yield (
                    f"{self.name(slot)} is not contiguous: a path leaves it by "
                    f"{self.placed.op(through)} and comes back"
                )
        if contiguous and (circle := self._circle()):
            yield f"{' and '.join(circle)} wait for each other"

    def _circle(self) -> list[str]:
        """Subgraphs that wait for each other, in time zero too; or none."""
        after: dict[Hashable, set[Hashable]] = defaultdict(set)
        for producer, consumer in self.edges:
            one, two = self.slot[producer] or producer, self.slot[consumer] or consumer
            if one != two:
                after[two].add(one)
        for slots in self.by_device().values():
            for before, later in pairwise(slots):
                after[later].add(before)
        try:
            list(TopologicalSorter(after).static_order())
        except CycleError as error:
            return sorted({self.name(each) for each in error.args[1] if isinstance(each, tuple)})
        return []

    def _path_through(self, inside: set[int]) -> int | None:
        """An op outside that is reached from the set and leads back to it."""
        after: dict[int, list[int]] = defaultdict(list)
        for producer, consumer in self.edges:
            after[producer].append(consumer)
        start = [c for op in inside for c in after[op] if c not in inside]
        reached, waiting = set(start), start
        while waiting:
            op = waiting.pop()
            for consumer in after[op]:
                if consumer in inside:
                    return op
                if consumer not in reached:
                    reached.add(consumer)
                    waiting.append(consumer)
        return None

    def invocations(self) -> Iterator[str]:
        listed = [row[0] for row in self.rows]
        for slot in listed:
            if listed.count(slot) > 1:
                yield f"{self.name(slot)} is invoked twice"
        for slot in sorted(set(listed) ^ set(self.members)):
            yield f"{self.name(slot)} " + ("has no ops" if slot in listed else "is never invoked")
        busy: dict[int, list[tuple[float, float, str]]] = defaultdict(list)
        for slot, start, *parts in self.rows:
            if slot not in self.members:
                continue
            for what, took, needed in zip(
                ("reads", "computes", "writes"), parts, self._parts(slot), strict=True
            ):
                if not abs(took - needed) <= self.slack:
                    yield (
                        f"{self.name(slot)} {what} for {format_seconds(took)}, "
                        f"it needs {format_seconds(needed)}"
                    )
            busy[slot[0]].append((start, self.end[slot], self.name(slot)))
        for intervals in busy.values():
            for one, two in overlaps(intervals, self.slack):
                yield f"{one} and {two} run at once"

    def _parts(self, slot: Slot) -> tuple[float, float, float]:
        """Seconds that the invocation must read, compute and write."""
        problem, device = self.problem, slot[0]
        incoming = outgoing = 0.0
        for tensor, producer in enumerate(problem.tensor_producer.tolist()):
            first, last = problem.consumer_offsets[tensor], problem.consumer_offsets[tensor + 1]
            readers = {self.slot[op] for op in problem.consumers[first:last].tolist()}
            size = float(problem.tensor_bytes[tensor])
            ways = [
                float(problem.host_latency[way, device])
                + size * float(problem.host_seconds_per_byte[way, device])
                for way in (0, 1)
            ]
            if self.slot[producer] == slot:
                outgoing += ways[0] if readers - {slot} else 0.0
            elif slot in readers:
                incoming += ways[1]
        compute = sum(float(problem.op_time[op, device]) for op in self.members[slot])
        return incoming, compute, outgoing

    def inputs(self) -> Iterator[str]:
        start = {row[0]: row[1] for row in self.rows}
        for producer, consumer in self.edges:
            slot = self.slot[consumer]
            if slot is None or slot == self.slot[producer] or slot not in start:
                continue
            if start[slot] < self.op_finish[producer] - self.slack:
                yield (
                    f"{self.name(slot)} starts at {format_seconds(start[slot])}, before the "
                    f"output of {self.placed.op(producer)} is in host memory "
                    f"({format_seconds(self.op_finish[producer])})"
                )

    def outputs(self) -> Iterator[str]:
        ready = [0.0] * self.problem.op_count
        for producer, consumer in self.edges:
            ready[consumer] = max(ready[consumer], self.op_finish[producer])
        for op, finish in enumerate(self.op_finish):
            slot = self.slot[op]
            if slot is None:
                needed = ready[op] + float(self.problem.op_time[op, self.device[op]])
                if finish < needed - self.slack:
                    yield (
                        f"op {self.placed.op(op)} ends at {format_seconds(finish)}, it needs "
                        f"until {format_seconds(needed)}"
                    )
            elif slot in self.end and abs(finish - self.end[slot]) > self.slack:
                yield (
                    f"op {self.placed.op(op)} is said to be ready at {format_seconds(finish)}, "
                    f"{self.name(slot)} ends at {format_seconds(self.end[slot])}"
                )
