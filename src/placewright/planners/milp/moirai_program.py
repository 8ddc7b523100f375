"""Moirai's mixed-integer program (arXiv 2023, §III-D, equations 4–8)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from placewright.graph import Floats
from placewright.plan import Placement
from placewright.planners.base import Budget
from placewright.planners.milp.disjunction import Interval, keep_apart
from placewright.planners.milp.incumbent import Incumbent
from placewright.planners.milp.instance import Instance
from placewright.planners.milp.planner import Formulation
from placewright.planners.milp.precedence import (
    END,
    LARGEST_REGION,
    START,
    Region,
)
from placewright.planners.milp.sequence import sequence_by_time
from placewright.planners.milp.solver import HORIZON, Term

HINT_ROUNDING = 1e-9  # of scaled times

Route = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Transfer:
    """What may have to be sent, and where it is if so.

    `edges` share the tensor and its producer. Either their consumers are one unit, and the
    transfer goes where that is; or it is the copy for all consumers on `target`, one of several.
    """

    edges: list[int]
    target: int | None
    used: dict[Route, int]
    """Route → variable that is 1 if the tensor takes it (Moirai's u_qk'k'')."""
    interval: Interval
    after: int
    """Bit set of the ops that start only when it is over."""


class MoiraiProgram(Formulation):
    """Variables, in scaled time: makespan, x (placement), S (starts of ops and transfers), u.

    u is kept in transport form, Σ_k'' u_qk'k'' = x_ik' and Σ_k' u_qk'k'' = x_jk'' with k' = k''
    allowed: for 0/1 values of x it says what equation 7 says, and its relaxation is tighter. z_q
    is the sum of u over k' ≠ k'', and C = S + duration is written out, so neither is a variable.
    Equations 6 and 8 have one order variable per direction (see `disjunction`).
    """

    def __init__(self, instance: Instance, limit: Budget) -> None:
        super().__init__(instance, limit)
        self._variables()
        self._constraints()
        self.program.minimise(self.makespan)

    # -- variables -------------------------------------------------------------------------------

    def _variables(self) -> None:
        instance, program = self.instance, self.program
        self.makespan = program.variable(float(instance.earliest_finish.max()), HORIZON)
        self.ops = [self._op_interval(op) for op in range(self.problem.op_count)]
        self.crossings = self._crossing_edges()
        self.joint = self._route_variables()
        self.transfers: list[Transfer] = []
        if self.problem.options.contention != "none":
            self.transfers = [self._transfer(edges, target) for edges, target in self._shipments()]
        self.op_order: list[tuple[int, int, int, int]] = []
        self.transfer_order: list[tuple[int, int, int, int]] = []

    def _op_interval(self, op: int) -> Interval:
        instance = self.instance
        earliest, latest = float(instance.earliest_start[op]), float(instance.latest_finish[op])
        start = self.program.variable(earliest, float(instance.latest_start[op]))
        return Interval(start, self.placement.duration(op), earliest, latest)

    def _crossing_edges(self) -> list[int]:
        return [e for e in range(self.problem.edge_count) if not self.instance.within_unit(e)]

    def _units(self, edge: int) -> tuple[int, int]:
        unit, problem = self.problem.op_unit, self.problem
        return int(unit[problem.edge_producer[edge]]), int(unit[problem.consumers[edge]])

    def _route_variables(self) -> dict[tuple[int, int], dict[Route, int]]:
        """(unit, unit) → route → 1 if the one is at its source and the other at its target."""
        open_routes: dict[tuple[int, int], set[Route]] = {}
        for edge in self.crossings:
            routes = set(self.instance.routes(edge))
            open_routes[self._units(edge)] = open_routes.get(self._units(edge), routes) & routes
        return {
            units: {route: self.program.variable(0.0, 1.0) for route in sorted(routes)}
            for units, routes in open_routes.items()
        }

    def _shipments(self) -> list[tuple[list[int], int | None]]:
        """(edges, target) of every transfer; target None: wherever the consumer is."""
        if self.problem.options.transfer_unit == "edge":
            return [([edge], None) for edge in self.crossings]
        by_tensor: dict[int, list[int]] = {}
        for edge in self.crossings:
            by_tensor.setdefault(int(self.problem.edge_tensor[edge]), []).append(edge)
        shipments: list[tuple[list[int], int | None]] = []
        for edges in by_tensor.values():
            routes = [set(self.joint[self._units(edge)]) for edge in edges]
            if len({self._units(edge) for edge in edges}) == 1:
                shipments.append((edges, None))
            else:
                targets = {b for each in routes for a, b in each if a != b}
                shipments += [(self._arriving(edges, b), b) for b in sorted(targets)]
        return shipments

    def _arriving(self, edges: list[int], target: int) -> list[int]:
        """The edges that may come to `target` from elsewhere."""
        return [
            edge
            for edge in edges
            if any(a != target and b == target for a, b in self.joint[self._units(edge)])
        ]

    def _transfer(self, edges: list[int], target: int | None) -> Transfer:
        instance, problem, program = self.instance, self.problem, self.program
        producer = int(problem.edge_producer[edges[0]])
        consumers = [int(problem.consumers[edge]) for edge in edges]
        if target is None:
            used = {(a, b): u for (a, b), u in self.joint[self._units(edges[0])].items() if a != b}
        else:
            sources = {a for e in edges for a, b in self.joint[self._units(e)] if b == target != a}
            used = {(a, target): program.variable(0.0, 1.0) for a in sorted(sources)}
        earliest = float(instance.earliest_finish[producer])
        # One for all consumers on a device may serve any of them.
        latest = float(instance.latest_start[consumers].max())
        route_time = instance.route_time(edges[0])
        duration = [(variable, float(route_time[route])) for route, variable in used.items()]
        interval = Interval(program.variable(earliest, latest), duration, earliest, latest)
        return Transfer(edges, target, used, interval, instance.precedence.after_all(consumers))

    # -- constraints -----------------------------------------------------------------------------

    def _constraints(self) -> None:
        self.placement.add_rows()  # 4c and 5
        self._windows()
        self._transport()  # 7
        for edge in self.crossings:
            self._edge_precedence(edge)  # 4a, 4b and 7
        self._precedence_within_units()
        for transfer in self.transfers:
            self._transfer_precedence(transfer)
        self._ops_apart()  # 6
        self._transfers_apart()  # 8
        for region in self.instance.precedence.regions(LARGEST_REGION):
            self._region_loads(region)

    def _windows(self) -> None:
        """The makespan, and what each op's device says about what comes before and after it."""
        instance, program = self.instance, self.program
        for op, interval in enumerate(self.ops):
            devices = self.placement.of(op).items()
            rest = instance.op_time[op] + instance.tail[op]
            program.row(
                [(self.makespan, 1.0), (interval.start, -1.0)]
                + [(x, -float(rest[device])) for device, x in devices],
                lower=0.0,
            )
            program.row(
                [(interval.start, 1.0)]
                + [(x, -float(instance.head[op, device])) for device, x in devices],
                lower=0.0,
            )

    def _transport(self) -> None:
        for (producer, consumer), routes in self.joint.items():
            for end, unit in enumerate((producer, consumer)):
                for device, x in self.placement.on[unit].items():
                    through = [(u, 1.0) for route, u in routes.items() if route[end] == device]
                    self.program.row([*through, (x, -1.0)], 0.0, 0.0)
        for transfer in self.transfers:
            if transfer.target is not None:
                for edge in transfer.edges:
                    joint = self.joint[self._units(edge)]
                    for route, used in transfer.used.items():
                        if route in joint:
                            self.program.row([(used, 1.0), (joint[route], -1.0)], lower=0.0)

    def _edge_precedence(self, edge: int) -> None:
        """S_j ≥ C_i + the transfer's own time, whenever that is sent."""
        producer, consumer = self._ends(edge)
        time = self.instance.route_time(edge)
        moves = [(u, float(time[r])) for r, u in self.joint[self._units(edge)].items()]
        self._follows(self.ops[consumer].start, self.ops[producer], moves)

    def _precedence_within_units(self) -> None:
        for edge in range(self.problem.edge_count):
            if self.instance.within_unit(edge):
                producer, consumer = self._ends(edge)
                self._follows(self.ops[consumer].start, self.ops[producer], [])

    def _transfer_precedence(self, transfer: Transfer) -> None:
        """Sent after it is produced; there before its consumers start, where it serves them."""
        sent = transfer.interval
        producer, _ = self._ends(transfer.edges[0])
        self._follows(sent.start, self.ops[producer], [])
        for edge in transfer.edges:
            start = self.ops[self._ends(edge)[1]]
            if transfer.target is None:
                self._follows(start.start, sent, [])
                continue
            loose = max(sent.latest - start.earliest, 0.0)
            joint = self.joint[self._units(edge)]
            time = self.instance.route_time(edge)
            serves = [
                (joint[route], -float(time[route]) - loose)
                for route in transfer.used
                if route in joint
            ]
            self.program.row([(start.start, 1.0), (sent.start, -1.0), *serves], lower=-loose)

    def _follows(self, start: int, before: Interval, more: list[Term]) -> None:
        """start ≥ finish(before) + more."""
        row = [(start, 1.0), (before.start, -1.0)]
        row += [(variable, -time) for variable, time in before.duration + more]
        self.program.row(row, lower=0.0)

    def _ends(self, edge: int) -> tuple[int, int]:
        return int(self.problem.edge_producer[edge]), int(self.problem.consumers[edge])

    def _ops_apart(self) -> None:
        for one, two in self.instance.rival_pairs:
            first, second = self.placement.of(one), self.placement.of(two)
            together: list[tuple[list[Term], list[Term]]] = [
                ([(first[device], 1.0)], [(second[device], 1.0)])
                for device in first
                if device in second
            ]
            orders = keep_apart(self.program, self.ops[one], self.ops[two], together)
            self.op_order.append((one, two, *orders))

    def _transfers_apart(self) -> None:
        channels = [self._channel_terms(transfer) for transfer in self.transfers]
        for one, two in combinations(range(len(self.transfers)), 2):
            shared = channels[one].keys() & channels[two].keys()
            if not shared or self._never_meet(self.transfers[one], self.transfers[two]):
                continue
            together = [(channels[one][c], channels[two][c]) for c in sorted(shared)]
            first, second = self.transfers[one].interval, self.transfers[two].interval
            self.transfer_order.append(
                (one, two, *keep_apart(self.program, first, second, together))
            )

    def _channel_terms(self, transfer: Transfer) -> dict[int, list[Term]]:
        """Channel → the 0/1 sum that says whether the transfer uses it."""
        offsets, channels, _ = self.problem.active_channels
        terms: dict[int, list[Term]] = {}
        for (source, target), variable in transfer.used.items():
            pair = source * self.problem.device_count + target
            for channel in channels[offsets[pair] : offsets[pair + 1]].tolist():
                terms.setdefault(channel, []).append((variable, 1.0))
        return terms

    def _never_meet(self, one: Transfer, two: Transfer) -> bool:
        """Whether precedence or the windows keep them apart anyway."""
        position = self.instance.precedence.position
        first, second = (position[self._ends(each.edges[0])[0]] for each in (one, two))
        if one.after >> second & 1 or two.after >> first & 1:
            return True
        a, b = one.interval, two.interval
        return a.latest <= b.earliest or b.latest <= a.earliest

    def _region_loads(self, region: Region) -> None:
        """Between a fork and a join each device and each channel has to do all its work."""
        first, last, between = region
        ends: list[Term] = [(self.makespan if last == END else self.ops[last].start, 1.0)]
        if first != START:
            start = self.ops[first]
            ends += [(start.start, -1.0), *((x, -time) for x, time in start.duration)]
        for device in range(self.problem.device_count):
            load = self.placement.load(between, device)
            if len(load) > 1:
                self.program.row([*ends, *((x, -time) for x, time in load)], lower=0.0)
        if self.transfers:
            for load in self._channel_loads(region).values():
                if len(load) > 1:
                    self.program.row([*ends, *((u, -time) for u, time in load)], lower=0.0)

    def _channel_loads(self, region: Region) -> dict[int, list[Term]]:
        """Channel → time of the transfers that fall inside the region for sure."""
        first, last, between = region
        inside, loads = set(between), dict[int, list[Term]]()
        for transfer in self.transfers:
            ends = [self._ends(edge) for edge in transfer.edges]
            if not all(p in inside or p == first for p, _ in ends):
                continue
            if not all(c in inside or c == last for _, c in ends):
                continue
            time = dict(transfer.interval.duration)
            for channel, uses in self._channel_terms(transfer).items():
                loads.setdefault(channel, []).extend((u, time[u]) for u, _ in uses)
        return loads

    # -- from and to schedules -------------------------------------------------------------------

    def hint(self, incumbent: Incumbent) -> Floats:
        values = np.zeros(self.program.variable_count)
        device, schedule = incumbent.placement.device, incumbent.schedule
        self.placement.fill(values, device)
        scale = self.instance.scale
        values[self.makespan] = schedule.makespan / scale
        for op, interval in enumerate(self.ops):
            values[interval.start] = schedule.op_start[op] / scale
        unit_device = self.problem.unit_device(device)
        for (producer, consumer), routes in self.joint.items():
            values[routes[int(unit_device[producer]), int(unit_device[consumer])]] = 1.0
        self._hint_transfers(values, incumbent)
        for order, intervals in (
            (self.op_order, self.ops),
            (self.transfer_order, [transfer.interval for transfer in self.transfers]),
        ):
            for one, two, first, second in order:
                a, b = self._span(intervals[one], values), self._span(intervals[two], values)
                values[first] = a[1] <= b[0] + HINT_ROUNDING
                values[second] = b[1] <= a[0] + HINT_ROUNDING
        return values

    def _hint_transfers(self, values: Floats, incumbent: Incumbent) -> None:
        device, sent = incumbent.placement.device, incumbent.schedule.transfers
        started = {
            (tensor, consumer, target): start / self.instance.scale
            for tensor, consumer, target, start in zip(
                sent.tensor.tolist(),
                sent.consumer.tolist(),
                sent.target.tolist(),
                sent.start.tolist(),
                strict=True,
            )
        }
        by_tensor = self.problem.options.transfer_unit == "tensor"
        for transfer in self.transfers:
            producer, consumer = self._ends(transfer.edges[0])
            target = int(device[consumer]) if transfer.target is None else transfer.target
            tensor = int(self.problem.edge_tensor[transfer.edges[0]])
            start = started.get((tensor, -1 if by_tensor else consumer, target))
            if start is None:  # not sent: an interval of no length where its tensor is produced
                start = self._span(self.ops[producer], values)[1]
            elif transfer.target is not None:
                values[transfer.used[int(device[producer]), target]] = 1.0
            values[transfer.interval.start] = start

    def _span(self, interval: Interval, values: Floats) -> tuple[float, float]:
        start = float(values[interval.start])
        return start, start + sum(float(values[v]) * time for v, time in interval.duration)

    def decode(self, values: Floats) -> Placement:
        device = self.placement.device_of(values)
        spans = np.array([self._span(interval, values) for interval in self.ops])
        op_middle = spans.mean(axis=1)
        edge_middle = spans[self.problem.edge_producer, 1]
        for transfer in self.transfers:
            for edge in transfer.edges:
                if transfer.target in (None, int(device[self._ends(edge)[1]])):
                    edge_middle[edge] = np.mean(self._span(transfer.interval, values))
        return Placement(device, sequence_by_time(self.problem, op_middle, edge_middle))
