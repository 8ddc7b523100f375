"""A trace: the processes of a plan and of its run, in one document."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.errors import OptionError
from placewright.exporters.perfetto.events import Process
from placewright.exporters.perfetto.pipeline import planned_period
from placewright.exporters.perfetto.schedule import planned_schedule
from placewright.formats import files
from placewright.outcome import Loads, Schedule
from placewright.plan import Plan

if TYPE_CHECKING:
    from placewright.runtime.results import RunReport

PLANNED, MEASURED = 1, 2
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

    OptionError for a plan of another objective; InputError for a report without steps, or of
    another plan.
    """
    processes = [_planned(plan)] if report is None else _beside(plan, report)
    return {
        "traceEvents": [event for process in processes for event in process.events()],
        "displayTimeUnit": "ms",
        "otherData": {"source": plan.source, "planner": plan.planner, "problem": plan.problem.name},
    }


def _planned(plan: Plan) -> Process:
    if isinstance(plan.outcome, Schedule):
        return planned_schedule(PLANNED, plan, None)
    if isinstance(plan.outcome, Loads):
        return planned_period(PLANNED, plan, plan.outcome)
    raise OptionError(
        f"the plan is for {plan.problem.options.objective}, and traces are made of plans for "
        "latency and throughput; plan with --objective latency"
    )


def _beside(plan: Plan, report: RunReport) -> list[Process]:
    from placewright.exporters.perfetto.measured import measured_steps
    from placewright.runtime.tuning.comparison import compare_run

    found = compare_run(plan, report)
    planned = planned_schedule(PLANNED, plan, found)
    return [planned, measured_steps(MEASURED, plan, report, found, len(planned.flows) + 1)]
