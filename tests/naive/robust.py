"""Slow, obvious twins of `latency.robust`: lists and dictionaries, the same random draws."""

from __future__ import annotations

import math

import numpy as np

from placewright.kernels.latency import robust as kernel
from tests import naive
from tests.naive.search import Searcher, edges_of, tensors_of


def makespan(problem, device, sequence, factors):
    """Walk the sequence with every op's and every transfer's time times its factor [op, edge]."""
    finish, arrived, free = {}, {}, {}
    for item in sequence:
        if item >= 0:
            start = free.get(("device", device[item]), 0.0)
            for e in naive.inputs_of(problem, item):
                producer = problem.edge_producer[e]
                local = device[producer] == device[item]
                start = max(start, finish[producer] if local else arrived[key(problem, device, e)])
            seconds = problem.op_time[item, device[item]] * factors[item]
            finish[item] = free["device", device[item]] = start + seconds
            continue
        e = -1 - item
        source, target = device[problem.edge_producer[e]], device[problem.consumers[e]]
        served = key(problem, device, e)
        if source == target or served in arrived:
            continue
        first = min(
            other
            for other in range(problem.edge_count)
            if device[problem.consumers[other]] == target and key(problem, device, other) == served
        )
        resources = naive.contended(problem, source, target)
        start = max([finish[problem.edge_producer[e]], *(free.get(r, 0.0) for r in resources)])
        seconds = naive.transfer_time(problem, problem.edge_tensor[e], source, target)
        arrived[served] = start + seconds * factors[problem.op_count + first]
        free |= dict.fromkeys(resources, arrived[served])
    return max(finish.values())


def key(problem, device, edge):
    """What one transfer carries: an edge, or a tensor to one device."""
    if problem.options.transfer_unit == "edge":
        return edge
    return problem.edge_tensor[edge], device[problem.consumers[edge]]


def percentile_within(problem, device, sequence, factors, share, limit):
    """Time every sample ([sample, item] factors), whatever the limit."""
    values = [makespan(problem, device, sequence, row) for row in factors]
    value = float(np.percentile(values, 100 * share))
    return value if value <= limit else math.inf


class Annealer(Searcher):
    """Devices `at[unit]`, one order `items` of ops and edges, and the best of both so far."""

    def __init__(self, problem, device, sequence, factors, share, rng):
        self.problem = problem
        self.factors = factors
        self.share = share
        self.rng = rng
        self.at = [0] * problem.unit_count
        for op, unit in enumerate(problem.op_unit):
            self.at[unit] = int(device[op])
        self.items = [int(item) for item in sequence]
        ops = [item for item in self.items if item >= 0]
        seen = list(dict.fromkeys(int(problem.op_unit[op]) for op in ops))
        self.movable = [unit for unit in seen if len(self.choices(unit)) > 1]
        self.value = self.within(math.inf)
        self.best = (self.value, self.at.copy(), self.items.copy())

    def device(self):
        return [self.at[unit] for unit in self.problem.op_unit]

    def within(self, limit):
        return percentile_within(
            self.problem, self.device(), self.items, self.factors, self.share, limit
        )

    def keep(self, value):
        self.value = value
        if value < self.best[0]:
            self.best = (value, self.at.copy(), self.items.copy())

    def anneal(self, evaluations, temperature, cooling):
        for _ in range(evaluations):
            temperature *= cooling
            at, items = self.at, self.items
            kind = self.rng.random()
            if self.movable and (kind < kernel.DEVICES or kind >= kernel.ORDER):
                self.at = self.changed(self.reassignment())
            if kind >= kernel.DEVICES:
                self.items = self.reordered()
            if self.at == at and self.items == items:
                continue
            if self.fits():
                limit = self.value - temperature * math.log(1.0 - self.rng.random())
                value = self.within(limit)
                if value <= limit:
                    self.keep(value)
                    continue
            self.at, self.items = at, items
        return temperature

    def reordered(self):
        channels = len(self.problem.active_channels[2])
        if channels and self.rng.random() < kernel.TRANSFER_SHARE:
            return self.transfer_moved()
        return self.op_moved()

    def op_moved(self):
        op = self.below(self.problem.op_count)
        passes = self.geometric(kernel.MEAN_PASSES)
        later = self.rng.random() < 0.5
        here, device = self.items.index(op), self.device()
        reads = naive.inputs_of(self.problem, op)
        makes = [e for t in tensors_of(self.problem, op) for e in edges_of(self.problem, t)]
        if later:
            end = min(
                [len(self.items)]
                + [self.items.index(int(self.problem.consumers[e])) for e in makes]
            )
            on_the_way = range(here + 1, end)
        else:
            end = max([-1] + [self.items.index(int(self.problem.edge_producer[e])) for e in reads])
            on_the_way = range(here - 1, end, -1)
        target = self.passed(
            on_the_way, passes, lambda item: item >= 0 and device[item] == device[op]
        )
        if target is None:
            return self.items
        first, last = min(here, target), max(here, target)
        segment = self.items[first : last + 1]
        along = [-1 - e for e in (makes if later else reads) if -1 - e in segment]
        along.sort(key=segment.index)
        rest = [item for item in segment if item != op and item not in along]
        moved = [*rest, op, *along] if later else [*along, op, *rest]
        return self.items[:first] + moved + self.items[last + 1 :]

    def transfer_moved(self):
        problem = self.problem
        if problem.edge_count == 0:
            return self.items
        device = self.device()

        def sent(item):
            return (
                item < 0
                and device[problem.edge_producer[-1 - item]] != device[problem.consumers[-1 - item]]
            )

        edge = self.below(problem.edge_count)
        for _ in range(kernel.TRIES):
            if sent(-1 - edge):
                break
            edge = self.below(problem.edge_count)
        passes = self.geometric(kernel.MEAN_PASSES)
        later = self.rng.random() < 0.5
        if not sent(-1 - edge):
            return self.items
        here = self.items.index(-1 - edge)
        if later:
            on_the_way = range(here + 1, self.items.index(int(problem.consumers[edge])))
        else:
            on_the_way = range(here - 1, self.items.index(int(problem.edge_producer[edge])), -1)
        target = self.passed(on_the_way, passes, sent)
        if target is None:
            return self.items
        items = self.items.copy()
        items.insert(target, items.pop(here))
        return items

    def passed(self, on_the_way, passes, counts):
        """The position of the last of the first `passes` items that count; None without any."""
        there = [at for at in on_the_way if counts(self.items[at])]
        return there[min(passes, len(there)) - 1] if there else None
