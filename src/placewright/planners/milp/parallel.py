"""Many small problems solved exactly, in this process or in several.

Every problem is solved by itself in one thread, so what comes out does not depend on how many
processes there are, unless time runs out.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from types import ModuleType, TracebackType
from typing import Any

import numpy as np

from placewright.bounds.latency import lower_bound
from placewright.errors import InfeasibleError
from placewright.plan import Placement
from placewright.planners.base import Budget, no_progress
from placewright.planners.milp.incumbent import Incumbent, first_incumbent, timed
from placewright.planners.milp.solver import OutOfTimeError
from placewright.planners.milp.subproblem import ConstraintProgram, Subproblem
from placewright.problem import Problem

PROVED = 1e-5
"""Relative difference of value and bound at which a module needs no more time."""

# CP-SAT without a linear relaxation is by far the fastest where it ends at all, with one it
# proves more where it does not: linearisation level and how much of its own, repeatable time
# (0.1 is about half a second).
TURNS = ((0, 0.2), (1, 0.2), (0, 4.0), (1, np.inf))
QUICK_TURNS = TURNS[:2]
QUICK_SECONDS = 1.0  # of the solvers that count no time of their own

PATIENCE = 3.0  # seconds of solving here before workers, which take as long to start, are worth it
HARD_OPS = 30  # or at once, for several modules of so many ops
HARD_SECONDS = 2.0
GRACE_SECONDS = 5.0  # for workers that should have ended by themselves


@dataclass(frozen=True)
class Method:
    """How a small problem is solved: `solver`, a limit on its `nodes` (or conflicts), `seed`."""

    solver: str = "cp-sat"
    nodes: int | None = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Answer:
    """The best placement found with its sequence, or None; its value; a bound on every plan."""

    placement: Placement | None
    value: float
    lower_bound: float

    @property
    def is_proved(self) -> bool:
        return self.value - self.lower_bound <= PROVED * self.value


# -- one problem -----------------------------------------------------------------------------------


def solve_exactly(problem: Problem, seconds: float, method: Method, quick: bool = False) -> Answer:
    """The optimum, or what is found and proved of it within so many seconds.

    `quick`: a few seconds at most, counted in CP-SAT's own time so that it is repeatable.
    Without a placement where none was found; the bound is never above the optimum.
    """
    limit = Budget(seconds)
    simple = lower_bound(problem).value
    if not np.isfinite(simple):
        return Answer(None, np.inf, 0.0)
    best, bound = None, 0.0
    try:
        if method.solver == "cp-sat":
            best, bound = _by_constraints(problem, simple, limit, method, quick)
        else:
            best, bound = _by_program(problem, limit, method, quick)
    except (InfeasibleError, OutOfTimeError):
        pass
    if best is None:
        return Answer(None, np.inf, max(simple, bound))
    return Answer(best.placement, best.value, min(max(simple, bound), best.value))


def _by_constraints(
    problem: Problem, simple: float, limit: Budget, method: Method, quick: bool
) -> tuple[Incumbent | None, float]:
    best, _ = first_incumbent(problem, method.seed, None, limit)
    bound = simple
    if best is not None and best.value - bound <= PROVED * best.value:
        return best, bound
    program = ConstraintProgram(problem, best)
    for level, effort in QUICK_TURNS if quick else TURNS:
        if limit.left <= 0:
            break
        found = program.solve(limit.left, level, method.seed, method.nodes or 0, effort)
        bound = max(bound, found.lower_bound)
        if found.placement is not None:
            best = shortest(problem, best, found.placement)
        if best is not None and best.value - bound <= PROVED * best.value:
            break
    return best, bound


def _by_program(
    problem: Problem, limit: Budget, method: Method, quick: bool
) -> tuple[Incumbent | None, float]:
    from placewright.planners.milp.diviml import DivimlMilp
    from placewright.planners.milp.moirai import MoiraiMilp

    # DiviML's program where it holds, it is the smaller one; else Moirai's.
    planner = DivimlMilp if problem.options.contention == "none" else MoiraiMilp
    nodes = str(method.nodes) if method.nodes else ""
    exact = planner(solver=method.solver, nodes=nodes)
    left = Budget(max(0.0, min(limit.left, QUICK_SECONDS if quick else np.inf)))
    proposal = exact.plan(problem, left, method.seed, no_progress)
    return timed(problem, proposal.placement), proposal.lower_bound


def shortest(problem: Problem, incumbent: Incumbent | None, found: Placement) -> Incumbent:
    """The shortest of the incumbent, a placement in its own order, and that listed anew."""
    candidates = [timed(problem, found), timed(problem, Placement(found.device))]
    return min([incumbent, *candidates] if incumbent else candidates, key=lambda each: each.value)


# -- many ------------------------------------------------------------------------------------------


class Solvers:
    """Solves subproblems, equal ones once, in worker processes if there is enough to do.

    Workers start when `PATIENCE` is exhausted, or at once for several hard modules, and stay for
    later rounds. They end with the `with` block, on Ctrl-C, and when this process ends in
    whatever way. If one is killed, the rest is solved in this process, with a warning.
    """

    def __init__(self, method: Method, processes: int | None = None) -> None:
        self.method = method
        self.processes = processes or os.cpu_count() or 1
        self.known: dict[tuple[bytes, ...], tuple[float, Answer]] = {}
        self.spent = 0.0
        self.solved = 0
        self._pool: _Pool | None = None
        if multiprocessing.current_process().daemon:  # such a process may have no children
            self.processes = 1

    def __enter__(self) -> Solvers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool:
            self._pool.end()
            self._pool = None

    def solve(
        self, subs: Sequence[Subproblem], seconds: float, limit: Budget, quick: bool = False
    ) -> list[Answer]:
        """Each for at most `seconds`, all within `limit`, which they share fairly."""
        keys = [sub.key() for sub in subs]
        waiting = {
            key: sub.problem
            for key, sub in zip(keys, subs, strict=True)
            if not self._is_known(key, seconds)
        }
        if waiting:
            answers = self._solve(list(waiting.values()), seconds, limit, quick)
            for key, (given, answer) in zip(waiting, answers, strict=True):
                self._learn(key, given, answer)
        return [self.known[key][1] for key in keys]

    def _is_known(self, key: tuple[bytes, ...], seconds: float) -> bool:
        known = self.known.get(key)
        return known is not None and (known[1].is_proved or known[0] >= seconds)

    def _learn(self, key: tuple[bytes, ...], given: float, answer: Answer) -> None:
        if key in self.known:
            before = self.known[key][1]
            best = min(answer, before, key=lambda each: each.value)
            bound = max(answer.lower_bound, before.lower_bound)
            answer = Answer(best.placement, best.value, min(bound, best.value))
        self.known[key] = given, answer

    def _solve(
        self, problems: list[Problem], seconds: float, limit: Budget, quick: bool
    ) -> list[tuple[float, Answer]]:
        """With each answer the seconds that its problem was given."""
        answers: dict[int, tuple[float, Answer]] = {}
        self.solved += len(problems)
        for number, problem in enumerate(problems):
            rest = [each for each in range(number, len(problems)) if each not in answers]
            if self._is_worth_it([problems[each] for each in rest], seconds):
                left = {each: problems[each] for each in rest}
                answers |= self._in_workers(left, seconds, limit, quick)
            if number not in answers:
                share = min(seconds, max(limit.left, 0.0) / max(len(rest), 1))
                started = time.monotonic()
                answers[number] = share, solve_exactly(problem, share, self.method, quick)
                self.spent += time.monotonic() - started
        return [answers[number] for number in range(len(problems))]

    def _is_worth_it(self, problems: list[Problem], seconds: float) -> bool:
        if self.processes < 2 or len(problems) < 2:
            return False
        hard = sum(problem.op_count >= HARD_OPS for problem in problems)
        return (
            self._pool is not None
            or self.spent >= PATIENCE
            or (hard >= 2 and seconds >= HARD_SECONDS)
        )

    def _in_workers(
        self, problems: dict[int, Problem], seconds: float, limit: Budget, quick: bool
    ) -> dict[int, tuple[float, Answer]]:
        """What workers have solved; without those that a killed worker left undone."""
        share = min(seconds, max(limit.left, 0.0) * self.processes / len(problems))
        if self._pool is None:
            self._pool = _Pool(self.processes)
        try:
            done = self._pool.run(problems, share, limit.left, self.method, quick)
        except KeyboardInterrupt:
            self._pool.kill()
            self._pool = None
            raise
        except BrokenProcessPool:
            self._pool.kill()
            self._pool, self.processes = None, 1
            warnings.warn(
                "planner 'milp-split': a worker process was killed (out of memory?); the rest is "
                "solved in this process",
                RuntimeWarning,
                stacklevel=2,
            )
            return {}
        if len(done) < len(problems):  # a solver that does not heed its time limit
            self._pool.kill()
            self._pool = None
        nothing = Answer(None, np.inf, 0.0)
        return {number: (share, done.get(number, nothing)) for number in problems}


# -- workers ---------------------------------------------------------------------------------------


class _Context(SpawnContext):
    """Remembers the processes it started."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[Any] = []

    def Process(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]  # noqa: N802
        process = SpawnContext.Process(*args, **kwargs)
        self.started.append(process)
        return process


class _Pool:
    """Worker processes that do not mind Ctrl-C: who started them ends them."""

    def __init__(self, processes: int) -> None:
        self.context = _Context()
        self.executor = ProcessPoolExecutor(processes, self.context, initializer=_begin)

    def run(
        self,
        problems: dict[int, Problem],
        seconds: float,
        left: float,
        method: Method,
        quick: bool,
    ) -> dict[int, Answer]:
        """The answers that came in time. BrokenProcessPool if a worker was killed."""
        deadline = time.time() + left
        with _quiet_start():
            futures: dict[Future[Answer], int] = {
                self.executor.submit(_work, problem, seconds, deadline, method, quick): number
                for number, problem in problems.items()
            }
        done, _ = wait(futures, timeout=min(left + GRACE_SECONDS, threading.TIMEOUT_MAX))
        return {futures[future]: future.result() for future in done}

    def end(self) -> None:
        self.executor.shutdown(wait=True, cancel_futures=True)

    def kill(self) -> None:
        for process in self.context.started:
            process.kill()
        self.executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _quiet_start() -> Iterator[None]:
    """Workers that start in here neither run the caller's script again nor hear Ctrl-C.

    A spawned process imports the main module of its parent, which does all of a script's work
    once more if that has no ``if __name__ == "__main__"``. Ours need nothing of it.
    """
    main = sys.modules["__main__"]
    blocked = _block_interrupt()
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _block_interrupt() -> Any:
    if not hasattr(signal, "pthread_sigmask"):
        return None
    return signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _begin() -> None:
    """In a worker: leave Ctrl-C to the parent, and end when it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(problem: Problem, seconds: float, deadline: float, method: Method, quick: bool) -> Answer:
    return solve_exactly(problem, max(0.0, min(seconds, deadline - time.time())), method, quick)
