"""A path through subgraphs: the strong lower bound on invocation latency.

Take any path v_0 → … → v_{m-1} of the graph, and any plan. As subgraphs are contiguous, the ops
of the path that one subgraph S holds are neighbours on it, v_a … v_b. So the plan divides the path
into such runs and single ops on CPUs. One after another, they start when the one before has
ended: v_{a-1} is an input of S, and what v_b makes is there when S has ended. Hence

    latency  ≥  Σ_{runs} (reading + computing + writing of S)  +  Σ_{ops on CPUs} their time,

and a shortest way over the places of the path, an arc being a run or an op on a CPU, is a lower
bound if no arc is longer than what it stands for can be. For a run a … b:

- S holds all that lies between its ops, and with one subgraph per accelerator the whole units of
  its ops; this must fit the accelerator's memory, or there is no such arc;
- S holds nothing that comes before v_{a-1} or after v_{b+1} (there would be a way out and back);
- so S costs at least the *least cut* of a network in which these two sets are the source and the
  target, other ops are on either side, and what a side costs is its computing plus each tensor
  that crosses, once for writing and once for reading;
- where the least cut's S overflows the memory M, μ ≥ 0 seconds per byte are charged for what S
  keeps, and μ·M given back: a lower bound for every μ.

Together the runs keep no more than the accelerators' memory M: a run keeps at least the units
whose ops lie between its own, and each unit counts once however many runs it has ops in (shared
out over its ops; or where each accelerator has one subgraph per way, over its ways, as all its
ops of one way are then in one subgraph). So for every λ ≥ 0 seconds per byte

    latency  ≥  Σ_{runs} (its arc + λ · bytes it keeps)  +  Σ_{ops on CPUs} their time  -  λ · M,

and a shortest way with such arcs, less λ · M, is a lower bound too: the better one where the
accelerators cannot hold the model, as without it all ops of a path may be on one in turn.

An accelerator of a kind holds q subgraphs of each pass, so a way has at most q times as many runs
of a pass on that kind as there are such accelerators (`ways`).

All this holds for any *chain* of ops each of which leads to the next, whether or not there is an
edge between them. For the chain of the ops that all others lead to or depend on, what lies between
two of them is counted too, whoever holds it: if neighbours are in one subgraph, so is all between
them; if not, see `between`. Runs then pay nothing for computing what is on either side of them. As
each subgraph in which that would run at the same time is one less for runs, this is the better
bound where branches are parallel but accelerators few.

Arcs start with what surely crosses, and only those on the current shortest way get a least cut,
until there are none left to do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from placewright.analysis.comparable import cut_ops, heaviest_path, spans
from placewright.bounds.bound import Bound, nowhere
from placewright.bounds.invocation.runs import Limit, Runs
from placewright.problem import Problem

if TYPE_CHECKING:
    from placewright.budget import Budget

SOURCE = "a path through subgraphs, each with its least cut"
CHAIN_SOURCE = "a chain of subgraphs, and what lies between them"
LONGEST_PATH = 2_000
MOST_CUTS = 10_000
OP_WEIGHT = 1e-6  # of an op on a path, beside shares of what all ops take
TELL_SECONDS = 0.5  # between two bounds that somebody is told of
WEIGHTS = ((1.0, 0.1, 0.0), (1.0, 0.0, 1.0), (0.0, 0.0, 0.0), (0.2, 1.0, 0.2))
"""Of compute, memory and transfers, in shares of their totals, in the choice of a path."""


Tell = Callable[[Bound], None]


def prove(problem: Problem, budget: Budget, incumbent: float = math.inf) -> Bound:
    """`path_bound` within the budget, whose listener hears of each bound that is better.

    `incumbent`, the latency of a plan known, ends the search where nothing is left to prove.
    """
    listener = budget.listener
    return path_bound(
        problem,
        seconds=budget.left,
        target=incumbent,
        tell=lambda bound: listener.proved(min(bound.value, incumbent), bound.source),
    )


def path_bound(
    problem: Problem,
    *,
    seconds: float = math.inf,
    cuts: int = MOST_CUTS,
    paths: int = len(WEIGHTS),
    target: float = math.inf,
    tell: Tell | None = None,
) -> Bound:
    """The best over a chain and a few paths.

    Stops after so many seconds or cuts, or at a bound of `target`.
    `tell` hears of each that is better than all before. Without a limit of seconds the same
    problem has the same bound.
    """
    if none := nowhere(problem):
        return none
    limit = Limit(time.monotonic() + seconds, cuts)
    best, news = Bound(0.0, SOURCE), _News(tell)
    for bound in _bounds(problem, limit, paths):
        best = max(best, bound, key=lambda each: each.value)
        news.hear(best)
        if best.value >= target:
            break
    news.hear(best, last=True)
    return best


class _News:
    """Tells of better bounds, but not too often."""

    def __init__(self, tell: Tell | None) -> None:
        self.tell = tell
        self.told, self.since = 0.0, -math.inf

    def hear(self, bound: Bound, last: bool = False) -> None:
        if self.tell is None or bound.value <= self.told:
            return
        if last or time.monotonic() - self.since >= TELL_SECONDS:
            self.told, self.since = bound.value, time.monotonic()
            self.tell(bound)


def _bounds(problem: Problem, limit: Limit, paths: int) -> Iterator[Bound]:
    """One bound after another, of the ops that all lead to or depend on, and of paths."""
    seen: set[tuple[int, ...]] = set()
    has_subgraphs = not problem.is_cpu.all()
    for weights in WEIGHTS[:paths]:
        path = _path(problem, weights)
        if tuple(path) in seen or len(path) > LONGEST_PATH or limit.reached():
            continue
        if has_subgraphs and not seen and (chain := cut_ops(path, spans(problem, path))):
            runs = Runs(problem, chain, with_between=True)
            for value in runs.bounds(limit):
                yield Bound(value, CHAIN_SOURCE)
            if paths > 1 and not problem.is_cpu.any():
                for value in runs.bounds_by_pace(limit):
                    yield Bound(value, CHAIN_SOURCE)
        seen.add(tuple(path))
        for value in Runs(problem, path, with_between=False).bounds(limit):
            yield Bound(value, SOURCE)


def _path(problem: Problem, weights: tuple[float, float, float]) -> list[int]:
    """The heaviest path, by a mixture of compute, memory and transfers, and of ops at least."""
    compute = np.where(np.isfinite(problem.op_time), problem.op_time, np.inf).min(axis=1)
    transfers = np.zeros(problem.op_count)
    np.add.at(transfers, problem.tensor_producer, problem.tensor_bytes)
    weight = np.full(problem.op_count, OP_WEIGHT)
    for share, amount in zip(weights, (compute, problem.op_memory, transfers), strict=True):
        weight += share * amount / max(float(amount.sum()), 1e-300)
    return heaviest_path(problem, weight)
