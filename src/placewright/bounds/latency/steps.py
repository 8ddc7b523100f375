"""What lies between two neighbours of a chain of ops takes, by where the two are.

Let v and w be neighbours in a chain of ops each of which leads to the next, and X the ops between
them. All of X runs between the end of v and the start of w. Let v be on a device of some kind, its
*home*. From the end of v to that of w it takes at least

- `whole`: what X and w take at home, if all of it is there: a device runs one op at a time;
- `split`: if w is at home and an op x of X is not. Each op of X is at home or away (those of v's or
  w's unit are at home), and an edge from one to the other is a transfer that leaves or enters the
  home. An op ends at home, or away, no earlier than the least times of what it reads allow; so
  there are least times to x, away, and likewise from x to w, at home. The least over all x counts;
- `away`: if w is on another device, of some kind. Likewise, edges from home to w being transfers to
  that kind (ops of v's unit are at home, those of w's away).

What is away takes the time of the quickest device that is not home. Transfers take what they take
where latency and bandwidth are best. All this holds for every transfer unit, contention and memory
option.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from placewright.analysis.comparable import longest_within, place_after, spans, with_mates
from placewright.analysis.devices import kinds
from placewright.graph import Flags, Floats, Whole
from placewright.problem import Problem


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps to places 1, 2, … of a chain (index 0 is not used), `kind` by kind of device.

    `whole[place, kind]`, `split[place, kind]`, `away[place, kind, kind']` seconds, see the module;
    `before[kind]` until the first op of the chain has ended, `after[kind]` from the end of the
    last; `between[op]` the place that an op lies before, and -1. `along` are the ops that
    `analysis.comparable.with_mates` finds, `span` is of all ops.
    """

    count: Whole
    memory: Floats
    time: Floats
    between: Whole
    whole: Floats
    split: Floats
    away: Floats
    before: Floats
    after: Floats
    along: Whole
    span: Whole


def steps_of(problem: Problem, chain: list[int]) -> Steps:
    """The steps of a chain of ops each of which leads to the next."""
    first, class_of = kinds(problem)
    allowed = problem.unit_allowed[problem.op_unit][:, first]
    time = np.where(allowed, problem.op_time[:, first], np.inf)
    span = spans(problem, chain)
    between = place_after(span)
    links = _Links.of(problem, class_of, len(first))
    labels = [_Labels(problem, chain, between, time, links, home) for home in range(len(first))]
    ends = np.where((between == 0) | (between == len(chain)), between, -1)
    heads = longest_within(problem, ends, time.min(axis=1))
    whole = np.zeros((len(chain), len(first)))
    inside = (between > 0) & (between < len(chain))
    np.add.at(whole, between[inside], time[inside])
    return Steps(
        count=links.count,
        memory=problem.device_memory[first],
        time=time,
        between=np.where(inside, between, -1),
        whole=whole + time[chain],
        split=np.stack([each.split for each in labels], axis=1),
        away=np.stack([each.away for each in labels], axis=1),
        before=_at_end(problem, ends == 0, heads, time, chain[0]) + time[chain[0]],
        after=_at_end(problem, ends == len(chain), heads, time, chain[-1]),
        along=with_mates(problem, chain, span),
        span=span,
    )


def _at_end(problem: Problem, there: Flags, heads: Floats, time: Floats, op: int) -> Floats:
    """`[kind]` seconds of the ops `there`: their longest path, or those of `op`'s own unit."""
    mates = there & (problem.op_unit == problem.op_unit[op])
    longest: Floats = np.maximum(heads[there].max(initial=0.0), time[mates].sum(axis=0))
    return longest


@dataclass(frozen=True, eq=False)
class _Links:
    """Least latency and seconds per byte between devices of two kinds; `count[kind]` devices."""

    count: Whole
    latency: Floats
    per_byte: Floats

    @classmethod
    def of(cls, problem: Problem, class_of: Any, number: int) -> _Links:
        apart = ~np.eye(problem.device_count, dtype=np.bool_)
        tables = []
        for link in (problem.link_latency, problem.link_seconds_per_byte):
            table = np.full((number, number), np.inf)
            source, target = np.nonzero(apart)
            np.minimum.at(table, (class_of[source], class_of[target]), link[apart])
            tables.append(table)
        return cls(np.bincount(class_of).astype(np.int64), *tables)

    def seconds(self, problem: Problem, sources: Any, targets: Any) -> Floats:
        """`[tensor]` from one of these kinds to one of those; infinite where there are none."""
        latency = self.latency[sources][:, targets].min(initial=np.inf)
        if np.isinf(latency):
            return np.full(problem.tensor_count, np.inf)
        per_byte = self.per_byte[sources][:, targets].min()
        return np.asarray(latency + problem.tensor_bytes * per_byte)


class _Labels:
    """For one kind as home: `split[place]` and `away[place, kind]`."""

    def __init__(
        self, problem: Problem, chain: list[int], between: Whole, time: Floats, links: _Links,
        home: int,
    ) -> None:  # fmt: skip
        self.problem, self.chain, self.between = problem, chain, between
        kinds = np.arange(len(links.count))
        others = kinds[(kinds != home) | (links.count > 1)]
        self.at_home = time[:, home]
        self.elsewhere = time[:, others].min(axis=1, initial=np.inf)
        self.out = links.seconds(problem, [home], kinds).tolist()
        self.into = links.seconds(problem, kinds, [home]).tolist()
        self.to_kind = [links.seconds(problem, [home], [kind]) for kind in kinds]
        self.place = between.copy()
        self.place[chain] = np.arange(len(chain))
        self.split = np.full(len(chain), np.inf)
        self.away = np.full((len(chain), len(kinds)), np.inf)
        members: list[list[int]] = [[] for _ in chain]
        for op in problem.topological_order.tolist():
            if 0 < between[op] < len(chain):
                members[between[op]].append(op)
        for place in range(1, len(chain)):
            self._fill(place, members[place], time[chain[place]])

    def _fill(self, place: int, ops: list[int], ends: Floats) -> None:
        unit = self.problem.op_unit
        start, end = self.chain[place - 1], self.chain[place]
        tied = unit[start] == unit[end]
        if tied and (unit[ops] == unit[start]).all():  # all at home, whatever the plan
            return
        reached = self._reached(ops, start, end, together=True)
        left = self._left(ops, start, end)
        apart = [reached[op][1] + left[op][1] for op in ops]
        least = min(apart, default=np.inf)
        self.split[place] = max(self._arrival(reached, end)[0], least) + self.at_home[end]
        if not tied:
            reached = self._reached(ops, start, end, together=False)
            for kind, seconds in enumerate(self.to_kind):
                if np.isfinite(seconds).all():
                    there = self._arrival(reached, end, seconds)[1]
                    self.away[place, kind] = there + ends[kind]

    def _reached(
        self, ops: list[int], start: int, end: int, *, together: bool
    ) -> dict[int, tuple[float, float]]:
        """Per op when it ends at home, and away, at the earliest; `start` ends at home at 0."""
        unit = self.problem.op_unit
        reached = {start: (0.0, np.inf)}
        for op in ops:
            home, away = self._arrival(reached, op)
            home, away = home + self.at_home[op], away + self.elsewhere[op]
            if unit[op] == unit[start]:
                away = np.inf
            if unit[op] == unit[end]:
                home, away = (home, np.inf) if together else (np.inf, away)
            reached[op] = home, away
        return reached

    def _arrival(
        self, reached: dict[int, tuple[float, float]], op: int, out: Floats | None = None
    ) -> tuple[float, float]:
        """When its inputs are at home, and away, at the earliest."""
        problem = self.problem
        offsets, edges = problem.op_inputs
        home = away = 0.0
        for edge in edges[offsets[op] : offsets[op + 1]].tolist():
            known = reached.get(int(problem.edge_producer[edge]))
            if known is None:
                continue
            tensor = problem.edge_tensor[edge]
            leaves = self.out[tensor] if out is None else out[tensor]
            home = max(home, min(known[0], known[1] + self.into[tensor]))
            away = max(away, min(known[0] + leaves, known[1]))
        return home, away

    def _left(self, ops: list[int], start: int, end: int) -> dict[int, tuple[float, float]]:
        """Per op the least from its end, at home and away, to the start of `end` at home."""
        problem, unit = self.problem, self.problem.op_unit
        offsets, tensors = problem.op_outputs
        left: dict[int, tuple[float, float]] = {}
        for op in reversed(ops):
            home = away = 0.0
            for tensor in tensors[offsets[op] : offsets[op + 1]].tolist():
                low, high = problem.consumer_offsets[tensor : tensor + 2]
                for reader in problem.consumers[low:high].tolist():
                    if reader == end:
                        here, there = 0.0, np.inf
                    elif reader in left:
                        here, there = left[reader]
                        here, there = here + self.at_home[reader], there + self.elsewhere[reader]
                        if unit[reader] in (unit[start], unit[end]):
                            there = np.inf
                    else:
                        continue
                    home = max(home, min(here, there + self.out[tensor]))
                    away = max(away, min(here + self.into[tensor], there))
            left[op] = home, away
        return left
