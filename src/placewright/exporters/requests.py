"""Plans of requests that an engine can run: prefill and decode on one row of stages.

Both phases have the same pieces on the same devices, so the costs of a stage are those of prefill
and, so many times as there are tokens, those of a step of decode: one row is the best for both, and
proved to be. An engine that works on several micro-batches at once, one per stage, keeps the KV
cache of all of them. So rows of at most 1, 2, … stages are looked at, with room for so many.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
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
from placewright.exporters.devices import NOBODY
from placewright.exporters.engines import ENGINES, Engine, find_engine, limits_of
from placewright.exporters.pieces import Phase, Pieces, pieces_for
from placewright.exporters.planning import (
    FREE_SECONDS,
    Best,
    best_run,
    counted,
    free_plan,
    hosts_of,
    judged_run,
    objective_for,
)
from placewright.exporters.request_batches import Tried, best_batch, tried_batches
from placewright.exporters.stages import BlockPlan, block_plan
from placewright.graph import Flags, frozen
from placewright.importers import Imported
from placewright.importers.phases import Phases, load_phases, with_batch
from placewright.options import Options
from placewright.plan import Plan
from placewright.planning import DEFAULT_COSTS
from placewright.problem import Problem
from placewright.serving.capacity import SEQUENCES
from placewright.serving.mix import BEST, Mix, read_mix
from placewright.serving.planning import (
    ServingPlan,
    check_options,
    judged,
    make_request,
    phase_latency,
    phase_problems,
    with_its_batch,
)
from placewright.serving.request import Request


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
    mix: Mix | str,
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
    With ``batch=best`` in the mix the batch is looked for too (`request_batches`). `pinned` names
    ops of decode. For `free_seconds` a plan without the engine's limits is looked for.

    >>> mix = "prompt=512,output=128"
    >>> found = plan_requests_for("zoo:llama-7b", "4090+3060", "vllm", mix)     # doctest: +SKIP
    >>> found.served.status                                                     # doctest: +SKIP
    'optimal'
    """
    row, mix = find_engine(engine), read_mix(mix) if isinstance(mix, str) else mix
    objective = objective_for(row, objective, training=False)
    _check_serves(row)
    given = {**options, "objective": objective}
    check_options(given)
    if isinstance(cluster, str | Path):
        cluster = load_cluster(cluster)
    if cluster is None:
        raise InputError(f"{source} has no devices of its own; name a cluster (--cluster)")
    planner = _Planner(cluster, row, mix, given, costs, pinned or {}, seed)
    if mix.batch != BEST:
        return planner.plan(with_its_batch(source, mix), free_seconds)
    tried = tried_batches(lambda batch: planner.plan(with_batch(source, batch), 0.0), on_progress)
    found = planner.plan(with_batch(source, best_batch(tried)), free_seconds)
    return replace(found, tried=tuple(tried[batch] for batch in sorted(tried)))


def _check_serves(engine: Engine) -> None:
    if not limits_of(engine).serves:
        able = ", ".join(name for name, row in ENGINES.items() if row.limits and row.limits.serves)
        raise OptionError(
            f"--mix with --for is for engines that serve language models ({able}), not for "
            f"{engine.name}"
        )


@dataclass(frozen=True)
class _Planner:
    """What does not change with the batch."""

    cluster: Cluster
    engine: Engine
    mix: Mix
    given: Mapping[str, Any]
    costs: CostOptions
    pinned: Mapping[str, str]
    seed: int

    @property
    def options(self) -> Options:
        return check_options(self.given)

    def plan(self, source: str, free_seconds: float) -> EngineRequests:
        """The best for the batch that a source has."""
        started = time.perf_counter()
        phases = load_phases(source, self.mix.prompt, self.mix.output)
        self._check_pins(phases)
        prefill, alone = phase_problems(phases, self.cluster, self.options, self.costs, self.pinned)
        decode, facts = counted(alone, _of_request(phases, self.mix), self.engine)
        best, stages = self._best(prefill, decode)
        sequences = (decode.input_samples or 1) * stages
        facts = {**facts, "mix": str(self.mix), "context": str(self.mix.context)}
        facts[SEQUENCES] = str(sequences)
        plan = judged_run(best.timed, self.engine, source, self.seed, facts)
        plan = replace(plan, seconds=time.perf_counter() - started)
        first, step = (phase_latency(run.problem, [run.placement], plan) for run in best.timed.runs)
        value = best.timed.value
        free = None
        if free_seconds > 0:
            plan = _bounded(plan)
            request = self._request(phases)
            found = free_plan(request.problem, free_seconds, source, self.seed)
            free = None if found is None else judged(request, found)
        bound = min(best.lower_bound, value)
        served = ServingPlan(plan, first, step, self.mix, value, bound, best.bound_source)
        return EngineRequests(self.engine, block_plan(plan, self.engine.name), served, free)

    def _request(self, phases: Phases) -> Request:
        """The request without the engine's limits; weights are held twice as it may."""
        copied = limits_of(self.engine).tied == "copied"
        return make_request(
            phases, self.cluster, self.mix, self.given, costs=self.costs, pinned=self.pinned,
            copies=copied,
        )  # fmt: skip

    def _check_pins(self, phases: Phases) -> None:
        for name in self.pinned:
            if name not in phases.decode.op_index:
                raise OptionError(f"cannot pin '{name}': decode has no op of that name")

    def _best(self, prefill: Problem, decode: Problem) -> tuple[Best, int]:
        """The best row on one of the hosts, or on all, and how many micro-batches it has room for.

        InfeasibleError where no row has room for as many as it has stages.
        """
        hosts = hosts_of(decode) if limits_of(self.engine).one_host else [decode]
        rows: list[tuple[Best, int]] = []
        failed: InfeasibleError | None = None
        for problem in hosts:
            pieces = with_prefill(pieces_for(problem, self.engine), prefill, self.engine)
            pieces = replace(pieces, repeats=float(self.mix.output))
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
    attributes = {**phases.decode.attributes, "context": mix.context}
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


def with_prefill(pieces: Pieces, prefill: Problem, engine: Engine) -> Pieces:
    """Pieces of decode with `prefill` before it, the ops of a block in the piece of that block.

    A piece is where all its ops of both phases can run. All memory is that of decode, which has the
    weights and the cache of both. OptionError where the phases have different blocks.
    """
    problem, blocks, own = pieces.problem, pieces.blocks, find_blocks(prefill)
    if set(own.names) != set(blocks.names):
        apart = sorted(set(own.names) ^ set(blocks.names))
        raise OptionError(
            f"{engine.name}: prefill and decode of {prefill.name} have different blocks "
            f"({', '.join(apart[:3])}, …), so no row of stages is for both; plan it without --for"
        )
    ops = np.unique(blocks.op_block, return_index=True)[1]
    piece_of = dict(zip(blocks.names, pieces.op_piece[ops].tolist(), strict=True))
    op_piece = frozen([piece_of[own.names[block]] for block in own.op_block], np.int32)
    barred = _barred(problem, pieces.op_piece, pieces.count)
    barred |= _barred(prefill, op_piece, pieces.count)
    if limits_of(engine).tied == "copied":
        prefill = replace(prefill, colocation=np.full(prefill.op_count, -1, dtype=np.int32))
    before = replace(
        together(prefill, op_piece),
        op_time=np.where(barred[op_piece], np.inf, prefill.op_time),
        op_memory=np.zeros(prefill.op_count),
        op_cache=np.zeros(0),
    )
    fetched = np.zeros(0) if pieces.cpu == NOBODY else fetched_bytes(prefill)
    return replace(
        pieces,
        problem=replace(
            problem, op_time=np.where(barred[pieces.op_piece], np.inf, problem.op_time)
        ),
        before=(Phase(before, op_piece, 1.0, fetched),),
    )


def _barred(problem: Problem, op_piece: Any, count: int) -> Flags:
    """`[piece, device]` whether an op of the piece does not run there."""
    found = np.zeros((count, problem.device_count), dtype=np.bool_)
    np.logical_or.at(found, op_piece, ~np.isfinite(problem.op_time))
    return found
