"""What becomes of a run: tables or JSON, a trace, and entries of the store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placewright.cli import options as o
from placewright.errors import OptionError

if TYPE_CHECKING:
    from placewright.plan import Plan
    from placewright.runtime.results import RunReport
    from placewright.runtime.tuning.calibrate import CalibrationReport


@dataclass(frozen=True)
class Uses:
    """What is made of what was measured: a group of options (see `groups`)."""

    trace: Annotated[
        Path | None,
        typer.Option(
            callback=o.writable,
            help="Write plan and run as a trace for ui.perfetto.dev to this file.",
            metavar="FILE",
        ),
    ] = None
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Keep what the ops took in the store, for 'plan'."),
    ] = False
    profiles: o.Profiles = None

    def __post_init__(self) -> None:
        if self.profiles is not None and not self.calibrate:
            raise OptionError("--profiles is the store of --calibrate; add it")

    def refuse(self, reason: str) -> None:
        """OptionError where something is to be made of what was not measured."""
        for option, given in (("--trace", self.trace is not None), ("--calibrate", self.calibrate)):
            if given:
                raise OptionError(f"{reason}; leave out {option}")


def use_results(plan: Plan, report: RunReport, path: Path, uses: Uses, *, json: bool) -> None:
    """Print the run of the plan in file `path`, and make of it what is asked for."""
    from placewright.cli.output import print_json

    if uses.trace is not None:
        from placewright.exporters.perfetto import write_trace

        write_trace(uses.trace, plan, report)
    if json:
        print_json(_record(plan, report, path, uses))
    else:
        _print(plan, report, uses)


def _calibrated(plan: Plan, report: RunReport, uses: Uses) -> CalibrationReport:
    from placewright.costs.profiles.store import ProfileStore
    from placewright.runtime.tuning.calibrate import calibrate

    with ProfileStore(uses.profiles) as store:
        return calibrate(plan, report, store)


def _record(plan: Plan, report: RunReport, path: Path, uses: Uses) -> dict[str, Any]:
    from placewright.report.memory import planned_memory
    from placewright.report.running import run_record
    from placewright.report.tuning import calibration_record

    record = run_record(plan, report, path) | {"planned_memory": planned_memory(plan)}
    if uses.trace is not None:
        record["trace"] = str(uses.trace)
    if uses.calibrate:
        record["calibration"] = calibration_record(_calibrated(plan, report, uses))
    return record


def _print(plan: Plan, report: RunReport, uses: Uses) -> None:
    """The run comes first: it may have taken minutes, and calibration may be refused."""
    from placewright.cli.output import console
    from placewright.report.running import step_tables
    from placewright.report.terminal import run_table
    from placewright.report.tuning import calibration_lines

    out = console()
    out.print(run_table(plan, report))
    for table in step_tables(plan, report):
        out.print(table)
    if uses.trace is not None:
        out.print(f"trace written to {uses.trace}", markup=False, soft_wrap=True)
    if uses.calibrate:
        for line in calibration_lines(_calibrated(plan, report, uses)):
            out.print(line, markup=False, soft_wrap=True)
