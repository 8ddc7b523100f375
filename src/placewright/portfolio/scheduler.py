"""Whose turn it is: which member a worker that is idle is given, and for how long."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from placewright.portfolio.incumbent import Incumbent
from placewright.portfolio.members import Member
from placewright.portfolio.searchers import Searchers
from placewright.portfolio.work import Task
from placewright.problem import Problem

SLICES = 8  # of the time that is left, for one turn of a search
LONGEST_SLICE = 10.0
OPS_PER_SECOND = 1_250  # of a turn on a large graph, no shorter
# Of the time of the searches, for constructive members that take time; of what is left, for one.
CONSTRUCTING = 0.25
INSTANT_SECONDS = 2.0  # that the first of them may take anyway
# Of the time that is left, for a member that may decide a small problem; and the most of it.
DECIDING, DECIDING_SECONDS = 0.4, 2.0
MEANWHILE_SECONDS = 0.4  # of a search while workers start
LEAST_SECONDS = 0.2  # less is not worth a turn
TOO_SHORT = 0.25  # of its turn: too little to say what a search is worth
WORKERS_PER_PROVER = 4
# Of the time left, the most of a prover that holds up the search; and of one that comes first.
PROVING_ALONE, LEADING_ALONE = 0.3, 0.5


class Scheduler:
    """The first constructive members and who may decide, then provers beside the searches.

    One prover at a time for every four workers; one that uses all cores waits for those that
    construct.

    A member that works on several cores (`Member.cores`) comes before both. It is for problems
    that it is by far the best for, so the sooner it has them all the better: what it finds others
    would have to find anew, and what it proves of a part it must know to the end to go on. Provers
    may work beside it, if it leaves cores; on a single one they take turns with the searches.

    Where those that construct have found no plan, a prover that can say that there is none comes
    first.

    A search is asked the more often the more its turns gained. Nothing here depends on the clock
    in a run counted in iterations, so that it repeats: each turn counts as a second.
    """

    def __init__(self, members: Iterable[Member], seed: int, in_iterations: bool) -> None:
        members = list(members)
        self.constructive = deque(each for each in members if each.role == "construct")
        self.deciders = deque(each for each in members if each.role == "decide")
        self.provers = deque(each for each in members if each.role == "prove")
        self.searchers = Searchers(each for each in members if each.role == "search")
        self.seed, self.in_iterations = seed, in_iterations
        self.proving: set[int] = set()  # tasks, but for those that lead
        self.leading: set[int] = set()  # tasks of members that can work on several cores
        self.constructing = 0
        self.cut_short: set[int] = set()  # searches that had no time to get going
        self.cores: dict[int, float] = {}  # that each task under way works on, by its number
        self.spent = {"construct": 0.0, "decide": 0.0, "search": 0.0, "prove": 0.0}
        self.number = 0

    @property
    def waiting(self) -> int:
        """How many members have had no turn yet, of those that have one each."""
        return len(self.constructive) + len(self.deciders) + len(self.provers)

    def instant(self, incumbent: Incumbent, left: float) -> Task | None:
        """The next member that is done at once."""
        if self.constructive and self.constructive[0].is_instant(incumbent.problem):
            return self._construct(incumbent, left)
        return None

    def deciding(self, incumbent: Incumbent, left: float) -> Task | None:
        """The next member that may decide a small problem before there are workers."""
        if not self.deciders or left < LEAST_SECONDS:
            return None
        seconds = min(DECIDING_SECONDS, DECIDING * left)
        return self._task(self.deciders.popleft(), incumbent, seconds)

    def next(
        self, incumbent: Incumbent, left: float, workers: int, widest: int | None = None
    ) -> Task | None:
        """What one of `workers` that is idle is to do; None if there is nothing (in time).

        `widest`, how many cores one task may work on (None: those of all the workers).
        """
        if left < LEAST_SECONDS or self._is_taken(workers):
            return None
        if incumbent.placement is None and not self.constructive:
            self.provers = deque(sorted(self.provers, key=lambda each: not each.decides))
        if self._may_lead():
            return self._lead(incumbent, left, workers, widest or workers)
        if self.constructive and (incumbent.placement is None or self._may_construct()):
            return self._construct(incumbent, left)
        if self.provers and self._may_prove(workers) and not self._must_wait(self.provers[0]):
            member = self.provers.popleft()
            share = member.share if workers > 1 else min(member.share, PROVING_ALONE)
            if incumbent.placement is None and member.decides:
                share = 1.0  # nobody else has found anything to go on from
            task = self._task(member, incumbent, left * share, math.inf if member.alone else 1)
            self.proving.add(task.number)
            return task
        return self._search(incumbent, left, min(left / SLICES, LONGEST_SLICE))

    def meanwhile(self, incumbent: Incumbent, left: float) -> Task | None:
        """A short search for this process while workers start, where there is a plan to better."""
        if incumbent.placement is None or left < LEAST_SECONDS:
            return None
        return self._search(incumbent, min(left, MEANWHILE_SECONDS), 0.0)

    def _search(self, incumbent: Incumbent, left: float, slice_: float) -> Task | None:
        """The search with most merit, for `slice_` seconds or longer where it needs that."""

        def seconds(member: Member) -> float:
            return max(slice_, _shortest_slice(member, incumbent.problem))

        found = self.searchers.begin(left, seconds)
        if found is None:
            return None
        chosen, turn = found
        task = self._task(chosen, incumbent, min(turn, left))
        if left < TOO_SHORT * turn:
            self.cut_short.add(task.number)
        return task

    def learn(self, task: Task, gain: float, seconds: float, useless: bool) -> None:
        """What became of a task: its `gain`, as a share of the value; who is `useless` is left out.

        A search that gained nothing for want of time has not had its turn. What the first of all
        gains from a simple plan any other would have gained too, so it says nothing of its worth.
        """
        member = task.member
        first_gain = gain > 0 and member.role == "search" and not self.spent["search"]
        self.spent[member.role] += seconds
        self.proving.discard(task.number)
        self.leading.discard(task.number)
        if member.role == "construct":
            self.constructing -= 1
        self.cores.pop(task.number, None)
        had_time = gain > 0 or task.number not in self.cut_short
        counted = 1.0 if self.in_iterations else seconds
        self.searchers.end(member, gain, counted if had_time and not first_gain else 0.0)
        if useless:
            self.searchers.drop(member)

    @property
    def members(self) -> list[Member]:
        """Those that have had no turn yet, and the searches."""
        return [*self.constructive, *self.deciders, *self.searchers.members, *self.provers]

    def _construct(self, incumbent: Incumbent, left: float) -> Task:
        self.constructing += 1
        if incumbent.placement is not None:
            left = max(CONSTRUCTING * left, LEAST_SECONDS)
        return self._task(self.constructive.popleft(), incumbent, left)

    def _may_construct(self) -> bool:
        """All of them first in a run that repeats; else one at a time, and not for long."""
        if self.in_iterations or not self.searchers:
            return True
        allowed = CONSTRUCTING * self.spent["search"]
        return self.constructing == 0 and self.spent["construct"] <= max(allowed, INSTANT_SECONDS)

    def _may_prove(self, workers: int) -> bool:
        if self._beside_leaders(workers) <= 1:
            return self.spent["prove"] <= self.spent["search"] or not self.searchers
        return len(self.proving) < max(1, workers // WORKERS_PER_PROVER)

    def _beside_leaders(self, workers: int) -> float:
        """Of so many workers' cores, those that no member has that leads."""
        return workers - sum(self.cores[number] for number in self.leading)

    def _must_wait(self, prover: Member) -> bool:
        """Constructive members, still to be asked, would have no core beside it."""
        return prover.alone and self.constructing > 0

    def _may_lead(self) -> bool:
        return bool(self.provers and self.provers[0].cores) and not self.in_iterations

    def _lead(self, incumbent: Incumbent, left: float, workers: int, widest: int) -> Task:
        member = self.provers.popleft()
        cores = max(1, min(member.most_cores, int(member.core_share * widest)))
        share = member.share if max(workers, widest) > 1 else min(member.share, LEADING_ALONE)
        task = self._task(member, incumbent, left * share, cores)
        task.options[member.cores] = str(cores)
        self.leading.add(task.number)
        return task

    def _is_taken(self, workers: int) -> bool:
        """Whether the tasks under way have all the cores, whoever is idle beside them."""
        return not self.in_iterations and sum(self.cores.values()) >= workers

    def _task(self, member: Member, incumbent: Incumbent, seconds: float, cores: float = 1) -> Task:
        options = dict(member.options)
        if self.in_iterations:
            options |= member.effort or {}
            seconds = math.inf
        self.number += 1
        self.cores[self.number] = cores
        seed = self.seed + 1_000_003 * (self.number - 1)
        return Task(
            self.number, member, options, seconds, seed, incumbent.placement, incumbent.value
        )


def _shortest_slice(member: Member, problem: Problem) -> float:
    """A search on a large graph has to get going; on few of its equal blocks it does at once."""
    if "repeats" in member.coarsening or member.coarsening == "units":
        return member.shortest
    return max(member.shortest, problem.op_count / OPS_PER_SECOND)
