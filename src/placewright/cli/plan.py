"""``placewright plan``: one source, one cluster, one verified plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.cli import options as o
from placewright.cli.groups import grouped
from placewright.errors import OptionError

if TYPE_CHECKING:
    from placewright.exporters.stages import BlockPlan
    from placewright.plan import Plan
    from placewright.system.interrupts import Interrupts
    from placewright.whatif.robust import RobustPlan
    from placewright.whatif.robustness import Percentiles

ROBUST_SECONDS = 10.0  # of the search for a robust plan, where nothing says when to end


@grouped
def command(
    source: o.Source,
    *,
    cluster: o.Cluster = None,
    planner: o.Planner = "auto",
    problem: o.PlannedProblem,
    coarsen: o.Coarsening = "none",
    granularity: o.Granularity = "op",
    engine: o.Engine = None,
    time_limit: o.TimeLimit = float("inf"),
    search: o.Search,
    seed: o.Seed = 0,
    warm_start: o.WarmStart = None,
    mix: o.Mix = None,
    cost_noise: o.CostNoise = None,
    robust: o.Robust = False,
    events: o.Events = None,
    output: o.Output = None,
    quiet: o.Quiet = False,
    wide: o.Wide = False,
    json: o.Json = False,
) -> None:
    """Plan SOURCE on a cluster: where each op runs, when, and how good that provably is.

    The default planner keeps its best plan so far in the output file; Ctrl-C ends it with that.
    """
    from placewright.cli.gaps import Gaps
    from placewright.cli.output import progress

    _keep_inputs(search, [source, cluster, problem.profiles], warm_start, events, output)
    _check_noise(problem.objective, cost_noise, robust)
    _announce(quiet, engine, mix, cost_noise)
    gaps = Gaps()
    if engine is not None:
        _refuse_beside_engine(planner, coarsen, granularity, cost_noise, warm_start, events, search)
        _plan_for_engine(
            source, cluster, engine, mix, problem, time_limit, seed, output, json=json, wide=wide
        )
        return
    from placewright.cli.observing import observed  # not for engines, which are to take no time
    from placewright.planning import plan as make_plan
    from placewright.system.interrupts import noticed_interrupts

    asked: dict[str, Any] = {
        "planner": planner,
        "planner_options": search.planner_options,
        "coarsening": coarsen,
        "time_limit": time_limit / 2 if robust else time_limit,
        "seed": seed,
        "warm_start": warm_start,
        "checkpoint": output,
    }
    if mix is not None:
        asked |= problem.of_requests(granularity, cost_noise)
        _plan_mix(source, cluster, mix, asked, events, json, wide=wide)
        return
    with (
        progress(quiet=json or quiet, gaps=gaps) as advance,
        observed(events, planner, coarsen, gaps) as on_event,
        noticed_interrupts() as interrupts,
    ):
        plan = make_plan(
            source,
            cluster,
            training=problem.training,
            costs=problem.costs,
            pinned=problem.pinned,
            granularity=granularity,
            on_event=on_event,
            on_progress=advance,
            **asked,
            **problem.options,
        )
    best = None
    if robust and cost_noise is not None and _goes_on(interrupts):
        best = _more_robust(plan, cost_noise, time_limit, search, seed, quiet=json or quiet)
        plan = best.plan
    if output is not None:
        plan.save(output)
    _print(plan, best, output, cost_noise, seed, json, quiet=quiet, wide=wide)


def _keep_inputs(
    search: o.Search,
    read: Sequence[str | Path | None],
    warm_start: Path | None,
    events: Path | None,
    output: Path | None,
) -> None:
    """Refuse what would write over what is read; but a plan may replace the one it starts from."""
    given = search.planner_options
    o.keep_inputs("--output", output, *read, *given.values())
    o.keep_inputs("--events", events, *read, *given.values(), warm_start)
    if events is not None and output is not None and events.resolve() == output.resolve():
        raise OptionError(f"--events {events}: is the output too; give another file")
    if "save" in given:
        o.keep_inputs("-O save", Path(given["save"]), *read, warm_start)


def _print(
    plan: Plan,
    robust: RobustPlan | None,
    output: Path | None,
    cost_noise: float | None,
    seed: int,
    json: bool,
    *,
    quiet: bool,
    wide: bool,
) -> None:
    """A plan, with what varying costs make of it if that was asked; in one line if `quiet`."""
    from placewright.cli.output import in_one_line, print_line, print_plan, print_remarks

    noise = before = None
    if robust is not None:
        noise, before = robust.after, robust.before
    elif cost_noise is not None:
        from placewright.whatif.robustness import makespan_percentiles

        noise = makespan_percentiles(plan, cost_noise, seed=seed)
    if json or not in_one_line(quiet, wide):
        print_plan(plan, output, json, cost_noise, noise, before, wide)
        return
    print_line(plan, output, *_varying(noise, before, cost_noise))
    if not quiet:
        print_remarks([plan])


def _varying(
    noise: Percentiles | None, before: Percentiles | None, cost_noise: float | None
) -> list[str]:
    """Lines of what varying costs make of a plan, if that was asked."""
    if noise is None or cost_noise is None:
        return []
    from placewright.report.whatif import percentiles_line, robust_line

    lines = [percentiles_line(noise, cost_noise)]
    return lines if before is None else [*lines, robust_line(before, noise)]


def _announce(quiet: bool, *others: object) -> None:
    """Say when kernels are compiled; if `quiet` OptionError for answers that are not one plan's."""
    from placewright.cli.output import announce_compilation

    if not quiet:
        announce_compilation()
    elif any(each is not None for each in others):
        raise OptionError("--quiet is for one run of a model; leave out --for, --mix, --cost-noise")


def _check_noise(objective: str | None, cost_noise: float | None, robust: bool) -> None:
    """OptionError for varying costs of another objective, or a robust plan without any."""
    if cost_noise is not None and objective not in (None, "latency"):
        raise OptionError(f"--cost-noise is for objective latency, not {objective}")
    if robust and cost_noise is None:
        raise OptionError("--robust needs --cost-noise, the share by which costs vary, such as 0.1")


def _goes_on(interrupts: Interrupts) -> bool:
    """Whether a robust plan is looked for; says so where Ctrl-C ended planning."""
    from placewright.cli.output import remark

    if interrupts.came:
        remark("placewright: interrupted before a more robust plan was looked for")
    return not interrupts.came


def _more_robust(
    plan: Plan, noise: float, time_limit: float, search: o.Search, seed: int, *, quiet: bool
) -> RobustPlan:
    from placewright.cli.output import progress
    from placewright.whatif.robust import robust_plan

    endless = math.isinf(time_limit) and not search.iterations
    seconds = ROBUST_SECONDS if endless else time_limit / 2
    with progress(quiet=quiet) as advance:
        return robust_plan(plan, noise, seed=seed, time_limit=seconds, on_progress=advance)


def _refuse_beside_engine(
    planner: str,
    coarsen: str,
    granularity: str,
    cost_noise: float | None,
    warm_start: Path | None,
    events: Path | None,
    search: o.Search,
) -> None:
    """OptionError for options that say how to plan, which the engine's limits do."""
    given = [each for each in (cost_noise, warm_start, events) if each is not None]
    if (planner, coarsen, granularity) != ("auto", "none", "op") or given:
        raise OptionError(
            "--for plans whole blocks in a way of its own; leave out --planner, --coarsen, "
            "--granularity, --cost-noise, --warm-start and --events"
        )
    if search.planner_options:
        raise OptionError(
            "--for plans whole blocks in a way of its own; leave out -O, --gap, --iterations, "
            "--processes and --ray"
        )


def _plan_for_engine(
    source: str,
    cluster: str | None,
    engine: str,
    mix: str | None,
    problem: o.Problem,
    time_limit: float,
    seed: int,
    output: Path | None,
    *,
    json: bool,
    wide: bool,
) -> None:
    """The best plan that an engine can run; `time_limit` is for looking beyond its limits."""
    from placewright.cli.output import print_engine_plan, print_engine_requests, progress
    from placewright.exporters.planning import FREE_SECONDS, plan_for

    asked: dict[str, Any] = {
        **problem.options,
        "costs": problem.costs,
        "pinned": problem.pinned,
        "free_seconds": FREE_SECONDS if math.isinf(time_limit) else time_limit,
        "seed": seed,
    }
    if mix is None:
        found = plan_for(source, cluster, engine, training=problem.training, **asked)
        if output is not None:
            found.plan.save(output)
        print_engine_plan(found, output, json, wide)
        _tell_of_hosts(found.by_blocks, engine)
        return
    from placewright.exporters.requests import plan_requests_for

    problem.of_requests("op")
    with progress(quiet=json) as on_progress:
        served = plan_requests_for(source, cluster, engine, mix, on_progress=on_progress, **asked)
    if output is not None:
        served.by_blocks.plan.save(output)
    print_engine_requests(served, output, json, wide)
    _tell_of_hosts(served.by_blocks, engine)


def _tell_of_hosts(found: BlockPlan, engine: str) -> None:
    """That `export` will refuse the plan, where the engine cannot start it on its hosts."""
    from placewright.cli.output import remark
    from placewright.exporters.exporting import fault_of_hosts

    if fault := fault_of_hosts(found, engine):
        remark(f"placewright: this plan cannot be exported: {fault}")


def _plan_mix(
    source: str,
    cluster: str | None,
    mix: str,
    asked: dict[str, Any],
    events: Path | None,
    json: bool,
    *,
    wide: bool,
) -> None:
    """Prefill and decode of a source together; `asked` is of the problem, planner and search."""
    from placewright.cli.observing import observed
    from placewright.cli.output import print_serving, progress
    from placewright.serving.planning import plan_request

    output = asked["checkpoint"]
    with (
        progress(quiet=json) as on_progress,
        observed(events, asked["planner"], asked["coarsening"]) as on_event,
    ):
        served = plan_request(
            source, cluster, mix, on_event=on_event, on_progress=on_progress, **asked
        )
    if output is not None:
        served.plan.save(output)
    print_serving(served, output, json, wide)
