"""Plans that an engine can run: the best inside its limits, and what these cost."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from numbers import Integral
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from placewright.cluster import Cluster
from placewright.coarsen.recompute import advised, recomputable, recomputing
from placewright.costs.clusters import load_cluster
from placewright.costs.roofline import CostOptions
from placewright.errors import InfeasibleError, OptionError, ProvedInfeasibleError
from placewright.exporters.caches_alike import Best, with_caches_alike
from placewright.exporters.devices import NOBODY
from placewright.exporters.engines import ENGINES, Engine, find_engine, limits_of
from placewright.exporters.loading import check_loads
from placewright.exporters.offloading import Found, any_helper, best_offloaded
from placewright.exporters.pieces import NO_COPIES, Pieces, pieces_for
from placewright.exporters.pipelines import BEST, best_number
from placewright.exporters.recomputing import best_recomputed
from placewright.exporters.row_costs import RowCosts, row_costs
from placewright.exporters.row_search import best_of_rows
from placewright.exporters.row_spreads import spread_rows
from placewright.exporters.rows import Row, Stage, best_row, devices_of
from placewright.exporters.sharing import UnknownCopiesError, exchanging, without_spare
from placewright.exporters.stages import UNCOUNTED, BlockPlan, block_plan
from placewright.exporters.steps import best_step, check_steps
from placewright.exporters.timing import Timed, timed_placement
from placewright.graph import Floats
from placewright.importers import Imported
from placewright.options import check_seconds, check_training
from placewright.plan import OPTIMAL_GAP, Plan, gap_of
from placewright.planning import (
    DEFAULT_COSTS,
    Source,
    check_recomputes,
    imported,
    make_problem,
    plan_problem,
)
from placewright.problem import LONG_ROUNDING, Problem
from placewright.stash import views
from placewright.system.references import referred
from placewright.units import listed
from placewright.verify import verify

PLANNER = "stages"
FREE_SECONDS = 0.5  # to look for the best plan without limits, where nothing says how long
NO_FACTS: Mapping[str, str] = MappingProxyType({})
MOST_CUTS = 6  # from the front, that are moved
MOST_SHIFTS = 25  # rows near the best that are timed, where costs are not exact


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
        """The least value known without the limits: the engine's own plan may be that.

        Without the limits a pipeline is kept full: of micro-batches the largest load counts, which
        data-parallel pipelines share.
        """
        options = self.plan.problem.options
        full = float(self.plan.device_load.max()) / options.data_parallel
        own = self.plan.value if options.micro_batches is None else full
        return None if self.free is None else min(self.free.value, own)

    @property
    def free_bound(self) -> float | None:
        """What is proved of plans without the limits, which `free` is of one pipeline of."""
        value = self.free_value
        return None if value is None or self.free is None else min(self.free.lower_bound, value)


def plan_for(
    source: Source,
    cluster: Cluster | str | Path | None,
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

    Takes what `planning.plan` does. The objective is the engine's own where none is given;
    `data_parallel` may be ``"best"``: each number that divides the micro-batches is tried. For
    `free_seconds` the default planner looks for a plan without the limits; with 0 it does not.

    >>> plan_for("zoo:llama-7b", "4090+3060", "vllm").plan.status        # doctest: +SKIP
    'optimal'
    """
    row = find_engine(engine)
    check_seconds(free_seconds, "free_seconds")
    check_training(training)
    check_recompute(costs, row)
    asked_objective = objective
    if isinstance(source, Problem):  # it says what it is about
        objective, training = source.options.objective, bool(source.is_backward.any())
    objective_for(row, objective, training)  # before a large model is read
    if not isinstance(source, Problem):
        source = imported(source, training=training)
        training = source.graph.is_training
        check_loads(source.source, row)
        _check_whole(source, row)
        asked_objective = objective = objective_for(row, objective, training)
    costs = engine_costs(costs, row)
    asked: dict[str, Any] = {"training": training, "costs": costs, "pinned": pinned}
    asked["options"] = {**options, "objective": asked_objective}
    if isinstance(cluster, str | Path):
        cluster = load_cluster(cluster)
    if options.get("data_parallel") != BEST:
        return _planned(source, cluster, row, asked, free_seconds, seed)
    count = options.get("micro_batches")
    if not isinstance(count, Integral):
        raise OptionError("data-parallel best is for steps; give --micro-batches too")

    def planned(number: int) -> EnginePlan:
        one = {**asked, "options": {**asked["options"], "data_parallel": number}}
        return _planned(source, cluster, row, one, free_seconds if number == 1 else 0.0, seed)

    return best_number(planned, int(count), _devices_of(source, cluster))


def _planned(
    source: Imported | Problem,
    cluster: Cluster | None,
    row: Engine,
    asked: Mapping[str, Any],
    free_seconds: float,
    seed: int,
) -> EnginePlan:
    """`plan_for` of what was read, `asked` as `make_problem` takes it."""
    training = asked["training"]
    if asked["costs"].recompute == "needed":
        return _plan_recomputing(source, cluster, row, asked, free_seconds, seed)
    problem, name = make_problem(source, cluster, together=True, **asked)
    check_steps(problem.options, row)
    apart = problem
    if training or free_seconds > 0:
        copies = limits_of(row).tied == "copied" and problem.options.objective == "latency"
        copying = _with_copies(source, cluster, asked) if copies else None
        apart = copying or make_problem(source, cluster, **asked)[0]
    if training:
        problem = _exchanging(problem, apart, row)
    problem, facts = counted(problem, source, row)
    parts = hosts_of(problem) if limits_of(row).one_host else [problem]
    with advised(problem, lambda: _recomputing(source, cluster, asked)):
        try:
            found = _best_of(parts, row, name, seed, facts, apart.op_copied)
        except UnknownCopiesError:  # perhaps because they have no room
            if copying := _copying(source, cluster, asked):
                copying.check_feasible()
            raise
    free = free_plan(apart, free_seconds, name, seed) if free_seconds > 0 else None
    return EnginePlan(row, block_plan(found, row.name), free)


def _devices_of(source: Imported | Problem, cluster: Cluster | None) -> int:
    """How many there are, as far as it is known."""
    if isinstance(source, Problem):
        return source.device_count
    found = cluster or source.cluster
    return found.device_count if found else 1


def _plan_recomputing(
    source: Imported | Problem,
    cluster: Cluster | None,
    engine: Engine,
    asked: Mapping[str, Any],
    free_seconds: float,
    seed: int,
) -> EnginePlan:
    """The best plan that recomputes as few blocks of each stage as must."""
    if isinstance(source, Problem):
        raise OptionError("recompute needed: a Problem has its ops already; give a graph instead")
    check_recomputes(source.graph)
    started = time.perf_counter()
    asked = {**asked, "costs": replace(asked["costs"], recompute="block")}
    whole, name = make_problem(source, cluster, together=True, recomputed=(), **asked)
    apart, _ = make_problem(source, cluster, recomputed=(), **asked)
    check_steps(whole.options, engine)
    if whole.options.data_parallel > 1:
        raise OptionError(
            "recompute needed is found for one pipeline; leave out --data-parallel, or give "
            "--recompute block"
        )
    if whole.options.micro_batches is None:
        raise OptionError(
            "recompute needed is for steps of micro-batches; give --micro-batches, or --recompute "
            "block"
        )
    is_view = views(source.graph)
    able = recomputable(whole, is_view)

    def version(names: Collection[str] | None) -> Pieces:
        one, two = (recomputing(each, is_view, names) for each in (whole, apart))
        problem, _ = counted(_exchanging(one, two, engine), source, engine)
        return pieces_for(problem, engine, two.op_copied)

    timed, bound = best_recomputed(version, able, engine)
    plan = judged_run(timed, engine, name, seed, counted(whole, source, engine)[1])
    plan = replace(
        plan,
        lower_bound=bound,
        bound_source=f"all rows of stages that {engine.name} takes, and all numbers of layers that "
        "run again",
        seconds=time.perf_counter() - started,
    )
    free = (
        free_plan(recomputing(apart, is_view), free_seconds, name, seed) if free_seconds else None
    )
    return EnginePlan(engine, block_plan(plan, engine.name), free)


def _exchanging(problem: Problem, apart: Problem, engine: Engine) -> Problem:
    """`sharing.exchanging`, of a model where blocks may be recomputed."""
    if apart.op_names != problem.op_names:
        raise OptionError(
            f"{engine.name}: with weights that layers share, the model has other blocks than "
            "without, so that it is not known which are recomputed; leave out --recompute, or "
            "untie them"
        )
    return exchanging(problem, apart) if apart.op_copied.size else problem


def _with_copies(
    source: Imported | Problem, cluster: Cluster | None, asked: Mapping[str, Any]
) -> Problem | None:
    """`_copying`, as pipelines have it by themselves; None if that cannot fit."""
    copying = _copying(source, cluster, asked)
    try:
        if copying:
            copying.check_feasible()
    except ProvedInfeasibleError:
        return None
    return copying


def _copying(
    source: Imported | Problem, cluster: Cluster | None, asked: Mapping[str, Any]
) -> Problem | None:
    """The problem where ops have a copy each of weights that they share; None if they cannot."""
    if isinstance(source, Problem) or not source.graph.may_copy:
        return None
    copying = replace(source, graph=source.graph.with_copies())
    return make_problem(copying, cluster, **asked)[0]


def _check_whole(source: Imported, engine: Engine) -> None:
    """OptionError for one phase of an encoder-decoder: an engine has both halves of the model."""
    facts = source.graph.attributes
    if "target" in facts and facts.get("phase") in ("prefill", "decode"):
        raise OptionError(
            f"{engine.name} loads encoder and decoder, and {source.source} is one phase of them; "
            "plan without phase"
        )


def _recomputing(
    source: Imported | Problem, cluster: Cluster | None, asked: Mapping[str, Any]
) -> Problem:
    """The problem with blocks recomputed."""
    costs = replace(asked["costs"], recompute="block")
    return make_problem(source, cluster, together=True, **{**asked, "costs": costs})[0]


def check_recompute(costs: CostOptions, engine: Engine) -> None:
    """OptionError for recomputation with an engine that does not recompute."""
    if costs.recompute == "none" or limits_of(engine).recomputes:
        return
    able = [name for name, row in ENGINES.items() if row.limits and row.limits.recomputes]
    raise OptionError(
        f"plans for {engine.name} do not recompute activations; leave out --recompute, or plan "
        f"--for {' or '.join(able)}"
    )


def engine_costs(costs: CostOptions, engine: Engine) -> CostOptions:
    """The costs with the kernels of the engine, where nobody says which, and its gradients."""
    limits, kernels = limits_of(engine), costs.kernels
    if kernels == "auto":
        kernels = "fused" if limits.fuses else "program"
    return replace(costs, kernels=kernels, gradients=limits.gradients)


def hosts_of(problem: Problem) -> list[Problem]:
    """The problem with the devices of one host each, where there are several."""
    labels = [problem.device_host(device) for device in range(problem.device_count)]
    names = dict.fromkeys(labels)
    if len(names) < 2:
        return [problem]
    parts = []
    for name in names:
        time = problem.op_time.copy()
        time[:, [label != name for label in labels]] = np.inf
        parts.append(replace(problem, op_time=time))
    return parts


def _best_of(
    parts: list[Problem],
    row: Engine,
    source: str,
    seed: int,
    facts: Mapping[str, str],
    copied: Floats,
) -> Plan:
    """The best plan of any part; InfeasibleError of the last where none has one."""
    plans: list[Plan] = []
    for part in parts:
        try:
            plans.append(plan_row(part, row, source=source, seed=seed, facts=facts, copied=copied))
        except InfeasibleError as error:
            failed = error
    if not plans:
        raise failed
    return min(plans, key=lambda plan: plan.value)


def counted(
    problem: Problem, source: Imported | Problem, engine: Engine
) -> tuple[Problem, Mapping[str, str]]:
    """The problem with the engine's own count of memory, and what this took from the source."""
    if isinstance(source, Problem):
        return problem, {}
    if not engine.count:
        context = source.graph.attributes.get("context")
        served = limits_of(engine).serves and problem.op_cache.size and context
        return problem, {"context": str(context)} if served else {}
    found: tuple[Problem, Mapping[str, str]] = referred(engine.count)(problem, source.graph)
    return found


def objective_for(engine: Engine, asked: str | None, training: bool) -> str:
    """The objective of a plan for the engine; OptionError for one that it is not about."""
    able = limits_of(engine).objectives
    if asked is not None and asked not in able:
        raise OptionError(f"plans for {engine.name} are for {' or '.join(able)}, not {asked}")
    objective = asked or able[0]
    if training and not limits_of(engine).schedules:
        raise OptionError(
            f"--for {engine.name} plans inference; leave out --training, or give a graph without "
            "backward ops"
        )
    return objective


def free_plan(problem: Problem, seconds: float, source: str, seed: int) -> Plan | None:
    """The best plan found in so many seconds, if any, by the default planner."""
    alone = {"processes": "1"} if seconds <= FREE_SECONDS else {}  # others take as long to start
    if problem.options.micro_batches is not None:  # a device's load is one of both passes
        full = replace(problem.options, micro_batches=None, data_parallel=1, schedule="pipedream")
        problem = replace(problem, options=full)
    try:
        return plan_problem(
            problem, planner_options=alone, time_limit=seconds, source=source, seed=seed
        )
    except InfeasibleError:
        return None


def plan_row(
    problem: Problem,
    engine: Engine,
    *,
    source: str = "",
    seed: int = 0,
    facts: Mapping[str, str] = NO_FACTS,
    copied: Floats = NO_COPIES,
) -> Plan:
    """The best row of stages inside the engine's limits, bounded by all such rows, and judged.

    `facts` are kept among the plan's options; `copied` is that of `pieces_for`.
    """
    started = time.perf_counter()
    pieces = pieces_for(problem, engine, copied)
    best = best_run(pieces, engine)
    plan = judged_run(best.timed, engine, source, seed, {**facts, **_uncounted(problem, pieces)})
    return replace(
        plan,
        lower_bound=best.lower_bound,
        bound_source=best.bound_source,
        seconds=time.perf_counter() - started,
    )


def _uncounted(problem: Problem, pieces: Pieces) -> dict[str, str]:
    """What a plan says of weights in memory that the cluster does not name."""
    ops = np.flatnonzero(pieces.uncounted & (problem.op_memory > 0)).tolist()
    return {UNCOUNTED: listed([problem.op_names[op] for op in ops])} if ops else {}


def best_run(pieces: Pieces, engine: Engine) -> Best:
    """The best row of stages of these pieces; InfeasibleError where none fits."""
    best = _best_run(pieces, engine)
    if limits_of(engine).caches_alike:
        best = with_caches_alike(pieces, best, partial(_best_run, engine=engine))
    return best


def _best_run(pieces: Pieces, engine: Engine) -> Best:
    if pieces.problem.options.micro_batches is None:
        timed, bound = _best_timed(pieces)
    else:
        timed, bound = best_step(pieces, engine)
    return Best(timed, *_bound(pieces, timed, min(bound, timed.value), engine))


def judged_run(
    timed: Timed, engine: Engine, source: str, seed: int, facts: Mapping[str, str]
) -> Plan:
    """The plan of what is run of the problem itself, without a bound."""
    own = timed.own
    plan = Plan(
        problem=own.problem,
        placement=own.placement,
        outcome=own.outcome,
        value=own.outcome.value,
        lower_bound=0.0,
        bound_source="none was looked for",
        planner=PLANNER,
        seed=seed,
        planner_options={"engine": engine.name, **timed.told, **facts},
        source=source,
    )
    verify(plan).raise_if_failed()
    return plan


def _best_timed(pieces: Pieces) -> tuple[Timed, float]:
    """The best row as it is timed, and what every row takes at least."""
    found = _best_found(pieces)
    timed = _timed(found, found.row)
    bound = found.row.value * (1 - LONG_ROUNDING) if found.costs.is_bound else 0.0
    if gap_of(timed.value, bound) > OPTIMAL_GAP:
        found, timed, bound = _of_rows(found, timed, bound)
    if gap_of(timed.value, bound) > OPTIMAL_GAP:
        timed = _best_nearby(found, timed, pieces)
    return timed, bound


def _best_found(pieces: Pieces) -> Found:
    """The best row; InfeasibleError where none fits, with the weights in a CPU's memory or not."""
    plain: Found | None = None
    try:
        together = np.zeros(pieces.count, dtype=np.int32)
        without_spare(pieces.problem, pieces.shared, together)[0].check_feasible()
        costs = row_costs(pieces)
        plain = Found(pieces, costs, best_row(pieces, costs))
    except ProvedInfeasibleError as error:
        failed = error
    found = best_offloaded(pieces, plain)
    if found is None:
        raise failed
    return found


def _of_rows(found: Found, timed: Timed, bound: float) -> tuple[Found, Timed, float]:
    """With the best row below it, for a pipeline: over ways that differ, or from one to many."""
    if found.pieces.problem.options.objective != "throughput":
        return found, timed, bound
    row, is_whole = best_of_rows(found.pieces, found.costs, timed.value)
    if row is not None:
        found = replace(found, row=row)
        timed = _timed(found, row)
    if is_whole:
        bound = max(bound, timed.value * (1 - LONG_ROUNDING))
    return found, timed, bound


def _bound(pieces: Pieces, timed: Timed, bound: float, engine: Engine) -> tuple[float, str]:
    """That of all rows, or of all plans that keep the pieces whole where this is higher."""
    from placewright.bounds import lower_bound

    why = f"all rows of stages that {engine.name} takes"
    if pieces.problem.options.data_parallel > 1:
        why += ", on groups of devices that are alike"
    if gap_of(timed.value, bound) <= OPTIMAL_GAP:
        return bound, why
    general: list[tuple[float, str]] = []
    for run, phase in zip(timed.runs, pieces.phases, strict=True):
        problem = run.problem if pieces.cpu == NOBODY else any_helper(phase.problem, pieces.cpu)
        least = lower_bound(problem)
        general.append((run.repeats * least.value, least.source))
    one_by_one = pieces.problem.options.objective == "latency"
    value = (sum if one_by_one else max)(each for each, _ in general)
    return (value, max(general)[1]) if value > bound else (bound, why)


def _timed(found: Found, row: Row) -> Timed:
    device = devices_of(found.costs.classes, row)
    return timed_placement(found.pieces, device, found.helper)


def _best_nearby(found: Found, timed: Timed, pieces: Pieces) -> Timed:
    """The best of the row that was `timed`, of equal stages, and of these with cuts a piece away.

    As they are timed: for models whose ops and transfers overlap, where the costs of stages are not
    all there is. `pieces` are those where nothing waits on a CPU.
    """
    candidates = [(timed, found)]
    if not found.row.returns:
        costs = found.costs if found.helper == NOBODY else row_costs(pieces)
        lead = found.row.stages[0] if found.helper == NOBODY else None
        for row in spread_rows(pieces, costs, lead):
            if _fits(pieces, costs, row.stages, row.returns):
                spread = Found(pieces, costs, row)
                candidates.append((_timed(spread, row), spread))
    best, found = min(candidates, key=lambda pair: pair[0].value)
    nearby = _shifted(found.pieces, found.costs, found.row)[:MOST_SHIFTS]
    return min([best, *_timed_if_fit(found, nearby)], key=lambda timed: timed.value)


def _timed_if_fit(found: Found, rows: Sequence[Row]) -> Iterator[Timed]:
    """Those that fit: what a GPU keeps free for weights that it fetches depends on the row."""
    for row in rows:
        with suppress(InfeasibleError):
            yield _timed(found, row)


def _shifted(pieces: Pieces, costs: RowCosts, row: Row) -> list[Row]:
    cuts = [first for _, first, _ in row.stages][1:]
    classes = [one for one, _, _ in row.stages]
    movable = len(cuts) - int(row.returns)
    found = []
    still = [0] * (len(cuts) - min(movable, MOST_CUTS))
    every = product((0, -1, 1), repeat=min(movable, MOST_CUTS))
    for moves in sorted(every, key=np.count_nonzero):  # of one cut first
        moved = [cut + by for cut, by in zip(cuts, (*moves, *still), strict=True)]
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
    if any(first > last for _, first, last in stages):
        return False
    room = [pieces.problem.device_memory[members[0]] for members in costs.classes[1]]
    needed = [float(costs.memory[first, last]) for _, first, last in stages]
    if returns:
        needed[0] += needed.pop()
    if len(stages) > pieces.most_stages:
        return False
    return (stages[0][2] >= pieces.held or not returns) and all(
        np.isfinite(costs.seconds[one, first, last]) and memory <= room[one]
        for (one, first, last), memory in zip(stages, needed, strict=False)
    )
