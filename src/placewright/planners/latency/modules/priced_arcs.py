"""What is known of a part of a chain where its bytes have prices: cuts, and plans to choose from.

Where devices can be exchanged, what is found between two of them holds between any two like them,
if prices and bytes are renamed as the devices are.
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np

from placewright.budget import Budget
from placewright.formulations.latency.chain_memory import Cut
from placewright.formulations.latency.incumbent import timed
from placewright.graph import Floats, Ints
from placewright.plan import Placement
from placewright.planners.latency.exact.cases import PROVED
from placewright.planners.latency.exact.priced import Priced
from placewright.planners.latency.modules.arcs_exact import ExactArcs
from placewright.planners.latency.modules.chain import Pair
from placewright.planners.latency.modules.knapsack import Choice

MOST_CHOICES = 24  # of an arc


class PricedArcs:
    """The arcs of a `part`: ``low[source, target]`` seconds whatever the prices, and more at some.

    `cuts` and `choices` of a pair: what is proved at some prices (`chain_memory`), and plans none
    of which is as short as another and takes as little everywhere, the shortest first.
    """

    def __init__(self, arcs: ExactArcs) -> None:
        self.part, self.low = arcs.part, arcs.low
        self.cuts: dict[Pair, list[Cut]] = defaultdict(list)
        self.choices: dict[Pair, list[Choice]] = defaultdict(list)
        self.memory = float(self.part.sub.problem.op_memory.sum())
        self._twins = arcs.twins
        self._anywhere: list[Cut] = []
        for pair, placement in arcs.placements.items():
            self.offer(pair, float(arcs.value[pair]), placement)

    @property
    def all_choices(self) -> list[Choice]:
        return [each for choices in self.choices.values() for each in choices]

    def low_at(self, price: Floats) -> Floats:
        """``[source, target]`` no plan costs less at these prices."""
        table = self.low + self.memory * float(price.min())
        for pair, cuts in self.cuts.items():
            table[pair] = max(table[pair], self._cut_at(cuts, price))
        return table

    def work(
        self, pair: Pair | None, price: Floats, turns: int, limit: Budget, seed: int
    ) -> Priced | None:
        """The search for the cheapest plan of a pair, or of any; None if it is known already."""
        problem = self.part.sub.problem if pair is None else self.part.pinned(*pair).problem
        least = float(self.low.min() if pair is None else self.low[pair])
        work = Priced(problem, price, turns, limit, seed, least)
        known = self.all_choices if pair is None else self.choices[pair]
        if known:
            cheapest = min(known, key=lambda each: each.cost(price))
            cuts = self._anywhere if pair is None else self.cuts[pair]
            proved = max(work.low, self._cut_at(cuts, price))
            if cheapest.cost(price) - proved <= PROVED * cheapest.cost(price):
                return None
            work.start = timed(problem, cheapest.placement)
        return work

    def take(self, pair: Pair | None, work: Priced) -> None:
        """What a search has shown."""
        if work.found is not None:
            ends = self.part.ends(work.found.placement) if pair is None else pair
            self.offer(ends, work.found.value, work.found.placement)
        if not math.isfinite(work.low):
            return
        if pair is None:
            cut = Cut(work.price, work.low)
            self._anywhere.append(cut)
            for source, target in np.argwhere(np.isfinite(self.low)).tolist():
                self.cuts[source, target].append(cut)
            return
        for other, renamed in self._twins.like(self.part, pair):
            self.cuts[other].append(Cut(_renamed(work.price, renamed), work.low))

    def learn(self, placement: Placement) -> None:
        """Take over a plan of the part, with a sequence, out of one of the whole."""
        pair = self.part.ends(placement)
        if math.isfinite(self.low[pair]):
            self.offer(pair, timed(self.part.sub.problem, placement).value, placement)

    def offer(self, pair: Pair, value: float, placement: Placement) -> None:
        """A plan, for all pairs like its own, unless another is as good throughout."""
        problem = self.part.sub.problem
        devices = problem.device_count
        memory = np.bincount(placement.device, problem.op_memory, devices).astype(np.float64)
        for other, renamed in self._twins.like(self.part, pair):
            moved = Placement(renamed[placement.device], placement.sequence)
            new, known = Choice(other, value, _renamed(memory, renamed), moved), self.choices[other]
            if not any(each.is_as_good_as(new) for each in known):
                kept = [each for each in known if not new.is_as_good_as(each)]
                kept = sorted([*kept, new], key=lambda each: each.value)
                self.choices[other] = kept[:MOST_CHOICES]

    def _cut_at(self, cuts: list[Cut], price: Floats) -> float:
        """Seconds that no plan costs less than at these prices, by cuts at others.

        What a byte costs more is at least the least that one costs more on any device.
        """
        more = [cut.low + self.memory * float((price - cut.price).min()) for cut in cuts]
        return max(more, default=0.0)


def _renamed(of_device: Floats, renamed: Ints) -> Floats:
    """`[device]` figures, where device d is called ``renamed[d]``."""
    found = np.empty_like(of_device)
    found[renamed] = of_device
    return found
