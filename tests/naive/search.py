"""Slow, obvious twins of the search kernels: lists and dictionaries, the same random draws."""

from __future__ import annotations

import math

from placewright.kernels.latency import moves
from tests import naive


def breadth_first_blocks(problem):
    """The ops in breadth-first order, each as a list with its edges in consumer order."""
    producers = [
        {int(problem.edge_producer[e]) for e in naive.inputs_of(problem, op)}
        for op in range(problem.op_count)
    ]
    order = [op for op in range(problem.op_count) if not producers[op]]
    waiting = {op: naive.inputs_of(problem, op) for op in range(problem.op_count)}
    for op in order:
        for tensor in tensors_of(problem, op):
            for edge in edges_of(problem, tensor):
                consumer = int(problem.consumers[edge])
                waiting[consumer].remove(edge)
                if not waiting[consumer]:
                    order.append(consumer)
    return [
        [op]
        + [
            -1 - e
            for e in sorted(
                (e for t in tensors_of(problem, op) for e in edges_of(problem, t)),
                key=lambda e: (order.index(problem.consumers[e]), e),
            )
        ]
        for op in order
    ]


def tensors_of(problem, op):
    return [t for t in range(problem.tensor_count) if problem.tensor_producer[t] == op]


def edges_of(problem, tensor):
    return list(range(problem.consumer_offsets[tensor], problem.consumer_offsets[tensor + 1]))


class Searcher:
    """A string of devices `at[unit]`, an order `blocks`, and the best of both so far."""

    def __init__(self, problem, start, rng):
        self.problem = problem
        self.rng = rng
        self.at = [int(d) for d in start]
        self.blocks = breadth_first_blocks(problem)
        seen = list(dict.fromkeys(int(problem.op_unit[block[0]]) for block in self.blocks))
        self.movable = [unit for unit in seen if len(self.choices(unit)) > 1]
        self.value = self.evaluate()
        self.best = (self.value, self.at.copy(), self.sequence())

    def choices(self, unit):
        return [d for d in range(self.problem.device_count) if self.allowed(unit, d)]

    def allowed(self, unit, device):
        return bool(
            math.isfinite(self.problem.unit_time[unit, device])
            and self.problem.unit_memory[unit] <= self.problem.device_memory[device]
        )

    def sequence(self):
        return [item for block in self.blocks for item in block]

    def evaluate(self):
        device = [self.at[unit] for unit in self.problem.op_unit]
        return max(naive.time_sequence(self.problem, device, self.sequence())[1].values())

    def fits(self):
        used = [0.0] * self.problem.device_count
        for unit, device in enumerate(self.at):
            used[device] += float(self.problem.unit_memory[unit])
        return all(u <= m for u, m in zip(used, self.problem.device_memory, strict=True))

    def keep(self, value):
        self.value = value
        if value < self.best[0]:
            self.best = (value, self.at.copy(), self.sequence())

    def below(self, count):
        return int(self.rng.random() * count)

    def geometric(self, mean):
        return 1 + int(-math.log(1.0 - self.rng.random()) * mean)

    def changed(self, pairs):
        """The string after (unit, device) pairs, those not allowed left out."""
        at = self.at.copy()
        for unit, device in pairs:
            if self.allowed(unit, device):
                at[unit] = device
        return at

    # -- annealing

    def anneal(self, evaluations, temperature, cooling):
        for _ in range(evaluations):
            temperature *= cooling
            before = self.at
            self.at = self.changed(self.reassignment())
            if self.at == before:
                continue
            if self.fits():
                value = self.evaluate()
                worse = value - self.value
                if worse <= 0 or self.rng.random() < math.exp(-worse / temperature):
                    self.keep(value)
                    continue
            self.at = before
        return temperature

    def reassignment(self):
        kind = self.rng.random()
        place = self.below(len(self.movable))
        unit = self.movable[place]
        if kind < moves.ANYWHERE:
            return [(unit, self.below(self.problem.device_count))]
        if kind < moves.BESIDE:
            return [(unit, self.device_beside(unit))]
        if kind < moves.RUN:
            device = self.below(self.problem.device_count)
            length = self.geometric(moves.MEAN_RUN)
            return [(u, device) for u in self.movable[place : place + length]]
        if kind < moves.PATH:
            device = self.below(self.problem.device_count)
            op = self.random_op(unit)
            pairs = []
            for _ in range(self.geometric(moves.MEAN_RUN)):
                pairs.append((int(self.problem.op_unit[op]), device))
                op = self.random_reader(op)
            return pairs
        other = self.movable[self.below(len(self.movable))]
        if self.allowed(unit, self.at[other]) and self.allowed(other, self.at[unit]):
            return [(unit, self.at[other]), (other, self.at[unit])]
        return []

    def device_beside(self, unit):
        op = self.random_op(unit)
        producers = [self.problem.edge_producer[e] for e in naive.inputs_of(self.problem, op)]
        if self.below(len(producers) + len(tensors_of(self.problem, op))) < len(producers):
            other = producers[self.below(len(producers))]
        else:
            other = self.random_reader(op)
        return self.at[self.problem.op_unit[other]]

    def random_op(self, unit):
        ops = [op for op in range(self.problem.op_count) if self.problem.op_unit[op] == unit]
        return ops[self.below(len(ops))]

    def random_reader(self, op):
        tensors = tensors_of(self.problem, op)
        if not tensors:
            return op
        edges = edges_of(self.problem, tensors[self.below(len(tensors))])
        return self.problem.consumers[edges[self.below(len(edges))]] if edges else op

    # -- (1+1) EA

    def evolve(self, evaluations):
        n = len(self.movable)
        log_stay = math.log(1 - 1 / n) if n > 1 else -math.inf
        for _ in range(evaluations):
            before = self.at
            pairs = []
            while not pairs:
                place = -1
                while True:
                    place += 1 + int(min(math.log(1.0 - self.rng.random()) / log_stay, float(n)))
                    if place >= n:
                        break
                    unit = self.movable[place]
                    others = [d for d in self.choices(unit) if d != self.at[unit]]
                    pairs.append((unit, others[self.below(len(others))]))
            self.at = self.changed(pairs)
            if self.fits():
                value = self.evaluate()
                if value <= self.value:
                    self.keep(value)
                    continue
            self.at = before

    # -- local search

    def scatter(self, order):
        free = [float(m) for m in self.problem.device_memory]
        for unit, device in enumerate(self.at):
            if unit not in order:
                free[device] -= float(self.problem.unit_memory[unit])
        complete = True
        for unit in order:
            memory = float(self.problem.unit_memory[unit])
            fitting = [d for d in self.choices(unit) if memory <= free[d]]
            if fitting:
                self.at[unit] = fitting[self.below(len(fitting))]
            else:
                complete = False
            free[self.at[unit]] -= memory
        return complete

    def descend(self, moves, best_move):
        """Until no move of one unit helps; returns the values on the way."""
        values = []
        position = 0
        while True:
            better = []
            for k in range(len(moves)):
                move = moves[(position + k) % len(moves)]
                unit, device = (
                    self.movable[move // len(self.problem.device_memory)],
                    int(move % len(self.problem.device_memory)),
                )
                before = self.at
                self.at = self.changed([(unit, device)])
                if self.at != before and self.fits():
                    value = self.evaluate()
                    if value < self.value:
                        better.append((value, k, self.at))
                self.at = before
                if better and not best_move:
                    break
            if not better:
                return values
            value, k, self.at = min(better, key=lambda each: each[:2])
            if not best_move:
                position = (position + k + 1) % len(moves)
            self.keep(value)
            values.append(value)
