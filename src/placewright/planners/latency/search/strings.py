"""Search on a string of device numbers, DiviML's encoding (§V-A): three ways to walk through it.

All start from the budget's start if it has one, and never end worse.

A string has one device per unit; its value is the makespan of the ops in breadth-first
topological order, each transfer sent right after its producer. A string whose memory overflows
is never accepted. A planner here stops when its `iterations` are used up or the time limit is
reached; Ctrl-C ends the search and keeps what was found. Without a time limit (or with
`iterations` given and used up before it) the same seed gives the same plan.

The search ends with a placement and the sequence it was judged by; if list scheduling into gaps
(`simulate.latency.schedule_placement`) times that placement better, the plan has that sequence.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from placewright.budget import Budget, Progress
from placewright.errors import OptionError
from placewright.graph import Ints
from placewright.kernels.latency import search as kernel
from placewright.planners.base import LatencyPlanner, MemoryAccount, NoRoomError, Proposal, one_of
from placewright.planners.latency.construct.simple import fastest_first
from placewright.planners.latency.first_incumbent import simple_start
from placewright.planners.latency.search.iterated import annealed
from placewright.planners.latency.search.refining import refined
from placewright.planners.latency.search.region_moves import by_region_moves
from placewright.planners.latency.search.walk import Walk
from placewright.problem import Problem
from placewright.units import parse_seconds

# Evaluations without a time limit: enough for a small graph, seconds for a large one.
MOST_ITERATIONS = 200_000
ITERATIONS_PER_UNIT = 2_000
MOST_WORK = 500_000_000  # evaluations × items of the sequence, each about 10 ns
# Annealing: the first temperature in mean worsenings of a mutation, the last in first ones.
FIRST_SHARE = 0.05
COLDEST_SHARE = 1e-3
TEMPERATURE_SAMPLES = 200
SEEDS_SHARE = 0.25  # with a free order: of the time, for region moves
# Local search looks at every move before it makes one up to so many items of all evaluations.
BEST_MOVE_WORK = 2_000_000


class _Search(LatencyPlanner):
    """What the three have in common: `iterations`, and the outline of a search."""

    name: ClassVar[str]
    counts_peak: ClassVar[bool] = True

    def __init__(self, iterations: str | int | None = None) -> None:
        self.iterations = None if iterations is None else _count(self, "iterations", iterations)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        start = (
            self.start(problem)
            if budget.start is None
            else problem.unit_device(budget.start.device)
        )
        walk = Walk(problem, budget, seed, self.limit(problem, budget), start)
        if walk.choices:
            with contextlib.suppress(KeyboardInterrupt):  # what was found so far is the answer
                self.search(walk, on_progress)
        return Proposal(walk.placement())

    def limit(self, problem: Problem, budget: Budget) -> float:
        if self.iterations is not None:
            return self.iterations
        return math.inf if budget.seconds < math.inf else default_iterations(problem)

    def start(self, problem: Problem) -> Ints:
        """`[unit]` each on the device that runs it fastest and has room."""
        account = MemoryAccount(problem, self.name)
        preference = np.argsort(problem.unit_time, axis=1, kind="stable")
        for unit in range(problem.unit_count):
            account.place_first(unit, preference[unit])
        return account.unit_device

    def search(self, walk: Walk, on_progress: Progress) -> None:
        raise NotImplementedError


class Annealing(_Search):
    """Simulated annealing (Kirkpatrick et al. 1983, as a baseline in DiviML §V-A).

    Starts from the better of two strings: each unit on its fastest device with room; everything
    on the one device that is fastest for all. A mutation gives a few units other devices: one
    unit anywhere, one to the device of an op it shares a tensor with, a run of units to one
    device, or two units each other's. A string worse by Δ is taken with probability
    exp(-Δ / temperature), the temperature falling geometrically.

    Options:

    - `iterations`: evaluations, mutations that come to nothing included;
    - `temperature`: seconds at the start; by default a twentieth of the mean by which mutations
      of the first string make it worse (hotter, and large graphs lose what they start with);
    - `cooling`: factor on the temperature over as many evaluations as there are units; by
      default such that it ends at a thousandth, when the iterations or the time end;
    - `order`: ``breadth-first`` as in DiviML, or ``free``: the order of the ops and of their
      transfers is searched too, each transfer with a place of its own. This starts from `start`,
      or goes on from the budget's start and its sequence; whole regions of the graph may move, runs
      of ops, and stretches swap devices. By default it begins the hotter the more evaluations there
      are, at most at four makespans per op, from a given start sometimes colder, and ends at a
      fiftieth; of ten thousand evaluations per op or more it makes several annealings (`iterated`);
    - `overfull`, with a free order: ``never``, or ``priced``: on the way devices may have too much,
      at a price per byte that rises while one has and falls while none has;
    - `start`, with a free order: ``region-moves``, the plan of that planner, or ``simple``, the
      best of HEFT, m-ETF, MET and one device: less good, and sometimes it leads elsewhere.
    """

    name: ClassVar[str] = "annealing"

    def __init__(
        self,
        iterations: str | int | None = None,
        temperature: str | float | None = None,
        cooling: str | float | None = None,
        order: str = "breadth-first",
        overfull: str = "never",
        start: str = "region-moves",
    ) -> None:
        super().__init__(iterations)
        self.temperature = None if temperature is None else self._seconds(temperature)
        self.cooling = None if cooling is None else self._factor(cooling)
        self.is_free = one_of(self.name, "order", order, ("breadth-first", "free")) == "free"
        self.is_priced = one_of(self.name, "overfull", overfull, ("never", "priced")) == "priced"
        self.is_simple = one_of(self.name, "start", start, ("region-moves", "simple")) == "simple"
        for given, option in (
            (self.is_priced, "overfull=priced"),
            (self.is_simple, "start=simple"),
        ):
            if given and not self.is_free:
                raise OptionError(f"planner 'annealing': {option} goes with order=free; give both")

    def supports(self, problem: Problem) -> str | None:
        if self.is_priced and problem.options.memory == "peak":
            return (
                "with overfull=priced it has a price for what is kept on a device, not for a peak; "
                "leave out overfull, or plan with memory resident"
            )
        return super().supports(problem)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        if self.is_free:
            return self._plan_freely(problem, budget, seed, on_progress)
        return super().plan(problem, budget, seed, on_progress)

    def _plan_freely(
        self, problem: Problem, budget: Budget, seed: int, on_progress: Progress
    ) -> Proposal:
        start = budget.start
        if start is None and self.is_simple:
            start = simple_start(problem, seed, budget, self.name).placement
        elif start is None:
            part = budget.part(SEEDS_SHARE * budget.left)
            start, interrupted = by_region_moves(problem, part, seed, on_progress)
            if interrupted:
                return Proposal(start)
        limit = self.limit(problem, budget)
        if self.temperature is None and self.cooling is None:
            found, _ = annealed(
                problem, start, budget, limit, seed, on_progress,
                is_given=budget.start is not None, priced=self.is_priced,
            )  # fmt: skip
            return Proposal(found)
        cooling = None if self.cooling is None else self.cooling ** (1.0 / problem.unit_count)
        found, _ = refined(
            problem, start, budget, limit, seed, on_progress,
            hot=self.temperature, cooling=cooling, priced=self.is_priced,
        )  # fmt: skip
        return Proposal(found)

    def search(self, walk: Walk, on_progress: Progress) -> None:
        if walk.budget.start is None:
            self._take_the_better_start(walk)
        temperature = hot = self._first_temperature(walk)
        for count in walk.chunks("annealing", on_progress):
            cooling = walk.cooling(temperature, hot, hot * COLDEST_SHARE)
            if self.cooling is not None:
                cooling = self.cooling ** (1.0 / walk.choices)
            temperature = kernel.anneal(
                walk.arrays, walk.space, walk.state, walk.scratch, walk.rng,
                count, temperature, cooling,
            )  # fmt: skip

    def _take_the_better_start(self, walk: Walk) -> None:
        fastest, value = walk.state.unit_device.copy(), walk.value
        together = self._on_one_device(walk.problem)
        if together is not None:
            walk.restart_from(together)
            if walk.value > value:
                walk.restart_from(fastest)

    def _first_temperature(self, walk: Walk) -> float:
        if self.temperature is not None:
            return self.temperature
        worsening = kernel.mean_worsening(
            walk.arrays, walk.space, walk.state, walk.scratch, walk.rng, TEMPERATURE_SAMPLES
        )
        return max(FIRST_SHARE * float(worsening), kernel.COLDEST)

    def _on_one_device(self, problem: Problem) -> Ints | None:
        """`[unit]` the device that is fastest for all, where it is allowed and has room."""
        account = MemoryAccount(problem, self.name)
        devices = fastest_first(problem)
        try:
            for unit in range(problem.unit_count):
                account.place_first(unit, devices)
        except NoRoomError:
            return None
        return account.unit_device

    def _seconds(self, text: str | float) -> float:
        try:
            seconds = parse_seconds(text) if isinstance(text, str) else float(text)
        except ValueError as error:
            raise OptionError(f"planner 'annealing': temperature: {error}") from None
        if not 0 < seconds < math.inf:
            raise OptionError(
                f"planner 'annealing': temperature is {text}; give a positive time, such as 1ms"
            )
        return seconds

    def _factor(self, text: str | float) -> float:
        try:
            factor = float(text)
        except ValueError:
            factor = math.nan
        if not 0 < factor <= 1:
            raise OptionError(
                f"planner 'annealing': cooling is {text}; give a number above 0 and up to 1"
            )
        return factor


class OnePlusOneEA(_Search):
    """Biased (1+1) evolutionary algorithm (DiviML §V-A; Droste et al. 2002).

    Starts with each unit on the device that runs it fastest and has room: the bias. A child
    differs in each unit with probability 1/n and replaces its parent unless it is worse.

    Option `iterations`: evaluations.
    """

    name: ClassVar[str] = "one-plus-one-ea"

    def search(self, walk: Walk, on_progress: Progress) -> None:
        for count in walk.chunks("(1+1) EA", on_progress):
            kernel.evolve(walk.arrays, walk.space, walk.state, walk.scratch, walk.rng, count)


class LocalSearch(_Search):
    """Local search with restarts (baseline of Tarnawski et al. 2020, §6).

    From a random string, make the best move of one unit to another device until none helps;
    start again from another random string, ten times, and take the best (or each unit on its
    fastest device, if that is better still). If the budget has a start, the first descent is from
    there. On a large graph the first move that helps is made, the moves tried in a random order.

    Options: `iterations`: evaluations of all restarts together; `restarts`.
    """

    name: ClassVar[str] = "local-search"

    def __init__(self, iterations: str | int | None = None, restarts: str | int = 10) -> None:
        super().__init__(iterations)
        self.restarts = _count(self, "restarts", restarts)

    def limit(self, problem: Problem, budget: Budget) -> float:
        if self.iterations is not None:
            return self.iterations
        # It ends by itself: only the work on a large graph needs a limit.
        return math.inf if budget.seconds < math.inf else _work_limit(problem)

    def search(self, walk: Walk, on_progress: Progress) -> None:
        start, is_given = walk.state.unit_device.copy(), walk.budget.start is not None
        largest_first = walk.space.movable[
            np.argsort(-walk.space.unit_memory[walk.space.movable], kind="stable")
        ]
        chunks = walk.chunks("local search", on_progress)
        if is_given and not self._descend(walk, chunks):
            return
        for _ in range(self.restarts):
            if kernel.scatter(walk.space, walk.state, largest_first, walk.rng):
                walk.settle()
            else:  # random devices left no room for some unit
                walk.restart_from(start)
            if not self._descend(walk, chunks):
                break

    def _descend(self, walk: Walk, chunks: Iterator[int]) -> bool:
        """Whether a local optimum was reached before the end of the budget."""
        devices = walk.problem.device_count
        moves = walk.rng.permutation(walk.choices * devices)
        best_move = len(moves) * len(walk.state.sequence) <= BEST_MOVE_WORK
        scan = np.array([0, 0, -1])
        chosen_value = np.zeros(1)
        for count in chunks:
            unneeded = kernel.descend(
                walk.arrays,
                walk.space,
                walk.state,
                walk.scratch,
                moves,
                scan,
                chosen_value,
                count,
                best_move,
            )
            walk.done -= unneeded
            if unneeded:
                return True
        return False


def default_iterations(problem: Problem) -> int:
    """Evaluations where neither iterations nor a time limit are given."""
    wanted = min(MOST_ITERATIONS, ITERATIONS_PER_UNIT * problem.unit_count)
    return min(wanted, _work_limit(problem))


def _work_limit(problem: Problem) -> int:
    return MOST_WORK // (problem.op_count + problem.edge_count) + 1


def _count(planner: _Search, option: str, text: str | int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise OptionError(
            f"planner '{planner.name}': {option} is {text}; give a whole number of at least 1"
        )
    return number
