"""The best contiguous split, proven: dynamic programming over ideals (Tarnawski et al. §5.1.1).

The contracted graph is made smaller where that loses no best split (`analysis.reductions`), and
`ideal_search` looks through the chains of its ideals. Where memory may be short, three graphs are
asked in turn, from the smallest: one that leaves bytes out bounds all splits, one that adds them up
where nodes were joined has only splits that fit, and the exact one closes what is left between.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from placewright.analysis.contracted import ContractedGraph, directions
from placewright.analysis.reductions.reading import Reading
from placewright.budget import Budget, Progress, no_progress
from placewright.errors import InfeasibleError, ProvedInfeasibleError
from placewright.plan import Placement
from placewright.planners.base import Proposal, whole_number
from placewright.planners.throughput.block_moves import BlockMoves
from placewright.planners.throughput.calibrated import beside_equal_shares, placed
from placewright.planners.throughput.coarse_ideals import coarse_split
from placewright.planners.throughput.ideal_search import MOST_IDEALS, Answer, Search
from placewright.planners.throughput.refitting import kinds_in, refitted
from placewright.planners.throughput.row_cuts import RowCuts, best_cuts
from placewright.planners.throughput.splits import Split
from placewright.planners.throughput.stages import StageTables, stage_tables, too_many_states
from placewright.problem import Problem
from placewright.simulate import evaluate

__all__ = ["IdealDP", "too_many_states"]

BOUND_SOURCE = "dynamic programming over ideals"
MOST_NODES = 10_000
ROWS_SECONDS, MOVES_SECONDS = 10.0, 2.0  # at most, for another start where ideals are too many


class IdealDP:
    """Exact contiguous max-load.

    Options: `ideals`, how many ideals it may look at (20 million) before it asks for lower limits,
    and what it has found and proved by these is its answer.
    """

    name: ClassVar[str] = "ideal-dp"
    objective: ClassVar[str] = "throughput"

    def __init__(self, ideals: str | int | None = None) -> None:
        self.most_ideals = (
            MOST_IDEALS if ideals is None else whole_number(self.name, "ideals", ideals)
        )

    def supports(self, problem: Problem) -> str | None:
        if problem.unit_count > MOST_NODES:  # circles may make few nodes of many units
            count = directions(problem, by_links=False)[0].node_count
            if count > MOST_NODES:
                return (
                    f"it has {count:,} nodes, more than the {MOST_NODES:,} whose linear orders "
                    "it starts from; coarsen the graph or use row-cuts"
                )
        return too_many_states(problem)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        search = Search(budget, self.most_ideals, on_progress)

        def elsewhere() -> Answer | None:
            search.take(_row_cuts(problem, budget, seed, on_progress))
            graphs = [Reading.of(graph).merged for graph in directions(problem)]
            search.take(coarse_split(search, graphs))
            return _moved(problem, search, seed)

        search.elsewhere = elsewhere
        with contextlib.suppress(KeyboardInterrupt):  # what was found so far is the answer
            look_through(search, directions(problem))
        proposal = self._proposal(search, problem)
        shared = beside_equal_shares(self, problem, proposal.placement, budget, seed, on_progress)
        return replace(proposal, placement=shared)

    def _proposal(self, search: Search, problem: Problem) -> Proposal:
        if search.best is None:
            reason = "there is no contiguous one" if search.impossible else "none that it looked at"
            other = "allow stages" if problem.options.contiguous else "try a planner of stages"
            is_proved = search.impossible and problem.options.contiguous
            raise (ProvedInfeasibleError if is_proved else InfeasibleError)(
                f"planner '{self.name}' found no split that fits the devices ({reason}); give the "
                f"devices more memory or {other} that are not contiguous"
            )
        bound = min(search.proved, search.best.value) if problem.options.contiguous else 0.0
        best = search.best
        placement = placed(best) if isinstance(best, Split) else best.placement()
        return Proposal(placement, bound, _source(search) if bound else "")


def _source(search: Search) -> str:
    """What proves the bound; where it stopped early, how far it came."""
    if search.best is None or search.proved >= search.below():
        return BOUND_SOURCE
    return f"{BOUND_SOURCE}, stopped after {search.seen:,}"


@dataclass(frozen=True)
class _Placed:
    """An answer of another planner."""

    problem: Problem
    known: Placement

    @cached_property
    def value(self) -> float:
        return evaluate(self.problem, self.known).value

    def placement(self) -> Placement:
        return self.known


def _moved(problem: Problem, search: Search, seed: int) -> Answer | None:
    """The best split so far with its nodes and blocks of nodes moved for a moment."""
    if search.best is None or search.best.placement().replicas:
        return search.best
    budget = replace(search.budget.part(MOVES_SECONDS), start=search.best.placement())
    return _Placed(problem, BlockMoves().plan(problem, budget, seed, no_progress).placement)


def look_through(search: Search, graphs: list[ContractedGraph]) -> None:
    """Search the chains of all graphs (see `contracted.directions`), each made smaller first."""
    readings = [each for each in map(_Tables, graphs) if each.exact.kinds]
    search.begin([each.merged for each in readings])
    if search.best is None:
        search.begin([each.exact for each in readings])
    search.proved = min((_prove(search, each) for each in readings), default=search.limit)


class _Tables:
    """The tables of the three graphs of a `Reading`; one and the same where memory is slack."""

    def __init__(self, graph: ContractedGraph) -> None:
        self.reading = Reading.of(graph)
        self.exact = stage_tables(self.reading.exact)
        self.is_exact = self.reading.merged is self.reading.exact
        self.merged = self.exact if self.is_exact else stage_tables(self.reading.merged)

    def light(self) -> StageTables:
        return stage_tables(self.reading.light)


def _prove(search: Search, tables: _Tables) -> float:
    """Improve the best split by those of the exact graph; none is below what this returns."""
    if tables.is_exact:
        return search.prove(tables.exact)
    lower = _prove_light(search, tables)
    if lower < search.below():
        search.prove(tables.merged, lower)
    if lower < search.below():
        lower = max(lower, search.prove(tables.exact, lower))
    return lower


def _prove_light(search: Search, tables: _Tables) -> float:
    """No split is below what this returns; the best without the bytes is taken if it fits."""
    apart = Search(
        search.budget,
        search.most_ideals,
        search.on_progress,
        elsewhere=search.better_elsewhere,
        limit=search.limit,
    )
    lower = apart.prove(tables.light())
    search.seen += apart.seen
    if isinstance(apart.best, Split):
        search.take(_with_bytes(apart.best, tables, search.limit))
    return lower


def _with_bytes(split: Split, tables: _Tables, limit: float) -> Split | None:
    """The split with the bytes that were left out, free nodes moved where they have room."""
    reading = tables.reading
    kinds = kinds_in(tables.exact, split)
    if kinds is None:
        return None
    stages = split.node_stage[reading.group]
    return refitted(tables.exact, stages, kinds, reading.joins, limit)


def _row_cuts(problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Answer | None:
    """The best cuts of orders over rows of devices, None if none fits."""
    rows = RowCuts()
    within = budget.part(ROWS_SECONDS)
    try:
        return best_cuts(problem, rows.orders, rows.rows, within, seed, on_progress)
    except InfeasibleError:
        return None
