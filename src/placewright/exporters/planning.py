"""Plans that an engine can run: the best inside its limits, and what these cost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, product
from types import MappingProxyType
from typing import Any

import numpy as np

from placewright.cluster import Cluster
from placewright.costs.roofline import CostOptions
from placewright.errors import InfeasibleError, OptionError
from placewright.exporters.engines import Engine, find_engine, limits_of
from placewright.exporters.pieces import Pieces, pieces_for
from placewright.exporters.row_costs import RowCosts, row_costs
from placewright.exporters.row_sequences import best_of_orders
from placewright.exporters.rows import Row, Stage, best_row
from placewright.exporters.stages import BlockPlan, block_plan
from placewright.graph import Graph, Ints
from placewright.importers import Imported, load
from placewright.outcome import Outcome
from placewright.plan import OPTIMAL_GAP, Placement, Plan, gap_of
from placewright.planning import DEFAULT_COSTS, Source, make_problem, plan_problem
from placewright.problem import LONG_ROUNDING, Problem
from placewright.simulate import evaluate
from placewright.solving import check_feasible
from placewright.system.references import referred
from placewright.verify import verify

PLANNER = "stages"
FREE_SECONDS = 1.0  # to look for the best plan without limits, where nothing says how long
NO_FACTS: Mapping[str, str] = MappingProxyType({})
MOST_SHIFTS = 200  # rows near the best that are timed, where costs are not exact


@dataclass(frozen=True, eq=False)
class EnginePlan:
    """The `plan` for an `engine` by blocks; `free` is the best plan found without its limits.

    None where nothing else was looked for, or found.
    """

    engine: Engine
    by_blocks: BlockPlan
    free: Plan | None

    @property
    def plan(self) -> Plan:
        return self.by_blocks.plan

    @property
    def free_value(self) -> float | None:
        """The least value known without the limits: the engine's own plan may be that."""
        return None if self.free is None else min(self.free.value, self.plan.value)


def plan_for(
    source: Source,
    cluster: Cluster | str | None,
    engine: str,
    *,
    objective: str | None = None,
    training: bool = False,
    costs: CostOptions = DEFAULT_COSTS,
    pinned: Mapping[str, str] | None = None,
    free_seconds: float = FREE_SECONDS,
    seed: int = 0,
    **options: Any,
) -> EnginePlan:
    """The best plan that `engine` can run, proved, beside the best without its limits.

    Takes what `planning.plan` does. The objective is the engine's own where none is given. For
    `free_seconds` the default planner looks for a plan without the limits; with 0 it does not.

    >>> plan_for("zoo:llama-7b", "4090+3060", "vllm").plan.status        # doctest: +SKIP
    'optimal'
    """
    row = find_engine(engine)
    objective = _objective(row, objective, training)
    problem, name = make_problem(
        imported := _imported(source, training),
        cluster,
        {**options, "objective": objective},
        training=training,
        costs=costs,
        pinned=pinned,
    )
    counted, facts = _counted(problem, imported, row)
    found = plan_row(counted, row, source=name, seed=seed, facts=facts)
    return EnginePlan(row, block_plan(found, engine), _free(problem, free_seconds, name, seed))


def _imported(source: Source, training: bool) -> Imported | Problem:
    if isinstance(source, Graph):
        return Imported(source, source=source.name)
    if isinstance(source, Imported | Problem):
        return source
    return load(source, training=training)


def _counted(
    problem: Problem, source: Imported | Problem, engine: Engine
) -> tuple[Problem, Mapping[str, str]]:
    """The problem with the engine's own count of memory, and what this took from the source."""
    if not engine.count or isinstance(source, Problem):
        return problem, {}
    found: tuple[Problem, Mapping[str, str]] = referred(engine.count)(problem, source.graph)
    return found


def _objective(engine: Engine, asked: str | None, training: bool) -> str:
    """The objective of a plan for the engine; OptionError for one that it is not about."""
    able = limits_of(engine).objectives
    if asked is not None and asked not in able:
        raise OptionError(f"plans for {engine.name} are for {' or '.join(able)}, not {asked}")
    objective = asked or able[0]
    if training and objective == "latency":
        raise OptionError(f"--for {engine.name} plans inference; leave out --training")
    return objective


def _free(problem: Problem, seconds: float, source: str, seed: int) -> Plan | None:
    if seconds <= 0:
        return None
    try:
        return plan_problem(problem, time_limit=seconds, source=source, seed=seed)
    except InfeasibleError:
        return None


def plan_row(
    problem: Problem,
    engine: Engine,
    *,
    source: str = "",
    seed: int = 0,
    facts: Mapping[str, str] = NO_FACTS,
) -> Plan:
    """The best row of stages inside the engine's limits, bounded by all such rows, and judged.

    `facts` are kept among the plan's options.
    """
    started = time.perf_counter()
    pieces = pieces_for(problem, engine)
    check_feasible(pieces.problem)
    costs = row_costs(pieces)
    row = best_row(pieces, costs)
    placement, outcome = _timed(pieces, costs, row)
    bound = row.value * (1 - LONG_ROUNDING) if costs.is_bound else 0.0
    if gap_of(outcome.value, bound) > OPTIMAL_GAP:
        if problem.options.objective == "throughput" and (found := best_of_orders(pieces, costs)):
            row, bound = found, max(bound, found.value * (1 - LONG_ROUNDING))
        placement, outcome = _best_nearby(pieces, costs, row)
    lower_bound, why = _bound(pieces.problem, min(bound, outcome.value), engine)
    copied = {"copied": ", ".join(pieces.copied)} if pieces.copied else {}
    plan = Plan(
        problem=pieces.problem,
        placement=placement,
        outcome=outcome,
        value=outcome.value,
        lower_bound=lower_bound,
        bound_source=why,
        planner=PLANNER,
        seed=seed,
        planner_options={"engine": engine.name, **copied, **facts},
        source=source,
        seconds=time.perf_counter() - started,
    )
    verify(plan).raise_if_failed()
    return plan


def _bound(problem: Problem, bound: float, engine: Engine) -> tuple[float, str]:
    """That of all rows, or of all plans that keep the pieces whole where this is higher."""
    from placewright.bounds import lower_bound

    general = lower_bound(problem)
    if general.value > bound:
        return general.value, general.source
    return bound, f"all rows of stages that {engine.name} takes"


def _timed(pieces: Pieces, costs: RowCosts, row: Row) -> tuple[Placement, Outcome]:
    placement = Placement(_devices(costs, row)[pieces.op_piece])
    return placement, evaluate(pieces.problem, placement)


def _devices(costs: RowCosts, row: Row) -> Ints:
    """`[piece]` its device: of each class the next that is not used yet."""
    left = [list(members) for members in costs.classes[1]]
    device = np.zeros(row.stages[-1][2] + 1, dtype=np.int32)
    for number, (one, begin, end) in enumerate(row.stages):
        back = row.returns and number == len(row.stages) - 1
        here = device[0] if back else left[one].pop(0)
        device[begin : end + 1] = here
    return device


def _best_nearby(pieces: Pieces, costs: RowCosts, row: Row) -> tuple[Placement, Outcome]:
    """The best of the row and of those with each cut up to one piece away, as they are timed.

    For models whose transfers overlap, where the costs of stages are not all there is.
    """
    rows = [row, *_shifted(pieces, costs, row)][:MOST_SHIFTS]
    return min((_timed(pieces, costs, each) for each in rows), key=lambda pair: pair[1].value)


def _shifted(pieces: Pieces, costs: RowCosts, row: Row) -> list[Row]:
    cuts = [first for _, first, _ in row.stages][1:]
    classes = [one for one, _, _ in row.stages]
    movable = len(cuts) - int(row.returns)
    found = []
    for moves in product((0, -1, 1), repeat=movable):
        moved = [cut + by for cut, by in zip(cuts, (*moves, 0), strict=False)]
        bounds = [0, *moved, pieces.count]
        if any(moves) and all(one < two for one, two in pairwise(bounds)):
            stages = tuple(
                (one, first, end - 1)
                for one, (first, end) in zip(classes, pairwise(bounds), strict=True)
            )
            if _fits(pieces, costs, stages, row.returns):
                found.append(replace(row, stages=stages))
    return found


def _fits(pieces: Pieces, costs: RowCosts, stages: tuple[Stage, ...], returns: bool) -> bool:
    """Whether stages are supported and within memory, and what shares weights stays together."""
    room = [pieces.problem.device_memory[members[0]] for members in costs.classes[1]]
    needed = [float(costs.memory[first, last]) for _, first, last in stages]
    if returns:
        needed[0] += needed.pop()
    return (stages[0][2] >= pieces.held or not returns) and all(
        np.isfinite(costs.seconds[one, first, last]) and memory <= room[one]
        for (one, first, last), memory in zip(stages, needed, strict=False)
    )
