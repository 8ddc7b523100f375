"""The integer program for the least largest load (Tarnawski et al. 2020, Fig. 6, §5.1.3–5.3).

Time is scaled so that the incumbent takes `HORIZON`. Numbers in brackets are the paper's
constraints; (16), contiguity, is stronger here than Lemma 4.1's, see `_row_of_devices`.
"""

from __future__ import annotations

from copy import copy
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, pairwise, permutations

import numpy as np

from placewright.analysis.contracted import ContractedGraph, Net
from placewright.analysis.devices import device_classes
from placewright.budget import Budget
from placewright.formulations.fit import Chosen
from placewright.graph import Floats, Ints
from placewright.problem import Problem, once_per_problem
from placewright.solvers.mathopt import HORIZON, LOOSE, Program, Term, solve_program

PRECEDENCE_UNITS = 40  # units at the head of the order by which equal devices are told apart
Terms = list[Term]
Pairs = tuple[tuple[int, int], ...]


class MaxLoadProgram:
    """Variables: x[unit][device] (15), CommIn and CommOut per net and device (17, 18), MaxLoad.

    Transfers are between 0 and 1 and need not be declared whole: where x is whole, least loads
    are had with whole ones.
    """

    def __init__(self, graph: ContractedGraph, scale: float, limit: Budget | None = None) -> None:
        self.graph, self.problem = graph, graph.problem
        self.scale = scale
        self.program = Program(limit)
        self.classes = device_classes(self.problem)[1]
        self.devices = range(self.problem.device_count)
        self.of = [number for d in self.devices for number, c in enumerate(self.classes) if d in c]
        ways = range(graph.passes)
        # [way][device] terms of computing, and of transfers in and out
        self.compute: list[list[Terms]] = [[[] for _ in self.devices] for _ in ways]
        self.incoming: list[list[Terms]] = [[[] for _ in self.devices] for _ in ways]
        self.outgoing: list[list[Terms]] = [[[] for _ in self.devices] for _ in ways]
        self._placement()
        self._memory()
        for net in graph.each_net:
            if self.problem.staging == "host":
                self._staged(net)
            else:
                self._direct(net)
        self._loads()
        if self.problem.options.contiguous:
            self._row_of_devices()
        else:
            self._equal_devices()

    # -- placement -------------------------------------------------------------------------------

    def _placement(self) -> None:
        self.on: list[dict[int, int]] = []
        for unit, allowed in enumerate(self.graph.allowed):
            devices = np.flatnonzero(allowed).tolist()
            least = 1.0 if len(devices) == 1 else 0.0
            self.on.append({d: self.program.variable(least, 1.0, integer=True) for d in devices})
            self.program.row([(x, 1.0) for x in self.on[unit].values()], 1.0, 1.0)
            for way, times in enumerate(self.graph.time):
                for d, x in self.on[unit].items():
                    self.compute[way][d].append((x, float(times[unit, d]) / self.scale))

    def _memory(self) -> None:
        """(19), as shares of the device's memory; left out where everything fits."""
        memory = self.graph.memory.tolist()
        for device, capacity in enumerate(self.problem.device_memory.tolist()):
            here = [(unit, on[device]) for unit, on in enumerate(self.on) if device in on]
            if sum(memory[unit] for unit, _ in here) > capacity:
                self.program.row([(x, memory[u] / capacity) for u, x in here], upper=1.0)

    def _x(self, unit: int, device: int, factor: float = 1.0) -> Terms:
        variable = self.on[unit].get(device)
        return [] if variable is None else [(variable, factor)]

    # -- transfers -------------------------------------------------------------------------------

    def _staged(self, net: Net) -> None:
        """Written to host memory once, read from it once by each device."""
        problem = self.problem
        out, into = (
            (
                net.tensors * problem.host_latency[way]
                + net.bytes * problem.host_seconds_per_byte[way]
            )
            / self.scale
            for way in (0, 1)
        )
        for device in self.devices:
            if out[device] > 0 and device in self.on[net.producer]:
                sent = self.program.variable(0.0, 1.0)
                for reader, _ in net.readers:
                    row = [(sent, 1.0), *self._x(net.producer, device, -1.0)]
                    self.program.row([*row, *self._x(reader, device)], lower=0.0)
                self.outgoing[net.way][device].append((sent, float(out[device])))
            if into[device] > 0:
                for way, received in self._received(net, device):
                    self.incoming[way][device].append((received, float(into[device])))

    def _received(self, net: Net, device: int) -> list[tuple[int, int]]:
        """`(pass, variable)`: 1 if a device reads the net from another, per pass.

        The net belongs to the forward pass where a forward op of the device reads it.
        """
        readers = [(unit, forward) for unit, forward in net.readers if device in self.on[unit]]
        if not readers:
            return []
        passes = []
        first = [unit for unit, forward in readers if forward]
        last = [unit for unit, forward in readers if not forward]
        if first:
            forwards = self.program.variable(0.0, 1.0)
            self._reads(net, device, first, [forwards])
            passes.append((0, forwards))
        if last:
            backwards = self.program.variable(0.0, 1.0)
            passes.append((1, backwards))
            both = [variable for _, variable in passes]
            self._reads(net, device, last, both)
            if first:  # not forward where only backward ops read
                row = [(both[0], 1.0), *(t for u in first for t in self._x(u, device, -1.0))]
                self.program.row(row, upper=0.0)
        return passes

    def _reads(self, net: Net, device: int, readers: list[int], received: list[int]) -> None:
        for reader in readers:
            row = [*((r, 1.0) for r in received), *self._x(reader, device, -1.0)]
            self.program.row([*row, *self._x(net.producer, device)], lower=0.0)

    def _direct(self, net: Net) -> None:
        """What a device reads comes from where the source is: one share per pair of devices."""
        problem = self.problem
        seconds = (
            net.tensors * problem.link_latency + net.bytes * problem.link_seconds_per_byte
        ) / self.scale
        for target in self.devices:
            origins = [d for d in self.on[net.producer] if d != target]
            if not any(seconds[d, target] > 0 for d in origins):
                continue
            for way, received in self._received(net, target):
                shares = {d: self.program.variable(0.0, 1.0) for d in origins}
                self.program.row(
                    [(received, 1.0), *((share, -1.0) for share in shares.values())], 0.0, 0.0
                )
                for origin, share in shares.items():
                    row = [(share, 1.0), *self._x(net.producer, origin, -1.0)]
                    self.program.row(row, upper=0.0)
                    cost = float(seconds[origin, target])
                    self.incoming[way][target].append((share, cost))
                    self.outgoing[net.way][origin].append((share, cost))

    # -- loads -----------------------------------------------------------------------------------

    def _loads(self) -> None:
        """(20), (21): MaxLoad is at least what each device does; a pass at a time under GPipe."""
        self.largest = self.program.variable(0.0, HORIZON * (1 + LOOSE))
        self.program.minimise(self.largest)
        if self.graph.passes == 1:
            tops = [self.largest]
        else:
            tops = [self.program.variable(0.0, HORIZON * (1 + LOOSE)) for _ in (0, 1)]
            row = [(self.largest, 1.0), *((top, -1.0) for top in tops)]
            self.program.row(row, lower=0.0)
        for way, top in enumerate(tops):
            for device in self.devices:
                for part in self._parts(way, device):
                    self.program.row(
                        [(top, 1.0), *((x, -seconds) for x, seconds in part)], lower=0.0
                    )
        self._even_share()

    def _parts(self, way: int, device: int) -> list[Terms]:
        compute = self.compute[way][device]
        incoming, outgoing = self.incoming[way][device], self.outgoing[way][device]
        load = self.problem.options.load
        if load == "sum":
            return [compute + incoming + outgoing]
        return (
            [compute, incoming + outgoing] if load == "overlap" else [compute, incoming, outgoing]
        )

    def _even_share(self) -> None:
        """Not in the paper, implied: equal devices together do no more than so many MaxLoads."""
        if self.graph.passes > 1:
            return
        for members in self.classes:
            if len(members) > 1:
                terms = [t for d in members for part in self._parts(0, d)[:1] for t in part]
                row = [(self.largest, float(len(members))), *((x, -c) for x, c in terms)]
                self.program.row(row, lower=0.0)

    # -- which device is which -------------------------------------------------------------------

    def _equal_devices(self) -> None:
        """Of interchangeable devices, the next is used only after the one before it.

        "After" in an order of the units, largest first: value precedence, which keeps one of each
        set of plans that differ in the names of devices alone. Only the head of the order has
        rows; any plan can be renamed to obey it.
        """
        order = precedence_order(self.graph)[:PRECEDENCE_UNITS]
        for members in self.classes:
            for device, following in pairwise(members):
                earlier: Terms = []
                for unit in order:
                    self.program.row([*self._x(unit, following), *earlier], upper=0.0)
                    earlier += self._x(unit, device, -1.0)

    def _row_of_devices(self) -> None:
        """(16): devices can be put in a row that edges go up. before[a, b]: a stands before b.

        Lemma 4.1 has each device's set contiguous (its z is here the share of a unit at a device
        or later in the row), which leaves circles of devices; a row excludes them. Equal devices
        stand in the order of their numbers. Backward edges go down the row, or all up it.
        """
        before = self._orders()
        forward, backward = unit_edges(self.problem)
        turned = tuple((two, one) for one, two in backward)
        pairs = [(a, b) for a, b in permutations(self.devices, 2) if not self._needless(a, b)]
        self._along(forward, pairs, before, [], 0.0)
        if set(turned) <= set(forward):  # down the row is no condition at all
            return
        if set(backward) <= set(forward):  # nor is up
            return
        down = self.program.binary()
        self._along(turned, pairs, before, [(down, 1.0)], 1.0)
        self._along(backward, pairs, before, [(down, -1.0)], 0.0)

    def _needless(self, one: int, two: int) -> bool:
        """Rows for this pair follow from those for neighbours among equal devices."""
        same = self.of[one] == self.of[two]
        return same and (one < two or abs(self._place(one) - self._place(two)) != 1)

    def _along(
        self,
        edges: Pairs,
        pairs: list[tuple[int, int]],
        before: dict[tuple[int, int], int],
        switch: Terms,
        slack: float,
    ) -> None:
        """Where `two` stands before `one`, nothing goes from `one` or later to `two` or earlier.

        Later and earlier among their equals. Unless `switch` − `slack` is −1.
        """
        for one, two in pairs:
            same = self.of[one] == self.of[two]
            late = [d for d in self.classes[self.of[one]] if d >= one]
            early = [d for d in self.classes[self.of[two]] if d <= two]
            free, bound = ([], 1.0) if same else _order_terms(before, one, two)
            for source, target in edges:
                row = [t for d in late for t in self._x(source, d)]
                row += [t for d in early for t in self._x(target, d)]
                self.program.row([*row, *free, *switch], upper=bound + slack)

    def _place(self, device: int) -> int:
        return self.classes[self.of[device]].index(device)

    def _orders(self) -> dict[tuple[int, int], int]:
        """before[a, b] for a < b of different classes, such that they make a row."""
        before = {
            (a, b): self.program.binary()
            for a, b in combinations(self.devices, 2)
            if self.of[a] != self.of[b]
        }
        for a, b, c in permutations(self.devices, 3):  # a before b before c: a before c
            bound, row = -1.0, []
            for (one, two), sign in (((a, c), 1.0), ((a, b), -1.0), ((b, c), -1.0)):
                if self.of[one] == self.of[two]:
                    bound -= sign * (one < two)
                else:
                    terms, constant = _before(before, one, two, sign)
                    row += terms
                    bound -= constant
            if row:
                self.program.row(row, lower=bound)
        self.before = before
        return before

    # -- from and to placements ------------------------------------------------------------------

    def device_of(self, values: Floats) -> Ints:
        """`[unit]` the device chosen."""
        return np.array([max(on, key=lambda d: float(values[on[d]])) for on in self.on], np.int32)

    def forbid(self, chosen: Chosen) -> None:
        """Not all of these together (a cover inequality)."""
        cover = [(self.on[unit][device], 1.0) for unit, device in chosen]
        self.program.row(cover, upper=len(cover) - 1)

    def hint(self, unit_device: Ints) -> dict[int, float]:
        """The placement variables of a plan, equal devices named as the program has them."""
        renamed = self._renamed(unit_device)
        return {x: float(renamed[u] == d) for u, on in enumerate(self.on) for d, x in on.items()}

    def completed(self, hint: dict[int, float], seconds: float) -> Floats | None:
        """All variables of a plan, from its placement variables: the program with those fixed."""
        fixed = copy(self.program)
        fixed.lower, fixed.upper = self.program.lower[:], self.program.upper[:]
        for variable, value in hint.items():
            fixed.lower[variable] = fixed.upper[variable] = value
        return solve_program(fixed, "highs", seconds).values

    def _renamed(self, unit_device: Ints) -> Ints:
        if self.problem.options.contiguous:
            rank = row_of(self.problem, unit_device) or {}
        else:
            order = unit_device[precedence_order(self.graph)]
            rank = {int(d): int(np.argmax(order == d)) for d in set(order.tolist())}
        renamed = unit_device.copy()
        for members in self.classes:
            used = sorted((d for d in members if d in rank), key=lambda d: rank[d])
            for name, device in zip(members, used, strict=False):
                renamed[unit_device == device] = name
        return renamed


def precedence_order(graph: ContractedGraph) -> Ints:
    """Units with the most computing first."""
    return np.argsort(-graph.time.sum(axis=(0, 2)), kind="stable").astype(np.int32)


def _before(
    before: dict[tuple[int, int], int], one: int, two: int, sign: float
) -> tuple[Terms, float]:
    """`sign` · "one stands before two" as terms and a constant."""
    if one < two:
        return [(before[one, two], sign)], 0.0
    return [(before[two, one], -sign)], sign


def _order_terms(before: dict[tuple[int, int], int], one: int, two: int) -> tuple[Terms, float]:
    """Terms and bound of ``… ≤ 1 + "one stands before two"``."""
    terms, constant = _before(before, one, two, -1.0)
    return terms, 1.0 - constant


@once_per_problem
def unit_edges(problem: Problem) -> tuple[Pairs, Pairs]:
    """Pairs of units with data from the first to the second, in each pass.

    Forward data goes up the row of devices of a contiguous plan; backward data goes all down it
    or all up. From one pass to the other data is free, and inside a unit.
    """
    unit, backward = problem.op_unit, problem.is_backward
    one, two = problem.edge_producer, problem.consumers
    apart = (backward[one] == backward[two]) & (unit[one] != unit[two])
    passes = []
    for way in (False, True):
        edges = apart & (backward[one] == way)
        ends = zip(unit[one[edges]].tolist(), unit[two[edges]].tolist(), strict=True)
        passes.append(tuple(sorted(set(ends))))
    return passes[0], passes[1]


def row_of(problem: Problem, unit_device: Ints) -> dict[int, int] | None:
    """Device → its place in a row of a contiguous placement; None if it is not contiguous."""
    forward, backward = unit_edges(problem)
    for others in (tuple((two, one) for one, two in backward), backward):
        after: dict[int, set[int]] = {device: set() for device in set(unit_device.tolist())}
        for one, two in (*forward, *others):
            if unit_device[one] != unit_device[two]:
                after[int(unit_device[two])].add(int(unit_device[one]))
        try:
            return {d: place for place, d in enumerate(TopologicalSorter(after).static_order())}
        except CycleError:
            continue
    return None
