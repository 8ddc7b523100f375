"""What ops between two places of a chain take, whoever holds them.

Let v and w be neighbours in a chain of ops, each of which leads to the next, and X the ops between
them. A plan that has v and w in different holders (subgraphs or ops on CPUs, S and S') does all of
X between the beginning of S and the end of S':

- an op of X in S or S' adds its computing to that of S or S';
- another subgraph P with an op of X starts when S has ended, for v leads to that op, and ends
  before S' starts. So does an op of X on a CPU;
- no subgraph that holds another op of the chain has an op of X, and P has no op that comes before v
  or after w: v or w would lie between two of its ops. So no P counts for two places of the chain.

With p subgraphs beside S and S' the ops of X on accelerators so add at least a p-th of their
computing (all of it if p is 0 or 1), and of any p + 1 ops two are not at the same time. Those on
CPUs take the longest of them, τ: either an op takes at most τ on a CPU, or it is on an accelerator,
for one of the values τ. And X never takes less than its critical path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy

import numpy as np

from placewright.analysis.comparable import longest_within, place_after
from placewright.graph import Floats, Whole
from placewright.problem import LONG_ROUNDING, Problem

MOST_BESIDE = 16


class Between:
    """`apart[place, kind, kind']` and `beside[place, p - 1]`: seconds of the ops before each place.

    That is between it and the place before: `apart` for holders of these kinds and none beside,
    the last kind being a CPU or nothing (at the ends of the chain); `beside` for p subgraphs more,
    whatever the kinds. `least[place]` is below both, and all that counts where `is_mixed[place]`:
    ops of another pass than the chain's neighbouring ops have subgraphs of their own. `ops[place]`
    are the ops.
    """

    def __init__(
        self, problem: Problem, chain: list[int], span: Whole, times: Sequence[Floats]
    ) -> None:
        """`span` as of `analysis.comparable.spans`; ``times[kind][op]`` seconds, or infinite."""
        kinds, count = len(times), len(chain)
        on_cpu = np.where(
            problem.is_cpu & problem.unit_allowed[problem.op_unit], problem.op_time, np.inf
        )
        self._on_cpu: Floats = on_cpu.min(axis=1)
        self._times = np.column_stack([*times, np.full(problem.op_count, np.inf)])
        self._fastest: Floats = self._times.min(axis=1)
        home = place_after(span)
        self.ops = [np.flatnonzero(home == place) for place in range(count + 1)]
        back = problem.is_backward
        neighbours = [back[chain[max(place - 1, 0) : place + 1]] for place in range(count + 1)]
        self.is_mixed = [
            len({*back[ops].tolist(), *around.tolist()}) > 1
            for ops, around in zip(self.ops, neighbours, strict=True)
        ]
        ends = longest_within(problem, home, np.minimum(self._fastest, self._on_cpu))
        self.least = np.array([ends[ops].max(initial=0.0) for ops in self.ops])
        self.apart = np.zeros((count + 1, kinds + 1, kinds + 1))
        self.beside = np.zeros((count + 1, MOST_BESIDE))
        for place, ops in enumerate(self.ops):
            if len(ops):
                self._fill(place, ops)
        lower = 1 - LONG_ROUNDING
        self.least, self.apart, self.beside = (
            each * lower for each in (self.least, self.apart, self.beside)
        )

    def priced(self, price: Floats, kept: Floats) -> Between:
        """The same where ops between places also pay ``price[kind]`` per byte of ``kept[op]``.

        For clusters without CPUs.
        """
        paid = copy(self)
        prices = np.append(price, 0.0)  # of nothing: it takes no op
        cheapest = np.zeros(len(self.ops))
        paid.apart = self.apart.copy()
        for place, ops in enumerate(self.ops):
            if not len(ops) or not (memory := kept[ops]).any():
                continue
            cheapest[place] = float(price.min() * memory.sum())
            total = self._times[ops] + memory[:, None] * prices
            both = np.minimum(total[:, :, None], total[:, None, :]).sum(axis=0)
            paid.apart[place] = np.maximum(
                both * (1 - LONG_ROUNDING), self.least[place] + cheapest[place]
            )
        paid.least = self.least + cheapest
        paid.beside = self.beside + cheapest[:, None]
        return paid

    def _fill(self, place: int, ops: Whole) -> None:
        kinds = self.apart.shape[1]
        known: dict[bytes, float] = {}
        for one in range(kinds):
            for other in range(one, kinds):
                time = np.minimum(self._times[ops, one], self._times[ops, other])
                if (key := time.tobytes()) not in known:
                    known[key] = max(self._shared(ops, time, 1), self.least[place])
                self.apart[place, one, other] = self.apart[place, other, one] = known[key]
        for more in range(1, MOST_BESIDE + 1):
            seconds = self._shared(ops, self._fastest[ops], more)
            self.beside[place, more - 1] = max(seconds, self.least[place])

    def _shared(self, ops: Whole, time: Floats, ways: int) -> float:
        """Seconds of ops that take `time`, so many at once, but for the best choice on CPUs."""
        order = np.argsort(-self._on_cpu[ops], kind="stable")
        slowest_first = self._on_cpu[ops][order]
        best = math.inf
        for rest in range(len(ops) + 1):  # so many of the slowest on CPUs are on accelerators
            longest = float(slowest_first[rest]) if rest < len(ops) else 0.0
            best = min(best, max(longest, _makespan(time[order[:rest]], ways)))
        return best


def _makespan(time: Floats, ways: int) -> float:
    """Seconds that these take on so many machines, at least."""
    if not len(time):
        return 0.0
    if ways == 1:
        return float(time.sum())
    longest = -np.sort(-time)
    pair = float(longest[ways - 1] + longest[ways]) if len(time) > ways else 0.0
    return max(float(time.sum()) / ways, float(longest[0]), pair)
