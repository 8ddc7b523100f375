"""A trace: the processes of a plan and of its run, in one document."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.exporters.perfetto.batches import planned_batches
from placewright.exporters.perfetto.events import Process
from placewright.exporters.perfetto.invocations import planned_invocations
from placewright.exporters.perfetto.pipeline import planned_period
from placewright.exporters.perfetto.schedule import planned_schedule
from placewright.exporters.perfetto.step import planned_step
from placewright.formats import files
from placewright.outcome import BatchSchedule, Invocations, Loads, Schedule
from placewright.plan import Plan

if TYPE_CHECKING:
    from placewright.runtime.results import RunReport

PLANNED, MEASURED, PER_MICRO_BATCH = 1, 2, 3
"""The processes of a trace."""


def write_trace(path: str | Path, plan: Plan, report: RunReport | None = None) -> None:
    """Write `trace` to a file, all of it or nothing."""
    text = files.json_text(trace(plan, report))
    files.write_text(path, re.sub(r"\\.", _without_two_backslashes, text) + "\n")


def _without_two_backslashes(escape: re.Match[str]) -> str:
    r"""A backslash as \u005c: Perfetto 52 takes the quote after ``\\`` for part of the text."""
    return r"\u005c" if escape[0] == r"\\" else escape[0]


def trace(plan: Plan, report: RunReport | None = None) -> dict[str, Any]:
    """The schedule or pipeline of `plan` and, with the `report` of a run, the steps of its ranks.

    Of a plan with option `micro_batches` the passes of a step, and what devices do in each.

    InputError for a report without steps, or of another plan.
    """
    processes = _planned(plan) if report is None else _beside(plan, report)
    return {
        "traceEvents": [event for process in processes for event in process.events()],
        "displayTimeUnit": "ms",
        "otherData": {"source": plan.source, "planner": plan.planner, "problem": plan.problem.name},
    }


def _planned(plan: Plan) -> list[Process]:
    match plan.outcome:
        case Schedule():
            return [planned_schedule(PLANNED, plan, None)]
        case BatchSchedule() as batches:
            return [planned_batches(PLANNED, plan, batches)]
        case Invocations() as invocations:
            return [planned_invocations(PLANNED, plan, invocations)]
        case Loads() as loads:
            return _planned_pipeline(plan, loads)


def _planned_pipeline(plan: Plan, loads: Loads) -> list[Process]:
    if loads.step is None:
        return [planned_period(PLANNED, plan, loads)]
    each = "planned: what devices do in the passes of a micro-batch"
    return [
        planned_step(PLANNED, plan, loads),
        planned_period(PER_MICRO_BATCH, plan, loads, each),
    ]


def _beside(plan: Plan, report: RunReport) -> list[Process]:
    from placewright.exporters.perfetto.measured import measured_steps
    from placewright.runtime.tuning.comparison import compare_run

    found = compare_run(plan, report)
    planned = planned_schedule(PLANNED, plan, found)
    return [planned, measured_steps(MEASURED, plan, report, found, len(planned.flows) + 1)]
