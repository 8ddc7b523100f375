"""``placewright plan``: one source, one cluster, one verified plan."""

from __future__ import annotations

import math

from placewright.cli import options as o
from placewright.errors import OptionError

ROBUST_SECONDS = 10.0  # of the search for a robust plan, where nothing says when to end


def command(
    source: o.Source,
    cluster: o.Cluster = None,
    planner: o.Planner = "auto",
    objective: o.Objective = None,
    transfer_unit: o.TransferUnit = None,
    contention: o.Contention = None,
    memory: o.Memory = None,
    load: o.Load = None,
    contiguous: o.Contiguous = None,
    schedule: o.Schedule = None,
    replicate: o.Replicate = None,
    subgraphs: o.Subgraphs = None,
    batch: o.Batch = None,
    training: o.Training = False,
    optimizer: o.Optimizer = "adam",
    pin: o.Pins = None,
    planner_option: o.PlannerOptions = None,
    coarsen: o.Coarsening = "none",
    time_limit: o.TimeLimit = float("inf"),
    gap: o.Gap = None,
    iterations: o.Iterations = None,
    processes: o.Processes = None,
    ray: o.Ray = None,
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
    from placewright.costs.roofline import CostOptions
    from placewright.planning import plan as make_plan
    from placewright.whatif.robust import robust_plan
    from placewright.whatif.robustness import makespan_percentiles

    if cost_noise is not None and objective not in (None, "latency"):
        raise OptionError(f"--cost-noise is for objective latency, not {objective}")
    if robust and cost_noise is None:
        raise OptionError("--robust needs --cost-noise, the share by which costs vary, such as 0.1")
    announce_compilation()
    given = o.problem_options(
        objective, transfer_unit, contention, memory, load, contiguous, schedule, replicate,
        subgraphs, batch,
    )  # fmt: skip
    found = None
    with progress(quiet=json) as on_progress, observed(events, planner, coarsen) as on_event:
        plan = make_plan(
            source,
            cluster,
            planner=planner,
            training=training,
            costs=CostOptions(optimizer=o.optimizer(optimizer)),
            pinned=o.pairs(pin, "--pin"),
            planner_options=o.search_options(planner_option, gap, iterations, processes, ray),
            coarsening=coarsen,
            time_limit=time_limit / 2 if robust else time_limit,
            seed=seed,
            warm_start=warm_start,
            checkpoint=output,
            on_event=on_event,
            on_progress=on_progress,
            **given,
        )
        if robust and cost_noise is not None:
            limit = ROBUST_SECONDS if math.isinf(time_limit) and not iterations else time_limit / 2
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
