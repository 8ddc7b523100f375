"""The visible table of planners: every algorithm placewright has, and where it comes from."""

from placewright.objectives import OBJECTIVES, ObjectiveEntry
from placewright.planners.table.entry import PlannerEntry
from placewright.system.references import referred

__all__ = ["TABLE", "PlannerEntry"]


def _auto(objective: ObjectiveEntry) -> PlannerEntry:
    return PlannerEntry(
        "auto",
        objective.name,
        "the quick ones, then searches and proofs in turns on all cores",
        "portfolio; the default",
        "portfolio.planner:Auto",
        {
            "processes": "workers (as many as cores; 1: in this process)",
            "iterations": "rounds of members, which a run repeats exactly (none)",
            "gap": "stop at this share between value and bound (0.0001)",
            "ray": "work on a Ray cluster: auto, local, HOST:PORT or ray://HOST:PORT (none)",
        },
        fixed={"objective": objective.name},
        quick=False,
    )


TABLE: tuple[PlannerEntry, ...] = tuple(
    row for each in OBJECTIVES.values() for row in (_auto(each), *referred(each.planners))
)
