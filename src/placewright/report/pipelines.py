"""What a pipeline measured, beside its plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from placewright.plan import Plan
from placewright.report.records import plan_record
from placewright.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from placewright.runtime.pipelined import PipelineReport


def pipeline_record(plan: Plan, report: PipelineReport, path: Path) -> dict[str, Any]:
    """What `plan` prints of the plan, with the figures of the run."""
    return plan_record(plan, path) | report.to_document()


def pipeline_table(plan: Plan, report: PipelineReport) -> Table:
    """Seconds per sample, measured beside predicted, and each rank's share of the work."""
    table = Table(title=escape(plan.problem.name), title_justify="left", show_header=False)
    table.add_row("predicted per sample", format_seconds(plan.value))
    table.add_row("measured per sample", format_seconds(report.measured))
    if plan.value:
        table.add_row("measured / predicted", f"{report.measured / plan.value:.2f}")
    batch = f"{report.micro_batches} micro-batches, {report.schedule}"
    table.add_row(batch, format_seconds(report.batch_seconds))
    table.add_row("largest difference of an output", f"{report.max_abs_difference:.3g}")
    if report.max_gradient_difference is not None:
        table.add_row("largest difference of a gradient", f"{report.max_gradient_difference:.3g}")
    if report.losses:
        told = f"{report.losses[0]:.6g} to {report.losses[-1]:.6g}"
        alone = f"{report.single_process_losses[-1]:.6g}"
        table.add_row(f"loss in {len(report.losses)} steps", f"{told} (one process: {alone})")
    table.add_row("sent per micro-batch", format_bytes(sum(report.stage_bytes)))
    if report.sync_seconds:
        table.add_row("adding up gradients", format_seconds(report.sync_seconds))
    for rank in range(report.ranks):
        device = report.devices[rank] if report.devices else ""
        stages = len(report.rank_stages[rank])
        table.add_row(
            escape(f"rank {rank} {device}".rstrip()),
            f"{stages} stage{'s' if stages > 1 else ''}, busy "
            f"{format_seconds(report.rank_busy_seconds[rank])}, bubble "
            f"{report.rank_bubble_share[rank]:.0%}",
        )
    return table
