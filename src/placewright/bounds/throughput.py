"""Lower bounds on the time per sample of a pipeline (design: objective 3).

All hold under every option. A contiguous plan is a plan. What GPipe takes, the largest forward
plus the largest backward load, is no less than what any one device does in both passes, so loads
are those of both passes together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from placewright.bounds import latency
from placewright.bounds.bound import Bound
from placewright.graph import Floats, Ints
from placewright.problem import Problem

if TYPE_CHECKING:
    from placewright.planners.pipeline.nets import Pipeline

FLOW_UNITS = 1_500  # larger graphs have no flows in their quick bound
MOST_FLOWS = 400
RESOLUTION = 1 << 40  # whole numbers per largest load of a single unit
ROUNDING = 1e-12


def lower_bound(problem: Problem) -> Bound:
    """The best of the bounds below that take a second at most."""
    bounds = [work(problem), even_share(problem), single_unit(problem)]
    if problem.unit_count <= FLOW_UNITS:
        bounds.append(least_load(problem))
    return max(bounds, key=lambda bound: bound.value)


def work(problem: Problem) -> Bound:
    """All work, shared out over the devices in the best proportion, memory priced.

    Under every option a device's load is at least its computing, and the time per sample at
    least the largest load, forward and backward together: `latency.work` bounds that. Replicas
    share an op's time among devices that are equally fast, so for weights λ the op still adds
    at least min_d λ_d t[o, d]. Each replica keeps the op's memory, which only adds to the price.
    """
    return latency.work(problem)


def even_share(problem: Problem) -> Bound:
    """The work that equal devices must do, shared out evenly.

    If T ≤ τ, every device outside the largest class of k equal ones is busy for τ at most, and
    takes work off the class (in the class's seconds) worth at most that of a fractional knapsack
    of size τ; of the rest, one of the k does a k-th at least. So the τ where the two meet bounds
    T. Fractions cover replicas too: each computes its part of a unit.
    """
    from placewright.planners.pipeline.nets import pipeline_of
    from placewright.planners.pipeline.one_set import main_class, work_question

    pipeline = pipeline_of(problem)
    question = work_question(pipeline, main_class(pipeline))
    return Bound(question.meeting_point(np.inf), "work shared out evenly")


def single_unit(problem: Problem) -> Bound:
    """A unit is somewhere, whole, and its device computes at least that long.

    Shared by replicas, each of r equally fast devices computes an r-th of it.
    """
    time = _unit_times(problem)
    best = (time / _replicas(problem)).min(axis=1).max()
    return Bound(float(best) * (1 - ROUNDING), "the largest unit")


def least_load(problem: Problem) -> Bound:
    """The least load of a device that holds a certain unit: a minimum cut per unit and device.

    Whatever else the device holds, its set S of units computes Σ t and pays for every tensor
    that enters or leaves S. The least of that sum over all S that hold unit u is a minimum cut
    between u and a sink: an arc t_v from v to the sink; for a net from s to readers R an arc to
    pay when s is in S and not all of R are, and one for the reverse (an auxiliary vertex each).
    So T ≥ max over u of min over devices d that may hold u of cut_d(u).

    Where computing and transfers overlap, the largest of the two or three parts is at least their
    mean. Direct transfers are taken to and from where they cost least. A stage of r replicas
    shares its load among them; then a net is charged what it costs where it costs least, for a
    stage pays a mean. Devices are alike where no unit has different times or transfers on them.
    """
    from placewright.planners.pipeline.nets import pipeline_of

    best = 0.0
    pipeline = pipeline_of(problem)
    networks = list(_networks(pipeline))
    most = np.full((len(networks), problem.unit_count), np.inf)  # what a cut was seen to come to
    for row, network in zip(most, networks, strict=True):
        row[network.allowed] = network.alone()[network.allowed]
    with np.errstate(invalid="ignore"):
        order = np.argsort(-most.min(axis=0), kind="stable")
    flows = 0
    for unit in order.tolist():
        least = np.inf
        for number, network in enumerate(networks):
            if most[:, unit].min() <= best or flows >= MOST_FLOWS:
                least = 0.0
                break
            if network.allowed[unit]:
                flows += 1
                cut, together = network.cut(unit)
                most[number, together] = np.minimum(most[number, together], cut)
                least = min(least, cut)
        best = max(best, least if np.isfinite(least) else 0.0)
    return Bound(best * (1 - ROUNDING), "least load of a device that holds a certain op")


def _unit_times(problem: Problem) -> Floats:
    """`[unit, device]` seconds, `inf` where the unit cannot be."""
    return np.where(problem.unit_allowed, problem.unit_time, np.inf)


def _replicas(problem: Problem) -> Ints:
    """`[unit, device]` how many devices at most share the unit with this one."""
    if not problem.options.replicate:
        return np.ones((problem.unit_count, problem.device_count), dtype=np.int32)
    time = problem.unit_time
    alike = [(time == time[:, [device]]).sum(axis=1) for device in range(problem.device_count)]
    return np.stack(alike, axis=1).astype(np.int32)


@dataclass(frozen=True, eq=False)
class _Network:
    """The network of one device: seconds times `factor` are capacities.

    `into[net]`, `out[net]` seconds; `share[unit]` what of the load counts.
    """

    pipeline: Pipeline
    time: Floats
    allowed: Any
    into: Floats
    out: Floats
    share: Any
    factor: float

    def alone(self) -> Floats:
        """`[unit]` what counts of the load of a device that holds this unit alone."""
        load = self.time.copy()
        for net, into, out in zip(self.pipeline.nets, self.into, self.out, strict=True):
            load[net.source] += out
            for reader, _ in net.readers:
                load[reader] += into
        counted: Floats = load * self.share
        return counted

    def cut(self, unit: int) -> tuple[float, Ints]:
        """The least load with `unit`, as it counts, and the units of such a set."""
        from ortools.graph.python.max_flow import SimpleMaxFlow

        units = self.pipeline.unit_count
        sink = units + 2 * len(self.pipeline.nets)
        tails, heads, capacity = self._arcs
        flow = SimpleMaxFlow()
        flow.add_arcs_with_capacity(tails, heads, capacity)
        status = flow.solve(unit, sink)
        if status != flow.OPTIMAL:  # integer overflow cannot be: see RESOLUTION
            return 0.0, np.zeros(0, dtype=np.int32)
        side = np.asarray(flow.get_source_side_min_cut(), dtype=np.int32)
        value = flow.optimal_flow() / self.factor * float(self.share[unit])
        return value, side[side < units]

    @property
    def _arcs(self) -> tuple[Any, Any, Any]:
        cached = self.__dict__.get("_cached_arcs")
        if cached is None:
            cached = self.__dict__["_cached_arcs"] = self._build()
        return cached

    def _build(self) -> tuple[Any, Any, Any]:
        units = self.pipeline.unit_count
        sink = units + 2 * len(self.pipeline.nets)
        never = 1 << 60
        whole = np.minimum(np.floor(self.time * self.factor), never).astype(np.int64)
        arcs = [(u, sink, int(whole[u]) if self.allowed[u] else never) for u in range(units)]
        for number, net in enumerate(self.pipeline.nets):
            leaves, enters = units + 2 * number, units + 2 * number + 1
            arcs.append((net.source, leaves, int(self.out[number] * self.factor)))
            arcs.append((enters, net.source, int(self.into[number] * self.factor)))
            for reader, _ in net.readers:
                arcs.append((leaves, reader, never))
                arcs.append((reader, enters, never))
        tails, heads, capacity = zip(*arcs, strict=True)
        return (
            np.array(tails, dtype=np.int32),
            np.array(heads, dtype=np.int32),
            np.array(capacity, dtype=np.int64),
        )


def _networks(pipeline: Pipeline) -> Iterator[_Network]:
    """One per class of equal devices."""
    from placewright.planners.pipeline.pieces import device_classes

    problem = pipeline.problem
    parts = {"sum": 1.0, "overlap": 2.0, "duplex": 3.0}[problem.options.load]
    replicas = _replicas(problem)
    count = np.array([net.count for net in pipeline.nets])
    size = np.array([net.size for net in pipeline.nets])
    for members in device_classes(problem)[1]:
        device = members[0]
        time = pipeline.time[:, :, device].sum(axis=0)
        into, out = _transfers(problem, device, count, size)
        largest = float(time.sum() + into.sum() + out.sum())
        yield _Network(
            pipeline,
            time,
            pipeline.allowed[:, device],
            into,
            out,
            1.0 / (parts * replicas[:, device]),
            RESOLUTION / largest if largest > 0 else 1.0,
        )


def _transfers(problem: Problem, device: int, count: Floats, size: Floats) -> tuple[Floats, Floats]:
    """`[net]` seconds in and out of the device at least."""
    devices = np.arange(problem.device_count)
    shared = problem.options.replicate
    mine = devices if shared else devices[[device]]
    if problem.staging == "host":
        ways = [
            count[:, None] * problem.host_latency[way, mine]
            + size[:, None] * problem.host_seconds_per_byte[way, mine]
            for way in (0, 1)
        ]
        return ways[1].min(axis=1, initial=np.inf), ways[0].min(axis=1, initial=np.inf)
    pairs = [(a, b) for a in mine for b in devices if a != b]
    if not pairs or not len(count):
        return np.zeros(len(count)), np.zeros(len(count))
    here, there = np.array(pairs).T
    out, into = (
        count[:, None] * problem.link_latency[ends]
        + size[:, None] * problem.link_seconds_per_byte[ends]
        for ends in ((here, there), (there, here))
    )
    return into.min(axis=1), out.min(axis=1)
