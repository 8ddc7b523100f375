"""Planners for objective ``invocation-latency``."""

from __future__ import annotations

from placewright.planners.table.entry import PlannerEntry
from placewright.planners.table.latency import PARTITIONER

INVOCATION: tuple[PlannerEntry, ...] = (
    PlannerEntry(
        "single-device",
        "invocation-latency",
        "everything on one device, or on CPUs",
        "Tarnawski et al. 2020 §7",
        "planners.invocation.baselines:SingleDevice",
    ),
    PlannerEntry(
        "greedy",
        "invocation-latency",
        "accelerators filled in topological order, the rest on CPUs",
        "Tarnawski et al. 2020 §7",
        "planners.invocation.baselines:Greedy",
    ),
    PlannerEntry(
        "linear-dp",
        "invocation-latency",
        "best segments of random depth-first orders",
        "after Tarnawski et al. 2020 §5.1.2",
        "planners.invocation.search:LinearDp",
        {
            "orders": "how many depth-first orders (100)",
            "moves": "tried at the end (20,000; 0 for none)",
        },
    ),
    PlannerEntry(
        "ideal-dp",
        "invocation-latency",
        "exact in a row, and a bound: dynamic programming over ideals",
        "after Tarnawski et al. 2020 §5.1.1",
        "planners.invocation.ideal_dp:IdealDP",
        {"ideals": "the most it looks at (60,000)"},
        quick=False,
    ),
    PlannerEntry(
        "max-load-dp",
        "invocation-latency",
        "the split of least largest load, judged by its latency",
        "Tarnawski et al. 2020 §7",
        "planners.invocation.baselines:MaxLoadDp",
        quick=False,
    ),
    PlannerEntry(
        "annealing",
        "invocation-latency",
        "annealing of contiguous subgraphs, stops when proved optimal",
        "Kirkpatrick et al. 1983",
        "planners.invocation.search:Annealing",
        {
            "iterations": "evaluations (at most 200,000; with a time limit, no limit)",
            "orders": "depth-first orders for a start (100)",
            "temperature": "share of the latency at the start (0.01)",
        },
        quick=False,
    ),
    PlannerEntry(
        "local-search",
        "invocation-latency",
        "moves that help, from random starts",
        "Tarnawski et al. 2020 §6",
        "planners.invocation.search:LocalSearch",
        {
            "iterations": "evaluations (at most 200,000; with a time limit, no limit)",
            "restarts": "random starts (10)",
        },
        quick=False,
    ),
    PlannerEntry(
        "metis",
        "invocation-latency",
        "METIS parts as contiguous subgraphs (extra partitioners)",
        "Karypis and Kumar 1997",
        "planners.invocation.baselines:Metis",
        PARTITIONER,
        quick=False,
    ),
    PlannerEntry(
        "scotch",
        "invocation-latency",
        "Scotch parts as contiguous subgraphs (extra partitioners)",
        "Pellegrini 2009; Tarnawski et al. 2020 §7",
        "planners.invocation.baselines:Scotch",
        PARTITIONER,
        quick=False,
    ),
    PlannerEntry(
        "expert",
        "invocation-latency",
        "a placement from a file",
        "Tarnawski et al. 2020 §7",
        "planners.invocation.baselines:Expert",
        {
            "file": "the placement file (required)",
            "workload": "the workload file whose op numbers the placement uses (none)",
        },
        quick=False,
    ),
    PlannerEntry(
        "invocation-ip",
        "invocation-latency",
        "exact: the integer program",
        "Tarnawski et al. 2020 §4, Figs 3 and 4",
        "planners.invocation.ip:InvocationIp",
        {
            "solver": "highs, scip or gurobi (highs)",
            "nodes": "limit on branch-and-bound nodes, which a run repeats exactly (none)",
            "start": "evaluations of annealing first, or none",
            "cuts": "of the bound before it starts (5,000; 0 for none beside a start)",
        },
        quick=False,
    ),
)
