"""How many devices a set of nodes takes at least: prices that prune the ideals.

For weights λ of the classes, the devices of a stage's classes can do no more than Σ λ_k · number ·
limit, and whatever runs a node charges at least min_k λ_k · its seconds (or bytes) for it. Every
choice of λ gives a valid condition; here one for each row and set of classes, from a fractional
knapsack: what the other classes do best is theirs, until they are full.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.analysis.reductions.free_nodes import memory_is_slack
from placewright.graph import Floats
from placewright.kernels.throughput.ideals import Windows
from placewright.kernels.throughput.stage_loads import IN, OUT
from placewright.planners.throughput.stages import StageTables
from placewright.problem import ROUNDING

TOO_MUCH = 10.0  # times all there is: the price of what no device of a window can run
MOST_CLASSES = 3  # that do not lead, of which every subset has windows of its own
MOST_KEPT = 2_000_000  # of charges for a node or net


class _Condition(NamedTuple):
    """A row and a set of classes; `usable` are the states that use no class outside the set."""

    row: int
    members: list[int]
    others: list[int]
    usable: NDArray[np.bool_]
    states: Floats
    """`[usable state, class of others]` devices."""


class _Knapsack(NamedTuple):
    """The nodes that either of two classes runs, those first that the second does best."""

    ratio: Floats
    filled: Floats
    """Seconds (or bytes) of the second class after each."""


class _Charges(NamedTuple):
    """What any class of a condition charges at least, at prices of the classes."""

    node: Floats
    refused: NDArray[np.bool_]
    """`[node]` whether none of the classes runs it."""
    most: float
    """What the dearest class charges for each node, of all nodes."""
    outgoing: Floats
    incoming: Floats


class WindowTables:
    """What devices can do at most, for any thresholds: what does not depend on them, worked out."""

    def __init__(self, tables: StageTables) -> None:
        self.tables = tables
        self._knapsacks: dict[tuple[int, int, int], _Knapsack] = {}
        self._last: tuple[tuple[float, ...], Windows] | None = None
        self._charges: dict[tuple[int, bytes], _Charges] = {}

    def within(self, thresholds: Sequence[float]) -> Windows:
        """What devices can do at most within the thresholds; see `ideals.Windows`."""
        asked = tuple(thresholds)  # a search asks several questions about the same ones
        if self._last is None or self._last[0] != asked:
            self._last = asked, self._windows(asked)
        return self._last[1]

    def _windows(self, thresholds: Sequence[float]) -> Windows:
        tables, graph = self.tables, self.tables.graph
        limits = [self._class_limits(row, thresholds) for row in range(len(tables.rows) + 1)]
        found = [
            (number, each)
            for number, each in enumerate(self._conditions)
            if not np.isinf(limits[each.row][each.members]).any()
        ]
        price = np.zeros((graph.node_count, len(found)))
        out_price = np.zeros((graph.net_count, len(found)))
        in_price = np.zeros((graph.net_count, len(found)))
        lead = np.zeros(len(found))
        capacity = np.full((len(found), len(tables.states)), np.inf)
        for w, (number, condition) in enumerate(found):
            limit = limits[condition.row]
            class_price = self._class_prices(condition, limit)
            charges = self._charges_at(number, class_price)
            most = class_price * limit
            worst = charges.most + (most * tables.class_size)[condition.members].sum()
            price[:, w] = np.where(charges.refused, TOO_MUCH * worst, charges.node)
            out_price[:, w], in_price[:, w] = charges.outgoing, charges.incoming
            if tables.lead >= 0:
                lead[w] = most[tables.lead]
            capacity[w, condition.usable] = condition.states @ most[condition.others]
        return Windows(price, out_price, in_price, lead, capacity, tables.lead_count)

    def _class_limits(self, row: int, thresholds: Sequence[float]) -> Floats:
        if row < len(self.tables.rows):
            limit = thresholds[self.tables.rows[row].threshold]
            return np.full(len(self.tables.class_size), limit)
        return self._memory

    @cached_property
    def _memory(self) -> Floats:
        first = [devices[0] for devices in self.tables.graph.class_devices]
        memory = self.tables.graph.problem.device_memory[first]
        return np.asarray(memory * (1 + ROUNDING))

    @cached_property
    def _added(self) -> list[Floats]:
        """Per row `[class, node]` what one device is charged for a node, transfers aside."""
        graph = self.tables.graph
        charged = []
        for row in self.tables.rows:
            added = np.tensordot(row.compute[: graph.passes], graph.time, 1)
            charged.append(np.ascontiguousarray(added.T))
        kept = np.repeat(graph.memory[None], len(self.tables.class_size), axis=0)
        return [*charged, kept]

    @cached_property
    def _allowed(self) -> NDArray[np.bool_]:
        """`[class, node]`."""
        return np.ascontiguousarray(self.tables.graph.allowed.T)

    @cached_property
    def _conditions(self) -> list[_Condition]:
        tables = self.tables
        sets: list[tuple[int, ...]] = [tuple(tables.others)]
        if len(tables.others) <= MOST_CLASSES:
            sizes = range(len(tables.others) + 1)
            sets = [each for k in sizes for each in itertools.combinations(tables.others, k)]
        rows = [number for number, row in enumerate(tables.rows) if any(row.compute)]
        if not memory_is_slack(tables.graph):
            rows.append(len(tables.rows))
        return [
            self._condition(row, others)
            for row, others in itertools.product(rows, sets)
            if tables.lead >= 0 or others
        ]

    def _condition(self, row: int, others: Sequence[int]) -> _Condition:
        tables = self.tables
        states = np.array(tables.states, dtype=np.float64).reshape(len(tables.states), -1)
        inside = np.array([each in others for each in tables.others], dtype=np.bool_)
        usable = np.asarray(~(states[:, ~inside] > 0).any(axis=1))
        members = [*others] if tables.lead < 0 else [tables.lead, *others]
        return _Condition(row, members, [*others], usable, states[usable][:, inside])

    def _class_prices(self, condition: _Condition, limit: Floats) -> Floats:
        """The first class at 1; each other where a knapsack of what it does best fills up."""
        size = self.tables.class_size
        prices = np.ones(len(size))
        if condition.row == len(self.tables.rows):
            return prices
        first, *rest = condition.members
        for each in rest:
            knapsack = self._knapsack(condition.row, first, each)
            full = int(np.searchsorted(knapsack.filled, size[each] * limit[each]))
            prices[each] = knapsack.ratio[full] if full < len(knapsack.ratio) else 0.0
        return prices

    def _knapsack(self, row: int, first: int, each: int) -> _Knapsack:
        key = (row, first, each)
        if key not in self._knapsacks:
            added, allowed = self._added[row], self._allowed
            both = allowed[first] & allowed[each] & (added[each] > 0)
            ratio = added[first, both] / added[each, both]
            order = np.argsort(-ratio, kind="stable")
            only = added[each, allowed[each] & ~allowed[first]].sum()
            filled = only + np.cumsum(added[each, both][order])
            self._knapsacks[key] = _Knapsack(ratio[order], filled)
        return self._knapsacks[key]

    def _charges_at(self, number: int, class_price: Floats) -> _Charges:
        """Of a condition, by its number: a search comes back to the same few prices."""
        key = number, class_price.tobytes()
        if key not in self._charges:
            graph = self.tables.graph
            if len(self._charges) * (graph.node_count + graph.net_count) > MOST_KEPT:
                self._charges.clear()
            self._charges[key] = self._work_out(self._conditions[number], class_price)
        return self._charges[key]

    def _work_out(self, condition: _Condition, class_price: Floats) -> _Charges:
        members = condition.members
        added = self._added[condition.row][members] * class_price[members][:, None]
        if condition.row == len(self.tables.rows):
            nothing = np.zeros(self.tables.graph.net_count)
            nowhere = np.zeros(added.shape[1], dtype=np.bool_)
            return _Charges(added.min(axis=0), nowhere, 0.0, nothing, nothing)
        allowed = self._allowed[members]
        least = np.where(allowed, added, np.inf).min(axis=0)
        most = float(added.max(axis=0).sum())
        cut = self._cheapest_cut(condition, class_price)
        refused = np.asarray(~allowed.any(axis=0))
        return _Charges(least, refused, most, *cut)

    def _cheapest_cut(self, condition: _Condition, class_price: Floats) -> tuple[Floats, Floats]:
        """`[net]` what the producer's side and the other pay at least for a net that is cut."""
        graph, parts = self.tables.graph, self.tables.rows[condition.row]
        least = np.zeros((2, 2))
        members = [each for each in condition.members if each in self._alone]
        if members:
            shares = self._shares[:, members] * class_price[members][:, None]
            least = shares.min(axis=1)
        outgoing = least[OUT, 0] * graph.nets.tensors + least[OUT, 1] * graph.nets.bytes
        incoming = least[IN, 0] * graph.nets.tensors + least[IN, 1] * graph.nets.bytes
        outgoing = outgoing * np.array(parts.outgoing)[graph.nets.way]
        return outgoing, incoming * min(parts.incoming)

    @cached_property
    def _alone(self) -> dict[int, int]:
        """Class → the kind of stage that is one device of it, where there is one."""
        kinds = enumerate(self.tables.kinds)
        return {numbers.index(1): kind for kind, numbers in kinds if sum(numbers) == 1}

    @cached_property
    def _shares(self) -> Floats:
        """`[direction, class, (tensor, byte)]` what a device alone pays at least."""
        everything = range(len(self.tables.class_size))
        shares = np.zeros((2, len(everything), 2))
        for direction, (each, kind) in itertools.product((OUT, IN), self._alone.items()):
            shares[direction, each] = self.tables.least_share(kind, direction, everything)
        return shares
