"""Search for invocation latency: segments of random orders, annealing, local search.

Tarnawski et al. leave this objective to their integer program; the searches here start from
consecutive segments of depth-first orders, which are contiguous whatever the cut, and then move
closed sets of ops between subgraphs, judged by the true latency.
"""

from __future__ import annotations

import contextlib
import math
from typing import ClassVar

import numpy as np

from placewright.analysis.slots import accelerators, slots_of
from placewright.bounds.bound import Bound
from placewright.budget import Budget, Progress
from placewright.errors import OptionError
from placewright.graph import Whole
from placewright.kernels.invocation.search import COLDEST
from placewright.kernels.invocation.segments import Atoms, random_order
from placewright.kernels.invocation.timing import latency
from placewright.planners.base import NoRoomError, Proposal
from placewright.planners.invocation.base import InvocationPlanner, nothing_fits
from placewright.planners.invocation.exact import any_split
from placewright.planners.invocation.starts import (
    MOST_STOPS,
    LinearSearch,
    filled,
    scattered,
)
from placewright.planners.invocation.walk import Walk
from placewright.problem import Problem

ORDERS = 100
MORE_ORDERS = 5  # to begin anew
MOVES = 20_000
MOST_MOVE_WORK = 50_000_000  # moves × ops, each about 50 ns
MOST_ATOM_PAIRS = 20_000_000  # of atoms and stops, all orders together
MOST_ITERATIONS = 200_000
ITERATIONS_PER_OP = 2_000
MOST_WORK = 500_000_000  # evaluations × ops, each about 50 ns
SHARE_OF_STARTS = 0.1  # of the time limit
SHARE_OF_ORDERS = 0.15  # of the time limit, for random ones and again for changed ones
SHARE_OF_BOUND = 0.25
MOST_CUTS = 5_000
PROVED = 1e-6  # relative distance of value and bound at which a search has nothing left to do
FIRST_SHARE = 0.01  # of the value: the first temperature
COLDEST_SHARE = 1e-3
FIRST_ROUND = 20_000
START_TRIES = 50


class LinearDp(InvocationPlanner):
    """The best consecutive segments of random depth-first orders.

    For each order a dynamic program cuts the atoms into segments on accelerators and ops on
    CPUs, exactly for the sum of what all invocations take, with memory; the split of the least
    true latency is kept. Then the order of the best is searched: a few atoms at other places;
    and last the split, by moves that make the latency no worse (see `Annealing`): atoms on CPUs,
    of which the orders keep the ops together, may so be taken apart. Within a time limit at most
    three tenths of it go to orders.

    Options: `orders`: how many random orders (100, fewer on graphs of thousands of atoms), and as
    many changed ones; `moves` tried at the end (20,000, fewer on large graphs; 0 for none).
    """

    name: ClassVar[str] = "linear-dp"

    def __init__(self, orders: str | int = ORDERS, moves: str | int = MOVES) -> None:
        self.orders = count_option(self.name, "orders", orders)
        self.moves = count_option(self.name, "moves", moves, least=0)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        search = LinearSearch(problem, np.random.default_rng(seed), budget)
        with contextlib.suppress(KeyboardInterrupt):
            on_progress("segments of random orders", 0.0)
            orders = affordable_orders(search, self.orders)
            search.sample(orders, budget.part(SHARE_OF_ORDERS * budget.seconds))
            search.improve(orders, budget.part(SHARE_OF_ORDERS * budget.seconds))
        start = search.op_slot if search.value < math.inf else first_slots(search, self.name)
        walk = Walk(search, start, self.limit(problem))
        with contextlib.suppress(KeyboardInterrupt):
            for count in walk.part(self.moves, "moves", on_progress):
                walk.anneal(count, COLDEST, 1.0)
        return answer(walk, self.name)

    def limit(self, problem: Problem) -> int:
        return max(1, min(self.moves, MOST_MOVE_WORK // problem.op_count))


class _Search(InvocationPlanner):
    name: ClassVar[str]

    def __init__(self, iterations: str | int | None = None) -> None:
        self.iterations = (
            None if iterations is None else count_option(self.name, "iterations", iterations)
        )

    def limit(self, problem: Problem, budget: Budget) -> float:
        if self.iterations is not None:
            return self.iterations
        if budget.seconds < math.inf:
            return math.inf
        by_size = min(ITERATIONS_PER_OP * problem.op_count, MOST_WORK // problem.op_count)
        return max(1, min(MOST_ITERATIONS, by_size))


class Annealing(_Search):
    """Simulated annealing on the true latency, from the best segments of random orders.

    A move brings an op to another subgraph or to a CPU together with what must come along:
    its ancestors or descendants in its own subgraph, or all between it and the new one, and the
    rest of its colocation group. Rounds, each twice as long as the one before, start from the
    best slots so far; after one that brought nothing, from other orders, in rounds that are
    longer from the first. The search ends at once where the bound (`bounds.invocation.path`) shows
    that nothing better is left; with a start in the budget it is not computed.

    Options: `iterations`: evaluations, mutations that come to nothing included; `orders`: random
    orders to start from (100); `temperature`: at the start of a round, as a share of the
    latency (0.01; it falls to a thousandth of that).
    """

    name: ClassVar[str] = "annealing"

    def __init__(
        self,
        iterations: str | int | None = None,
        orders: str | int = ORDERS,
        temperature: str | float = FIRST_SHARE,
    ) -> None:
        super().__init__(iterations)
        self.orders = count_option(self.name, "orders", orders)
        self.temperature = _share_option(self.name, "temperature", temperature)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        search = LinearSearch(problem, np.random.default_rng(seed), budget)
        on_progress("segments of random orders", 0.0)
        with contextlib.suppress(KeyboardInterrupt):
            starts = budget.part(SHARE_OF_STARTS * budget.left)
            search.sample(affordable_orders(search, self.orders), starts)
        start = search.op_slot if search.value < math.inf else first_slots(search, self.name)
        walk = Walk(search, start, self.limit(problem, budget))
        bound = Bound(0.0, "")
        with contextlib.suppress(KeyboardInterrupt):  # what was found so far is the answer
            if budget.start is None:  # else whoever gave it sees to that
                on_progress("lower bound", 0.0)
                bound = searched_bound(problem, budget, walk.best)
            self._rounds(walk, search, bound.value, on_progress)
        return answer(walk, self.name, bound)

    def _rounds(
        self, walk: Walk, search: LinearSearch, bound: float, on_progress: Progress
    ) -> None:
        first = wanted = FIRST_ROUND
        stuck = False
        while len(walk.space.movable) and walk.done < walk.limit and walk.budget.left > 0:
            if walk.best <= bound * (1 + PROVED):
                return
            if stuck:
                walk.begin_anew(another_start(search, self.name))
            walk.restart_from_best()
            before = walk.chain
            temperature = max(self.temperature * (before if before < math.inf else 1.0), COLDEST)
            # A last round too short to cool is worth less than one that takes all that is left.
            left = walk.evaluations_left
            length = left if left < 2 * wanted else wanted
            cooling = COLDEST_SHARE ** (1.0 / max(length, 1.0))
            for count in walk.part(length, "annealing", on_progress):
                temperature = walk.anneal(count, temperature, cooling)
            stuck = not walk.chain < before
            first = 2 * first if stuck else first
            wanted = first if stuck else 2 * wanted


class LocalSearch(_Search):
    """Moves that make the latency no worse, until a while after the last one that helped.

    The baseline of Tarnawski et al. §6, with `restarts` random starts (10): an order of the
    atoms that fills the accelerators in turn. Moves are those of `Annealing`. Options:
    `iterations`: evaluations in all; `restarts`.
    """

    name: ClassVar[str] = "local-search"

    def __init__(self, iterations: str | int | None = None, restarts: str | int = 10) -> None:
        super().__init__(iterations)
        self.restarts = count_option(self.name, "restarts", restarts)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        search = LinearSearch(problem, np.random.default_rng(seed), budget)
        start = first_slots(search, self.name)
        walk = Walk(search, start, self.limit(problem, budget))
        with contextlib.suppress(KeyboardInterrupt):
            for number in range(self.restarts):
                another = random_fill(problem, search.atoms, search.rng) if number else None
                if another is not None:
                    walk.restart_from(another)
                share = walk.evaluations_left / (self.restarts - number)
                self._descend(walk, share, on_progress)
        return answer(walk, self.name)

    def _descend(self, walk: Walk, most: float, on_progress: Progress) -> None:
        patience = 20 * walk.problem.op_count
        helped, value = walk.done, walk.value
        if not len(walk.space.movable):
            return
        for count in walk.part(max(most, 1.0), "local search", on_progress):
            walk.anneal(count, COLDEST, 1.0)
            if walk.value < value:
                helped, value = walk.done + count, walk.value
            if walk.done + count - helped > patience:
                walk.done += count
                return


def searched_bound(problem: Problem, budget: Budget, value: float, cuts: int = MOST_CUTS) -> Bound:
    """The path bound, for a share of the time, or so many cuts, or until it proves `value`.

    The budget's listener hears of it on the way.
    """
    from placewright.bounds.invocation.path import path_bound

    listener = budget.listener
    return path_bound(
        problem,
        seconds=SHARE_OF_BOUND * budget.left if budget.seconds < math.inf else math.inf,
        cuts=cuts,
        target=value,
        tell=lambda bound: listener.proved(min(bound.value, value), bound.source),
    )


def affordable_orders(search: LinearSearch, wanted: int) -> int:
    """So many orders as are done in seconds."""
    atoms = max(1, len(search.order))
    pairs = atoms * min(atoms, MOST_STOPS)
    return max(1, min(wanted, MOST_ATOM_PAIRS // pairs))


def first_slots(search: LinearSearch, planner: str) -> Whole:
    """Slots that fit the memory, and that can run if a few tries or the solver find such.

    InfeasibleError if the solver proves that there are none, NoRoomError if a unit has no room.
    """
    problem = search.problem
    for _ in range(START_TRIES):
        slots = random_fill(problem, search.atoms, search.rng)
        if slots is not None and latency(problem, slots) < math.inf:
            return slots
    try:
        slots = scattered(problem, planner)
    except NoRoomError:
        found = any_split(problem, planner, search.budget)
        if found is None:
            raise
        return slots_of(problem, found)
    if latency(problem, slots) < math.inf:
        return slots
    found = any_split(problem, planner, search.budget)
    return slots if found is None else slots_of(problem, found)


def another_start(search: LinearSearch, planner: str) -> Whole:
    """The best slots of a few more orders; those of `first_slots` if none has any."""
    search.value = math.inf
    search.sample(MORE_ORDERS, search.budget)
    return search.op_slot if search.value < math.inf else first_slots(search, planner)


def random_fill(problem: Problem, atoms: Atoms, rng: np.random.Generator) -> Whole | None:
    """A random order of atoms on accelerators in random order; None if something is left over."""
    order = np.zeros(len(atoms.memory), dtype=np.int64)
    random_order(atoms, rng, order)
    return filled(problem, atoms, order, rng.permutation(accelerators(problem)))


def answer(walk: Walk, planner: str, bound: Bound | None = None) -> Proposal:
    """The best slots of a walk, or the budget's start if that is as good.

    InfeasibleError if nothing could run.
    """
    start = walk.budget.start
    if walk.best == math.inf and start is None:
        raise nothing_fits(planner)
    placement = start if start is not None and walk.known <= walk.best else walk.placement()
    return Proposal(placement, bound.value, bound.source) if bound else Proposal(placement)


def count_option(planner: str, name: str, text: str | int, least: int = 1) -> int:
    """A whole number of at least that; OptionError otherwise."""
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise OptionError(
            f"planner '{planner}': {name} is '{text}'; give a whole number from {least}"
        )
    return value


def _share_option(planner: str, name: str, text: str | float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise OptionError(f"planner '{planner}': {name} is '{text}'; give a share, up to 1")
    return value
