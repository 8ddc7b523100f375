"""The judge of plans for throughput: what every device does per input (Tarnawski et al. §5)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

from placewright.outcome import Loads
from placewright.plan import Plan
from placewright.units import format_seconds
from placewright.verify.report import MAX_SHOWN, TOLERANCE, Placed, Report, claims
from placewright.verify.steps import (
    BACKWARD,
    FORWARD,
    StepTimes,
    ends_of,
    exchange_of,
    most_in_flight,
    own_micro_batches,
    wrong_pipelines,
    wrong_row,
)

CHECKS = (
    "every op is on devices that support it, its pinned device if it has one",
    "replicas are in one stage each, and only where replication is allowed; they are equal devices "
    "with equal shares, unless shares may differ",
    "colocated ops are together",
    "what each device keeps fits its memory",
    "a contiguous plan's devices can be put in a row that data only goes along",
    "with micro-batches: the row of stages has each device once and data goes along it, each stage "
    "has a device in each data-parallel pipeline, and the seconds of a step, what is in flight and "
    "idle are what the schedule makes them",
    "computing, transfers, synchronisation and load of each device are what its ops make them",
    "the value is the time per input of the pipeline, the lower bound is not above it, the status "
    "is theirs",
)

PASSES = ("forward", "backward")


def verify_throughput(plan: Plan, loads: Loads) -> Report:
    """Judge a plan for objective ``throughput``."""
    violations = list(_check_shapes(plan, loads))
    value = math.nan
    memory: tuple[float, ...] = ()
    if not violations:
        judge = _Judge(plan, loads)
        value = judge.value
        memory = tuple(judge.kept())
        violations += judge.placed.placement()
        violations += judge.replicas()
        violations += judge.placed.colocation()
        violations += judge.placed.memory(memory)
        violations += judge.contiguity()
        violations += judge.steps()
        violations += judge.loads()
        violations += claims(plan, value, judge.slack, "the pipeline's time per input")
    return Report(tuple(violations[:MAX_SHOWN]), value, memory, CHECKS)


def _check_shapes(plan: Plan, loads: Loads) -> Iterator[str]:
    problem = plan.problem
    n, d = problem.op_count, problem.device_count
    if plan.placement.device.shape != (n,):
        yield f"placement has {len(plan.placement.device)} entries for {n} ops"
    named = {*plan.placement.device.ravel().tolist()}
    named.update(device for stage in plan.placement.replicas for device in stage)
    for device in sorted(named):
        if not 0 <= device < d:
            yield f"the placement names device {device}, but devices go from 0 to {d - 1}"
    if any(len(stage) < 2 for stage in plan.placement.replicas):
        yield "a stage of replicas names fewer than two devices; leave it out"
    yield from _check_step(plan, loads)
    for name in ("compute", "incoming", "outgoing"):
        if getattr(loads, name).shape != (2, d):
            yield f"{name} is not two rows, forward and backward, of {d} devices"
    for name in ("sync", "load"):
        if getattr(loads, name).shape != (d,):
            yield f"{name} has {len(getattr(loads, name))} entries for {d} devices"


def _check_step(plan: Plan, loads: Loads) -> Iterator[str]:
    step, options = loads.step, plan.problem.options
    if (step is None) != (options.micro_batches is None):
        has = "no step" if step is None else "a step"
        yield f"the plan has {has}, and its micro-batches are {options.micro_batches or 'none'}"
    device, known = plan.placement.device.tolist(), range(plan.problem.device_count)
    are_known = len(device) == plan.problem.op_count and all(each in known for each in device)
    if options.micro_batches is not None and are_known:
        yield from wrong_row(plan.problem, plan.placement.row, device)
        yield from wrong_pipelines(plan.problem, plan.placement)
    if step is not None and not len(step.in_flight) == len(step.idle) == len(plan.placement.row):
        yield "what is in flight or idle in a step has not an entry for each stage of the row"


class _Judge:
    """The loads worked out anew, stage by stage, from the definitions."""

    def __init__(self, plan: Plan, claimed: Loads) -> None:
        self.plan = plan
        self.problem = plan.problem
        self.options = plan.problem.options
        self.claimed = claimed
        self.device: list[int] = plan.placement.device.tolist()
        self.stages: dict[int, tuple[int, ...]] = {d: (d,) for d in self.device}
        for stage in plan.placement.replicas:
            self.stages[stage[0]] = stage
        self.replicated = plan.placement.replicas
        self.in_steps = plan.problem.options.micro_batches is not None
        # Which device an op is on in each pipeline: there is one, or some that are data-parallel.
        self.pipelines = [self.device]
        if self.in_steps:
            self.pipelines = [
                [self.stages[d][number] for d in self.device]
                for number in range(plan.problem.options.data_parallel)
            ]
        self.uneven = bool(plan.placement.replica_shares)
        # Which part of its stage's inputs a device takes; equal parts unless the plan says others.
        self.part: dict[int, float] = {
            d: 1 / len(members) for members in self.stages.values() for d in members
        }
        for members, shares in zip(self.replicated, plan.placement.replica_shares, strict=False):
            self.part.update(zip(members, shares, strict=True))
        self.placed = Placed(plan, [self.stages[d] for d in self.device])
        self.backward: list[bool] = plan.problem.is_backward.tolist()
        self._work_out()
        self.slack = TOLERANCE * max(self.value, 1e-12)

    # -- what the loads must be ------------------------------------------------------------------

    def _work_out(self) -> None:
        count = self.problem.device_count
        self.compute = [[0.0] * count, [0.0] * count]
        self.incoming = [[0.0] * count, [0.0] * count]
        self.hops: dict[tuple[int, int, int], float] = defaultdict(float)
        self.outgoing = [[0.0] * count, [0.0] * count]
        self.sync = [0.0] * count
        if self.in_steps:
            self._work_out_pipelines()
        else:
            self._work_out_stages()
        parts = [
            [
                self._busy(self.compute[way][d], self.incoming[way][d], self.outgoing[way][d])
                for d in range(count)
            ]
            for way in (0, 1)
        ]
        if self.options.schedule == "gpipe" and not self.in_steps:
            parts[1] = [self._beside(parts[1][d], self.sync[d]) for d in range(count)]
            self.load = [parts[0][d] + parts[1][d] for d in range(count)]
            self.value = max(parts[0]) + max(parts[1])
            return
        self.load = [
            self._beside(
                self._busy(
                    self.compute[0][d] + self.compute[1][d],
                    self.incoming[0][d] + self.incoming[1][d],
                    self.outgoing[0][d] + self.outgoing[1][d],
                ),
                self.sync[d],
            )
            for d in range(count)
        ]
        self.value = max(self.load)
        if self.options.micro_batches is not None:
            self.step = self._step(parts)
            self.value = self.step / self.options.micro_batches

    def _work_out_stages(self) -> None:
        """What stages do, and each of their replicas of it."""
        for op, stage in enumerate(self.device):
            for device in self.stages[stage]:
                seconds = self.part[device] * float(self.problem.op_time[op, device])
                self.compute[self.backward[op]][device] += seconds
        for tensor, producer in enumerate(self.problem.tensor_producer.tolist()):
            self._send(tensor, producer)
        for members in self.stages.values():
            self._synchronise(members)

    def _work_out_pipelines(self) -> None:
        """What the stages of each pipeline do by themselves, and exchange once for all passes."""
        stages, first = self.stages, self.device
        self.part = {d: 1.0 for devices in self.pipelines for d in devices}
        self.stages = {d: (d,) for d in self.part}
        for devices in self.pipelines:
            self.device = devices
            self._work_out_stages()
        self.stages, self.device = stages, first
        self.exchange: list[float] = []
        for stage in self.plan.placement.row:
            ops = [op for op, device in enumerate(first) if device == stage]
            weights = sum(float(self.problem.op_sync_bytes[op]) for op in ops) * any(self.backward)
            self.exchange.append(exchange_of(self.problem, weights, stages[stage]))
            for device in stages[stage]:
                self.sync[device] = self.exchange[-1] / own_micro_batches(self.problem)

    def _step(self, parts: Sequence[Sequence[float]]) -> float:
        """Seconds of a step, of what each device does per micro-batch, forward and backward."""
        row = self.plan.placement.row
        rows = [[self.stages[d][number] for d in row] for number in range(len(self.pipelines))]
        ends = [self._ends(parts, each) for each in rows]
        done = [max(each) for each in zip(*ends, strict=True)]
        step: float = max(end + more for end, more in zip(done, self.exchange, strict=True))
        return step

    def _ends(self, parts: Sequence[Sequence[float]], row: Sequence[int]) -> list[float]:
        """When the stages of a pipeline have done their last pass."""
        above, below = [*row[1:], -1], [-1, *row[:-1]]
        shared = [
            [self.hops[way, one, two] for one, two in zip(row, others, strict=True)]
            for way, others in ((FORWARD, above), (BACKWARD, below))
        ]
        passes = [[part[device] for device in row] for part in parts]
        return ends_of(self.problem, StepTimes(passes, shared))

    def _busy(self, compute: float, incoming: float, outgoing: float) -> float:
        if self.options.load == "sum":
            return compute + incoming + outgoing
        if self.options.load == "overlap":
            return max(compute, incoming + outgoing)
        return max(compute, incoming, outgoing)

    def _beside(self, load: float, sync: float) -> float:
        return load + sync if self.options.load == "sum" else max(load, sync)

    def _send(self, tensor: int, producer: int) -> None:
        problem = self.problem
        first, last = problem.consumer_offsets[tensor], problem.consumer_offsets[tensor + 1]
        source = self.device[producer]
        readers: dict[int, list[int]] = defaultdict(list)
        for op in problem.consumers[first:last].tolist():
            if self.device[op] != source:
                readers[self.device[op]].append(op)
        size = float(problem.tensor_bytes[tensor])
        if readers and problem.staging == "host":
            seconds = self._staged(size, source, 0)
            self._add(self.outgoing[self.backward[producer]], source, seconds)
        for target, ops in readers.items():
            way = int(all(self.backward[op] for op in ops))
            if problem.staging == "host":
                seconds = self._staged(size, target, 1)
            else:
                seconds = sum(
                    self.part[a]
                    * self.part[b]
                    * (
                        float(problem.link_latency[a, b])
                        + size * float(problem.link_seconds_per_byte[a, b])
                    )
                    for a in self.stages[source]
                    for b in self.stages[target]
                )
                self._add(self.outgoing[self.backward[producer]], source, seconds)
                if way == self.backward[producer]:
                    self.hops[way, source, target] += seconds
            self._add(self.incoming[way], target, seconds)

    def _staged(self, size: float, stage: int, way: int) -> float:
        """Seconds to host memory or from it, of the mean of a stage's inputs."""
        latency = self.problem.host_latency[way]
        per_byte = self.problem.host_seconds_per_byte[way]
        return sum(
            self.part[d] * (float(latency[d]) + size * float(per_byte[d]))
            for d in self.stages[stage]
        )

    def _add(self, seconds_of: list[float], stage: int, seconds: float) -> None:
        for device in self.stages[stage]:
            seconds_of[device] += seconds * self.part[device]

    def _synchronise(self, stage: tuple[int, ...]) -> None:
        problem, r = self.problem, len(stage)
        if r == 1:
            return
        weights = sum(
            float(problem.op_sync_bytes[op])
            for op, device in enumerate(self.device)
            if device == stage[0]
        )
        if problem.staging == "host":
            slowest = max(float(problem.host_seconds_per_byte[w, d]) for w in (0, 1) for d in stage)
        else:
            slowest = max(float(problem.link_seconds_per_byte[a, b]) for a in stage for b in stage)
        for device in stage:
            self.sync[device] = (r - 1) / r * weights * slowest

    def kept(self) -> list[float]:
        """Bytes per device; with micro-batches what each one in flight takes besides."""
        kept, row, stash = self.placed.kept(), self.plan.placement.row, self.problem.op_stash
        if self.in_steps and stash.size:
            for stage, count in zip(row, most_in_flight(self.problem, len(row)), strict=True):
                ops = [op for op, place in enumerate(self.device) if place == stage]
                for device in self.stages[stage]:
                    kept[device] += (count - 1) * sum(float(stash[op]) for op in ops)
        return kept

    # -- checks ----------------------------------------------------------------------------------

    def replicas(self) -> Iterator[str]:
        if self.replicated and not self.options.replicate and not self.in_steps:
            yield "the plan has replicas, and its problem does not allow them"
        if self.uneven and self.options.shares == "equal":
            yield "the plan has shares of replicas, and its problem has them take as many inputs"
        seen: set[int] = set()
        for stage in self.replicated:
            for device in stage:
                if device in seen:
                    yield f"device {self.placed.device(device)} is named by two stages"
                seen.add(device)
            if any(device in self.device for device in stage[1:]):
                yield f"ops name a device of stage {self.placed.names(stage)} that is not its first"
            ops = [op for op, device in enumerate(self.device) if device == stage[0]]
            if not ops:
                yield f"no op is on the stage of replicas {self.placed.names(stage)}"
            times = {tuple(self.problem.op_time[ops, device].tolist()) for device in stage}
            if len(times) > 1 and self.options.shares == "equal" and not self.in_steps:
                yield f"the devices of stage {self.placed.names(stage)} are not equally fast"

    def contiguity(self) -> Iterator[str]:
        """Forward data goes up the row of devices; backward data all down it, or all up."""
        if not self.options.contiguous:
            return
        circles = [self._circle(turned) for turned in (True, False)]
        if all(circles):
            circle = self.placed.names(min(circles, key=len))
            yield f"the plan is not contiguous: data goes in a circle over {circle}"

    def _circle(self, turned: bool) -> list[int]:
        """Devices that come before each other, backward edges turned round or not; or none."""
        after: dict[int, set[int]] = {device: set() for device in self.device}
        ends = zip(
            self.problem.edge_producer.tolist(), self.problem.consumers.tolist(), strict=True
        )
        for producer, consumer in ends:
            one, two = self.device[producer], self.device[consumer]
            if one == two or self.backward[producer] != self.backward[consumer]:
                continue
            if self.backward[producer] and turned:
                one, two = two, one
            after[two].add(one)
        try:
            list(TopologicalSorter(after).static_order())
        except CycleError as error:
            return sorted(set(error.args[1]))
        return []

    def steps(self) -> Iterator[str]:
        step, row = self.claimed.step, self.plan.placement.row
        if step is None or not self.in_steps:
            return
        count = own_micro_batches(self.problem)
        if not abs(step.seconds - self.step) <= self.slack * (self.options.micro_batches or 1):
            yield (
                f"a step is said to take {format_seconds(step.seconds)}, its passes make it "
                f"{format_seconds(self.step)}"
            )
        for device, said, most in zip(
            row, step.in_flight.tolist(), most_in_flight(self.problem, len(row)), strict=True
        ):
            if said != most:
                yield (
                    f"{self.placed.device(device)} is said to have {said} micro-batches in flight, "
                    f"the schedule has {most}"
                )
        for device, idle in zip(row, step.idle.tolist(), strict=True):
            mine = max(1 - count * self.load[device] / self.step, 0.0) if self.step > 0 else 0.0
            if not abs(idle - mine) <= TOLERANCE:
                yield (
                    f"{self.placed.device(device)} is said to be idle for {idle:.3%} of a step, "
                    f"its passes leave {mine:.3%}"
                )

    def loads(self) -> Iterator[str]:
        for name in ("compute", "incoming", "outgoing"):
            for way in (0, 1):
                mine, theirs = getattr(self, name)[way], getattr(self.claimed, name)[way]
                yield from self._compare(f"{PASSES[way]} {name}", mine, theirs.tolist())
        yield from self._compare("sync", self.sync, self.claimed.sync.tolist())
        yield from self._compare("load", self.load, self.claimed.load.tolist())

    def _compare(self, what: str, mine: Sequence[float], theirs: Sequence[float]) -> Iterator[str]:
        for device, (right, claimed) in enumerate(zip(mine, theirs, strict=True)):
            if not abs(right - claimed) <= self.slack:
                yield (
                    f"{what} of {self.placed.device(device)} is {format_seconds(claimed)}, "
                    f"its ops make it {format_seconds(right)}"
                )
