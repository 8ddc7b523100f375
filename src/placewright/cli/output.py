"""Printing: JSON to stdout, tables through rich, progress and remarks to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from placewright.units import printable

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from placewright.budget import Progress
    from placewright.cli.gaps import Gaps
    from placewright.costs.profiles.profiling import DeviceProfile
    from placewright.exporters.planning import EnginePlan
    from placewright.exporters.requests import EngineRequests
    from placewright.measuring.standard_evaluation import Evaluation
    from placewright.plan import Plan
    from placewright.serving.served import ServingPlan
    from placewright.whatif.robustness import Percentiles


PIPED_WIDTH = 140  # characters of the tables that are printed where there is no terminal
BAR_WIDTH = 16  # characters: beside it a plan's value, bound and gap fit into 80
UNBOUNDED = 1 << 20  # characters: every table fits


def print_json(value: Any) -> None:
    wide = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(value, indent=2, ensure_ascii=not wide, allow_nan=False))


def console(wide: bool = False) -> Console:
    """Stdout; where that is no terminal, or if `wide`, as wide as tables need."""
    from placewright.cli.terminal import PrintableConsole

    width = UNBOUNDED if wide else None if sys.stdout.isatty() else PIPED_WIDTH
    return PrintableConsole(width=width, highlight=False, emoji=False)


def in_one_line(quiet: bool, wide: bool) -> bool:
    """Whether a plan is told in one line: where that is asked, or nobody looks at a terminal."""
    return quiet or not (wide or sys.stdout.isatty())


def remark(text: str) -> None:
    with suppress(OSError):  # that nobody reads it must not end the command
        print(printable(text), file=sys.stderr, flush=True)


def print_remarks(plans: Iterable[Plan]) -> None:
    """What limits the plans and can be chosen otherwise, each thing once."""
    from placewright.report.remarks import remarks

    for text in dict.fromkeys(text for plan in plans for text in remarks(plan)):
        remark(f"placewright: {text}")


def print_line(plan: Plan, output: Path | None, *others: str) -> None:
    """A plan in one line: its value, its bound, how many devices it uses, `others`, its file."""
    from placewright.report.terminal import line

    where = [f"written to {output}"] if output is not None else []
    text = "; ".join((line(plan), *others, *where))
    console().print(text, markup=False, soft_wrap=True)


def print_plan(
    plan: Plan,
    output: Path | None,
    json: bool,
    cost_noise: float | None = None,
    percentiles: Percentiles | None = None,
    before: Percentiles | None = None,
    wide: bool = False,
) -> None:
    """A plan as tables, or as one JSON object; `before` is what a robust plan started from."""
    if json:
        from placewright.report.records import plan_record

        noise = {"cost_noise": cost_noise, **percentiles._asdict()} if percentiles else {}
        robust = {"before": before._asdict()} if before else {}
        print_json(plan_record(plan, output) | noise | robust)
        return
    from placewright.report.device_table import device_table
    from placewright.report.terminal import summary
    from placewright.report.whatif import percentiles_line, robust_line

    out = console(wide)
    out.print(device_table(plan))
    out.print(summary(plan), markup=False)
    if percentiles is not None and cost_noise is not None:
        out.print(percentiles_line(percentiles, cost_noise), markup=False)
        if before is not None:
            out.print(robust_line(before, percentiles), markup=False)
    if output is not None:
        out.print(f"written to {output}", markup=False)
    print_remarks([plan])


def profiles_table(
    path: Path,
    words: Sequence[str],
    numbers: Sequence[str],
    rows: Iterable[tuple[DeviceProfile | Evaluation, *tuple[object, ...]]],
) -> Table:
    """What was measured on each kind of device, and kept in the store `path`.

    A row has what was done, then a cell for each column of `words` and of `numbers`.
    """
    from rich.markup import escape
    from rich.table import Table

    from placewright.units import format_seconds

    table = Table(title=f"profiles: {escape(str(path))}", title_justify="left")
    for column in ("devices", "what they are", *words):
        table.add_column(column)
    for column in (*numbers, "took"):
        table.add_column(column, justify="right")
    for done, *cells in rows:
        named = (escape(", ".join(done.devices)), escape(done.identity))
        table.add_row(*named, *map(str, cells), format_seconds(done.seconds))
    return table


def print_serving(served: ServingPlan, output: Path | None, json: bool, wide: bool) -> None:
    """A plan of prefill and decode as tables, or as one JSON object."""
    from placewright.report.serving import serving_record, serving_summary, serving_table

    if json:
        print_json(serving_record(served, output))
        return
    out = console(wide)
    out.print(serving_table(served))
    out.print(serving_summary(served), markup=False)
    if output is not None:
        out.print(f"written to {output}", markup=False)
    print_remarks([served.plan])


def print_engine_plan(found: EnginePlan, output: Path | None, json: bool, wide: bool) -> None:
    """A plan for an engine as tables, in one line where nobody looks, or as one JSON object."""
    from placewright.report.device_table import device_table
    from placewright.report.engines import engine_record, engine_words
    from placewright.report.terminal import summary

    if json:
        print_json(engine_record(found, output))
        return
    if in_one_line(False, wide):
        stages = len(found.by_blocks.stages)
        of = "1 stage" if stages == 1 else f"{stages} stages"
        print_line(found.plan, output, f"{of} of {found.engine.name}")
        return
    out = console(wide)
    out.print(device_table(found.plan))
    out.print(summary(found.plan), markup=False)
    for line in engine_words(found):
        out.print(line, markup=False)
    if output is not None:
        out.print(f"written to {output}", markup=False)


def print_engine_requests(
    found: EngineRequests, output: Path | None, json: bool, wide: bool
) -> None:
    """What an engine makes of requests, as tables or as one JSON object."""
    from placewright.report.engines import requests_record, requests_words
    from placewright.report.serving import kinds_table, serving_summary, serving_table, tried_table

    if json:
        print_json(requests_record(found, output))
        return
    out = console(wide)
    out.print(serving_table(found.served))
    if len(found.served.kinds) > 1:
        out.print(kinds_table(found.served))
    if found.tried:
        out.print(tried_table(found.tried, found.served.batch))
    out.print(serving_summary(found.served), markup=False)
    for line in requests_words(found):
        out.print(line, markup=False)
    if output is not None:
        out.print(f"written to {output}: the plan of decode, to be exported", markup=False)


def announce_compilation() -> None:
    """Say why it takes longer, should a kernel be used for the first time on this machine."""
    from placewright.kernels import before_compiling

    before_compiling(_tell_of_compilation)


def _tell_of_compilation() -> None:
    remark("placewright: compiling kernels (used for the first time on this machine; kept) ...")


@contextmanager
def progress(quiet: bool = False, gaps: Gaps | None = None) -> Iterator[Progress]:
    """A progress bar on stderr, where stderr is a terminal; gives the function that moves it.

    Below what is being done are the `gaps` of the run so far, if it tells any.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda what, done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        BarColumn(BAR_WIDTH),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("importing", total=1.0)

        def move(what: str, done: float) -> None:
            shown = "\n".join(filter(None, (what, gaps.line if gaps else "")))
            bar.update(task, description=shown, completed=done)

        yield move
