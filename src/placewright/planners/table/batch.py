"""Planners for objective ``batch-throughput``."""

from __future__ import annotations

from placewright.planners.table.entry import PlannerEntry

ITERATIONS = "evaluations (at most 200,000; with a time limit, no limit)"

BATCH: tuple[PlannerEntry, ...] = (
    PlannerEntry(
        "single-device",
        "batch-throughput",
        "all inputs in one batch on the one device where that is fastest",
        "DiviML Table IV (BD)",
        "planners.batch.lists:SingleDevice",
    ),
    PlannerEntry(
        "data-parallel",
        "batch-throughput",
        "the whole model on several devices, each with a share of the inputs",
        "data parallelism",
        "planners.batch.data_parallel:DataParallel",
    ),
    PlannerEntry(
        "met",
        "batch-throughput",
        "each op in the batches that take least time per input",
        "DiviML §V-A (bMET)",
        "planners.batch.lists:MinimumExecutionTime",
    ),
    PlannerEntry(
        "greedy",
        "batch-throughput",
        "each op, in breadth-first order, split so that it finishes first",
        "DiviML §V-A, §V-C (bGreedy)",
        "planners.batch.lists:Greedy",
    ),
    PlannerEntry(
        "heft",
        "batch-throughput",
        "longest remaining path first, split so that it finishes first, into gaps",
        "DiviML §V-C (bHEFT); Topcuoglu et al. 2002",
        "planners.batch.lists:Heft",
    ),
    PlannerEntry(
        "annealing",
        "batch-throughput",
        "simulated annealing on the devices of all inputs, from the best of several starts",
        "Kirkpatrick et al. 1983; DiviML §V-A",
        "planners.batch.search:Annealing",
        {
            "iterations": ITERATIONS,
            "temperature": "seconds at the start (a twentieth of the mean worsening; "
            "order=free: a tenth)",
            "cooling": "factor per as many evaluations as there are choices (ends at 1/1000)",
            "order": "breadth-first, or free: search the order of batches too",
            "start": "simple, or least-load: each unit on one device, as for throughput (simple)",
        },
        quick=False,
    ),
    PlannerEntry(
        "multilevel",
        "batch-throughput",
        "annealing of groups of ops that exchange much, refined level by level",
        "Kirkpatrick et al. 1983; coarsening as in METIS",
        "planners.batch.multilevel:Multilevel",
        {"iterations": "evaluations (those of 20 rounds; with a time limit, no limit)"},
        quick=False,
    ),
    PlannerEntry(
        "one-plus-one-ea",
        "batch-throughput",
        "each input's device changes with a small probability, kept unless worse",
        "DiviML §V-A; Droste et al. 2002",
        "planners.batch.search:OnePlusOneEA",
        {"iterations": ITERATIONS},
        quick=False,
    ),
    PlannerEntry(
        "diviml-milp",
        "batch-throughput",
        "exact: mixed-integer program with batch sizes",
        "DiviML §IV-A, eqs 1-7; symmetry: §VI",
        "planners.batch.diviml:BatchMilp",
        {
            "solver": "highs, scip, gurobi or cp-sat (highs)",
            "nodes": "limit on nodes (cp-sat: its own time units), repeats exactly (none)",
            "symmetry": "order equal devices by batch, task or time, or none (none)",
        },
        quick=False,
    ),
    PlannerEntry(
        "milp-split",
        "batch-throughput",
        "modules re-solved one at a time within the whole plan",
        "DiviML §IV-B, §VI",
        "planners.batch.split:BatchSplit",
        {
            "channels": "1 to 4, or auto (auto)",
            "solver": "cp-sat, highs, scip or gurobi (cp-sat)",
            "module_seconds": "limit per module (3)",
            "symmetry": "order equal devices by batch, task or time, or none (none)",
            "iterations": "modules re-solved, from simple plans only: repeats exactly (none)",
        },
        quick=False,
    ),
)
