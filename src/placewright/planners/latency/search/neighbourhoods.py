"""Large-neighbourhood search: parts of a schedule placed and ordered anew, one after another.

A neighbourhood is a set of free units around a random critical op; for ops that lie on no longest
path alone cannot make the makespan shorter. Its kind and its size follow from what has helped: a
kind is drawn the more often the more of its neighbourhoods were improved, and these grow while
CP-SAT gets to the end of them, and shrink while it does not. Both are counted in neighbourhoods and
in CP-SAT's own time, so that the same seed and number of them give the same plan on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from placewright.budget import Budget, Progress, Reporter
from placewright.formulations.latency.cp_model import Effort, Model, Times
from placewright.graph import Flags, Ints
from placewright.plan import Placement
from placewright.planners.latency.search.neighbourhood import Neighbourhood
from placewright.planners.latency.search.state import State
from placewright.problem import ROUNDING
from placewright.solvers.running import Answer, run_together

NEIGHBOURHOOD_UNITS = 0.03  # at first, of CP-SAT's deterministic time: a tenth of a second
MOST_UNITS = 2.0
MORE_EFFORT = 1.2  # after a neighbourhood in vain that was not solved to the end
FIRST_SIZE = 18.0
LEAST_SIZE, MOST_SIZE = 6.0, 400.0
GROWTH, SHRINKAGE = 1.15, 0.9
MEMORY = 0.9  # of the success of a kind, each time it is drawn
LEAST_WEIGHT = 0.1
DRAWS = 4  # for a neighbourhood that lies apart from the others solved at the same time

# -- kinds of neighbourhoods -----------------------------------------------------------------------

Chooser = Callable[[State, np.random.Generator, int, int], list[int]]
"""From a state, a critical op and a size: the ops that are to be free."""


def stretch(state: State, rng: np.random.Generator, op: int, size: int) -> list[int]:
    """Consecutive in time, on whatever devices."""
    order = state.op_order
    place = int(np.flatnonzero(order == op)[0])
    first = max(0, min(place - int(rng.integers(size)), len(order) - size))
    chosen: list[int] = order[first : first + size].tolist()
    return chosen


def module(state: State, rng: np.random.Generator, op: int, size: int) -> list[int]:
    """A stretch that begins and ends where few tensors wait to be read."""
    order, width = state.op_order, state.width
    place = int(np.flatnonzero(order == op)[0])
    first = max(0, min(place - int(rng.integers(size)), len(order) - size))
    slack = size // 2
    first = min(_narrowest(width, first, slack), len(order) - 1)
    last = max(first + 1, _narrowest(width, first + size, slack))
    chosen: list[int] = order[first:last].tolist()
    return chosen


def _narrowest(width: Ints, place: int, slack: int) -> int:
    """Where the fewest tensors cross within `slack` of a place between ops."""
    place = min(place, len(width) - 1)
    low = max(0, place - slack)
    return low + int(width[low : place + slack + 1].argmin())


def pair(state: State, rng: np.random.Generator, op: int, size: int) -> list[int]:
    """Consecutive in time on two devices, that of the op and another."""
    order = state.op_order
    other = int(rng.integers(state.problem.device_count))
    on = state.device[order]
    order = order[(on == state.device[op]) | (on == other)]
    place = int(np.flatnonzero(order == op)[0])
    first = max(0, min(place - int(rng.integers(size)), len(order) - size))
    chosen: list[int] = order[first : first + size].tolist()
    return chosen


def ball(state: State, rng: np.random.Generator, op: int, size: int) -> list[int]:
    """The ops nearest to the op in the graph."""
    return _grown(state, op, size, lambda waiting: 0, rng)


def cluster(state: State, rng: np.random.Generator, op: int, size: int) -> list[int]:
    """Connected, grown at random."""
    return _grown(state, op, size, lambda waiting: int(rng.integers(waiting)), rng)


def path(state: State, rng: np.random.Generator, op: int, size: int) -> list[int]:
    """Critical ops in a row, and their neighbours."""
    order = state.op_order
    critical = order[state.is_critical[order]]
    place = int(np.flatnonzero(critical == op)[0])
    seen: dict[int, None] = {}
    for near in range(len(critical)):
        for at in {place + near, place - near}:
            if 0 <= at < len(critical):
                one = int(critical[at])
                seen |= dict.fromkeys([one, *state.neighbours(one)])
        if len(seen) >= size:
            break
    return list(seen)[:size]


def _grown(
    state: State, op: int, size: int, pick: Callable[[int], int], rng: np.random.Generator
) -> list[int]:
    seen, waiting = {op: None}, [op]
    while waiting and len(seen) < size:
        for other in rng.permutation(state.neighbours(waiting.pop(pick(len(waiting))))).tolist():
            if other not in seen and len(seen) < size:
                seen[other] = None
                waiting.append(other)
    return list(seen)


KINDS: Mapping[str, Chooser] = {
    "stretch": stretch, "module": module, "pair": pair,
    "ball": ball, "cluster": cluster, "path": path,
}  # fmt: skip

# -- which, and how large --------------------------------------------------------------------------


@dataclass
class Kind:
    """How the neighbourhoods of a kind have done."""

    name: str
    units: float = NEIGHBOURHOOD_UNITS
    size: float = FIRST_SIZE
    success: float = 1.0

    def learn(self, gain: float, complete: bool) -> None:
        """By how much, relatively, one made the makespan shorter; whether it was solved."""
        self.success = MEMORY * self.success + (1 - MEMORY) * (1.0 if gain > 0 else 0.0)
        if complete:
            self.size = min(MOST_SIZE, self.size * GROWTH)
        elif gain <= 0:
            self.size = max(LEAST_SIZE, self.size * SHRINKAGE)
            self.units = min(MOST_UNITS, self.units * MORE_EFFORT)


@dataclass
class Try:
    """A neighbourhood to be solved with an effort, of a state that was the best then.

    `known` if it has been solved in vain before.
    """

    kind: Kind
    neighbourhood: Neighbourhood
    known: bool = False
    effort: Effort = field(default_factory=lambda: Effort(0.0))
    answer: Answer[Times] = field(default_factory=lambda: Answer(None, 0.0, complete=True))
    _model: Model | None = None
    _stopped: bool = False

    def do(self) -> None:
        """Solve it, in whatever thread."""
        self._model = None if self._stopped else self.neighbourhood.model()
        if self._model is not None and not self._stopped:
            self.answer = self._model.solve(self.effort)

    def stop(self) -> None:
        self._stopped = True
        if self._model is not None:
            self._model.stop()


class Search:
    """Neighbourhoods of the best schedule so far, `workers` of them at a time.

    >>> best = Search(state, seed=0).run(Budget(30.0)).value
    """

    def __init__(
        self, state: State, seed: int = 0, workers: int = 1, units: float = NEIGHBOURHOOD_UNITS
    ) -> None:
        self.best = state
        self.rng = np.random.default_rng(seed)
        self.workers = workers
        self.kinds = [Kind(name, units) for name in KINDS]
        self.done = 0
        self.interrupted = False
        self._failed: set[bytes] = set()
        self._last: tuple[State, Neighbourhood] | None = None  # what the best was made of, and how

    def run(
        self, budget: Budget, neighbourhoods: float = math.inf, on_progress: Progress | None = None
    ) -> State:
        """The best schedule when time or `neighbourhoods` are used up, or after Ctrl-C."""
        reporter = Reporter(budget, self.best.value if budget.start is not None else math.inf)
        while not self.interrupted and budget.left > 0 and self.done < neighbourhoods:
            if self.best.value <= 0.0:
                break
            count = int(min(self.workers, neighbourhoods - self.done))
            self._round(count, budget)
            reporter.tell(self.best.value, lambda: self.best.placement)
            if on_progress:
                share = self.done / neighbourhoods
                if 0 < budget.seconds < math.inf:
                    share = max(share, 1.0 - budget.left / budget.seconds)
                on_progress(f"neighbourhoods, {self.best.value:.6g} s", min(1.0, share))
        return self.best

    def draw(self, beside: Sequence[Try] = ()) -> Try:
        """A neighbourhood of the best schedule; apart, if soon found, from those at work."""
        for _ in range(1 + DRAWS):
            neighbourhood, kind = self._neighbourhood()
            if not any(_overlap(neighbourhood, each.neighbourhood) for each in beside):
                break
        self.done += 1
        return Try(kind, neighbourhood, known=neighbourhood.free.tobytes() in self._failed)

    def prepare(self, tried: Try, seconds: float) -> None:
        """Say with what effort it is to be solved, for so many seconds at most."""
        seed = int(self.rng.integers(1 << 30))
        tried.effort = Effort(max(seconds, 0.01), tried.kind.units, level=0, seed=seed)

    def learn(self, tried: Try) -> bool:
        """Take what came of it; whether the best schedule is shorter now."""
        before = self.best
        if tried.answer.values is not None:
            self._offer(tried.neighbourhood, tried.answer.values)
        gain = (before.value - self.best.value) / before.value
        tried.kind.learn(gain, tried.answer.complete)
        if gain > 0:
            self._last = before, tried.neighbourhood
            self._failed.clear()
        elif tried.neighbourhood.state is self.best:
            self._failed.add(tried.neighbourhood.free.tobytes())
        return gain > 0

    def take(self, state: State) -> None:
        """Go on from a shorter schedule that somebody else has found."""
        if state.value < self.best.value:
            self.best, self._last = state, None
            self._failed.clear()

    def _round(self, count: int, budget: Budget) -> None:
        tries: list[Try] = []
        for _ in range(count):
            tries.append(self.draw(tries))
        asked = [each for each in tries if not each.known]
        for each in asked:
            self.prepare(each, budget.left)

        def stop() -> None:
            for each in asked:
                each.stop()

        try:
            run_together([each.do for each in asked], max(len(asked), 1), stop)
        except KeyboardInterrupt:
            self.interrupted = True
        for each in tries:
            self.learn(each)

    def _offer(self, found: Neighbourhood, times: Times) -> None:
        """Take a solution for the best, alone or with that of another of the same schedule."""
        alone = found.put_back(times)
        candidates = [alone]
        if self._last is not None and self._last[0] is self._last[1].state is found.state:
            joined = _joined(found.state, self._last[1], self.best, found, alone)
            candidates += [joined] if joined else []
        for state in candidates:
            if state.value < self.best.value and _fits(state):
                self.best = state

    # -- drawing ---------------------------------------------------------------------------------

    def _neighbourhood(self) -> tuple[Neighbourhood, Kind]:
        weights = np.array([LEAST_WEIGHT + kind.success for kind in self.kinds])
        kind = self.kinds[int(self.rng.choice(len(weights), p=weights / weights.sum()))]
        critical = np.flatnonzero(self.best.is_critical)
        op = int(self.rng.choice(critical))
        size = max(1, int(kind.size * self.rng.uniform(0.7, 1.3)))
        ops = KINDS[kind.name](self.best, self.rng, op, size)
        return Neighbourhood(self.best, self._units(ops)), kind

    def _units(self, ops: list[int]) -> Flags:
        free = np.zeros(self.best.problem.unit_count, dtype=bool)
        free[self.best.problem.op_unit[ops]] = True
        return free


def _overlap(one: Neighbourhood, two: Neighbourhood) -> bool:
    return one.first <= two.last and two.first <= one.last


def _fits(state: State) -> bool:
    problem = state.problem
    used = np.bincount(state.device, problem.op_memory, problem.device_count)
    return bool((used <= problem.device_memory * (1 + ROUNDING)).all())


def _joined(
    present: State, one: Neighbourhood, one_state: State, two: Neighbourhood, two_state: State
) -> State | None:
    """Both of the same state, if they lie apart: up to the end of the first, then the rest.

    What is done by the end of the earlier stretch is closed under precedence in the order of the
    earlier one's solution; the rest follows in the order of the later one's.
    """
    if _overlap(one, two):
        return None
    if one.first > two.first:
        one, one_state, two, two_state = two, two_state, one, one_state
    device = np.where(one.inside, one_state.device, two_state.device).astype(np.int32)
    early = one_state.sequence[: one.last + 1]
    offset = present.problem.edge_count
    done = np.zeros(present.problem.op_count + offset, dtype=bool)
    done[early + offset] = True
    rest = two_state.sequence[~done[two_state.sequence + offset]]
    return State(present.problem, Placement(device, np.concatenate([early, rest])))
