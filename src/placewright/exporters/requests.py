"""Plans of requests that an engine can run: prefill and decode on one row of stages.

Both phases have the same pieces on the same devices, so the costs of a stage are those of prefill
and, so many times as there are tokens, those of a step of decode: one row is the best for both, and
proved to be. Several kinds of requests, by their shares, are more phases of the same. An engine
that works on several micro-batches at once, one per stage, keeps the KV cache of all of them. So
rows of at most 1, 2, … stages are looked at, with room for so many.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from placewright.analysis.offloading import fetched_bytes
from placewright.budget import Progress
from placewright.cluster import Cluster
from placewright.coarsen.blocks import find_blocks
from placewright.coarsen.granularity import together
from placewright.costs.clusters import load_cluster
from placewright.costs.roofline import CostOptions
from placewright.errors import InfeasibleError, InputError, OptionError
from placewright.exporters.caches_alike import Best
from placewright.exporters.devices import NOBODY
from placewright.exporters.engines import ENGINES, Engine, find_engine, limits_of
from placewright.exporters.loading import check_loads
from placewright.exporters.pieces import Phase, Pieces, pieces_for
from placewright.exporters.planning import (
    FREE_SECONDS,
    best_run,
    counted,
    engine_costs,
    free_plan,
    hosts_of,
    judged_run,
    objective_for,
)
from placewright.exporters.request_batches import Tried, best_batch, tried_batches
from placewright.exporters.stages import BlockPlan, block_plan
from placewright.exporters.timing import Timed
from placewright.graph import Flags, frozen
from placewright.importers import Imported
from placewright.importers.phases import Phases, load_phases, with_batch
from placewright.options import Options, check_kind, check_seconds
from placewright.plan import Plan
from placewright.planning import DEFAULT_COSTS
from placewright.problem import Problem
from placewright.serving.capacity import REQUESTS, SEQUENCES
from placewright.serving.mix import BEST, Mix, read_kinds
from placewright.serving.planning import (
    check_options,
    judged,
    make_request,
    phase_latency,
    phase_problems,
    with_its_batch,
)
from placewright.serving.served import KindPlan, ServingPlan


@dataclass(frozen=True, eq=False)
class EngineRequests:
    """What an `engine` makes of requests; `by_blocks` is of the plan of decode, which it is given.

    `served` says what the phases take; `free` is the best found without the engine's limits, None
    where nothing was looked for or found. `tried` has a line per batch where the best was asked
    for.
    """

    engine: Engine
    by_blocks: BlockPlan
    served: ServingPlan
    free: ServingPlan | None
    tried: tuple[Tried, ...] = ()

    @property
    def free_value(self) -> float | None:
        """The least value known without the limits: the engine's own may be that."""
        return None if self.free is None else min(self.free.value, self.served.value)


def plan_requests_for(
    source: str,
    cluster: Cluster | str | Path | None,
    engine: str,
    mix: Mix | Sequence[Mix] | str,
    *,
    objective: str | None = None,
    costs: CostOptions = DEFAULT_COSTS,
    pinned: Mapping[str, str] | None = None,
    free_seconds: float = FREE_SECONDS,
    seed: int = 0,
    on_progress: Progress | None = None,
    **options: Any,
) -> EngineRequests:
    """The best row of stages of an engine that serves, for requests of this `mix`, proved.

    The objective is the engine's own where none is given (see `serving.planning.plan_request`).
    The mix may be several kinds of requests (`serving.mix.read_kinds`): what is planned for is the
    mean request, with room for the longest. With ``batch=best`` in it the batch is looked for too
    (`request_batches`). `pinned` names ops of decode. For `free_seconds` a plan without the
    engine's limits is looked for, if there is one kind.

    >>> mix = "prompt=512,output=128"
    >>> found = plan_requests_for("zoo:llama-7b", "4090+3060", "vllm", mix)     # doctest: +SKIP
    >>> found.served.status                                                     # doctest: +SKIP
    'optimal'
    """
    row = find_engine(engine)
    check_kind(source, str, "source", "text such as 'zoo:gpt2'")
    check_kind(mix, (str, Mix, Sequence), "mix", "text such as 'prompt=512,output=128'")
    check_seconds(free_seconds, "free_seconds")
    kinds = read_kinds(mix) if isinstance(mix, str) else (mix,) if isinstance(mix, Mix) else mix
    objective = objective_for(row, objective, training=False)
    _check_serves(row)
    check_loads(source, row)
    given = {**options, "objective": objective}
    check_options(given)
    if isinstance(cluster, str | Path):
        cluster = load_cluster(cluster)
    if cluster is None:
        raise InputError(f"{source} has no devices of its own; name a cluster (--cluster)")
    costs = engine_costs(costs, row)
    planner = _Planner(cluster, row, tuple(kinds), given, costs, pinned or {}, seed)
    if kinds[0].batch != BEST:
        return planner.plan(with_its_batch(source, kinds[0]), free_seconds)
    tried = tried_batches(
        lambda batch: planner.plan(with_batch(source, batch), 0.0, bounded=False), on_progress
    )
    found = planner.plan(with_batch(source, best_batch(tried)), free_seconds)
    return replace(found, tried=tuple(tried[batch] for batch in sorted(tried)))


def _check_serves(engine: Engine) -> None:
    if not limits_of(engine).serves:
        able = ", ".join(name for name, row in ENGINES.items() if row.limits and row.limits.serves)
        raise OptionError(
            f"--mix with --for is for engines that serve language models ({able}), not for "
            f"{engine.name}"
        )


@dataclass(frozen=True, eq=False)
class _Model:
    """Both phases of a kind of request, each as it is alone."""

    mix: Mix
    phases: Phases
    prefill: Problem
    decode: Problem

    @property
    def tokens(self) -> float:
        """Steps of decode per request of any kind."""
        return self.mix.share * self.mix.output


def _before(models: Sequence[_Model], main: _Model) -> list[tuple[Problem, float]]:
    """What is run besides decode of the `main` kind, and how often per request."""
    others = [(each.decode, each.tokens) for each in models if each is not main]
    return [*((each.prefill, each.mix.share) for each in models), *others]


def _kind_plans(
    models: Sequence[_Model], main: _Model, timed: Timed, plan: Plan, *, bounded: bool
) -> tuple[KindPlan, ...]:
    """What each kind takes, its phases timed and judged alone; `timed` has them as `_before`."""
    alone = [
        phase_latency(run.problem, [run.placement], plan, bounded=bounded) for run in timed.runs
    ]
    first, steps = alone[: len(models)], iter(alone[len(models) : -1])
    return tuple(
        KindPlan(model.mix, prefill, alone[-1] if model is main else next(steps))
        for model, prefill in zip(models, first, strict=True)
    )


@dataclass(frozen=True)
class _Planner:
    """What does not change with the batch."""

    cluster: Cluster
    engine: Engine
    kinds: tuple[Mix, ...]
    given: Mapping[str, Any]
    costs: CostOptions
    pinned: Mapping[str, str]
    seed: int

    @property
    def options(self) -> Options:
        return check_options(self.given)

    def plan(self, source: str, free_seconds: float, *, bounded: bool = True) -> EngineRequests:
        """The best for the batch that a source has; if `bounded`, its phases have bounds too."""
        started = time.perf_counter()
        models = [self._model(source, kind) for kind in self.kinds]
        main = max(models, key=lambda model: model.mix.context)
        decode, facts = counted(main.decode, _of_request(main.phases, main.mix), self.engine)
        best, stages = self._best(models, main, decode)
        sequences = (decode.input_samples or 1) * stages
        told = {"mix": "; ".join(map(str, self.kinds)), "context": str(main.mix.context)}
        facts = {**facts, **told, SEQUENCES: str(sequences)}
        plan = judged_run(best.timed, self.engine, source, self.seed, facts)
        plan = replace(plan, seconds=time.perf_counter() - started)
        free = None
        if free_seconds > 0:
            plan = _bounded(plan)
            free = self._free(models, source, free_seconds) if len(models) == 1 else None
        value = best.timed.value
        bound = min(best.lower_bound, value)
        kinds = _kind_plans(models, main, best.timed, plan, bounded=bounded)
        served = ServingPlan(plan, kinds, value, bound, best.bound_source)
        return EngineRequests(self.engine, block_plan(plan, self.engine.name), served, free)

    def _model(self, source: str, mix: Mix) -> _Model:
        """Both phases for a kind of request."""
        phases = load_phases(source, mix.prompt, mix.output)
        for name in self.pinned:
            if name not in phases.decode.op_index:
                raise OptionError(f"cannot pin '{name}': decode has no op of that name")
        problems = phase_problems(phases, self.cluster, self.options, self.costs, self.pinned)
        return _Model(mix, phases, *problems)

    def _free(self, models: Sequence[_Model], source: str, seconds: float) -> ServingPlan | None:
        """The best found without the engine's limits; weights are held twice as it may."""
        request = make_request(
            models[0].phases,
            self.cluster,
            models[0].mix,
            self.given,
            costs=self.costs,
            pinned=self.pinned,
            copies=limits_of(self.engine).tied == "copied",
        )
        found = free_plan(request.problem, seconds, source, self.seed)
        return None if found is None else judged(request, found)

    def _best(self, models: Sequence[_Model], main: _Model, decode: Problem) -> tuple[Best, int]:
        """The best row on one of the hosts, or on all, and how many micro-batches it has room for.

        InfeasibleError where no row has room for as many as it has stages.
        """
        hosts = hosts_of(decode) if limits_of(self.engine).one_host else [decode]
        rows: list[tuple[Best, int]] = []
        failed: InfeasibleError | None = None
        for problem in hosts:
            pieces = pieces_for(problem, self.engine)
            for phase, repeats in _before(models, main):
                pieces = with_before(pieces, phase, repeats, self.engine)
            pieces = replace(pieces, repeats=main.tokens)
            for stages in self._stages(pieces):
                try:
                    rows.append((best_run(_with_room(pieces, stages), self.engine), stages))
                except InfeasibleError as error:
                    failed = failed or error  # that of the fewest says what is needed at least
        if not rows:
            assert failed is not None
            raise failed
        best, stages = min(rows, key=lambda row: row[0].timed.value)
        return replace(best, lower_bound=min(row.lower_bound for row, _ in rows)), stages

    def _stages(self, pieces: Pieces) -> Iterator[int]:
        """How many micro-batches to make room for; as many stages may there be at most."""
        if self.options.objective == "latency":
            yield 1
            return
        usable = np.isfinite(pieces.problem.op_time).any(axis=0)
        yield from range(1, min(int(usable.sum()), pieces.count) + 1)


def _bounded(plan: Plan) -> Plan:
    """The plan of decode with the bound of decode alone, of any placement."""
    from placewright.bounds import lower_bound

    least = lower_bound(plan.problem)
    value = min(least.value, plan.value)
    return replace(plan, lower_bound=value, bound_source=least.source)


def _of_request(phases: Phases, mix: Mix) -> Imported:
    """Decode with the context that a request has when it is done."""
    attributes = {**phases.decode.attributes, "context": mix.context, REQUESTS: True}
    return Imported(replace(phases.decode, attributes=attributes), source=phases.source)


def _with_room(pieces: Pieces, batches: int) -> Pieces:
    """With room for the KV cache of so many micro-batches, and so many stages at most.

    One at a time goes through any number of stages under ``latency``.
    """
    problem = pieces.problem
    if problem.options.objective == "latency":
        return pieces
    cache = problem.op_cache if problem.op_cache.size else np.zeros(problem.op_count)
    memory = problem.op_memory + (batches - 1) * cache
    problem = replace(problem, op_memory=memory, op_cache=batches * cache)
    return replace(pieces, problem=problem, most_stages=batches)


def with_before(pieces: Pieces, phase: Problem, repeats: float, engine: Engine) -> Pieces:
    """Pieces with a phase before them, `repeats` times, the ops of a block in that block's piece.

    A piece is where all its ops of every phase can run. All memory is that of the problem itself,
    which has the weights and the cache of all. OptionError where the phase has other blocks.
    """
    problem, blocks, own = pieces.problem, pieces.blocks, find_blocks(phase)
    if set(own.names) != set(blocks.names):
        apart = sorted(set(own.names) ^ set(blocks.names))
        raise OptionError(
            f"{engine.name}: prefill and decode of {phase.name} have different blocks "
            f"({', '.join(apart[:3])}, …), so no row of stages is for both; plan it without --for"
        )
    ops = np.unique(blocks.op_block, return_index=True)[1]
    piece_of = dict(zip(blocks.names, pieces.op_piece[ops].tolist(), strict=True))
    op_piece = frozen([piece_of[own.names[block]] for block in own.op_block], np.int32)
    barred = _barred(problem, pieces.op_piece, pieces.count)
    barred |= _barred(phase, op_piece, pieces.count)
    fetched = np.zeros(0) if pieces.cpu == NOBODY else fetched_bytes(phase)
    if limits_of(engine).tied == "copied":
        phase = replace(phase, colocation=np.full(phase.op_count, -1, dtype=np.int32))
    before = replace(
        together(phase, op_piece),
        op_time=np.where(barred[op_piece], np.inf, phase.op_time),
        op_memory=np.zeros(phase.op_count),
        op_cache=np.zeros(0),
    )
    time = np.where(barred[pieces.op_piece], np.inf, problem.op_time)
    return replace(
        pieces,
        problem=replace(problem, op_time=time),
        before=(*pieces.before, Phase(before, op_piece, repeats, fetched)),
    )


def _barred(problem: Problem, op_piece: Any, count: int) -> Flags:
    """`[piece, device]` whether an op of the piece does not run there."""
    found = np.zeros((count, problem.device_count), dtype=np.bool_)
    np.logical_or.at(found, op_piece, ~np.isfinite(problem.op_time))
    return found
