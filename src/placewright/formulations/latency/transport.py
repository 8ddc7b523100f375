"""What is sent in a mixed-integer program: routes, transfers, and what waits for them.

Moirai's variables (arXiv 2023, §III-D): u in transport form, Σ_k'' u_qk'k'' = x_ik' and
Σ_k' u_qk'k'' = x_jk'' with k' = k'' allowed. For 0/1 values of x it says what equation 7 says, and
its relaxation is tighter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placewright.formulations.latency.disjunction import Interval
from placewright.formulations.latency.incumbent import Incumbent
from placewright.formulations.latency.instance import Instance
from placewright.formulations.latency.placement import PlacementVariables
from placewright.formulations.latency.sequence import sequence_by_time
from placewright.graph import Floats, Ints
from placewright.solvers.mathopt import Program, Term

Route = tuple[int, int]
TIE = 1e-5


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


class Transport:
    """Variables and rows of routes and, where `are_sent`, of transfers as intervals.

    Without, as where nothing contends and copies need no memory, an edge is a delay.
    `ops[op]` are the intervals of the ops, in scaled time.
    """

    def __init__(
        self,
        program: Program,
        instance: Instance,
        placement: PlacementVariables,
        ops: list[Interval],
        are_sent: bool,
    ) -> None:
        self.program, self.instance, self.placement = program, instance, placement
        self.problem, self.ops = instance.problem, ops
        self.crossings = self._crossing_edges()
        self.joint = self._route_variables()
        self.transfers: list[Transfer] = []
        if are_sent:
            self.transfers = [self._transfer(edges, target) for edges, target in self._shipments()]

    def add_rows(self) -> None:
        self._transport()  # 7
        for edge in self.crossings:
            self._edge_precedence(edge)  # 4a, 4b and 7
        self._precedence_within_units()
        for transfer in self.transfers:
            self._transfer_precedence(transfer)

    # -- variables -------------------------------------------------------------------------------

    def _crossing_edges(self) -> list[int]:
        return [e for e in range(self.problem.edge_count) if not self.instance.within_unit(e)]

    def units(self, edge: int) -> tuple[int, int]:
        unit, problem = self.problem.op_unit, self.problem
        return int(unit[problem.edge_producer[edge]]), int(unit[problem.consumers[edge]])

    def _route_variables(self) -> dict[tuple[int, int], dict[Route, int]]:
        """(unit, unit) → route → 1 if the one is at its source and the other at its target."""
        open_routes: dict[tuple[int, int], set[Route]] = {}
        for edge in self.crossings:
            routes = set(self.instance.routes(edge))
            open_routes[self.units(edge)] = open_routes.get(self.units(edge), routes) & routes
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
            routes = [set(self.joint[self.units(edge)]) for edge in edges]
            if len({self.units(edge) for edge in edges}) == 1:
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
            if any(a != target and b == target for a, b in self.joint[self.units(edge)])
        ]

    def _transfer(self, edges: list[int], target: int | None) -> Transfer:
        instance, problem, program = self.instance, self.problem, self.program
        producer = int(problem.edge_producer[edges[0]])
        consumers = [int(problem.consumers[edge]) for edge in edges]
        if target is None:
            used = {(a, b): u for (a, b), u in self.joint[self.units(edges[0])].items() if a != b}
        else:
            sources = {a for e in edges for a, b in self.joint[self.units(e)] if b == target != a}
            used = {(a, target): program.variable(0.0, 1.0) for a in sorted(sources)}
        earliest = float(instance.earliest_finish[producer])
        # One for all consumers on a device may serve any of them.
        latest = float(instance.latest_start[consumers].max())
        route_time = instance.route_time(edges[0])
        duration = [(variable, float(route_time[route])) for route, variable in used.items()]
        interval = Interval(program.variable(earliest, latest), duration, earliest, latest)
        return Transfer(edges, target, used, interval, instance.precedence.after_all(consumers))

    # -- rows ------------------------------------------------------------------------------------

    def _transport(self) -> None:
        for (producer, consumer), routes in self.joint.items():
            for end, unit in enumerate((producer, consumer)):
                for device, x in self.placement.on[unit].items():
                    through = [(u, 1.0) for route, u in routes.items() if route[end] == device]
                    self.program.row([*through, (x, -1.0)], 0.0, 0.0)
        for transfer in self.transfers:
            if transfer.target is not None:
                for edge in transfer.edges:
                    joint = self.joint[self.units(edge)]
                    for route, used in transfer.used.items():
                        if route in joint:
                            self.program.row([(used, 1.0), (joint[route], -1.0)], lower=0.0)

    def _edge_precedence(self, edge: int) -> None:
        """S_j ≥ C_i + the transfer's own time, whenever that is sent."""
        producer, consumer = self.ends(edge)
        time = self.instance.route_time(edge)
        moves = [(u, float(time[r])) for r, u in self.joint[self.units(edge)].items()]
        self._follows(self.ops[consumer].start, self.ops[producer], moves)

    def _precedence_within_units(self) -> None:
        for edge in range(self.problem.edge_count):
            if self.instance.within_unit(edge):
                producer, consumer = self.ends(edge)
                self._follows(self.ops[consumer].start, self.ops[producer], [])

    def _transfer_precedence(self, transfer: Transfer) -> None:
        """Sent after it is produced; there before its consumers start, where it serves them."""
        sent = transfer.interval
        producer, _ = self.ends(transfer.edges[0])
        self._follows(sent.start, self.ops[producer], [])
        for edge in transfer.edges:
            start = self.ops[self.ends(edge)[1]]
            if transfer.target is None:
                self._follows(start.start, sent, [])
                continue
            loose = max(sent.latest - start.earliest, 0.0)
            joint = self.joint[self.units(edge)]
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

    def ends(self, edge: int) -> tuple[int, int]:
        return int(self.problem.edge_producer[edge]), int(self.problem.consumers[edge])

    # -- from schedules --------------------------------------------------------------------------

    def hint(self, values: Floats, incumbent: Incumbent) -> None:
        """Set routes and transfers as in the incumbent's schedule; ops have their times."""
        unit_device = self.problem.unit_device(incumbent.placement.device)
        for (producer, consumer), routes in self.joint.items():
            values[routes[int(unit_device[producer]), int(unit_device[consumer])]] = 1.0
        self._hint_transfers(values, incumbent)

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
            producer, consumer = self.ends(transfer.edges[0])
            target = int(device[consumer]) if transfer.target is None else transfer.target
            tensor = int(self.problem.edge_tensor[transfer.edges[0]])
            start = started.get((tensor, -1 if by_tensor else consumer, target))
            if start is None:  # not sent: an interval of no length where its tensor is produced
                start = span(self.ops[producer], values)[1]
            elif transfer.target is not None:
                values[transfer.used[int(device[producer]), target]] = 1.0
            values[transfer.interval.start] = start

    # -- to schedules ----------------------------------------------------------------------------

    def sequence(self, values: Floats, device: Ints) -> Ints:
        """All items in the order of a solution with the placement ``device[op]``."""
        when = _start if self.problem.options.memory == "peak" else _middle
        spans = np.array([span(interval, values) for interval in self.ops])
        op_when = np.array([when(*each) for each in spans])
        edge_when = spans[self.problem.edge_producer, 1]
        for transfer in self.transfers:
            for edge in transfer.edges:
                if transfer.target in (None, int(device[self.ends(edge)[1]])):
                    edge_when[edge] = when(*span(transfer.interval, values))
        return sequence_by_time(self.problem, op_when, edge_when)


def _middle(start: float, finish: float) -> float:
    return (start + finish) / 2


def _start(start: float, finish: float) -> float:
    """Where memory decides what begins when; of what begins at once, first what ends at once."""
    return start + TIE * (finish - start)


def span(interval: Interval, values: Floats) -> tuple[float, float]:
    """Start and finish in a solution, in scaled time."""
    start = float(values[interval.start])
    return start, start + sum(float(values[v]) * time for v, time in interval.duration)
