"""``placewright plan``: one source, one cluster, one verified plan."""

from __future__ import annotations

import math

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
    time_limit: o.TimeLimit = float("inf"),
    search: o.Search,
    seed: o.Seed = 0,
    warm_start: o.WarmStart = None,
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
    with progress(quiet=json) as on_progress, observed(events, planner, coarsen) as on_event:
        plan = make_plan(
            source,
            cluster,
            planner=planner,
            training=problem.training,
            costs=problem.costs,
            pinned=problem.pinned,
            planner_options=search.planner_options,
            coarsening=coarsen,
            time_limit=time_limit / 2 if robust else time_limit,
            seed=seed,
            warm_start=warm_start,
            checkpoint=output,
            on_event=on_event,
            on_progress=on_progress,
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
