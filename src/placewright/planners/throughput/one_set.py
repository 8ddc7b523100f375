"""The "one set" bound: of k equal devices, one holds at least the mean of what all of them hold.

Give every unit u a price π_u ≥ 0, and suppose a plan without replicas takes T ≤ τ per input. The
other devices, each busy for τ at most, hold units of price `elsewhere(τ)` together at most (a
fractional knapsack each). So among the k equal devices one holds a set S with

    π(S)  ≥  need(τ)  :=  (Σ_u π_u − elsewhere(τ)) / k       and   load(S) ≤ T.

Two prices are of use. `work`: π_u is u's time on these devices. Then T ≥ need(τ) + the least
transfers of such a set (where a device adds computing and transfers up; else T ≥ either). As
need falls and τ rises, every τ in between gives ``T ≥ min(τ, need(τ) + transfers)`` with the
transfers found for the largest τ: no further program. A set's price in excess of the need counts
too, if one τ is looked at. `count`: π_u is 1 for the j largest units
and 0 for others, need is rounded up, and T ≥ the least load of such a set.

The program has one set instead of one per device and nothing to tell apart: small enough to be
solved where the program of the whole problem is not. It says nothing about replicas, which share
a load. Direct transfers are taken to and from where they cost least; passes are added up, as
PipeDream's (GPipe's largest forward plus largest backward load is no less, under every `load`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from placewright.analysis.contracted import ContractedGraph, Net
from placewright.analysis.devices import device_classes, kinds
from placewright.bounds.even_share import Offload, meeting_point
from placewright.budget import Budget
from placewright.graph import Floats
from placewright.problem import LONG_ROUNDING
from placewright.solvers.mathopt import HORIZON, OutOfTimeError, Program, Term
from placewright.solvers.rounded import solve_whole

COUNT_ROUNDING = 1e-6  # of a number of units: this much above a whole one is that
FINER, FINER_STEP = 3, 0.1  # programs, and how far above what is proved each looks
Terms = list[Term]
Cost = Literal["transfers", "load", "excess"]


@dataclass(frozen=True)
class Question:
    """Which sets to look at: units priced `price[unit]` on the equal devices `members`."""

    graph: ContractedGraph
    members: tuple[int, ...]
    price: Floats
    counts: bool
    at_least: float = 0.0
    """Seconds that computing alone bounds."""

    def need(self, limit: float) -> float:
        """The price that one of the devices must hold if no device is busy longer than `limit`."""
        left = float(self.price.sum()) - self._offload.most(limit)
        left -= LONG_ROUNDING * float(self.price.sum())
        need = max(left, 0.0) / len(self.members)
        return math.ceil(need - COUNT_ROUNDING) if self.counts else need

    @cached_property
    def _offload(self) -> Offload:
        time, allowed = self.graph.time.sum(axis=0), self.graph.allowed
        first, class_of = kinds(self.graph.problem)
        outside = np.ones(len(class_of), dtype=np.bool_)
        outside[list(self.members)] = False
        count = np.bincount(class_of[outside], minlength=len(first))
        rivals = ((int(count[k]), time[:, d], allowed[:, d]) for k, d in enumerate(first))
        return Offload(self.price, (each for each in rivals if each[0]))

    def meeting_point(self, upper: float, more: float = 0.0) -> float:
        """The largest τ ≤ `upper` with need(τ) + `more` ≥ τ: a bound where prices are times."""
        return meeting_point(self.need, min(upper, self.need(0.0) + more), more)


def work_question(graph: ContractedGraph, members: tuple[int, ...]) -> Question:
    """Prices are times on the `members`; what they cannot run has none."""
    return Question(graph, members, graph.time[:, :, members[0]].sum(axis=0), False)


def count_question(
    graph: ContractedGraph, members: tuple[int, ...], limit: float
) -> Question | None:
    """The j largest units count 1 each, for the j that bounds best by computing alone.

    A device that needs n of the j largest computes at least the n least of them.
    """
    time = graph.time[:, :, members[0]].sum(axis=0)
    order = np.argsort(-time, kind="stable")
    best: tuple[float, Question] | None = None
    for j in range(len(members) + 1, np.count_nonzero(time) + 1):
        price = np.zeros(len(time))
        price[order[:j]] = 1.0
        question = Question(graph, members, price, True)
        need = int(question.need(limit))
        if need >= 2:
            least = float(time[order[j - need : j]].sum())
            if best is None or least > best[0]:
                best = least, replace(question, at_least=least)
    return best[1] if best else None


def one_set_bound(
    question: Question,
    upper: float,
    limit: Budget,
    *,
    workers: int = 2,
    seed: int = 0,
    repeatable: bool = False,
    on_bound: Callable[[float], None] | None = None,
) -> float:
    """Seconds per input that no plan beats, `upper` at most, found until the end of `limit`.

    `upper` is the value of a known plan; 0.0 if nothing was proved. With `repeatable` the workers
    take turns, so that the same comes out again. `on_bound` hears of bounds on the way.
    """
    adds_up = not question.counts and question.graph.problem.options.load == "sum"

    def tell(bound: float) -> None:
        seconds = max(bound, 0.0) * upper / HORIZON
        if on_bound is not None:
            on_bound(question.meeting_point(upper, seconds) if adds_up else min(upper, seconds))

    def least(below: float, cost: Cost) -> float | None:
        """The least cost in seconds of a set that some device must hold; None if there is none."""
        try:
            program = SetProgram(question, question.need(below), upper, cost, limit).program
            answer = solve_whole(
                program,
                limit,
                workers=workers,
                seed=seed,
                repeatable=repeatable,
                on_bound=tell if cost != "excess" else None,
            )
        except OutOfTimeError:
            return 0.0
        return None if answer.infeasible else max(answer.bound, 0.0) * upper / HORIZON

    if question.need(upper) <= 0 or upper <= 0:
        return 0.0
    transfers = least(upper, "load" if question.counts else "transfers")
    if transfers is None:
        return upper
    if not adds_up:
        return min(upper, transfers)
    proved = question.meeting_point(upper, transfers)
    for _ in range(FINER):
        # What a set has beyond its need counts too, but for one need at a time.
        tau = proved + FINER_STEP * (upper - proved)
        if question.need(tau) <= 0 or limit.left <= 0:
            break
        excess = least(tau, "excess")
        found = tau if excess is None else min(tau, question.need(tau) + excess)
        proved = max(proved, found)
        if found < tau:
            break
    return proved


def main_class(graph: ContractedGraph) -> tuple[int, ...]:
    """The equal devices that would do all the work soonest."""
    time, allowed = graph.time.sum(axis=0), graph.allowed
    classes = device_classes(graph.problem)[1]

    def pace(members: tuple[int, ...]) -> float:
        rivals = time[:, members[0]] > 0
        whole = np.where(allowed, time, np.inf).min(axis=1)[rivals & allowed[:, members[0]]].sum()
        return len(members) * float(whole) / max(float(time[rivals, members[0]].sum()), 1e-300)

    return max(classes, key=pace)


class SetProgram:
    """Variables, scaled so that `upper` is `HORIZON`: y[unit], 1 in the set; transfers; the cost.

    The cost is the set's `transfers`, its whole `load`, or its transfers and its price in
    `excess` of the need.
    """

    def __init__(
        self, question: Question, need: float, upper: float, cost: Cost, limit: Budget
    ) -> None:
        self.graph, self.problem = question.graph, question.graph.problem
        self.scale = upper / HORIZON
        self.device = question.members[0]
        self.program = Program(limit)
        self.cost = self.program.variable(0.0, HORIZON)
        self.program.minimise(self.cost)
        units = np.flatnonzero(self.graph.allowed[:, self.device]).tolist()
        self.inside = {unit: self.program.binary() for unit in units}
        self._need(question, need)
        self._memory()
        self._cost(question, need, cost)

    def _need(self, question: Question, need: float) -> None:
        row = [(y, float(question.price[unit]) / need) for unit, y in self.inside.items()]
        if question.counts:
            row = [(y, float(question.price[unit])) for unit, y in self.inside.items()]
        self.program.row(row, lower=need if question.counts else 1.0)

    def _memory(self) -> None:
        capacity, memory = float(self.problem.device_memory[self.device]), self.graph.memory
        if memory[list(self.inside)].sum() > capacity:
            shares = [(y, float(memory[unit]) / capacity) for unit, y in self.inside.items()]
            self.program.row(shares, upper=1.0)

    def _cost(self, question: Question, need: float, cost: Cost) -> None:
        time = self.graph.time[:, :, self.device].sum(axis=0)
        compute = [(y, float(time[unit]) / self.scale) for unit, y in self.inside.items()]
        incoming: Terms = []
        outgoing: Terms = []
        for net in self.graph.each_net:
            into, out = self._seconds(net)
            if into > 0 and any(reader in self.inside for reader, _ in net.readers):
                incoming.append((self._received(net), into))
            if out > 0 and net.producer in self.inside:
                outgoing.append((self._sent(net), out))
        load = self.problem.options.load
        parts = [incoming, outgoing] if load == "duplex" else [incoming + outgoing]
        self.program.row([(y, c / HORIZON) for y, c in compute], upper=1.0)
        if cost == "load":
            parts = [compute + incoming + outgoing] if load == "sum" else [compute, *parts]
        counted = self.cost
        if cost == "excess":  # the transfers are a variable: CP-SAT does far better with it
            counted = self.program.variable(0.0, HORIZON)
            row = [(y, -float(question.price[u]) / self.scale) for u, y in self.inside.items()]
            row += [(self.cost, 1.0), (counted, -1.0)]
            self.program.row(row, lower=-need / self.scale)
        for part in parts:
            self.program.row([(counted, 1.0), *((y, -s) for y, s in part)], lower=0.0)

    def _received(self, net: Net) -> int:
        received = self.program.variable(0.0, 1.0)
        here = [(self.inside[net.producer], 1.0)] if net.producer in self.inside else []
        for reader, _ in net.readers:
            if reader in self.inside:
                self.program.row([(received, 1.0), (self.inside[reader], -1.0), *here], lower=0.0)
        return received

    def _sent(self, net: Net) -> int:
        sent = self.program.variable(0.0, 1.0)
        for reader, _ in net.readers:
            there = [(self.inside[reader], 1.0)] if reader in self.inside else []
            self.program.row([(sent, 1.0), (self.inside[net.producer], -1.0), *there], lower=0.0)
        return sent

    def _seconds(self, net: Net) -> tuple[float, float]:
        """In and out, scaled; direct, from and to where it costs least."""
        problem, device = self.problem, self.device
        if problem.staging == "host":
            seconds = net.tensors * problem.host_latency + net.bytes * problem.host_seconds_per_byte
            out, into = seconds[:, device]
        else:
            others = np.arange(problem.device_count) != device
            if not others.any():
                return 0.0, 0.0
            ways = net.tensors * problem.link_latency + net.bytes * problem.link_seconds_per_byte
            into, out = ways[others, device].min(), ways[device, others].min()
        return float(into) / self.scale, float(out) / self.scale
