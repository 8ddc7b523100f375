"""A chain, the loads it leaves, and all other ops: priced together.

Take ops c_0 = start < c_1 < … < c_k = end, each on some path to the next. Between c_i and c_{i+1}
lies a region or nothing, and what is between is in time between them, so the chain takes

    T  ≥  Σ_i D_i(a_i, a_{i+1})                                     (a_i the device of c_i),

D_i a bound on the step for these devices. Each device d and each channel c is busy for at most T,
and Σ_{o on d} m_o ≤ M_d. So for λ + Σ_d α_d + Σ_c ε_c = 1, all ≥ 0, and μ ≥ 0,

    T  ≥  min over placements of   λ Σ_i D_i + Σ_d α_d load_d + Σ_c ε_c busy_c
                                   + Σ_d μ_d (Σ_{o on d} m_o / M_d − 1).

The sum falls apart into the steps, each with the region's ops (bounded for every pair of devices
of its ends by `kernels.latency.dual_ascent.sweep`; once for regions that are the same problem, of
which repeated layers make many: prices are the same for all), and the *free* ops that are neither
on the chain nor in a region. Edges that go from one part to another are left out, which only makes
it less. The minimum over the devices of the chain's ops is a shortest path.

*Cases.* Edges between the chain and the free ops are left out since any device of the chain's op
would do for each. So let the device of such an op be given: the least over all its devices of
what is proved for each holds in general, and for each the edges count.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from placewright.bounds.latency.relaxation.isomorphic import digest_of
from placewright.bounds.latency.relaxation.network import Indices, Network
from placewright.bounds.latency.relaxation.paths import Step
from placewright.bounds.latency.relaxation.regions import Regions
from placewright.budget import Budget
from placewright.graph import Flags, Floats
from placewright.kernels.latency.bound_chain import cheapest_chain, pair_values
from placewright.kernels.latency.dual_ascent import Part, add_loads, pair_prices, sweep

STEEPEST = 4.0  # change of a weight's logarithm in the first step
LEAST_WEIGHT = 1e-9
FEWEST_STEPS, LOOK_BACK = 30, 10  # until steps are given up, by how much they gained


@dataclass(eq=False)
class Prices:
    """`weight`: λ, α by device, ε by channel, 1 in all; `memory[device]` μ."""

    weight: Floats
    memory: Floats

    def copy(self) -> Prices:
        return Prices(self.weight.copy(), self.memory.copy())


@dataclass(eq=False)
class _Region:
    """Steps of the chain over regions that are alike: their ops as a part, messages and labels.

    Prices are the same for all of them, so is what each pair of devices costs.
    """

    steps: list[int]
    part: Part
    back: Floats
    ahead: Floats
    label: Indices


@dataclass(eq=False)
class Chain:
    """The steps of a chain and the free ops beside it; see the module's docstring."""

    network: Network
    regions: Regions
    steps: list[Step]
    ops: Indices = field(init=False)
    inside: list[tuple[list[int], Part]] = field(init=False)
    free: Indices = field(init=False)

    def __post_init__(self) -> None:
        self.ops = np.array([0, *(step[1] for step in self.steps)], dtype=np.int64)
        taken = np.zeros(self.network.count, dtype=bool)
        taken[self.ops] = True
        alike: dict[bytes, tuple[list[int], Part]] = {}
        for number, step in enumerate(self.steps):
            if step[4] < 0:
                ops = self.regions.ops(-1 - step[4])
                taken[ops] = True
                part = self.network.part(ops, (int(ops[0]),), alone=False)
                alike.setdefault(digest_of(part), ([], part))[0].append(number)
        self.inside = list(alike.values())
        self.free = np.flatnonzero(~taken)
        self.edge_steps = np.array(
            [number for number, step in enumerate(self.steps) if step[4] >= 0], dtype=np.int64
        )
        self.edges = np.array([self.steps[k][4] for k in self.edge_steps], dtype=np.int64)

    @property
    def case_bytes(self) -> int:
        """What messages and labels of its regions take in one case."""
        devices = self.network.device_count
        each = (2 * len(part.tail) * devices + len(part.time) for _, part in self.inside)
        return 8 * devices**2 * sum(each)

    @cached_property
    def delay(self) -> Floats:
        """`[edge step, a, b]` seconds of the transfer."""
        net, routes = self.network.net, self.network.routes
        delay: Floats = (
            net.fixed[self.edges][:, None, None] * routes.latency
            + net.size[self.edges][:, None, None] * routes.per_byte
        )
        diagonal = np.arange(self.network.device_count)
        delay[:, diagonal, diagonal] = 0.0
        return delay

    def durations(self) -> Floats:
        """`[step, a, b]` D: seconds from the end of an op of the chain to that of the next.

        `inf` for pairs that no schedule within the limit has.
        """
        regions, devices = self.regions, self.network.device_count
        tables = np.empty((len(self.steps), devices, devices))
        for number, (*_, via) in enumerate(self.steps):
            if via < 0:
                tables[number] = regions.cost[-1 - via]
        head = self.ops[1:][self.edge_steps]
        tables[self.edge_steps] = self.delay + self.network.net.time[head][:, None, :]
        total = regions.before[self.ops[:-1]][:, :, None] + tables
        total += regions.after[self.ops[1:]][:, None, :]
        closed = self.network.closed
        tables[closed[self.ops[:-1]]] = np.inf
        tables.transpose(0, 2, 1)[closed[self.ops[1:]]] = np.inf
        tables[total > regions.limit] = np.inf
        return tables

    def boundary(self) -> list[int]:
        """Ops of the chain that share edges with free ops, those with most seconds first."""
        net, routes = self.network.net, self.network.routes
        is_free = np.zeros(self.network.count, dtype=bool)
        is_free[self.free] = True
        on_chain = np.zeros(self.network.count, dtype=bool)
        on_chain[self.ops] = True
        delay = net.fixed * routes.latency.max() + net.size * routes.per_byte.max()
        total = np.bincount(
            net.tail, delay * (is_free[net.head] & on_chain[net.tail]), self.network.count
        )
        total += np.bincount(
            net.head, delay * (is_free[net.tail] & on_chain[net.head]), self.network.count
        )
        order = np.argsort(-total, kind="stable")
        return [int(op) for op in order[total[order] > 0]]


class Pricing:
    """The dual of one case: `pins[op of the chain]` is its device. Prices are improved by steps."""

    def __init__(self, chain: Chain, durations: Floats, pins: dict[int, int]) -> None:
        self.chain = chain
        self.network = network = chain.network
        self.pins = pins
        self.open: Flags = np.ones(durations.shape, dtype=np.bool_)
        for op, device in pins.items():
            others = np.arange(network.device_count) != device
            at = np.flatnonzero(chain.ops == op)
            for step in at[at > 0] - 1:
                self.open[step][:, others] = False
            for step in at[at < len(chain.steps)]:
                self.open[step][others, :] = False
        self.renew(durations)
        self.regions = [self._region(steps, part) for steps, part in chain.inside]
        self.weight = network.weights(chain.edges, alone=False)
        self.free, self.free_messages = self._free_part()
        self.best = 0.0
        self.best_prices: Prices | None = None

    def renew(self, durations: Floats) -> None:
        """Take durations that have been raised."""
        self.open &= np.isfinite(durations)
        self.duration = np.where(self.open, durations, np.inf)

    def _region(self, steps: list[int], part: Part) -> _Region:
        count = self.network.device_count
        back, ahead = np.zeros((2, count, count, len(part.tail), count))
        label = np.zeros((count, count, len(part.time)), dtype=np.int64)
        return _Region(steps, part, back, ahead, label)

    def _free_part(self) -> tuple[Part, Floats]:
        """The free ops with the pinned ones, of which only edges to free ops cost anything."""
        network = self.network
        pinned = np.array(sorted(self.pins), dtype=np.int64)
        ops = np.union1d(self.chain.free, pinned)
        part = network.part(ops, tuple(self.pins), alone=False)
        is_pinned = np.isin(ops, pinned)
        part.weight[is_pinned[part.tail] & is_pinned[part.head]] = 0.0
        for op, device in self.pins.items():
            closed = np.arange(network.device_count) != device
            part.closed[np.searchsorted(ops, op)] = np.where(closed, part.penalty, 0.0)
        return part, np.zeros((2, len(part.tail), network.device_count))

    def arcs(self) -> list[tuple[int, int, int]]:
        """The regions of the cheapest chain at the best prices, with the devices of their ends."""
        if self.best_prices is None or not np.isfinite(self.value(self.best_prices)[0]):
            return []
        return [
            (-1 - step[4], int(self.label[number]), int(self.label[number + 1]))
            for number, step in enumerate(self.chain.steps)
            if step[4] < 0
        ]

    def improve(self, prices: Prices, steps: int, goal: float, budget: Budget) -> None:
        """`steps` of exponentiated gradient from `prices`, until the bound reaches `goal`.

        Fewer where those left cannot come to the best bound, by what the last ones gained.
        """
        prices = prices.copy()
        limited = self.network.share.max(axis=0) > 0
        values: list[float] = []
        for step in range(steps):
            if budget.left <= 0 or _is_hopeless(values, steps, self.best):
                return
            value, gains, used = self.value(prices)
            values.append(value)
            if value > self.best or self.best_prices is None:
                self.best, self.best_prices = max(value, self.best), prices.copy()
            if self.best >= goal or gains.max() <= 0:
                return
            scale = min(gains.max(), 4.0 * self.best) or gains.max()
            change = np.clip((gains - (gains * prices.weight).sum()) / scale, -STEEPEST, STEEPEST)
            prices.weight = prices.weight * np.exp(change / np.sqrt(1.0 + step))
            prices.weight = np.maximum(prices.weight, LEAST_WEIGHT)
            prices.weight /= prices.weight.sum()
            excess = np.where(limited, used - 1.0, 0.0)
            prices.memory = np.maximum(prices.memory + self.best * excess / (1.0 + step), 0.0)

    def value(self, prices: Prices) -> tuple[float, Floats, Floats]:
        """The bound; what the cheapest placement makes of the chain, loads, channels; of memory."""
        network, count = self.network, self.network.device_count
        price = np.zeros((count, count))
        pair_prices(network.routes, prices.weight[1 + count :], price)
        cost = prices.weight[0] * self.duration
        self._price_edges(cost, prices, price)
        for region in self.regions:
            least = np.zeros((count, count))
            pair_values(
                region.part, network.routes, self._unary(region.part, prices), price,
                self.open[region.steps].any(axis=0), region.back, region.ahead, least,
                region.label,
            )  # fmt: skip
            cost[region.steps] += least
        self.label = np.zeros(len(cost) + 1, dtype=np.int64)
        bound = cheapest_chain(cost, self.label)
        gains, used = np.zeros(len(prices.weight)), np.zeros(count)
        if not np.isfinite(bound):
            return float("inf"), gains, used
        self._add_chain(gains, used)
        bound += self._price_free(prices, price, gains, used)
        return float(bound - prices.memory.sum()), gains, used

    def _unary(self, part: Part, prices: Prices) -> Floats:
        unary: Floats = part.time * prices.weight[1 : 1 + self.network.device_count]
        unary += part.share * prices.memory + part.closed
        return unary

    def _price_edges(self, cost: Floats, prices: Prices, price: Floats) -> None:
        """Add to the cost of steps over an edge what the transfer and the next op load."""
        chain, net = self.chain, self.network.net
        heads = chain.ops[1:][chain.edge_steps]
        op_cost = net.time[heads] * prices.weight[1 : 1 + self.network.device_count]
        op_cost += self.network.share[heads] * prices.memory
        cost[chain.edge_steps] += (
            self.weight[:, None, None] * chain.delay * price + op_cost[:, None, :]
        )

    def _add_chain(self, gains: Floats, used: Floats) -> None:
        """What the cheapest chain takes, loads and holds."""
        chain, network, label = self.chain, self.network, self.label
        load, busy = gains[1 : 1 + network.device_count], gains[1 + network.device_count :]
        steps = np.arange(len(chain.steps))
        gains[0] = self.duration[steps, label[:-1], label[1:]].sum()
        for region in self.regions:
            pairs = Counter((label[step], label[step + 1]) for step in region.steps)
            for (a, b), times in pairs.items():
                own = np.zeros((3, max(len(load), len(busy))))
                add_loads(
                    region.part, network.routes, region.label[a, b],
                    own[0, : len(load)], own[1, : len(busy)], own[2, : len(used)],
                )  # fmt: skip
                load += times * own[0, : len(load)]
                busy += times * own[1, : len(busy)]
                used += times * own[2, : len(used)]
        a, b = label[chain.edge_steps], label[chain.edge_steps + 1]
        heads = chain.ops[1:][chain.edge_steps]
        np.add.at(load, b, network.net.time[heads, b])
        np.add.at(used, b, network.share[heads, b])
        seconds = self.weight * chain.delay[np.arange(len(a)), a, b]
        for pair, time in zip((a * network.device_count + b).tolist(), seconds, strict=True):
            offsets = network.routes.channel_offsets
            busy[network.routes.channels[offsets[pair] : offsets[pair + 1]]] += time

    def _price_free(self, prices: Prices, price: Floats, gains: Floats, used: Floats) -> float:
        """A bound on what the free ops cost; their loads are added."""
        part, network = self.free, self.network
        if not len(part.time):
            return 0.0
        count = network.device_count
        unary = self._unary(part, prices)
        label = np.zeros(len(unary), dtype=np.int64)
        flow = np.zeros(len(part.tail))
        bound = sweep(
            part, network.routes, unary, flow, price, self.free_messages[0],
            self.free_messages[1], np.empty_like(unary), label,
        )  # fmt: skip
        add_loads(part, network.routes, label, gains[1 : 1 + count], gains[1 + count :], used)
        return float(bound)


def _is_hopeless(values: list[float], steps: int, best: float) -> bool:
    """Whether the steps left, each with the mean gain of the last ones, stay below the best."""
    if len(values) < FEWEST_STEPS:
        return False
    last, before = max(values[-LOOK_BACK:]), max(values[-2 * LOOK_BACK : -LOOK_BACK])
    return last + max(last - before, 0.0) * (steps - len(values)) / LOOK_BACK < best


def chain_alone(network: Network) -> Prices:
    weight = np.zeros(1 + network.device_count + network.routes.channel_count)
    weight[0] = 1.0
    return Prices(weight, np.zeros(network.device_count))


def mixed(network: Network) -> Prices:
    """Most weight on the chain, some on all else: where to seek from."""
    count, channels = network.device_count, network.routes.channel_count
    weight = np.full(1 + count + channels, 0.02 / max(channels, 1))
    weight[0], weight[1 : 1 + count] = 0.8, 0.2 / count
    return Prices(weight / weight.sum(), np.zeros(count))
