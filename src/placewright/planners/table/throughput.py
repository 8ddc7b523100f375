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
        "pipeline.baselines:SingleDevice",
    ),
    PlannerEntry(
        "greedy",
        "throughput",
        "accelerators filled in topological order, the rest on CPUs",
        "Tarnawski et al. 2020 §7",
        "pipeline.baselines:Greedy",
    ),
    PlannerEntry(
        "metis",
        "throughput",
        "METIS graph partitioning, not contiguous",
        "Karypis and Kumar 1997",
        "pipeline.baselines:Metis",
        PARTITIONER,
        quick=False,
    ),
    PlannerEntry(
        "scotch",
        "throughput",
        "Scotch mapping onto weighted devices, not contiguous",
        "Pellegrini 2009; Tarnawski et al. 2020 §6",
        "pipeline.baselines:Scotch",
        PARTITIONER,
        quick=False,
    ),
    PlannerEntry(
        "expert",
        "throughput",
        "a split from a file",
        "Tarnawski et al. 2020 §6",
        "pipeline.baselines:Expert",
        {
            "file": "the placement file (required)",
            "workload": "the workload file whose op numbers the placement uses (none)",
        },
        quick=False,
    ),
)
