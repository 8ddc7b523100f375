"""Local search with restarts (baseline of Tarnawski et al. 2020, §6)."""

from __future__ import annotations

import contextlib
from typing import ClassVar

import numpy as np

from placewright.analysis.contracted import ContractedGraph, unit_graph
from placewright.budget import Budget, Progress
from placewright.errors import OptionError
from placewright.graph import Ints
from placewright.kernels.throughput.descent import descend
from placewright.kernels.throughput.loads import Loads, value
from placewright.planners.base import MemoryAccount, NoRoomError, Proposal
from placewright.planners.throughput.baselines import NOT_CONTIGUOUS
from placewright.planners.throughput.reporting import PipelineReporter, start_units
from placewright.problem import Problem

CHUNK = 2_000_000  # moves tried between two looks at the clock


class LocalSearch:
    """From a random split, the best move of one unit to another device until none helps.

    Ten restarts, and the best of all; the first from the budget's start, if it has one. Its splits
    are hardly ever contiguous.

    Options: `restarts`; `iterations`, moves tried in all.
    """

    name: ClassVar[str] = "local-search"
    objective: ClassVar[str] = "throughput"

    def __init__(self, restarts: str | int = 10, iterations: str | int | None = None) -> None:
        self.restarts = _count("restarts", restarts)
        self.iterations = None if iterations is None else _count("iterations", iterations)

    def supports(self, problem: Problem) -> str | None:
        return NOT_CONTIGUOUS if problem.options.contiguous else None

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        graph = unit_graph(problem)
        movable = np.flatnonzero(graph.allowed.sum(axis=1) > 1).astype(np.int32)
        rng = np.random.default_rng(seed)
        left: float = float("inf") if self.iterations is None else self.iterations
        best = start_units(problem, budget)
        reporter = PipelineReporter(problem, budget)
        least = reporter.value
        with contextlib.suppress(KeyboardInterrupt):  # the best so far is the answer
            for restart in range(self.restarts):
                on_progress("local search", restart / self.restarts)
                if best is not None and (budget.left <= 0 or left <= 0):
                    break
                start = best if restart == 0 else None
                if start is None:
                    start = random_units(problem, rng, self.name)
                state = graph.loads(start)
                left -= _descended(graph, state, movable, left, budget)
                if value(state) < least:
                    least = float(value(state))
                    best = state.node_device.copy()
                    reporter.found(best, least)
        if best is None:
            raise KeyboardInterrupt
        return Proposal(reporter.answer(best, least))


def random_units(problem: Problem, rng: np.random.Generator, planner: str) -> Ints:
    """`[unit]` a random accelerator with room, else a CPU; the units with most memory first."""
    account = MemoryAccount(problem, planner)
    order = rng.permutation(problem.unit_count)
    order = order[np.argsort(-problem.unit_memory[order], kind="stable")]
    for unit in order.tolist():
        try:
            devices = rng.permutation(problem.device_count)
            devices = devices[np.argsort(problem.is_cpu[devices], kind="stable")]
            account.place_first(unit, devices.astype(np.int32))
        except NoRoomError:
            return _tightly(problem, planner)
    return account.unit_device


def _tightly(problem: Problem, planner: str) -> Ints:
    """Where chance leaves no room: the largest unit first, where most is free."""
    account = MemoryAccount(problem, planner)
    for unit in np.argsort(-problem.unit_memory, kind="stable").tolist():
        account.place_first(unit, np.argsort(-account.free, kind="stable").astype(np.int32))
    return account.unit_device


def _descended(
    graph: ContractedGraph, state: Loads, movable: Ints, most: float, budget: Budget
) -> int:
    """Descend in `state`; how many moves were tried."""
    total = 0
    while True:
        tried = int(descend(graph.arrays, state, movable, min(CHUNK, most - total)))
        total += tried if tried >= 0 else -1 - tried
        if tried >= 0 or budget.left <= 0 or total >= most:
            return total


def _count(option: str, text: str | int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise OptionError(
            f"planner 'local-search': {option} is {text}; give a whole number of at least 1"
        )
    return number
