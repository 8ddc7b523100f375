"""The judge of plans for latency: the schedule of every op and transfer."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from placewright.outcome import Schedule
from placewright.plan import Plan
from placewright.units import format_seconds
from placewright.verify.report import (
    MAX_SHOWN,
    TOLERANCE,
    Placed,
    Report,
    overlaps,
    stated,
    wrong_consumers,
)

CHECKS = (
    "every op is on one device that supports it, its pinned device if it has one",
    "colocated ops are together",
    "what each device keeps fits its memory",
    "every op lasts as long as its device needs, and no device runs two at once",
    "every op starts when its inputs are on its device, each sent after it was produced",
    "transfers last as long as the route needs and do not overlap where they contend",
    "the value is the last finish, the lower bound is not above it, the status is theirs",
)


def verify_latency(plan: Plan, schedule: Schedule) -> Report:
    """Judge a plan for objective ``latency``."""
    violations = list(_check_shapes(plan))
    value = math.nan
    memory: tuple[float, ...] = ()
    if not violations:
        judge = _Judge(plan)
        value = max(judge.op_finish)
        memory = tuple(judge.memory_needed())
        for check in (
            judge.placed.placement,
            judge.placed.colocation,
            judge.memory,
            judge.ops,
            judge.inputs,
            judge.transfers,
            judge.claims,
        ):
            violations.extend(check())
    return Report(tuple(violations[:MAX_SHOWN]), value, memory, CHECKS)


def _check_shapes(plan: Plan) -> Iterator[str]:
    problem = plan.problem
    n, devices = problem.op_count, problem.device_count
    for what, column in (
        ("placement", plan.placement.device),
        ("op_start", plan.schedule.op_start),
        ("op_finish", plan.schedule.op_finish),
    ):
        if column.shape != (n,):
            yield f"{what} has {column.size} entries for {n} ops"
    for device in set(plan.placement.device.ravel().tolist()):
        if not 0 <= device < devices:
            yield f"the placement names device {device}, but devices go from 0 to {devices - 1}"
    transfers = plan.schedule.transfers
    for what, column, count in (
        ("tensor", transfers.tensor, problem.tensor_count),
        ("source", transfers.source, devices),
        ("target", transfers.target, devices),
    ):
        for entry in column.tolist():
            if not 0 <= entry < count:
                yield f"a transfer names {what} {entry}, but they go from 0 to {count - 1}"
                break
    yield from wrong_consumers(problem, transfers.consumer.tolist())
    for what, times in (
        ("op start", plan.schedule.op_start),
        ("op finish", plan.schedule.op_finish),
        ("transfer start", transfers.start),
        ("transfer finish", transfers.finish),
    ):
        if not all(math.isfinite(t) and t >= 0 for t in times.ravel().tolist()):
            yield f"a time of {what} is negative or not finite"


class _Judge:
    """The plan as plain lists and dictionaries, and one method per check."""

    def __init__(self, plan: Plan) -> None:
        problem = self.problem = plan.problem
        self.plan = plan
        self.device: list[int] = plan.placement.device.tolist()
        self.placed = Placed(plan, [[device] for device in self.device])
        self.op_start: list[float] = plan.schedule.op_start.tolist()
        self.op_finish: list[float] = plan.schedule.op_finish.tolist()
        self.producer: list[int] = problem.tensor_producer.tolist()
        self.bytes: list[float] = problem.tensor_bytes.tolist()
        offsets = problem.consumer_offsets.tolist()
        everyone = problem.consumers.tolist()
        self.consumers: list[list[int]] = [
            everyone[offsets[t] : offsets[t + 1]] for t in range(problem.tensor_count)
        ]
        columns = plan.schedule.transfers
        self.sent = list(
            zip(
                columns.tensor.tolist(),
                columns.consumer.tolist(),
                columns.source.tolist(),
                columns.target.tolist(),
                columns.start.tolist(),
                columns.finish.tolist(),
                strict=True,
            )
        )
        self.by_tensor = problem.options.transfer_unit == "tensor"
        self.slack = TOLERANCE * max(max(self.op_finish), 1e-12)

    def memory(self) -> Iterator[str]:
        return self.placed.memory(self.memory_needed())

    def memory_needed(self) -> list[float]:
        """Bytes per device: what its ops keep, and under ``peak`` the most that lives besides."""
        kept = self.placed.kept()
        if self.problem.options.memory == "resident":
            return kept
        changes: dict[int, list[tuple[float, int, float]]] = defaultdict(list)
        for device, start, end, size in self._lives():
            if end > start:
                changes[device].append((start, 1, size))
                changes[device].append((end, 0, -size))
        for device, events in changes.items():
            living = most = 0.0
            for _, _, change in sorted(events):  # at one instant, the dying go before the born
                living += change
                most = max(most, living)
            kept[device] += most
        return kept

    def _lives(self) -> Iterator[tuple[int, float, float, float]]:
        """(device, from, to, bytes) of every copy of a tensor.

        On the producer's device: from the producer's start to the last use there, a transfer
        away included. On another: from the start of the transfer to the last use it serves.
        """
        leaving: dict[int, float] = defaultdict(float)
        for tensor, consumer, _, target, start, finish in self.sent:
            leaving[tensor] = max(leaving[tensor], finish)
            if self.by_tensor:
                users = [op for op in self.consumers[tensor] if self.device[op] == target]
            else:
                users = [consumer]
            end = max([finish, *(self.op_finish[op] for op in users)])
            yield target, start, end, self.bytes[tensor]
        for tensor, producer in enumerate(self.producer):
            home = self.device[producer]
            local = [self.op_finish[op] for op in self.consumers[tensor] if self.device[op] == home]
            end = max([self.op_finish[producer], leaving[tensor], *local])
            yield home, self.op_start[producer], end, self.bytes[tensor]

    def ops(self) -> Iterator[str]:
        on_device: dict[int, list[tuple[float, float, str]]] = defaultdict(list)
        for op, device in enumerate(self.device):
            needed = float(self.problem.op_time[op, device])
            took = self.op_finish[op] - self.op_start[op]
            if abs(took - needed) > self.slack:
                yield (
                    f"op {self.placed.op(op)} takes {format_seconds(took)} on "
                    f"{self.placed.device(device)}, which needs {format_seconds(needed)}"
                )
            on_device[device].append((self.op_start[op], self.op_finish[op], self.placed.op(op)))
        for device, intervals in on_device.items():
            for one, two in overlaps(intervals, self.slack):
                yield f"ops {one} and {two} run at once on {self.placed.device(device)}"

    def inputs(self) -> Iterator[str]:
        arrival: dict[tuple[int, int, int], float] = {}
        for tensor, consumer, source, target, start, finish in self.sent:
            key = (tensor, -1 if self.by_tensor else consumer, target)
            if key in arrival:
                yield f"tensor {tensor} is sent twice to {self.placed.device(target)}"
            arrival[key] = finish
            producer = self.producer[tensor]
            if source != self.device[producer]:
                yield f"tensor {tensor} is sent from {self.placed.device(source)}, where it is not"
            if start < self.op_finish[producer] - self.slack:
                yield f"tensor {tensor} is sent before {self.placed.op(producer)} has produced it"
        needed = 0
        for tensor, producer in enumerate(self.producer):
            served = set()
            for op in self.consumers[tensor]:
                target = self.device[op]
                there: float | None = self.op_finish[producer]
                if target != self.device[producer]:
                    key = (tensor, -1 if self.by_tensor else op, target)
                    served.add(key)
                    there = arrival.get(key)
                if there is None:
                    yield (
                        f"op {self.placed.op(op)} on {self.placed.device(target)} needs a tensor "
                        f"of {self.placed.op(producer)} on "
                        f"{self.placed.device(self.device[producer])}, which is never sent"
                    )
                elif self.op_start[op] < there - self.slack:
                    yield (
                        f"op {self.placed.op(op)} starts at {format_seconds(self.op_start[op])}, "
                        f"before its input from {self.placed.op(producer)} is there "
                        f"({format_seconds(there)})"
                    )
            needed += len(served)
        if len(self.sent) > needed:
            yield f"{len(self.sent) - needed} transfers serve no op"

    def transfers(self) -> Iterator[str]:
        busy: dict[tuple[str, int], list[tuple[float, float, str]]] = defaultdict(list)
        for tensor, _, source, target, start, finish in self.sent:
            route = (
                f"tensor {tensor} from {self.placed.device(source)} to {self.placed.device(target)}"
            )
            if source == target:
                yield f"the transfer of {route} goes nowhere"
                continue
            needed = float(self.problem.link_latency[source, target]) + self.bytes[tensor] * float(
                self.problem.link_seconds_per_byte[source, target]
            )
            if abs(finish - start - needed) > self.slack:
                yield (
                    f"the transfer of {route} takes {format_seconds(finish - start)}, "
                    f"the route needs {format_seconds(needed)}"
                )
            for resource in self.placed.contended(source, target):
                busy[resource].append((start, finish, route))
        for (kind, _), intervals in busy.items():
            for one, two in overlaps(intervals, self.slack):
                yield f"the transfers of {one} and of {two} overlap on one {kind}"

    def claims(self) -> Iterator[str]:
        makespan = max(self.op_finish)
        value, bound = self.plan.value, self.plan.lower_bound
        if not abs(value - makespan) <= self.slack:
            yield (
                f"the value is {format_seconds(value)}, "
                f"the last op ends at {format_seconds(makespan)}"
            )
        if not (0 <= bound <= makespan + self.slack):
            yield (
                f"the lower bound {format_seconds(bound)} is above the value "
                f"{format_seconds(value)}"
            )
        yield from stated(self.plan)
