"""The judge of plans for batch throughput (DiviML §IV-A)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from placewright.outcome import BatchSchedule
from placewright.plan import Plan
from placewright.units import format_seconds
from placewright.verify.report import (
    MAX_SHOWN,
    TOLERANCE,
    Placed,
    Report,
    claims,
    overlaps,
    wrong_consumers,
)

CHECKS = (
    "every input of every op is on a device that supports it, its pinned device if it has one",
    "colocated ops have each input on one device",
    "the weights on each device fit its memory",
    "all inputs of an op on a device make one batch, of a size that the device takes",
    "every batch lasts as long as it needs, and no device runs two at once",
    "every batch starts when the inputs it reads are on its device, sent after they were made",
    "transfers last as long as the route needs and do not overlap where they contend",
    "the value is the last finish, the lower bound is not above it, the status is theirs",
)

Batch = tuple[int, int]
"""An op and a device."""


def verify_batch(plan: Plan, outcome: BatchSchedule) -> Report:
    """Judge a plan for objective ``batch-throughput``."""
    violations = list(_check_shapes(plan, outcome))
    value = math.nan
    memory: tuple[float, ...] = ()
    if not violations:
        judge = _Judge(plan, outcome)
        value = max(outcome.batches.finish.tolist())
        memory = tuple(judge.placed.kept())
        violations += judge.placed.placement()
        violations += judge.colocation()
        violations += judge.placed.memory(memory)
        violations += judge.batches()
        violations += judge.inputs()
        violations += judge.transfers()
        violations += claims(plan, value, judge.slack, "the last finish")
    return Report(tuple(violations[:MAX_SHOWN]), value, memory, CHECKS)


def _check_shapes(plan: Plan, outcome: BatchSchedule) -> Iterator[str]:
    problem = plan.problem
    n, d, inputs = problem.op_count, problem.device_count, problem.options.batch
    if plan.placement.device.shape != (n, inputs):
        yield f"placement is not {n} rows, one per op, of {inputs} devices, one per input"
    for device in sorted(set(plan.placement.device.ravel().tolist())):
        if not 0 <= device < d:
            yield f"the placement names device {device}, but devices go from 0 to {d - 1}"
    batches, sent = outcome.batches, outcome.transfers
    if not len(batches):
        yield "there are no batches"
    for what, column, count in (
        ("batch names op", batches.op, n),
        ("batch names device", batches.device, d),
        ("transfer names tensor", sent.tensor, problem.tensor_count),
        ("transfer names source", sent.source, d),
        ("transfer names target", sent.target, d),
    ):
        for entry in column.tolist():
            if not 0 <= entry < count:
                yield f"a {what} {entry}, but they go from 0 to {count - 1}"
                break
    yield from wrong_consumers(problem, sent.consumer.tolist())
    columns = (batches.start, batches.finish, sent.start, sent.finish)
    if not all(math.isfinite(t) and t >= 0 for column in columns for t in column.tolist()):
        yield "a time is negative or not finite"


class _Judge:
    """The plan as plain lists and dictionaries, and one method per check."""

    def __init__(self, plan: Plan, outcome: BatchSchedule) -> None:
        problem = self.problem = plan.problem
        self.where: list[list[int]] = plan.placement.device.tolist()
        self.placed = Placed(plan, self.where)
        self.rows = list(
            zip(
                outcome.batches.op.tolist(),
                outcome.batches.device.tolist(),
                outcome.batches.size.tolist(),
                outcome.batches.start.tolist(),
                outcome.batches.finish.tolist(),
                strict=True,
            )
        )
        sent = outcome.transfers
        self.sent = list(
            zip(
                sent.tensor.tolist(),
                sent.consumer.tolist(),
                sent.source.tolist(),
                sent.target.tolist(),
                sent.inputs.tolist(),
                sent.start.tolist(),
                sent.finish.tolist(),
                strict=True,
            )
        )
        self.start = {(op, device): start for op, device, _, start, _ in self.rows}
        self.finish = {(op, device): finish for op, device, _, _, finish in self.rows}
        self.slack = TOLERANCE * max(max(self.finish.values()), 1e-12)
        self.by_tensor = problem.options.transfer_unit == "tensor"

    def name(self, batch: Batch) -> str:
        return f"the batch of op {self.placed.op(batch[0])} on {self.placed.device(batch[1])}"

    def colocation(self) -> Iterator[str]:
        first: dict[int, int] = {}
        for op, group in enumerate(self.problem.colocation.tolist()):
            if group >= 0 and self.where[first.setdefault(group, op)] != self.where[op]:
                yield (
                    f"ops {self.placed.op(first[group])} and {self.placed.op(op)} must be "
                    "together but have an input on two devices"
                )

    def batches(self) -> Iterator[str]:
        sizes = self.problem.batch_sizes.tolist()
        expected: dict[Batch, int] = defaultdict(int)
        for op, devices in enumerate(self.where):
            for device in devices:
                expected[op, device] += 1
        listed = [(op, device) for op, device, *_ in self.rows]
        for batch in sorted(set(listed) ^ set(expected)):
            yield f"{self.name(batch)} " + ("has no inputs" if batch in listed else "is missing")
        if len(listed) > len(set(listed)):
            yield "an op has two batches on one device"
        on_device: dict[int, list[tuple[float, float, str]]] = defaultdict(list)
        for op, device, size, start, finish in self.rows:
            name = self.name((op, device))
            if size != expected[op, device]:
                yield f"{name} has {expected[op, device]} inputs, not {size}"
            needed = math.inf
            if size in sizes:
                needed = float(self.problem.batch_time[op, device, sizes.index(size)])
            if math.isinf(needed):
                yield f"{name} has {size} inputs, a size that the device does not take"
            elif abs(finish - start - needed) > self.slack:
                yield (
                    f"{name} takes {format_seconds(finish - start)}, it needs "
                    f"{format_seconds(needed)}"
                )
            on_device[device].append((start, finish, name))
        for intervals in on_device.values():
            for one, two in overlaps(intervals, self.slack):
                yield f"{one} and {two} run at once"

    def inputs(self) -> Iterator[str]:
        """Each batch starts when what its inputs need is there; transfers carry what is needed."""
        problem = self.problem
        arrival: dict[tuple[int, int, int, int], float] = {}
        for tensor, consumer, source, target, count, start, finish in self.sent:
            key = (tensor, -1 if self.by_tensor else consumer, source, target)
            if key in arrival:
                yield f"tensor {tensor} is sent twice to {self.placed.device(target)}"
            arrival[key] = finish
            needed = self._moved(*key)
            if count != needed or not needed:
                yield (
                    f"tensor {tensor} goes from {self.placed.device(source)} to "
                    f"{self.placed.device(target)} for {count} inputs, {needed} need it"
                )
            made = self.finish.get((int(problem.tensor_producer[tensor]), source), math.inf)
            if start < made - self.slack:
                yield f"tensor {tensor} is sent before the batch that makes it has ended"
        for tensor, producer in enumerate(problem.tensor_producer.tolist()):
            first, last = problem.consumer_offsets[tensor], problem.consumer_offsets[tensor + 1]
            for op in problem.consumers[first:last].tolist():
                pairs = set(zip(self.where[producer], self.where[op], strict=True))
                for source, target in sorted(pairs):
                    there = self.finish.get((producer, source), math.inf)
                    if source != target:
                        key = (tensor, -1 if self.by_tensor else op, source, target)
                        there = arrival.get(key, math.inf)
                    if self.start.get((op, target), math.inf) < there - self.slack:
                        when = format_seconds(there) if there < math.inf else "never"
                        yield (
                            f"{self.name((op, target))} starts before its input from "
                            f"{self.placed.op(producer)} on {self.placed.device(source)} is "
                            f"there ({when})"
                        )

    def _moved(self, tensor: int, consumer: int, source: int, target: int) -> int:
        """How many inputs' tensors an op there needs from here."""
        problem = self.problem
        first, last = problem.consumer_offsets[tensor], problem.consumer_offsets[tensor + 1]
        readers = set(problem.consumers[first:last].tolist())
        if consumer >= 0:
            readers &= {consumer}
        made = self.where[int(problem.tensor_producer[tensor])]
        return sum(
            made[each] == source and any(self.where[op][each] == target for op in readers)
            for each in range(problem.options.batch)
        )

    def transfers(self) -> Iterator[str]:
        busy: dict[tuple[str, int], list[tuple[float, float, str]]] = defaultdict(list)
        problem, contention = self.problem, self.problem.options.contention
        for tensor, _, source, target, count, start, finish in self.sent:
            route = (
                f"tensor {tensor} from {self.placed.device(source)} to {self.placed.device(target)}"
            )
            together = 1 if contention == "none" else count
            needed = float(problem.link_latency[source, target]) + together * float(
                problem.tensor_bytes[tensor]
            ) * float(problem.link_seconds_per_byte[source, target])
            if source == target:
                yield f"the transfer of {route} goes nowhere"
            elif abs(finish - start - needed) > self.slack:
                yield (
                    f"the transfer of {route} takes {format_seconds(finish - start)}, "
                    f"it needs {format_seconds(needed)}"
                )
            for resource in self.placed.contended(source, target):
                busy[resource].append((start, finish, route))
        for (kind, _), intervals in busy.items():
            for one, two in overlaps(intervals, self.slack):
                yield f"the transfers of {one} and of {two} overlap on one {kind}"
