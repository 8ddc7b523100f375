"""Multilevel search: plans for graphs of tens of thousands of ops and hundreds of devices."""

from placewright.planners.latency.search.multilevel.planner import Multilevel

__all__ = ["Multilevel"]
