"""Lower bounds on the time per input of a pipeline.

All hold under every option. A contiguous plan is a plan. What GPipe takes, the largest forward
plus the largest backward load, is no less than what any one device does in both passes, so loads
are those of both passes together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from placewright.analysis.devices import kinds
from placewright.analysis.shares import harmonic
from placewright.bounds.bound import Bound
from placewright.bounds.even_share import even_share
from placewright.bounds.latency import paths as latency
from placewright.graph import Floats, Ints, Wide
from placewright.problem import ROUNDING, Problem

if TYPE_CHECKING:
    from placewright.analysis.contracted import ContractedGraph

FLOW_ENTRIES, FEWEST_FLOWS = 400_000, 6  # units × flows, on graphs of thousands of units
LONGEST = 4  # units looked at first
MOST_FLOWS = 400
RESOLUTION = 1 << 40  # whole numbers per largest load of a single unit


def lower_bound(problem: Problem) -> Bound:
    """The best of the bounds below that take some seconds at most.

    A device of R data-parallel pipelines (`Options.data_parallel`) works on one of R micro-batches.
    """
    bounds = [work(problem), even_share(problem), single_unit(problem), least_load(problem)]
    best = max(bounds, key=lambda bound: bound.value)
    return replace(best, value=best.value / problem.options.data_parallel)


def work(problem: Problem) -> Bound:
    """All work, shared out over the devices in the best proportion, memory priced.

    Under every option a device's load is at least its computing, and the time per input at
    least the largest load, forward and backward together: `latency.work` bounds that. A replica d
    with the share w_d of the inputs computes w_d t[o, d], and the shares of a stage are 1 together,
    so for weights λ the op still adds Σ_d λ_d w_d t[o, d], which is at least min_d λ_d t[o, d],
    whatever the shares. Each replica keeps the op's memory, which only adds to the price.
    """
    return latency.work(problem)


def single_unit(problem: Problem) -> Bound:
    """A unit is somewhere, whole, and its device computes at least that long.

    Shared by replicas, each of r equally fast devices computes an r-th of it. With shares of any
    size, of all devices D that can run unit u one computes at least 1 / Σ_D 1 / t[u, d] of it: a
    largest w_d t[u, d] that were less would leave the shares w below 1 together.
    """
    first, class_of = kinds(problem)
    able = problem.unit_allowed[:, first]
    time = np.where(able, problem.unit_time[:, first], np.inf)
    time /= _replicas(problem, first, class_of)
    best = float(_one_of(problem, np.bincount(class_of))(time.T).max())
    return Bound(best * (1 - ROUNDING), "the largest unit")


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
    stage pays a mean. Devices that are equally fast have one network, in which each transfer takes
    what it takes where it is cheapest for one of them. Where flows run out, a bound is of those
    units that were looked at: the longest and those with most load when alone.

    Where shares differ, device d of the stage D that holds u and all of S has w_d of at least
    cut_d(u), and Σ_D w_d = 1. So the largest load of D is at least 1 / Σ_D 1 / cut_d(u), which is
    least with all devices that may hold u for D.
    """
    from placewright.analysis.contracted import contracted_graph

    best = 0.0
    graph = contracted_graph(problem, contiguous=False, by_links=False)
    networks = list(_networks(graph))
    most = np.full((len(networks), problem.unit_count), np.inf)  # what a cut was seen to come to
    for row, network in zip(most, networks, strict=True):
        row[network.allowed] = network.alone()[network.allowed]
    one_of = _one_of(problem, np.array([len(devices) for devices in graph.class_devices]))
    flows, most_flows = 0, max(FLOW_ENTRIES // problem.unit_count, FEWEST_FLOWS)
    for unit in _most_promising(networks, one_of(most)):
        cuts = np.full(len(networks), np.inf)
        for number, network in enumerate(networks):
            if one_of(most[:, unit]) <= best or flows >= min(MOST_FLOWS, most_flows):
                cuts[:] = 0.0
                break
            if network.allowed[unit]:
                flows += 1
                cuts[number], together = network.cut(unit)
                most[number, together] = np.minimum(most[number, together], cuts[number])
        least = float(one_of(cuts))
        best = max(best, least if np.isfinite(least) else 0.0)
    return Bound(best * (1 - ROUNDING), "least load of a device that holds a certain op")


def _most_promising(networks: list[_Network], alone: Floats) -> list[int]:
    """Units, those first that take longest, then those with most load when `alone`."""
    times = [np.where(each.allowed, each.time * each.share, np.inf) for each in networks]
    longest = np.argsort(-np.min(times, axis=0), kind="stable")[:LONGEST].tolist()
    return list(dict.fromkeys([*longest, *np.argsort(-alone, kind="stable").tolist()]))


def _one_of(problem: Problem, count: Wide) -> Callable[[Floats], Floats]:
    """What one device of the stage of a unit does at least, of what it is on one of each class.

    Of ``seconds[class, …]``, infinite where the unit cannot be, with ``count[class]`` devices: the
    least of them, or with shares of any size what all devices together come to.
    """
    if problem.options.shares == "equal":
        return lambda seconds: np.asarray(seconds.min(axis=0))

    return lambda seconds: harmonic(seconds.T, count)


def _replicas(problem: Problem, first: Ints, class_of: Ints) -> Ints:
    """`[unit, class]` how many devices at most share the unit with one of the class, equally."""
    if not problem.options.replicate or problem.options.shares == "unequal":
        return np.ones((problem.unit_count, len(first)), dtype=np.int32)
    time, count = problem.unit_time[:, first], np.bincount(class_of)
    return np.stack([(time == column[:, None]) @ count for column in time.T], axis=1)


@dataclass(frozen=True, eq=False)
class _Network:
    """The network of the devices of a class: seconds times `factor` are capacities.

    `into[net]`, `out[net]` seconds; `share[unit]` what of the load counts.
    """

    graph: ContractedGraph
    time: Floats
    allowed: Any
    into: Floats
    out: Floats
    share: Any
    factor: float

    def alone(self) -> Floats:
        """`[unit]` what counts of the load of a device that holds this unit alone."""
        graph, units = self.graph, len(self.time)
        read = np.repeat(self.into, np.diff(graph.nets.offsets))
        load = self.time + np.bincount(graph.nets.producer, self.out, units)
        load += np.bincount(graph.nets.readers, read, units)
        counted: Floats = load * self.share
        return counted

    def cut(self, unit: int) -> tuple[float, Ints]:
        """The least load with `unit`, as it counts, and the units of such a set."""
        from ortools.graph.python.max_flow import SimpleMaxFlow

        units = len(self.time)
        sink = units + 2 * self.graph.net_count
        flow = SimpleMaxFlow()
        flow.add_arcs_with_capacity(*self._arcs)
        status = flow.solve(unit, sink)
        if status != flow.OPTIMAL:  # integer overflow cannot be: see RESOLUTION
            return 0.0, np.zeros(0, dtype=np.int32)
        side = np.asarray(flow.get_source_side_min_cut(), dtype=np.int32)
        value = flow.optimal_flow() / self.factor * float(self.share[unit])
        return value, side[side < units]

    @cached_property
    def _arcs(self) -> tuple[Any, Any, Any]:
        """Tails, heads and capacities, the arcs of units first."""
        graph = self.graph
        units, nets = len(self.time), graph.net_count
        sink, never = units + 2 * nets, 1 << 60
        whole = np.minimum(np.floor(self.time * self.factor), never).astype(np.int64)
        leaves = units + 2 * np.arange(nets)
        of_reader = np.repeat(leaves, np.diff(graph.nets.offsets))
        source, readers = graph.nets.producer, graph.nets.readers
        free = np.full(len(readers), never)
        tails = [np.arange(units), source, leaves + 1, of_reader, readers]
        heads = [np.full(units, sink), leaves, source, readers, of_reader + 1]
        capacity = [
            np.where(self.allowed, whole, never),
            (self.out * self.factor).astype(np.int64),
            (self.into * self.factor).astype(np.int64),
            free,
            free,
        ]
        return (
            np.concatenate(tails).astype(np.int32),
            np.concatenate(heads).astype(np.int32),
            np.concatenate(capacity).astype(np.int64),
        )


def _networks(graph: ContractedGraph) -> Iterator[_Network]:
    """One per class of devices that are equally fast and have as much memory."""
    problem = graph.problem
    parts = {"sum": 1.0, "overlap": 2.0, "duplex": 3.0}[problem.options.load]
    first = np.array([devices[0] for devices in graph.class_devices], dtype=np.int32)
    replicas = _replicas(problem, first, graph.device_class)
    for number, members in enumerate(graph.class_devices):
        time = graph.time[:, :, number].sum(axis=0)
        into, out = _transfers(problem, members, graph.nets.tensors, graph.nets.bytes)
        largest = float(time.sum() + into.sum() + out.sum())
        yield _Network(
            graph,
            time,
            problem.unit_allowed[:, members[0]],
            into,
            out,
            1.0 / (parts * replicas[:, number]),
            RESOLUTION / largest if largest > 0 else 1.0,
        )


def _transfers(
    problem: Problem, members: tuple[int, ...], count: Floats, size: Floats
) -> tuple[Floats, Floats]:
    """`[net]` seconds in and out of one of the devices at least, of any where they share a load."""
    devices = np.arange(problem.device_count)
    mine = devices if problem.options.replicate else np.array(members)
    if problem.staging == "host":
        ways = [(problem.host_latency[way, mine], problem.host_seconds_per_byte[way, mine])
                for way in (1, 0)]  # fmt: skip
    else:
        apart = mine[:, None] != devices[None, :]
        latency, per_byte = problem.link_latency, problem.link_seconds_per_byte
        ways = [(latency.T[mine][apart], per_byte.T[mine][apart]),
                (latency[mine][apart], per_byte[mine][apart])]  # fmt: skip
    into, out = (_cheapest(count, size, *way) for way in ways)
    return into, out


def _cheapest(count: Floats, size: Floats, latency: Floats, per_byte: Floats) -> Floats:
    """`[net]` the least seconds on one of the ways; nothing where there is none."""
    if not len(latency):
        return np.zeros(len(count))
    # Few of many ways differ. Of numbers, complex ones are compared by one part, then the other.
    best = np.full(len(count), np.inf)
    for way in np.unique(latency + 1j * per_byte):
        best = np.minimum(best, count * way.real + size * way.imag)
    return best
