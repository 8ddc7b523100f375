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
        "batch.lists:SingleDevice",
    ),
    PlannerEntry(
        "met",
        "batch-throughput",
        "each op in the batches that take least time per input",
        "DiviML §V-A (bMET)",
        "batch.lists:MinimumExecutionTime",
    ),
    PlannerEntry(
        "greedy",
        "batch-throughput",
        "each op, in breadth-first order, split so that it finishes first",
        "DiviML §V-A, §V-C (bGreedy)",
        "batch.lists:Greedy",
    ),
    PlannerEntry(
        "heft",
        "batch-throughput",
        "longest remaining path first, split so that it finishes first, into gaps",
        "DiviML §V-C (bHEFT); Topcuoglu et al. 2002",
        "batch.lists:Heft",
    ),
    PlannerEntry(
        "annealing",
        "batch-throughput",
        "simulated annealing on the devices of all inputs, from the best of several starts",
        "Kirkpatrick et al. 1983; DiviML §V-A",
        "batch.search:Annealing",
        {
            "iterations": ITERATIONS,
            "temperature": "seconds at the start (a twentieth of the mean worsening)",
            "cooling": "factor per as many evaluations as there are choices (ends at 1/1000)",
            "order": "breadth-first, or free: search the order of batches too",
        },
        quick=False,
    ),
    PlannerEntry(
        "one-plus-one-ea",
        "batch-throughput",
        "each input's device changes with a small probability, kept unless worse",
        "DiviML §V-A; Droste et al. 2002",
        "batch.search:OnePlusOneEA",
        {"iterations": ITERATIONS},
        quick=False,
    ),
)
