"""What a judge says: `Report`; and what every judge checks of a placement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placewright.errors import VerificationError
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.units import format_bytes, format_seconds

TOLERANCE = 1e-9
MAX_SHOWN = 20


@dataclass(frozen=True)
class Report:
    """What the judge found: `violations` (empty if the plan holds) and its own figures."""

    violations: tuple[str, ...]
    value: float
    """Seconds: what the objective minimises, as the judge computed it."""
    device_memory: tuple[float, ...]
    """`[device]` bytes needed, under the plan's memory option."""
    checks: tuple[str, ...]
    """What was checked, in words."""

    @property
    def ok(self) -> bool:
        return not self.violations

    def raise_if_failed(self) -> None:
        """VerificationError with the first violation, if there is one."""
        if self.violations:
            more = len(self.violations) - 1
            raise VerificationError(
                "the plan is wrong: " + self.violations[0] + (f" (and {more} more)" if more else "")
            )


class Placed:
    """Ops on devices: the checks that hold under every objective.

    `devices_of[op]` are the devices where the op runs: several for replicas and for batches.
    """

    def __init__(self, plan: Plan, devices_of: Sequence[Sequence[int]]) -> None:
        self.plan = plan
        self.problem: Problem = plan.problem
        self.devices_of = [sorted(set(devices)) for devices in devices_of]

    def op(self, op: int) -> str:
        return f"'{self.problem.op_names[op]}'"

    def device(self, device: int) -> str:
        return f"'{self.problem.device_names[device]}'"

    def names(self, devices: Sequence[int]) -> str:
        return " and ".join(self.device(device) for device in devices)

    def placement(self) -> Iterator[str]:
        options, placement = self.problem.options, self.plan.placement
        row = options.row
        if placement.replicas and "replicas" not in row.placement_fields:
            yield f"the plan has replicas, which no plan for {row.name} has"
        if placement.row and options.micro_batches is None:
            yield "the plan has a row of stages, which only plans with micro-batches have"
        if placement.subgraph is not None and "subgraph" not in row.placement_fields:
            yield f"the plan has subgraphs, which no plan for {row.name} has"
        for op, devices in enumerate(self.devices_of):
            for device in devices:
                if math.isinf(self.problem.op_time[op, device]):
                    yield f"op {self.op(op)} is on {self.device(device)}, which cannot run it"
            pinned = int(self.problem.op_pinned[op])
            if pinned >= 0 and devices != [pinned]:
                yield (
                    f"op {self.op(op)} is pinned to {self.device(pinned)} "
                    f"but is on {self.names(devices)}"
                )

    def colocation(self) -> Iterator[str]:
        first: dict[int, int] = {}
        for op, group in enumerate(self.problem.colocation.tolist()):
            if group < 0:
                continue
            other = first.setdefault(group, op)
            if self.devices_of[other] != self.devices_of[op]:
                yield (
                    f"ops {self.op(other)} and {self.op(op)} must be together but are on "
                    f"{self.names(self.devices_of[other])} and {self.names(self.devices_of[op])}"
                )

    def contended(self, source: int, target: int) -> list[tuple[str, int]]:
        """What a transfer keeps to itself under the problem's contention: kind and number."""
        problem = self.problem
        if problem.options.contention == "port":
            return [("outgoing port", source), ("incoming port", target)]
        if problem.options.contention == "none":
            return []
        pair = source * problem.device_count + target
        first, last = problem.channel_offsets[pair], problem.channel_offsets[pair + 1]
        return [("channel", channel) for channel in {*problem.channels[first:last].tolist()}]

    def kept(self) -> list[float]:
        """Bytes that the ops keep, per device."""
        kept = [0.0] * self.problem.device_count
        for op, devices in enumerate(self.devices_of):
            for device in devices:
                kept[device] += float(self.problem.op_memory[op])
        return kept

    def memory(self, needed: Sequence[float]) -> Iterator[str]:
        for device, amount in enumerate(needed):
            available = float(self.problem.device_memory[device])
            if amount > available * (1 + TOLERANCE):
                yield (
                    f"device {self.device(device)} needs {format_bytes(amount)} "
                    f"and has {format_bytes(available)}"
                )


def overlaps(
    intervals: Sequence[tuple[float, float, str]], slack: float
) -> Iterator[tuple[str, str]]:
    """Pairs that overlap; an interval of no length must not lie inside another either."""
    latest_start, latest_end, latest = -math.inf, -math.inf, ""
    for start, end, name in sorted(intervals):
        if start < latest_end - slack and latest_start < end - slack:
            yield latest, name
        if end > latest_end:
            latest_start, latest_end, latest = start, end, name


def wrong_consumers(problem: Problem, consumers: Sequence[int]) -> Iterator[str]:
    """Transfers of tensors are for no op in particular, those of edges for one each."""
    allowed, meaning = range(-1, 0), "for all consumers on its target and names -1"
    if problem.options.transfer_unit == "edge":
        last = problem.op_count - 1
        allowed, meaning = range(last + 1), f"for one op, from 0 to {last}"
    for consumer in consumers:
        if consumer not in allowed:
            yield f"a transfer names consumer {consumer}, but each is {meaning}"
            return


def stated(plan: Plan) -> Iterator[str]:
    """What the plan says of itself besides: its status, and how long planning took."""
    if plan.stated_status not in (None, plan.status):
        yield (
            f"the status is '{plan.stated_status}', but with a gap of {plan.gap:.3%} between value "
            f"and lower bound a plan is '{plan.status}'"
        )
    if plan.seconds < 0 or math.isinf(plan.seconds):
        yield f"planning is said to have taken {format_seconds(plan.seconds)}"


def claims(plan: Plan, value: float, slack: float, what: str) -> Iterator[str]:
    """The plan's value must be the judge's, its lower bound not above, its status theirs."""
    if not abs(plan.value - value) <= slack:
        yield (f"the value is {format_seconds(plan.value)}, {what} is {format_seconds(value)}")
    if not (math.isfinite(plan.lower_bound) and 0 <= plan.lower_bound <= plan.value + slack):
        yield (
            f"the lower bound {format_seconds(plan.lower_bound)} is not between 0 and the value "
            f"{format_seconds(plan.value)}"
        )
    yield from stated(plan)
