"""``placewright plan``: one source, one cluster, one verified plan."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from placewright.cli import options as o
from placewright.cli.groups import grouped
from placewright.errors import OptionError

ROBUST_SECONDS = 10.0  # of the search for a robust plan, where nothing says when to end


@grouped
def command(
    source: o.Source,
    *,
    cluster: o.Cluster = None,
    planner: o.Planner = "auto",
    problem: o.Problem,
    coarsen: o.Coarsening = "none",
    granularity: o.Granularity = "op",
    time_limit: o.TimeLimit = float("inf"),
    search: o.Search,
    seed: o.Seed = 0,
    warm_start: o.WarmStart = None,
    mix: o.Mix = None,
    cost_noise: o.CostNoise = None,
    robust: o.Robust = False,
    events: o.Events = None,
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Plan SOURCE on a cluster: where each op runs, when, and how good that provably is.

    The default planner keeps its best plan so far in the output file; Ctrl-C ends it with that.
    """
    from placewright.cli.observing import observed
    from placewright.cli.output import announce_compilation, print_plan, progress
    from placewright.planning import plan as make_plan
    from placewright.whatif.robust import robust_plan
    from placewright.whatif.robustness import makespan_percentiles

    if cost_noise is not None and problem.objective not in (None, "latency"):
        raise OptionError(f"--cost-noise is for objective latency, not {problem.objective}")
    if robust and cost_noise is None:
        raise OptionError("--robust needs --cost-noise, the share by which costs vary, such as 0.1")
    announce_compilation()
    found = None
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
        if cost_noise is not None:
            raise OptionError("--cost-noise is for one run of a model; leave it out, or --mix")
        if granularity != "op":
            raise OptionError("--granularity is for one run of a model; leave it out, or --mix")
        _plan_mix(source, cluster, mix, problem, asked, events, json)
        return
    with progress(quiet=json) as on_progress, observed(events, planner, coarsen) as on_event:
        plan = make_plan(
            source,
            cluster,
            training=problem.training,
            costs=problem.costs,
            pinned=problem.pinned,
            granularity=granularity,
            on_event=on_event,
            on_progress=on_progress,
            **asked,
            **problem.options,
        )
        if robust and cost_noise is not None:
            limit = (
                ROBUST_SECONDS
                if math.isinf(time_limit) and not search.iterations
                else time_limit / 2
            )
            found = robust_plan(
                plan, cost_noise, seed=seed, time_limit=limit, on_progress=on_progress
            )
            plan = found.plan
    if output is not None:
        plan.save(output)
    if found is not None:
        print_plan(plan, output, json, cost_noise, found.after, found.before)
    else:
        noise = None if cost_noise is None else makespan_percentiles(plan, cost_noise, seed=seed)
        print_plan(plan, output, json, cost_noise, noise)


def _plan_mix(
    source: str,
    cluster: str | None,
    mix: str,
    problem: o.Problem,
    asked: dict[str, Any],
    events: Path | None,
    json: bool,
) -> None:
    """Prefill and decode of a source together; `asked` is of the planner and its search."""
    from placewright.cli.observing import observed
    from placewright.cli.output import print_serving, progress
    from placewright.serving.planning import plan_request

    if problem.training:
        raise OptionError("--mix is for inference; leave out --training")
    output = asked["checkpoint"]
    with (
        progress(quiet=json) as on_progress,
        observed(events, asked["planner"], asked["coarsening"]) as on_event,
    ):
        served = plan_request(
            source,
            cluster,
            mix,
            objective=problem.objective,
            costs=problem.costs,
            pinned=problem.pinned,
            options=problem.options,
            on_event=on_event,
            on_progress=on_progress,
            **asked,
        )
    if output is not None:
        served.plan.save(output)
    print_serving(served, output, json)
