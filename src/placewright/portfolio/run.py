"""One run of a portfolio: members take turns, the best plan and bound of all are kept."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock, current_thread, main_thread

import numpy as np

from placewright.errors import ProvedInfeasibleError, VerificationError
from placewright.kernels import compiling
from placewright.plan import History, Placement, Plan, gap_of
from placewright.portfolio.checkpoint import Checkpoint
from placewright.portfolio.events import Event, Kind
from placewright.portfolio.incumbent import Incumbent
from placewright.portfolio.limits import Limits
from placewright.portfolio.members import SMALL, Member, members_for
from placewright.portfolio.scheduler import Scheduler
from placewright.portfolio.settings import Settings
from placewright.portfolio.warm_up import warm_up
from placewright.portfolio.work import Ended, Found, Message, Proved, Task
from placewright.portfolio.workers import Alone, Processes, Workers, expect_processes
from placewright.problem import Problem
from placewright.solving import no_plan
from placewright.system.interrupts import Interrupts
from placewright.system.ray_connection import RayCluster
from placewright.units import format_seconds, listed

ROUND = 2
"""Tasks of one iteration. A constant: the number of workers must not change the plan."""

SHORT_SECONDS = 4.0
"""A run that takes no longer than workers take to start is done in this process."""

GRACE = 0.3
"""Seconds that members that are done at once have whatever the time limit: the first of them is
seldom the best, and the bound before them may have taken all the time."""

AT_ONCE = 0.3
"""Seconds within which most small problems are solved, so that nothing is prepared for workers."""

MOST_MEANWHILE = 30_000
"""Ops of a graph that a short search in this process does something for."""

COMPILING_SECONDS = 20.0
"""After which a run on a machine that is new to it begins with the members that are ready."""

LISTENING = 0.1  # seconds between two looks at the clock
LAST_WORDS = 0.3  # seconds that workers get to tell what they have when time is up
MOST_ENTRIES = 40_000_000
"""Ops × devices of a problem that worker processes may each have a copy of."""


class Run:
    """What happens between the first look at a problem and the last; see `go`."""

    def __init__(
        self,
        problem: Problem,
        limits: Limits,
        settings: Settings,
        interrupts: Interrupts,
        cluster: RayCluster | None = None,
    ) -> None:
        self.problem, self.limits, self.settings = problem, limits, settings
        self.interrupts, self.cluster = interrupts, cluster
        cores = cluster.cpus if cluster else os.cpu_count()
        self.processes = settings.processes or cores or 1
        self.checkpoint = Checkpoint(settings.checkpoint)
        in_iterations = limits.iterations is not None
        members = members_for(problem, in_iterations)
        cold = [] if in_iterations else self._warm_up(members)
        settings.on_progress("a first bound", 0.0)
        with compiling() as compiled:
            self.started = time.monotonic()
            self.incumbent = Incumbent(problem, settings.origin)
        self.started += compiled()
        ready = [each for each in members if each not in cold]
        self.scheduler = Scheduler(ready, settings.origin.seed, in_iterations)
        self.seconds = math.nan
        self.running: dict[int, _Turn] = {}
        self.lost = 0  # workers
        self.hearing = Lock()
        self.told: list[Event] = []  # of plans and bounds
        self.refusals: dict[str, str] = {}
        self.why_infeasible = ""
        if cold:
            self._tell("absence", "auto", _left_out(cold))

    # -- the outline -----------------------------------------------------------------------------

    def go(self, start: Placement | None) -> None:
        """Who is done at once or decides here, then all the others at work until a limit."""
        try:
            if start is not None:
                self._take(Found(start), "the plan to start from", fatal=True)
            self._instant_members()
            self._decide()
            if not self._is_over:
                with self._at_work() as workers:
                    if self.limits.iterations is None:
                        self._until_time_is_up(workers)
                    else:
                        self._in_rounds(workers, self.limits.iterations)
        except ChildProcessError as error:
            self._tell("failure", "auto", str(error))
        except KeyboardInterrupt:
            self.interrupts.came = True
        self.seconds = time.monotonic() - self.started
        if self._has_plan:
            self._tell("end", self._why_it_ends())

    def _instant_members(self) -> None:
        """Without a plan all of them are asked, whatever the time limit; else for a moment."""
        alone = Alone(self.problem)
        until = time.monotonic() + GRACE
        while not self._is_finished and (
            self.left > 0 or not self._has_plan or time.monotonic() < until
        ):
            if self._has_processes and time.monotonic() - self.started > AT_ONCE:
                expect_processes()
            task = self.scheduler.instant(self.incumbent, self.left)
            if task is None:
                return
            self._do_here(alone, task)

    def _decide(self) -> None:
        """A small problem is mostly decided in less time than workers take to start."""
        alone = Alone(self.problem, self._hear_at_once)
        while not self._is_over:
            task = self.scheduler.deciding(self.incumbent, self.left)
            if task is None:
                return
            self._do_here(alone, task)

    def _do_here(self, alone: Alone, task: Task) -> None:
        with self._interruptible():
            self._begin(alone, 0, task)
        self._listen(alone, 0.0)

    def _warm_up(self, members: list[Member]) -> list[Member]:
        """What is compiled takes none of the run's time; who could not be in time."""
        objective = self.problem.options.objective
        with self._interruptible():
            cold = warm_up(objective, members, self._warming, COMPILING_SECONDS, self.processes)
        if self.interrupts.came:
            raise KeyboardInterrupt
        return cold

    def _warming(self, stage: str, share: float) -> None:
        """A compiler may lose the exception of an interrupt: the next look finds that it came."""
        if self.interrupts.came:
            raise KeyboardInterrupt
        self.settings.on_progress(stage, share)

    def _meanwhile(self, workers: Workers) -> None:
        """Search here until a worker has started."""
        if not isinstance(workers, Processes) or self.problem.op_count > MOST_MEANWHILE:
            return
        alone = Alone(self.problem, self._hear_at_once)
        while not self._is_over and not workers.idle():
            task = self.scheduler.meanwhile(self.incumbent, self.left)
            if task is None:
                return
            self._do_here(alone, task)
            self._listen(workers, 0.0)

    def _until_time_is_up(self, workers: Workers) -> None:
        self._meanwhile(workers)
        alone = isinstance(workers, Alone)
        # Threads of this process have the cores that there are no workers for; on a cluster
        # the workers may all be on different machines.
        widest = self.processes if alone else 1 if self.cluster else None
        while not self._is_over:
            idle = workers.idle()
            for worker in idle:
                count = 1 if alone else self.processes - self.lost
                task = self.scheduler.next(self.incumbent, self.left, count, widest)
                if task is not None:
                    with self._interruptible(alone):
                        self._begin(workers, worker, task)
            if idle and not self.running:  # nobody has anything to do, or time to begin it
                return
            self._listen(workers, min(LISTENING, self.left))
        if self.running and not self._is_finished:
            self._last_words(workers)

    def _last_words(self, workers: Workers) -> None:
        deadline = time.monotonic() + LAST_WORDS
        while self.running and time.monotonic() < deadline and not self._is_finished:
            self._listen(workers, deadline - time.monotonic())

    def _in_rounds(self, workers: Workers, iterations: int) -> None:
        """Tasks in rounds; what comes of a round counts in the order of its tasks.

        The members that construct are a round of their own, which does not count.
        """
        for number in range(iterations + 1):
            if self._is_over:
                return
            tasks = deque(
                task
                for _ in range(ROUND if number else len(self.scheduler.constructive))
                if (task := self.scheduler.next(self.incumbent, math.inf, ROUND))
            )
            if not tasks and number:
                return
            heard: dict[int, list[Message]] = {task.number: [] for task in tasks}
            self._do_round(workers, tasks, heard)
            if self.interrupts.came or self.left <= 0:
                return
            for turn in [self.running.pop(key) for key in sorted(self.running)]:
                for message in heard[turn.task.number]:
                    self._hear(turn, message)
            self.checkpoint.tick(self.incumbent)

    def _do_round(
        self, workers: Workers, tasks: deque[Task], heard: dict[int, list[Message]]
    ) -> None:
        """`running` has the turns of the round by their tasks' numbers afterwards."""
        doing: dict[int, Task] = {}
        while (tasks or doing) and not self.interrupts.came and self.left > 0:
            for worker in workers.idle():
                if tasks and worker not in doing:
                    doing[worker] = task = tasks.popleft()
                    self.running[task.number] = _Turn(task)
                    with self._interruptible(isinstance(workers, Alone)):
                        workers.give(worker, task)
            for worker, message in workers.hear(LISTENING):
                if worker in doing:
                    heard[doing[worker].number].append(message)
                    if isinstance(message, Ended):
                        del doing[worker]
            self._tell_progress()

    # -- tasks and what is heard of them ---------------------------------------------------------

    def _begin(self, workers: Workers, worker: int, task: Task) -> None:
        self.running[worker] = _Turn(task)
        self._tell_progress()
        workers.give(worker, task)

    def _listen(self, workers: Workers, seconds: float) -> None:
        for worker, message in workers.hear(seconds):
            self.lost += isinstance(message, Ended) and message.lost
            turn = self.running.get(worker)
            if turn is None:  # the end of a worker that had no task
                continue
            if isinstance(message, Ended):
                del self.running[worker]
            self._hear(turn, message)
        self.checkpoint.tick(self.incumbent)
        self._tell_progress()

    def _hear(self, turn: _Turn, message: Message) -> None:
        member = turn.task.member
        if not isinstance(message, Ended):
            before = self.incumbent.value
            self._take(message, member.title)
            turn.gain += self._saved(before)
            return
        if message.error:
            self._tell("failure", member.title, message.error)
        if message.refusal:
            self.refusals[member.title] = message.refusal
        if message.infeasible:
            self.why_infeasible = message.refusal
        useless = bool(message.refusal or (message.error and not message.lost))
        self.scheduler.learn(turn.task, turn.gain, time.monotonic() - turn.started, useless)

    def _hear_at_once(self, message: Message) -> None:
        """What a member that works in this process tells, perhaps from a thread of its own.

        An interrupt must not part what is done here; the member hears of it afterwards.
        """
        here = current_thread() is main_thread()
        with self.hearing:
            self.interrupts.raising &= not here
            (turn,) = self.running.values()
            self._hear(turn, message)
            self.checkpoint.tick(self.incumbent)
            self._tell_progress()
            self.interrupts.raising |= here
        if here and self.interrupts.came:
            raise KeyboardInterrupt

    def _saved(self, before: float) -> float:
        """The share of the value `before` that is saved now; all of it by a first plan."""
        if math.isinf(before):
            return float(self._has_plan)
        return gap_of(before, self.incumbent.value)

    def _take(self, message: Found | Proved, source: str, fatal: bool = False) -> None:
        """Keep and tell what is found or proved, if it is news; what is wrong is said and left."""
        try:
            if isinstance(message, Found):
                better = self.incumbent.offer(message.placement, source)
            else:
                better = self.incumbent.prove(message.lower_bound, message.source)
        except VerificationError as error:
            if fatal:
                raise
            self._tell("failure", source, str(error))
            return
        if better:
            self._tell("plan" if isinstance(message, Found) else "bound", source)

    # -- the end ---------------------------------------------------------------------------------

    @property
    def left(self) -> float:
        return self.limits.seconds - (time.monotonic() - self.started)

    @property
    def _is_finished(self) -> bool:
        done = self.incumbent.gap <= self.limits.gap or bool(self.why_infeasible)
        return self.interrupts.came or done

    @property
    def _has_plan(self) -> bool:
        return self.incumbent.placement is not None

    @property
    def _is_over(self) -> bool:
        return self._is_finished or self.left <= 0

    def plan(self) -> Plan:
        """The best plan; InfeasibleError, or KeyboardInterrupt, if there is none."""
        plan = self.incumbent.plan(self.seconds)
        if plan is not None:
            return replace(plan, history=self._history())
        if self.why_infeasible:
            raise ProvedInfeasibleError(self.why_infeasible)
        if self.interrupts.came:
            raise KeyboardInterrupt
        raise no_plan(self.refusals)

    def _why_it_ends(self) -> str:
        if self.interrupts.came:
            return "interrupted"
        if self.incumbent.gap <= self.limits.gap:
            return "proved"
        return "time limit" if self.left <= 0 else "iterations"

    # -- around it -------------------------------------------------------------------------------

    @contextmanager
    def _at_work(self) -> Iterator[Workers]:
        workers = self._new_workers()
        try:
            yield workers
        finally:
            workers.end()

    def _new_workers(self) -> Workers:
        listener = self._hear_at_once if self.limits.iterations is None else None
        if self._has_processes:
            return Processes(self.problem, self.processes)
        if self.cluster is None or self.limits.seconds <= SHORT_SECONDS:
            return Alone(self.problem, listener)
        from placewright.portfolio.ray_workers import RayWorkers

        return RayWorkers(self.problem, self.processes)

    @property
    def _has_processes(self) -> bool:
        """Whether worker processes on this machine do the tasks."""
        if self.cluster is not None or self.processes == 1:
            return False
        entries = self.problem.op_count * self.problem.device_count
        rounds_are_short = self.limits.iterations is not None and entries <= SMALL
        is_short = self.limits.seconds <= SHORT_SECONDS
        return not (is_short or entries > MOST_ENTRIES or rounds_are_short)

    @contextmanager
    def _interruptible(self, here: bool = True) -> Iterator[None]:
        """Work that is done in this process hears of Ctrl-C by an exception, as it does alone."""
        self.interrupts.raising = here
        try:
            yield
        finally:
            self.interrupts.raising = False

    def _tell(self, kind: Kind, source: str, message: str = "") -> None:
        seconds = max(time.monotonic() - self.started, 0.0)
        value = self.incumbent.value if math.isfinite(self.incumbent.value) else None
        bound = self.incumbent.bound.value
        bound = bound if value is None else min(bound, value)
        event = Event(kind, seconds, value, bound, source, message)
        if kind in ("plan", "bound", "end"):
            self.told.append(event)
        self.settings.observer(event)

    def _history(self) -> History | None:
        """What was told of plans and bounds; None of a run that counts, for its plans are equal."""
        if self.limits.iterations is not None or not self.told:
            return None
        rows = [
            (each.seconds, math.inf if each.value is None else each.value, each.lower_bound)
            for each in self.told
        ]
        seconds, value, bound = np.array(rows).T
        return History(np.maximum.accumulate(seconds), value, bound).thinned()

    def _tell_progress(self) -> None:
        seconds = self.limits.seconds
        share = 1 - self.left / seconds if 0 < seconds < math.inf else 0.0
        self.settings.on_progress(self._state(), min(1.0, max(0.0, share)))

    def _state(self) -> str:
        """The best plan and bound so far; on a second line who is at work, and how many wait."""
        best = self.incumbent
        bound = f"bound {format_seconds(best.bound.value)}"
        if best.placement is None:
            first = f"no plan yet, {bound}"
        else:
            first = f"{format_seconds(best.value)} ({best.found_by}), {bound}, gap {best.gap:.2%}"
        at_work = dict.fromkeys(turn.task.member.title for turn in self.running.values())
        second = [f"at work: {listed(list(at_work))}"] if at_work else []
        if self.scheduler.waiting:
            second.append(f"{self.scheduler.waiting} to come")
        return "\n".join(filter(None, (first, "; ".join(second))))


class _Turn:
    """A task under way."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.started = time.monotonic()
        self.gain = 0.0  # as a share of the value


def _left_out(cold: list[Member]) -> str:
    names = ", ".join(dict.fromkeys(each.title for each in cold))
    return (
        f"planner 'auto' does without {names} this time: their kernels are not compiled yet. Each "
        "run goes on compiling; 'placewright warm-up' does all of it at once"
    )
