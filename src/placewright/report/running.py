"""A run beside its plan: tables for the terminal, records for ``--json``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from placewright.outcome import Schedule
from placewright.plan import Plan
from placewright.report.records import plan_record
from placewright.runtime.tuning.comparison import RunComparison, compare_run
from placewright.units import format_seconds, printable

if TYPE_CHECKING:
    from placewright.runtime.results import RunReport

WORST = 8  # ops that the table shows


def step_tables(plan: Plan, report: RunReport) -> Iterator[Table]:
    """The ops that lost most time, and what each device did.

    Nothing for a run without steps, or a plan that does not say when each op runs.
    """
    if report.steps and isinstance(plan.outcome, Schedule):
        found = compare_run(plan, report)
        yield worst_ops_table(plan, found)
        yield device_times_table(plan, found)


def worst_ops_table(plan: Plan, found: RunComparison, limit: int = WORST) -> Table:
    """A line for each op that took longest beyond its plan, and one for what all took."""
    problem = plan.problem
    slower = sorted((op for op in found.ops if op.lost > 0), key=lambda op: (-op.lost, op.op))
    seen = [op for op in found.ops if op.measured is not None]
    planned, measured = sum(op.planned for op in seen), sum(op.measured or 0.0 for op in seen)
    table = Table(title="ops that lost most time", title_justify="left")
    for column in ("op", "type", "device"):
        table.add_column(column, overflow="fold")
    for column in ("planned", "measured", "ratio", "lost"):
        table.add_column(column, justify="right")
    for each in slower[:limit]:
        table.add_row(
            escape(printable(problem.op_names[each.op])),
            escape(problem.op_types[each.op]),
            escape(problem.device_names[each.device]),
            *_figures(each.planned, each.measured),
            format_seconds(each.lost),
        )
    table.add_section()
    named = (f"all {len(seen)} measured", "", "")
    table.add_row(*named, *_figures(planned, measured), format_seconds(measured - planned))
    return table


def device_times_table(plan: Plan, found: RunComparison) -> Table:
    """A line per device of the run: its ops as planned and measured, sending and waiting."""
    table = Table(title="devices", title_justify="left")
    table.add_column("device")
    for column in ("planned", "measured", "ratio", "sending", "waiting"):
        table.add_column(column, justify="right")
    for each in found.devices:
        table.add_row(
            escape(plan.problem.device_names[each.device]),
            *_figures(each.planned, each.computing),
            format_seconds(each.sending),
            format_seconds(each.waiting),
        )
    return table


def _figures(planned: float, measured: float | None) -> tuple[str, str, str]:
    """Planned, measured and their ratio."""
    if measured is None:
        return format_seconds(planned), "-", "-"
    ratio = f"{measured / planned:.2f}" if planned else "-"
    return format_seconds(planned), format_seconds(measured), ratio


def run_record(plan: Plan, report: RunReport, path: str | Path | None = None) -> dict[str, Any]:
    """The plan and its run as one object, with `step_records`."""
    return plan_record(plan, path) | report.to_document() | step_records(plan, report)


def step_records(plan: Plan, report: RunReport) -> dict[str, Any]:
    """`ops` and `transfers`, the times of each rank's device, and `step_times` of the median call.

    Empty for a run without steps, or a plan that does not say when each op runs.
    Seconds; null where there are none. What is compared: see `runtime.comparison`.
    """
    if not (report.steps and isinstance(plan.outcome, Schedule)):
        return {}
    found, problem = compare_run(plan, report), plan.problem
    names = problem.device_names
    return {
        "clocked": found.clocked,
        "ops": [
            {
                "name": problem.op_names[each.op],
                "device": names[each.device],
                "planned": each.planned,
                "measured": each.measured,
                "ratio": each.ratio,
            }
            for each in found.ops
        ],
        "transfers": [
            {
                "name": problem.op_names[each.producer],
                "source": names[each.source],
                "target": names[each.target],
                "bytes": each.bytes,
                "planned": each.planned,
                "measured": each.measured,
                "ratio": each.ratio,
                "awaited": each.awaited,
            }
            for each in found.transfers
        ],
        "step_times": {
            column: [getattr(step, column) for step in report.steps]
            for column in ("rank", "kind", "name", "start", "finish")
        },
        "rank_times": [
            {
                "device": names[each.device],
                "planned": each.planned,
                "computing": each.computing,
                "sending": each.sending,
                "waiting": each.waiting,
            }
            for each in found.devices
        ],
    }
