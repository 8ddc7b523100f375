"""The visible table of planners: every algorithm placewright has, and where it comes from."""

from placewright.planners.table.batch import BATCH
from placewright.planners.table.entry import PlannerEntry
from placewright.planners.table.invocation import INVOCATION
from placewright.planners.table.latency import LATENCY
from placewright.planners.table.throughput import THROUGHPUT

__all__ = ["TABLE", "PlannerEntry"]

TABLE: tuple[PlannerEntry, ...] = (*LATENCY, *THROUGHPUT, *INVOCATION, *BATCH)
