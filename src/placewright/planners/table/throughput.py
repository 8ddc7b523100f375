"""Planners for objective ``throughput``."""

from __future__ import annotations

from placewright.planners.table.entry import PlannerEntry
from placewright.planners.table.latency import PARTITIONER

THROUGHPUT: tuple[PlannerEntry, ...] = (
    PlannerEntry(
        "single-device",
        "throughput",
        "everything on the one device where that is fastest",
        "Tarnawski et al. 2020 §6, Table 2",
        "planners.throughput.baselines:SingleDevice",
    ),
    PlannerEntry(
        "greedy",
        "throughput",
        "accelerators filled in topological order, the rest on CPUs",
        "Tarnawski et al. 2020 §7",
        "planners.throughput.baselines:Greedy",
    ),
    PlannerEntry(
        "data-parallel",
        "throughput",
        "the whole model on several devices, each with a share of the inputs (needs --replicate)",
        "data parallelism; Tarnawski et al. 2020 App. C.2",
        "planners.throughput.data_parallel:DataParallel",
        quick=False,  # but for --replicate there is nothing to ask it for
    ),
    PlannerEntry(
        "linear-dp",
        "throughput",
        "best cuts of a depth-first order into stages",
        "Tarnawski et al. 2020 §5.1.2 (DPL)",
        "planners.throughput.linear_dp:LinearDP",
        {"orders": "how many depth-first orders are tried (1)"},
    ),
    PlannerEntry(
        "ideal-dp",
        "throughput",
        "best contiguous stages, proven: dynamic programming over ideals",
        "Tarnawski et al. 2020 §5.1.1, App. B, C",
        "planners.throughput.ideal_dp:IdealDP",
        {"ideals": "how many it may look at before it settles for linear orders (20000000)"},
    ),
    PlannerEntry(
        "row-cuts",
        "throughput",
        "cuts of linear orders over rows of devices, for any size",
        "after Tarnawski et al. 2020 §5.1.2",
        "planners.throughput.row_cuts:RowCuts",
        {
            "orders": "linear orders tried on each row (6)",
            "rows": "random changes of the best row after that (40)",
        },
    ),
    PlannerEntry(
        "pipedream",
        "throughput",
        "best cuts of a row of layers, branchings contracted",
        "PipeDream (Narayanan et al., SOSP 2019); Tarnawski et al. 2020 §6",
        "planners.throughput.pipedream:PipeDream",
    ),
    PlannerEntry(
        "local-search",
        "throughput",
        "best single-unit move until none helps, from random starts, not contiguous",
        "Tarnawski et al. 2020 §6",
        "planners.throughput.local_search:LocalSearch",
        {
            "restarts": "random starts (10)",
            "iterations": "moves tried in all (none)",
        },
        quick=False,
    ),
    PlannerEntry(
        "annealing",
        "throughput",
        "multilevel annealing of splits that need not be contiguous",
        "Kirkpatrick et al. 1983; Tarnawski et al. 2020 §5.2",
        "planners.throughput.multilevel:MultilevelAnnealing",
        {"steps": "annealing steps in all (40 rounds; with a time limit, no limit)"},
        quick=False,
    ),
    PlannerEntry(
        "block-moves",
        "throughput",
        "annealing by moves of ops and blocks, contiguous or not, for any size",
        "Kirkpatrick et al. 1983",
        "planners.throughput.block_moves:BlockMoves",
        {"steps": "moves tried in all (3 million; with a time limit, no limit)"},
        quick=False,
    ),
    PlannerEntry(
        "max-load-ip",
        "throughput",
        "exact: annealing, rebalanced pairs of devices, bounds of one set, an integer program",
        "Tarnawski et al. 2020 §5.1.3, §5.2, Fig. 6",
        "planners.throughput.max_load_ip:MaxLoadIp",
        {
            "solver": "cp-sat, highs, scip or gurobi (cp-sat)",
            "steps": "annealing steps of the search, other moves counted as such (as time allows)",
        },
        quick=False,
    ),
    PlannerEntry(
        "exhaustive",
        "throughput",
        "exact: every split, contiguous or not, with replicas, of a handful of ops",
        "brute force",
        "planners.throughput.exhaustive:Exhaustive",
        quick=False,
    ),
    PlannerEntry(
        "metis",
        "throughput",
        "METIS graph partitioning, not contiguous (extra partitioners)",
        "Karypis and Kumar 1997",
        "planners.throughput.baselines:Metis",
        PARTITIONER,
        quick=False,
    ),
    PlannerEntry(
        "scotch",
        "throughput",
        "Scotch mapping onto weighted devices, not contiguous (extra partitioners)",
        "Pellegrini 2009; Tarnawski et al. 2020 §6",
        "planners.throughput.baselines:Scotch",
        PARTITIONER,
        quick=False,
    ),
    PlannerEntry(
        "expert",
        "throughput",
        "a split from a file",
        "Tarnawski et al. 2020 §6",
        "planners.throughput.baselines:Expert",
        {
            "file": "the placement file (required)",
            "workload": "the workload file whose op numbers the placement uses (none)",
        },
        quick=False,
    ),
)
