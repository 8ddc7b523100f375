"""What ops between two places of a chain take, whoever holds them.

Let v and w be neighbours in a chain of ops, each of which leads to the next, and X the ops between
them. A plan that has v and w in different holders (subgraphs or ops on CPUs, S and S') does all of
X between the beginning of S and the end of S':

- an op of X in S or S' adds its computing to that of S or S';
- another subgraph P with an op of X starts when S has ended, for v leads to that op, and ends
  before S' starts. So does an op of X on a CPU;
- no subgraph that holds another op of the chain has an op of X, and P has no op that comes before v
  or after w: v or w would lie between two of its ops. So no P counts for two places of the chain.

With p subgraphs beside S and S', P_1 … P_p, no two ops of X in S, in S' or in one P are at the same
time, and those in S or S' are not at the time of any other. So for all λ_1 + … + λ_p = 1 the ops of
X on accelerators add at least

    Σ_{ops in S, S'} their computing there  +  Σ_k λ_k · Σ_{ops in P_k} their computing there,

of which each op has its least share; λ is the larger the faster the accelerator, so that all P
would be busy. And of any p + 1 ops two are not at the same time (of any two if p is 0). Those on
CPUs take the longest of them, τ: either an op takes at most τ on a CPU, or it is on an accelerator,
for one of the values τ. And X never takes less than its critical path.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from placewright.analysis.comparable import longest_within, place_after, spans
from placewright.bounds.invocation.beside import Combinations, shares, two_longest, weights
from placewright.graph import Flags, Floats, Whole
from placewright.problem import LONG_ROUNDING, Problem


class Between:
    """`apart[place, kind, kind']` and `beside[place, number, group, group']`: seconds of ops.

    Of those before the place and after the one before: `apart` for holders of these kinds and none
    beside, the last kind being a CPU or nothing (at the ends of the chain); `beside` for holders of
    these groups of kinds and a combination of subgraphs beside them. `least[place]` is below both,
    and all that counts where `is_mixed[place]`: ops of another pass than the chain's neighbouring
    ops have subgraphs of their own. `ops[place]` are the ops.
    """

    def __init__(
        self,
        problem: Problem,
        chain: list[int],
        times: Sequence[Floats],
        slots: Sequence[int],
        paces: Whole,
    ) -> None:
        """``times[kind][op]`` seconds, or infinite; so many subgraphs of each kind at most."""
        on_cpu = np.where(
            problem.is_cpu & problem.unit_allowed[problem.op_unit], problem.op_time, np.inf
        )
        self._on_cpu: Floats = on_cpu.min(axis=1)
        self._times = np.column_stack([*times, np.full(problem.op_count, np.inf)])
        self._fastest: Floats = self._times.min(axis=1)
        home = place_after(spans(problem, chain))
        self.ops = [np.flatnonzero(home == place) for place in range(len(chain) + 1)]
        self.is_mixed = self._mixed(problem.is_backward, chain)
        ends = longest_within(problem, home, np.minimum(self._fastest, self._on_cpu))
        self._critical = np.array([ends[ops].max(initial=0.0) for ops in self.ops])
        most = max(len(ops) for ops in self.ops)
        self.combinations = Combinations.of(slots, paces, len(chain), most)
        self._by_group = self.combinations.least_of_groups(self._times)
        self._fill(np.zeros(len(times)), np.zeros(problem.op_count))

    def priced(self, price: Floats, kept: Floats) -> Between:
        """The same where ops between places also pay ``price[kind]`` per byte of ``kept[op]``.

        For clusters without CPUs.
        """
        paid = copy(self)
        paid._fill(price, kept)
        return paid

    def _mixed(self, back: Flags, chain: list[int]) -> Flags:
        around = [back[chain[max(place - 1, 0) : place + 1]] for place in range(len(self.ops))]
        both = [np.append(back[ops], ends) for ops, ends in zip(self.ops, around, strict=True)]
        return np.array([bool(each.any() and not each.all()) for each in both])

    def _fill(self, price: Floats, kept: Floats) -> None:
        places, kinds, groups = len(self.ops), len(price) + 1, self._by_group.shape[1]
        cheapest = np.array([float(price.min() * kept[ops].sum()) for ops in self.ops])
        self.least = (self._critical + cheapest) * (1 - LONG_ROUNDING)
        self.apart = np.zeros((places, kinds, kinds))
        self.beside = np.full((places, len(self.combinations.parent), groups, groups), np.inf)
        for place, ops in enumerate(self.ops):
            if len(ops):
                priced = np.append(price, 0.0), kept[ops], float(cheapest[place])
                self._fill_apart(place, ops, priced)
                self._fill_beside(place, ops, priced)

    def _fill_apart(self, place: int, ops: Whole, priced: _Priced) -> None:
        price, kept, _ = priced
        paid = self._times[ops] + kept[:, None] * price
        known: dict[bytes, float] = {}
        for one in range(len(price)):
            for other in range(one, len(price)):
                time = np.minimum(paid[:, one], paid[:, other])
                if (key := time.tobytes()) not in known:
                    seconds = float(self._but_for_cpus(ops, time[None, :])[0])
                    known[key] = max(seconds, self.least[place])
                self.apart[place, one, other] = self.apart[place, other, one] = known[key]

    def _fill_beside(self, place: int, ops: Whole, priced: _Priced) -> None:
        combinations = self.combinations
        price, kept, cheapest = priced
        group_price = combinations.least_of_groups(price[None, :-1])[0]
        group_price[-1] = 0.0
        time, extra = self._by_group[ops], kept[:, None] * group_price
        paid = time + extra
        share = shares(weights(combinations, time[:, :-1]), time[:, :-1], extra[:, :-1])
        floor = two_longest(self._fastest[ops][self._slowest_first(ops)], combinations) + cheapest
        for one in range(paid.shape[1]):
            for other in range(one, paid.shape[1]):
                each = np.minimum(share, np.minimum(paid[:, one], paid[:, other]))
                seconds = np.maximum(self._but_for_cpus(ops, each, floor), self.least[place])
                seconds[combinations.size > len(ops)] = np.inf
                seconds[combinations.stand_for_more(len(ops))] = self.least[place]
                self.beside[place, 1:, one, other] = seconds[1:]
                self.beside[place, 1:, other, one] = seconds[1:]

    def _slowest_first(self, ops: Whole) -> Whole:
        return np.argsort(-self._on_cpu[ops], kind="stable")

    def _but_for_cpus(self, ops: Whole, each: Floats, floor: Floats | float = 0.0) -> Floats:
        """`[row]` the sum of ``each[row, op]``, at least `floor`, but for the best choice on CPUs.

        ``floor[row, number]`` where so many of the slowest on CPUs are on accelerators.
        """
        order = self._slowest_first(ops)
        total = np.column_stack([np.zeros(len(each)), np.cumsum(each[:, order], axis=1)])
        total = np.maximum(total * (1 - LONG_ROUNDING), floor)
        longest = np.append(self._on_cpu[ops][order], 0.0)
        return np.asarray(np.maximum(total, longest).min(axis=1))


_Priced = tuple[Floats, Floats, float]
"""Seconds per byte of each kind, bytes of each op, and the least seconds that all of them cost."""
