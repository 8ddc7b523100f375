"""From a source and a mix to one verified plan for both phases, and what each phase takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from placewright.cluster import Cluster
from placewright.costs.clusters import load_cluster
from placewright.costs.roofline import CostOptions, build_problem
from placewright.errors import InputError, OptionError, ProvedInfeasibleError, VerificationError
from placewright.importers.phases import Phases, load_phases, with_batch, with_copies
from placewright.options import Options, check_kind, check_mapping, chosen_options
from placewright.outcome import Schedule
from placewright.plan import Placement, Plan
from placewright.planning import DEFAULT_COSTS, plan_problem
from placewright.problem import LONG_ROUNDING, Problem
from placewright.serving.mix import Mix, read_mix
from placewright.serving.request import Request, request_of
from placewright.serving.served import KindPlan, ServingPlan
from placewright.serving.value import Repeated, joint_value
from placewright.solving import Comparison, best_of, compare
from placewright.verify import verify

SERVED = ("latency", "throughput")


def plan_request(
    source: str,
    cluster: Cluster | str | Path | None,
    mix: Mix | str,
    *,
    objective: str | None = None,
    costs: CostOptions = DEFAULT_COSTS,
    pinned: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    **search: Any,
) -> ServingPlan:
    """Plan prefill and decode of ``zoo:…`` or ``hf:…`` together, for requests of this `mix`.

    Objective ``latency`` minimises the seconds of a request, prefill and then a step of decode per
    token of the output; ``throughput`` the largest load of a device per request, and so maximises
    the tokens per second of a pipeline. `options` are other fields of `Options`; `search` goes
    to `planning.plan_problem`. `pinned` names ops as either phase does.

    Raises InputError for what cannot be used, InfeasibleError where no plan can exist or the
    planner found none.

    >>> served = plan_request("zoo:gpt2?layers=2", "2x3090", "prompt=64,output=8", planner="heft")
    >>> served.seconds_per_request == served.prefill.value + 8 * served.decode.value
    True
    """
    check_kind(source, str, "source", "text such as 'zoo:gpt2'")
    check_kind(mix, (str, Mix), "mix", "text such as 'prompt=512,output=128'")
    check_mapping(options, "options", "{'contention': 'port'}")
    given = {**(options or {}), "objective": objective or (options or {}).get("objective")}
    mix = read_mix(mix) if isinstance(mix, str) else mix
    source = with_its_batch(source, mix)
    request = _asked(source, cluster, mix, given, costs, pinned)
    plan = plan_problem(request.problem, source=f"{source} --mix {request.mix}", **search)
    return judged(request, plan)


@dataclass(frozen=True)
class RequestComparison(Comparison):
    """One planner's line in a comparison, with what requests come to by its plan."""

    served: ServingPlan | None = None


def compare_requests(
    source: str,
    cluster: Cluster | str | Path | None,
    mix: Mix | str,
    names: Sequence[str] | None = None,
    *,
    costs: CostOptions = DEFAULT_COSTS,
    pinned: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    **search: Any,
) -> list[RequestComparison]:
    """Requests planned by several planners (the quick ones if None); see `plan_request`.

    `search` goes to `solving.compare`. InfeasibleError with their reasons where none has a plan.
    """
    mix = read_mix(mix) if isinstance(mix, str) else mix
    source = with_its_batch(source, mix)
    request = _asked(source, cluster, mix, options or {}, costs, pinned)
    lines = compare(request.problem, names, source=f"{source} --mix {request.mix}", **search)
    best_of(lines)
    return [
        RequestComparison(
            line.planner,
            line.plan,
            line.error,
            None if line.plan is None else judged(request, line.plan),
        )
        for line in lines
    ]


def _asked(
    source: str,
    cluster: Cluster | str | Path | None,
    mix: Mix,
    options: Mapping[str, Any],
    costs: CostOptions,
    pinned: Mapping[str, str] | None,
) -> Request:
    """The request that is to be planned; InputError for what cannot be used."""
    check_options(options)
    if isinstance(cluster, (str, Path)):
        cluster = load_cluster(str(cluster))
    if cluster is None:
        raise InputError(
            f"{source} has no devices of its own; name a cluster (--cluster), such as 2x3090, "
            "this-machine or a file"
        )
    phases = load_phases(source, mix.prompt, mix.output)
    return make_request(phases, cluster, mix, options, costs=costs, pinned=pinned)


def with_its_batch(source: str, mix: Mix) -> str:
    """The source for as many sequences as the mix says; OptionError if that is the best number."""
    if mix.batch is None:
        return source
    if not isinstance(mix.batch, int):
        raise OptionError(
            f"--mix {mix}: the best batch is looked for in plans for an engine; add --for ENGINE, "
            "or give a number"
        )
    return with_batch(source, mix.batch)


def phase_problems(
    phases: Phases,
    cluster: Cluster,
    options: Options,
    costs: CostOptions = DEFAULT_COSTS,
    pinned: Mapping[str, str] | None = None,
) -> tuple[Problem, Problem]:
    """Prefill and decode on a cluster, each as it is alone."""
    pins = _pins(phases, pinned or {})
    prefill, decode = (
        build_problem(graph, cluster, options, costs, own, together=True)
        for graph, own in zip((phases.prefill, phases.decode), pins, strict=True)
    )
    return prefill, decode


def make_request(
    phases: Phases,
    cluster: Cluster,
    mix: Mix,
    options: Mapping[str, Any],
    *,
    costs: CostOptions = DEFAULT_COSTS,
    pinned: Mapping[str, str] | None = None,
    copies: bool | None = None,
) -> Request:
    """Both phases on a cluster as one problem; `options` are fields of `Options`.

    With `copies`, ops have a copy each of weights that they share, where that can fit; else they
    are on one device. It is the default for ``throughput``, as of any pipeline.
    """
    chosen = check_options(options)
    if copies is None:
        copies = chosen.objective == "throughput"
    if copies and phases.decode.may_copy:
        parted = with_copies(phases)
        found = request_of(parted, *phase_problems(parted, cluster, chosen, costs, pinned), mix)
        with suppress(ProvedInfeasibleError):
            found.problem.check_feasible()
            return found
    return request_of(phases, *phase_problems(phases, cluster, chosen, costs, pinned), mix)


def judged(request: Request, plan: Plan) -> ServingPlan:
    """What a plan of a request's problem comes to, each phase timed and judged by itself."""
    prefill, decode = (
        _phase_plan(request, plan, phase, ops, edges) for phase, ops, edges in request.parts()
    )
    if plan.problem.options.objective == "latency":
        value = prefill.value + request.mix.output * decode.value
    else:
        value = _largest_load(request, plan)
    if value < plan.lower_bound * (1 - LONG_ROUNDING):
        raise VerificationError(
            f"the phases of '{plan.problem.name}' take {value} s, less than the bound "
            f"{plan.lower_bound} s of the request: this is a fault of placewright, please report it"
        )
    bound = min(plan.lower_bound, value)
    kind = KindPlan(request.mix, prefill, decode)
    return ServingPlan(plan, (kind,), value, bound, plan.bound_source)


def check_options(given: Mapping[str, Any]) -> Options:
    """The options of a request, from fields of `Options`; OptionError for what it cannot have."""
    chosen = chosen_options({}, dict(given))
    if chosen.objective not in SERVED:
        raise OptionError(
            f"--mix is for objectives {' and '.join(SERVED)}, not for {chosen.objective}"
        )
    if chosen.memory == "peak":
        raise OptionError("--mix counts what ops keep; leave out --memory peak")
    if chosen.micro_batches is not None:
        raise OptionError("--mix has requests come and go; leave out --micro-batches")
    if chosen.replicate:
        raise OptionError("--mix plans one copy of the model; leave out --replicate")
    return chosen


def _pins(phases: Phases, pinned: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The pins of each phase; OptionError for an op that neither has."""
    own = tuple(
        {op: device for op, device in pinned.items() if op in graph.op_index}
        for graph in (phases.prefill, phases.decode)
    )
    for op in pinned:
        if not any(op in each for each in own):
            raise OptionError(f"cannot pin '{op}': neither phase has an op of that name")
    return own[0], own[1]


def _phase_plan(request: Request, plan: Plan, phase: Problem, ops: slice, edges: slice) -> Plan:
    """The latency of one phase alone: in the order of the whole plan, or in the scheduler's own."""
    bare = Placement(plan.placement.device[ops])
    placements = [bare]
    if isinstance(plan.outcome, Schedule):
        placements.append(replace(bare, sequence=_part(request, plan, ops, edges)))
    return phase_latency(phase, placements, plan)


def phase_latency(
    phase: Problem, placements: Sequence[Placement], of: Plan, *, bounded: bool = True
) -> Plan:
    """The plan of a phase alone that is quickest of `placements`, judged; part of the plan `of`."""
    from placewright.bounds import lower_bound
    from placewright.bounds.bound import Bound
    from placewright.simulate import evaluate

    latency = replace(phase, options=_latency(phase.options))
    outcomes = [evaluate(latency, each) for each in placements]
    outcome = min(outcomes, key=lambda each: each.value)
    bound = lower_bound(latency) if bounded else Bound(0.0, "none was looked for")
    found = Plan(
        problem=latency,
        placement=replace(placements[0], sequence=None),
        outcome=outcome,
        value=outcome.value,
        lower_bound=bound.value,
        bound_source=bound.source,
        planner=of.planner,
        seed=of.seed,
        source=of.source,
    )
    verify(found).raise_if_failed()
    return found


def _latency(options: Options) -> Options:
    return options if options.objective == "latency" else Options()


def _part(request: Request, plan: Plan, ops: slice, edges: slice) -> Any:
    """The sequence of the whole plan's items that are of one phase."""
    from placewright.simulate.latency import schedule_sequence

    whole = schedule_sequence(plan)
    is_op = (whole >= ops.start) & (whole < ops.stop)
    edge = -1 - whole
    is_edge = (edge >= edges.start) & (edge < edges.stop)
    own = np.where(whole >= 0, whole - ops.start, whole + edges.start)
    return own[is_op | is_edge].astype(np.int32)


def _largest_load(request: Request, plan: Plan) -> float:
    """Seconds per request of the busiest device, judged phase by phase."""
    from placewright.simulate.throughput import loads

    phases: list[Repeated] = []
    for (phase, ops, _), repeats in zip(request.parts(), (1, request.mix.output), strict=True):
        placement = Placement(plan.placement.device[ops])
        outcome = loads(phase, placement)
        alone = Plan(phase, placement, outcome, outcome.value, 0.0, "none", plan.planner)
        verify(alone).raise_if_failed()
        phases.append((repeats, outcome))
    return joint_value(plan.problem.options, phases)
