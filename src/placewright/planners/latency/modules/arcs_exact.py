"""Exact arcs of a part of a chain: what is known of each, and what is to be asked next.

An arc costs at first what its longest path of ops says it cannot be less than, transfers paid; then
it is bounded by more arguments, and solved by a constraint program, in turns (`exact.cases`). What
makes a module hard are mostly not its ends, so one that is hard is first bounded for all pairs at
once, unless few of these differ.
"""

from __future__ import annotations

import math

import numpy as np

from placewright.analysis.parts import Part, longest_paths
from placewright.bounds.latency.paths import lower_bound
from placewright.bounds.latency.relaxation.between import Between
from placewright.bounds.latency.relaxation.paths import MOST_SEARCHED
from placewright.budget import Budget
from placewright.formulations.latency.incumbent import Incumbent, timed
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.planners.latency.exact.cases import BOUND_TURN, Answer, Job, Method, overfull
from placewright.planners.latency.modules.chain import Pair
from placewright.planners.latency.modules.device_twins import DeviceTwins

GUESSED, BOUNDED, SOLVED = range(3)
FEW_PAIRS = 2  # that differ, of which each is bounded sooner than all together
FEWEST_OPS = 6  # of a part whose regions say more than its paths


class ExactArcs:
    """The arcs of a `part`, and what is known of all of them together.

    `low[source, target]` bounds an arc; `value` is what was found, by one of `placements`;
    `guess` is `low` or, of an arc that has had all its time, `value`. `turns` that arcs have had;
    `turns_of_all`, the whole part with its ends free, of which all is known that so can be
    (`is_exhausted`). `is_hard`: not solved at once. `with_regions[source, target]`: bounded by
    regions, whatever came of it. Pairs that are the same but for names of devices (`twins`) are
    one: `placements` and `turns` are by the first of them.
    """

    def __init__(self, part: Part, twins: DeviceTwins) -> None:
        self.part = part
        self.twins = twins
        self.low = np.maximum(longest_paths(part), lower_bound(part.sub.problem).value)
        self.guess = self.low.copy()
        self.value = np.full(self.low.shape, np.inf)
        self.level = np.full(self.low.shape, GUESSED)
        self.placements: dict[Pair, Placement] = {}
        self.turns: dict[Pair, int] = {}
        self.turns_of_all = 0
        self.is_exhausted = False
        self.is_hard = False
        self.with_regions = np.zeros(self.low.shape, dtype=np.bool_)
        self._between: Between | None = None
        pairs = np.argwhere(np.isfinite(self.low)).tolist()
        self._has_many = len({self.first_like((one, two)) for one, two in pairs}) > FEW_PAIRS

    def offer(self, pair: Pair, found: Incumbent) -> None:
        self._keep(pair, found.placement, found.value)

    def first_like(self, pair: Pair) -> Pair:
        """The first of the pairs that are the same as this one."""
        return self.twins.like(self.part, pair)[0][0]

    def cells(self, pair: Pair) -> tuple[list[int], list[int]]:
        """All of them, as an index of a table."""
        pairs = [other for other, _ in self.twins.like(self.part, pair)]
        return [source for source, _ in pairs], [target for _, target in pairs]

    def placement(self, pair: Pair) -> Placement:
        """The best known; KeyError without one."""
        known = self.placements[self.first_like(pair)]
        twins = self.twins.like(self.part, self.first_like(pair))
        renamed = next(renamed for other, renamed in twins if other == pair)
        return Placement(renamed[known.device], known.sequence)

    def fill(self) -> None:
        """A plan for each pair that has none: the best there is, with its ends moved."""
        if not self.placements:
            return
        known = self.placements[min(self.placements, key=self.value.__getitem__)]
        problem = self.part.sub.problem
        for source, target in np.argwhere(np.isinf(self.value) & np.isfinite(self.low)).tolist():
            moved = Placement(self.part.with_ends(known.device, source, target))
            if not overfull(problem, moved):
                self.offer((source, target), timed(problem, moved))

    def bound(self, pair: Pair) -> None:
        """By more than its longest path."""
        self._raise(pair, lower_bound(self.part.pinned(*pair).problem).value)
        self.level[self.cells(pair)] = BOUNDED

    @property
    def has_regions(self) -> bool:
        """Whether the part is large enough to have some, and small enough for them to be solved."""
        return FEWEST_OPS <= len(self.part.ops) <= MOST_SEARCHED

    def bound_by_regions(self, pair: Pair, budget: Budget) -> None:
        """By the regions between its ends, small ones solved; once for each pair."""
        self.with_regions[self.cells(pair)] = True
        if self._between is None:
            self._between = Between(self.part.sub.problem)
        self._raise(pair, self._between.bound(self.part.pins(*pair), budget))

    def is_open(self, pair: Pair, turns: float = math.inf) -> bool:
        """Whether it is not solved, and has had fewer turns."""
        return bool(self.level[pair] < SOLVED) and self.turns_of(pair) < turns

    def job(self, pair: Pair, cutoff: float) -> Job:
        turns = self.turns_of(pair)
        low = float(self.low[pair])
        return Job(self.part.pinned(*pair), cutoff, until=turns + 1, first=turns, low=low)

    def take(self, pair: Pair, answer: Answer, cutoff: float, method: Method) -> None:
        """What a turn has shown; a part that it did not decide is hard."""
        self.turns[self.first_like(pair)] = answer.turns
        if answer.placement is not None:
            self._keep(pair, answer.placement, answer.value)
        self._raise(pair, answer.lower_bound)
        if answer.is_proved or answer.is_exhausted(method):
            self._close(pair)
        elif not answer.is_done(cutoff):
            self.find_hard()

    # -- all pairs at once -----------------------------------------------------------------------

    @property
    def may_ask_for_all(self) -> bool:
        return self._has_many and not self.is_exhausted

    def wants_all_before(self, pair: Pair) -> bool:
        """Whether a turn for all pairs is worth more than one for this arc.

        Its first, if another pair is solved: most of the pairs left are as long as that one, which
        then need no turns of their own. Of a hard part, all pairs have each turn before any one.
        """
        if not self.may_ask_for_all:
            return False
        if self.is_hard:
            return self.turns_of_all <= self.turns_of(pair)
        return self.turns_of_all == 0 and bool((self.level == SOLVED).any())

    def find_hard(self) -> None:
        """From here on all pairs are bounded before any one."""
        if not self.is_hard:
            self.is_hard = True
            if self.may_ask_for_all:
                self.turns_of_all = max(BOUND_TURN, self.turns_of_all)

    def job_of_all(self, cutoffs: Floats) -> Job:
        cutoff = float(cutoffs[self.level < SOLVED].max())
        turns = self.turns_of_all
        return Job(self.part.sub, cutoff, until=turns + 1, first=turns)

    def take_all(self, answer: Answer, method: Method) -> None:
        self.turns_of_all = answer.turns
        self.is_exhausted |= answer.is_proved or answer.is_exhausted(method)
        pair = None if answer.placement is None else self.part.ends(answer.placement)
        if pair is not None and answer.placement is not None:
            self._keep(pair, answer.placement, answer.value)
        unsolved = np.argwhere(self.level < SOLVED).tolist()
        for first in {self.first_like((source, target)) for source, target in unsolved}:
            self._raise(first, answer.lower_bound)
        if pair is not None and answer.is_proved:
            self._close(pair)

    # -- what is known ---------------------------------------------------------------------------

    def turns_of(self, pair: Pair) -> int:
        """Turns that it has had, or needs not have: quick ones, of a module found to be hard."""
        return self.turns.get(self.first_like(pair), BOUND_TURN if self.is_hard else 0)

    def _keep(self, pair: Pair, placement: Placement, value: float) -> None:
        if value < self.value[pair]:
            first = self.first_like(pair)
            twins = self.twins.like(self.part, pair)
            renamed = next(renamed for other, renamed in twins if other == first)
            self.placements[first] = Placement(renamed[placement.device], placement.sequence)
            self.value[self.cells(pair)] = value

    def _raise(self, pair: Pair, low: float) -> None:
        cells = self.cells(pair)
        self.low[cells] = min(max(low, float(self.low[pair])), float(self.value[pair]))
        self.guess[cells] = self.low[pair]

    def _close(self, pair: Pair) -> None:
        cells = self.cells(pair)
        self.guess[cells], self.level[cells] = self.value[pair], SOLVED
