"""The planners `hrl` and `placeto`: train a policy on the problem, keep the best placement seen."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, ClassVar

from placewright.budget import Budget, Progress
from placewright.errors import MissingExtraError, OptionError
from placewright.formats.files import check_writable
from placewright.graph import Ints
from placewright.plan import Placement
from placewright.planners.base import LatencyPlanner, MemoryAccount, Proposal, count_option
from placewright.planners.latency.construct.simple import fastest_first
from placewright.planners.latency.learned.nodes import Nodes
from placewright.problem import Problem

if TYPE_CHECKING:
    from placewright.planners.latency.learned.episodes import Learner, Trial

UNTRAINED = 16
"""Placements that a policy is asked for where it is not to be trained."""
GROUPS_PER_DEVICE, NODES_PER_GROUP = 20, 8
LEAST_GROUPS, MOST_GROUPS = 8, 256


class _Learned(LatencyPlanner, ABC):
    """What the two have in common.

    Starts from the budget's start, or from the fastest device while it has room, then the next.

    Options: `episodes`: placements tried, 0 for `UNTRAINED` without training; `policy`: a file to
    go on from; `save`: a file for the policy when training ends; `nodes`: the units of a larger
    graph are joined to about so many.
    """

    name: ClassVar[str]
    most_nodes: ClassVar[int]
    most_episodes: ClassVar[int]
    """Where neither their number nor a time limit is given."""

    def __init__(
        self, episodes: str = "", policy: str = "", save: str = "", nodes: str = ""
    ) -> None:
        self.trains = episodes != "0"
        self.limit = count_option(self.name, "episodes", episodes) if self.trains else UNTRAINED
        self.policy = Path(policy) if policy else None
        self.save = Path(save) if save else None
        self.nodes = count_option(self.name, "nodes", nodes) or self.most_nodes

    @abstractmethod
    def learner(self, nodes: Nodes, start: Ints) -> Learner:
        """A policy as it is before training; `start[node]` is a placement."""

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        _check_torch(self.name)
        if self.save is not None:
            check_writable(self.save)
        start = budget.start or self._start(problem)
        if not _imported_within(budget.left) and self.policy is None and self.save is None:
            return Proposal(start)
        from placewright.planners.latency.learned import episodes, policies

        nodes = Nodes(problem, self.nodes)
        limit = self.limit or (self.most_episodes if math.isinf(budget.seconds) else math.inf)
        trial = episodes.Trial(problem, nodes, start, budget, limit)
        with episodes.torch_alone(seed):
            learner = self.learner(nodes, nodes.start(start))
            if self.policy is not None:
                policies.read_policy(self.policy, learner.policy, self.name, learner.sizes)
            with contextlib.suppress(KeyboardInterrupt):  # what was found so far is the answer
                self._try(learner, trial, on_progress)
            if self.save is not None:
                policies.write_policy(self.save, learner.policy, self.name, learner.sizes)
        return Proposal(trial.placement)

    def _try(self, learner: Learner, trial: Trial, on_progress: Progress) -> None:
        """Episodes until there are enough of them or time is up."""
        while trial.episodes < trial.limit and trial.nodes.has_choice:
            on_progress(self.name, trial.progress)
            count = int(min(trial.together(learner), trial.limit - trial.episodes))
            costs = learner.episodes(trial, count, self.trains)
            if costs is None:
                return
            trial.learnt(costs)

    def _start(self, problem: Problem) -> Placement:
        account = MemoryAccount(problem, self.name)
        devices = fastest_first(problem)
        for unit in range(problem.unit_count):
            account.place_first(unit, devices)
        return account.placement()


class Placeto(_Learned):
    """A policy that revises one node's device at a time (Addanki et al. 2019; see `revising`).

    Options: see `_Learned`.
    """

    name: ClassVar[str] = "placeto"
    most_nodes: ClassVar[int] = 64
    most_episodes: ClassVar[int] = 1600

    def learner(self, nodes: Nodes, start: Ints) -> Learner:
        from placewright.planners.latency.learned.revising import Revising

        return Revising(nodes, start)


class Hrl(_Learned):
    """A grouper and a placer (Mirhoseini et al. 2018; see `hierarchical`).

    Options: `groups` (an eighth as many as nodes, at most 20 a device and 256, as in the authors'
    program), and see `_Learned`.
    """

    name: ClassVar[str] = "hrl"
    most_nodes: ClassVar[int] = 1000
    most_episodes: ClassVar[int] = 12_800

    def __init__(self, groups: str = "", **options: str) -> None:
        super().__init__(**options)
        self.groups = count_option(self.name, "groups", groups)
        if self.groups is not None and self.groups > MOST_GROUPS:
            raise OptionError(f"planner 'hrl': groups is {groups}; give {MOST_GROUPS} at most")

    def learner(self, nodes: Nodes, start: Ints) -> Learner:
        from placewright.planners.latency.learned.hierarchical import Hierarchical

        return Hierarchical(nodes, self.groups or self._groups(nodes))

    def _groups(self, nodes: Nodes) -> int:
        """As many as the policy to go on from has, or as suit the nodes."""
        if self.policy is not None:
            from placewright.planners.latency.learned.policies import saved_size

            return saved_size(self.policy, "groups", MOST_GROUPS, self.name)
        few = max(LEAST_GROUPS, nodes.count // NODES_PER_GROUP)
        return min(MOST_GROUPS, GROUPS_PER_DEVICE * nodes.devices, few)


def _check_torch(planner: str) -> None:
    """MissingExtraError unless all that training needs is installed."""
    if find_spec("torch") is None or find_spec("safetensors") is None:
        raise MissingExtraError("torch", f"planner '{planner}'")


def _imported_within(seconds: float) -> bool:
    """Whether torch is imported in so many seconds; if not, that goes on and nobody waits."""
    thread = Thread(target=_import_torch, daemon=True)
    thread.start()
    thread.join(None if math.isinf(seconds) else max(seconds, 0.0))
    return not thread.is_alive()


def _import_torch() -> None:
    with contextlib.suppress(Exception):  # who uses it next is told
        import_module("torch")
