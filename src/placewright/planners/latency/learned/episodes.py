"""What trying placements has in common: their costs, the best plan so far, and torch by itself."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import torch

from placewright.budget import Budget, Lesson, Reporter
from placewright.formulations.latency.incumbent import fitting
from placewright.graph import Floats, Ints
from placewright.plan import Placement
from placewright.planners.latency.learned.nodes import Nodes
from placewright.problem import ROUNDING, Problem

MOMENTUM, MOMENTUM_OF_SQUARES = 0.9, 0.999


class Trial:
    """A placement problem that is tried again and again, and the best plan that came of it."""

    def __init__(
        self, problem: Problem, nodes: Nodes, start: Placement, budget: Budget, limit: float
    ) -> None:
        """At most `limit` episodes, within the budget."""
        self.problem, self.nodes, self.budget, self.limit = problem, nodes, budget, limit
        self._best = fitting(problem, [start])
        self._least = np.inf
        known = self._best.value if self._best is not None and budget.start else np.inf
        self._reporter = Reporter(budget, known)
        self._given, self._started = start, time.perf_counter()
        self.episodes = 0

    def timed(self, node_device: Ints) -> tuple[float, float]:
        """Makespan and excess memory (see `Nodes.timed`), in shares: the first of all work.

        The best placement within memory is kept.
        """
        seconds, excess = self.nodes.timed(node_device)
        if seconds < self._least and excess <= ROUNDING:
            self._least = seconds
            found = self.nodes.placement(node_device)
            self._best = fitting(self.problem, [found, Placement(found.device)], self._best)
            if self._best is not None:
                self._reporter.tell(self._best.value, lambda: self.placement)
        return seconds / self.nodes.seconds, excess

    @property
    def placement(self) -> Placement:
        """The best so far, in its own order."""
        return self._best.placement if self._best is not None else self._given

    @property
    def progress(self) -> float:
        """The share that is done: of the episodes or, if they have no limit, of the time.

        So a seed repeats what so many episodes come to, on whatever machine.
        """
        if math.isfinite(self.limit):
            return self.episodes / self.limit
        return min(1.0, 1.0 - self.budget.left / max(self.budget.seconds, 1e-9))

    def together(self, learner: Learner) -> int:
        """Episodes until the next update, so that there are no more updates than it takes."""
        expected = self.episodes / self.progress if self.progress > 0 else 0.0
        return max(learner.together, round(expected / learner.most_updates))

    def learnt(self, costs: Floats) -> None:
        """Tell of a point of the learning curve: what the latest episodes cost, in shares."""
        self.episodes += len(costs)
        seconds = costs * self.nodes.seconds
        self.budget.on_lesson(
            Lesson(
                seconds=time.perf_counter() - self._started,
                episodes=self.episodes,
                value=self._best.value if self._best is not None else None,
                mean=float(seconds.mean()),
                spread=float(seconds.std()),
            )
        )


class Learner(Protocol):
    """A policy with what it takes to try and to train it on one problem."""

    together: int
    """Episodes between two updates, at least."""
    most_updates: float
    """Where there is time for more episodes, each update has more of them."""
    sizes: dict[str, int]
    """What the policy is built from, which a saved one must share."""

    @property
    def policy(self) -> torch.nn.Module: ...

    def episodes(self, trial: Trial, count: int, learn: bool) -> Floats | None:
        """`[episode]` what they cost; None if time was up before.

        Without `learn` the policy stays as it is, and the first episode takes what it rates
        highest at each step.
        """


class Adam:
    """Gradient descent with Adam (Kingma & Ba 2015), gradients no longer than 1.

    Torch's own imports its compiler when it is made, which takes longer than a small training.
    """

    def __init__(self, policy: torch.nn.Module) -> None:
        self.weights = list(policy.parameters())
        self.mean = [torch.zeros_like(each) for each in self.weights]
        self.square = [torch.zeros_like(each) for each in self.weights]
        self.steps = 0

    def descend(self, loss: torch.Tensor, rate: float) -> None:
        gradients = torch.autograd.grad(loss, self.weights)
        length = float(torch.stack([each.square().sum() for each in gradients]).sum().sqrt())
        self.steps += 1
        fresh, fresh_square = 1 - MOMENTUM**self.steps, 1 - MOMENTUM_OF_SQUARES**self.steps
        with torch.no_grad():
            for weight, gradient, mean, square in zip(
                self.weights, gradients, self.mean, self.square, strict=True
            ):
                gradient = gradient / max(length, 1.0)
                mean.lerp_(gradient, 1 - MOMENTUM)
                square.lerp_(gradient**2, 1 - MOMENTUM_OF_SQUARES)
                weight.sub_(rate * (mean / fresh) / ((square / fresh_square).sqrt() + 1e-8))


@contextmanager
def torch_alone(seed: int) -> Iterator[None]:
    """Torch on one thread with random numbers from `seed`; afterwards all is as before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the matrices are small; and sums are the same again
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def drawn(logits: torch.Tensor, greedy_first: bool) -> torch.Tensor:
    """Actions drawn by the softmax over the last axis; `greedy_first`: the first the likeliest.

    `logits` is ``[…, episode, action]``.
    """
    noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-9, 1 - 1e-7)))
    if greedy_first:
        noise[..., 0, :] = 0.0
    return (logits + noise).argmax(-1)


def two_layers(inputs: int, width: int, outputs: int) -> torch.nn.Sequential:
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, width), torch.nn.ReLU(), torch.nn.Linear(width, outputs)
    )
