"""The memory that ranks took, beside that of their devices in the plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from placewright.plan import Plan
from placewright.units import format_bytes

if TYPE_CHECKING:
    from placewright.runtime import RunReport


def planned_memory(plan: Plan) -> list[float]:
    """Bytes that the plan uses of each device it uses, in the order of the ranks."""
    memory = plan.device_memory
    return [float(memory[device]) for device in plan.used_devices]


def memory_rows(plan: Plan, report: RunReport) -> Iterator[tuple[str, str]]:
    """A row for each rank: its peak, and what was planned. None where ranks are threads."""
    if not report.rank_peak_memory:
        return
    both = zip(report.rank_peak_memory, planned_memory(plan), strict=True)
    for rank, (peak, planned) in enumerate(both):
        device = report.devices[rank] if report.devices else ""
        words = f"{format_bytes(peak)} at its peak, {format_bytes(planned)} planned"
        yield f"memory, rank {rank} {device}".rstrip(), words
