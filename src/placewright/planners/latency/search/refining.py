"""Annealing over placements and orders together: what `annealing` with a free order and `lns` use.

A schedule is a sequence of all ops and transfers with a device per op
(`kernels.latency.incremental`). It starts from a plan and improves it; how hot it starts decides
how far from that plan it goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from placewright.budget import LEAST_SECONDS, Budget, Pace, Progress, Reporter, no_progress
from placewright.graph import Ints, Wide, lent
from placewright.kernels.common.arrays import Arrays, arrays_with_memory
from placewright.kernels.common.dominators import dominator_tree
from placewright.kernels.latency import refining as kernel
from placewright.kernels.latency.incremental import (
    BEST,
    CURRENT,
    PRICE,
    SLACK,
    STRIDE,
    Timeline,
    begin,
)
from placewright.kernels.latency.order_moves import Structure
from placewright.kernels.latency.refining import COLDEST
from placewright.plan import Placement
from placewright.planners.latency.search.walk import space_of
from placewright.problem import ROUNDING, Problem
from placewright.simulate.latency import (
    schedule_placement,
    sequence_of,
    time_items,
    time_placement,
)

# The first temperature, in makespans per op (what one op more or less costs), where there are so
# many evaluations per op or more; with fewer it falls by a power of their number, for what is not
# cooled slowly enough ends worse than it began. The last temperature, in first ones.
HOTTEST, FOR_EVALUATIONS, POWER = 4.0, 10_000, 0.7
COLD = 0.02
PROBING, PROBING_SECONDS = 0.05, 0.1  # of the time, to see how many evaluations it is for
ORDER_SHARE = 0.5  # of the changes: order rather than devices
EDGE_SHARE = 0.5  # of the changes of order: transfers, where they contend
ROUND = 20_000  # evaluations between two sortings of the sequence by time


def refined(
    problem: Problem,
    start: Placement,
    budget: Budget,
    limit: float,
    seed: int,
    on_progress: Progress,
    *,
    hot: float | None = None,
    cooling: float | None = None,
    priced: bool = False,
) -> tuple[Placement, bool]:
    """`start` annealed for `limit` evaluations or the budget's time, and whether Ctrl-C came.

    Never worse than `start`. `hot`: the first temperature in seconds, by default the hotter the
    more evaluations there are; `cooling`: the factor on it per evaluation, by default such that it
    ends at `COLD`. `priced`: see `Refinement`.
    """
    refinement = Refinement(problem, seed, start, priced=priced)
    reporter = Reporter(budget, refinement.best_value)

    def anneal() -> None:
        first = hot
        if first is None:
            per_op = refinement.evaluations_in(budget, limit) / problem.op_count
            first = hot_for(per_op) * makespan_per_op(problem, start)
        refinement.anneal(first, Pace(budget, limit), reporter, on_progress, cooling)

    return best_after(refinement, anneal)


def best_after(refinement: Refinement, anneal: Callable[[], None]) -> tuple[Placement, bool]:
    """The best plan when `anneal` is over, and whether Ctrl-C ended it; nothing is below 0 s."""
    interrupted = False
    if refinement.value > 0.0:
        try:
            anneal()
        except KeyboardInterrupt:
            interrupted = True
    return refinement.placement(), interrupted


def hot_for(evaluations_per_op: float) -> float:
    """The first temperature of an annealing so long, in makespans per op.

    >>> hot_for(10_000), round(hot_for(1_000), 2)
    (4.0, 0.8)
    """
    return float(HOTTEST * min(1.0, evaluations_per_op / FOR_EVALUATIONS) ** POWER)


def makespan_per_op(problem: Problem, placement: Placement) -> float:
    return time_placement(problem, placement).makespan / problem.op_count


def first_price(problem: Problem, makespan: float) -> float:
    """Seconds per byte of overflow: what an op takes for what a unit keeps; 0 if all fit anywhere.

    >>> first_price(row_of_ops([1.0, 2.0]), 3.0)    # doctest: +SKIP
    0.0
    """
    kept = float(problem.unit_memory.sum())
    if kept <= problem.device_memory.min():
        return 0.0
    return makespan / problem.op_count / (kept / problem.unit_count)


class Refinement:
    """A schedule under annealing, and the best one so far."""

    def __init__(
        self, problem: Problem, seed: int, start: Placement, *, priced: bool = False
    ) -> None:
        """`start` fits; without a sequence it is scheduled first.

        `priced`: on the way devices may have too much, at a price (`kernels.latency.refining`).
        """
        self.problem = problem
        self.rng = np.random.default_rng(seed)
        self.arrays = arrays_with_memory(problem)
        self.space = space_of(problem, problem.topological_order)
        self.structure = structure_of(problem)
        self.critical = np.zeros(problem.op_count + 1, dtype=np.int32)
        self.timeline = _timeline(problem, self.arrays, start)
        self.timeline.value[SLACK] = ROUNDING * problem.device_memory.min()
        self._until_sorting = ROUND
        self.restart_from(start)
        if priced:
            self.timeline.value[PRICE] = first_price(problem, self.value)

    @property
    def value(self) -> float:
        """Seconds: the makespan of the present schedule."""
        return float(self.timeline.value[CURRENT])

    @property
    def best_value(self) -> float:
        return float(self.timeline.value[BEST])

    def placement(self) -> Placement:
        """The best so far."""
        timeline = self.timeline
        device = timeline.best_unit_device[self.problem.op_unit]
        return Placement(device, timeline.best_sequence.copy())

    def restart_from(self, placement: Placement) -> None:
        """From this plan; the best so far stays the best unless this one is better."""
        if placement.sequence is None:
            placement = schedule_placement(self.problem, placement.device)
        assert placement.sequence is not None
        unit_device = self.problem.unit_device(placement.device)
        begin(self.arrays, self.space, self.timeline, unit_device, lent(placement.sequence))
        self.sort()

    def anneal(
        self,
        hot: float,
        pace: Pace,
        reporter: Reporter,
        on_progress: Progress,
        cooling: float | None = None,
    ) -> None:
        """From the temperature `hot` (seconds) down as `pace` goes by, or by `cooling`."""
        temperature = hot
        for count in pace.chunks("annealing", on_progress):
            factor = pace.cooling(temperature, hot, hot * COLD) if cooling is None else cooling
            while count > 0:
                step = min(count, self._until_sorting)
                temperature = kernel.refine(
                    self.arrays, self.space, self.structure, self.timeline, self.critical,
                    self.rng, step, temperature, factor, ORDER_SHARE,
                )  # fmt: skip
                count -= step
                self._until_sorting -= step
                if not self._until_sorting:
                    self.sort()
            reporter.tell(self.best_value, self.placement)

    def evaluations_in(self, budget: Budget, limit: float) -> float:
        """The limit; without, about how many there is time for.

        That shows after a moment of those that make nothing longer.
        """
        if limit < math.inf:
            return limit
        moment = budget.part(min(PROBING * budget.left, PROBING_SECONDS))
        probe = Pace(moment, math.inf)
        self.anneal(COLDEST, probe, Reporter(budget), no_progress, 1.0)
        return max(budget.left, 0.0) / max(probe.seconds_per_evaluation, LEAST_SECONDS)

    def sort(self) -> None:
        """Put the sequence in the order of starts, so that what is near in it is near in time.

        Nothing ends later for it.
        """
        timeline = self.timeline
        times = time_items(self.problem, Placement(timeline.device, timeline.sequence))
        sequence = sequence_of(self.problem, *times)
        unit_device = timeline.unit_device.copy()
        begin(self.arrays, self.space, timeline, unit_device, sequence)
        self._until_sorting = ROUND


def structure_of(problem: Problem) -> Structure:
    """Dominators and post-dominators, and what changes of order there are."""
    order = lent(problem.topological_order)
    offsets, edges = (lent(each) for each in problem.op_inputs)
    everything = np.ones(problem.op_count, dtype=bool)
    forwards = dominator_tree(order, offsets, problem.edge_producer[edges], everything)
    backwards = dominator_tree(order[::-1].copy(), *_consumers(problem), everything)
    parent, at, first, size = (np.stack(pair) for pair in zip(forwards, backwards, strict=True))
    contends = problem.options.contention != "none" and problem.edge_count > 0
    return Structure(at, first, size, parent, EDGE_SHARE if contends else 0.0)


def _consumers(problem: Problem) -> tuple[Wide, Ints]:
    """CSR [op] → the ops that read what it produces."""
    by_producer = np.argsort(problem.edge_producer, kind="stable")
    offsets = np.searchsorted(problem.edge_producer[by_producer], np.arange(problem.op_count + 1))
    return offsets.astype(np.int64), problem.consumers[by_producer]


def _timeline(problem: Problem, arrays: Arrays, start: Placement) -> Timeline:
    n, edges, devices = problem.op_count, problem.edge_count, problem.device_count
    items = n + edges
    resources = devices + arrays.channel_count
    slots = problem.tensor_count * devices if arrays.by_tensor else edges
    blocks = -(-items // STRIDE)
    unit_device = problem.unit_device(start.device)
    return Timeline(
        device=start.device.astype(np.int32),
        unit_device=unit_device,
        free=problem.free_memory(unit_device),
        sequence=np.empty(items, dtype=np.int32),
        position=np.empty(items, dtype=np.int32),
        op_finish=np.empty(n),
        arrival=np.empty(slots),
        carrier=np.empty(slots, dtype=np.int32),
        clock=np.empty(resources),
        marks=np.empty((blocks, resources)),
        block_end=np.empty(blocks),
        tail=np.empty(items),
        after=np.empty(n + slots + resources),
        trial_marks=np.empty((blocks, resources)),
        trial_end=np.empty(blocks),
        logged_op=np.empty(n, dtype=np.int32),
        logged_finish=np.empty(n),
        logged_slot=np.empty(edges, dtype=np.int64),
        logged_arrival=np.empty(edges),
        logged_carrier=np.empty(edges, dtype=np.int32),
        undo_unit=np.empty(problem.unit_count, dtype=np.int32),
        undo_device=np.empty(problem.unit_count, dtype=np.int32),
        undo_sequence=np.empty(items, dtype=np.int32),
        saved=np.zeros(2, dtype=np.int64),
        kept=np.empty(edges, dtype=np.int32),
        changed=np.zeros(problem.unit_count, dtype=bool),
        mark=np.zeros(problem.unit_count, dtype=np.int64),
        counts=np.zeros(7, dtype=np.int64),
        value=np.array([np.inf, np.inf, 0.0, 0.0, 0.0]),
        best_unit_device=unit_device.copy(),
        best_sequence=np.empty(items, dtype=np.int32),
    )
