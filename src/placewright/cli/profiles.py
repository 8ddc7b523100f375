"""``placewright profiles``: costs that were measured, in the store that keeps them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from placewright.cli import options as o
from placewright.cli.groups import grouped
from placewright.errors import OptionError

if TYPE_CHECKING:
    from rich.table import Table

    from placewright.costs.prediction.check import Check
    from placewright.costs.profiles.entry import Measured, ProfileGroup, ProfileKey

app = typer.Typer(
    help="List, show, copy or delete measured costs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@dataclass(frozen=True)
class Chosen:
    """Which entries: a group of options (see `groups`)."""

    device: Annotated[str | None, typer.Option(help="Only devices whose name contains this.")] = (
        None
    )
    library: Annotated[
        str | None, typer.Option(help="Only libraries whose name and version contain this.")
    ] = None
    op: Annotated[str | None, typer.Option(help="Only ops whose name contains this.")] = None


@app.command("list")
def list_groups(profiles: o.Profiles = None, json: o.Json = False) -> None:
    """List what was measured: devices, libraries, how many ops, and when."""
    from placewright.cli.output import console, print_json
    from placewright.costs.profiles.store import ProfileStore

    with ProfileStore(profiles, writable=False) as store:
        groups = store.groups()
    if json:
        print_json([asdict(group) for group in groups])
        return
    out = console()
    out.print(_group_table(groups))
    out.print(f"in {store.path}", markup=False, soft_wrap=True)


@app.command()
@grouped
def show(
    chosen: Chosen,
    limit: Annotated[int, typer.Option(help="Show at most so many.", min=1)] = 50,
    profiles: o.Profiles = None,
    json: o.Json = False,
) -> None:
    """Show what ops take, the slowest first."""
    from placewright.cli.output import console, print_json
    from placewright.costs.profiles.store import ProfileStore

    with ProfileStore(profiles, writable=False) as store:
        total = sum(group.ops for group in store.groups(**asdict(chosen)))
        entries = list(islice(store.entries(**asdict(chosen)), min(limit, total)))
    if json:
        print_json([asdict(key) | asdict(measured) for key, measured in entries])
        return
    out = console()
    out.print(_entry_table(entries))
    out.print(f"{len(entries)} of {total}, in {store.path}", markup=False, soft_wrap=True)


@app.command("export")
@grouped
def export_entries(
    chosen: Chosen,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", callback=o.writable, help="Write them to this JSON file."),
    ],
    profiles: o.Profiles = None,
    json: o.Json = False,
) -> None:
    """Write entries to a file that 'profiles import' reads."""
    from placewright.cli.output import print_json
    from placewright.costs.profiles.exchange import Profiles, profiles_document
    from placewright.costs.profiles.store import ProfileStore
    from placewright.formats import files

    with ProfileStore(profiles, writable=False) as store:
        if output.resolve() == store.path.resolve():
            raise OptionError(f"--output {output}: is the store itself; give another file")
        found = Profiles.of(store, **asdict(chosen))
    files.write_json(output, profiles_document(found))
    if json:
        print_json({"entries": len(found.measured), "file": str(output)})
        return
    _say(f"{_counted(len(found.measured))} written to {output}")


@app.command("import")
def import_files(
    files: Annotated[list[Path], typer.Argument(help="Files of 'profiles export'.")],
    profiles: o.Profiles = None,
    json: o.Json = False,
) -> None:
    """Put what files hold into the store; of what is there already, the figures are replaced."""
    from placewright.cli.output import print_json
    from placewright.costs.profiles.exchange import load_profiles
    from placewright.costs.profiles.store import ProfileStore

    loaded = [load_profiles(path) for path in files]  # all of them before anything is written
    found = len(set().union(*(each.measured for each in loaded)))
    with ProfileStore(profiles) as store:
        new = sum(each.put(store) for each in loaded)
    if json:
        print_json({"new": new, "replaced": found - new, "store": str(store.path)})
        return
    _say(f"{_counted(found)} read: {new} new, {found - new} replaced in {store.path}")


@app.command("check")
def check_predictions(profiles: o.Profiles = None, json: o.Json = False) -> None:
    """Check predictions: leave each model, and each device, out of what they are made from."""
    from placewright.cli.output import console, print_json
    from placewright.costs.prediction.check import check
    from placewright.costs.profiles.store import ProfileStore

    with ProfileStore(profiles, writable=False) as store:
        checks = check(store)
    if json:
        print_json([asdict(each) | {"end_to_end": each.end_to_end} for each in checks])
        return
    out = console()
    out.print(_check_table(checks))
    for line in _check_summary(checks):
        out.print(line, markup=False, soft_wrap=True)


@app.command()
@grouped
def prune(
    chosen: Chosen,
    before: Annotated[
        str | None,
        typer.Option(help="Only what was measured before this date, as 2026-07-01 (UTC)."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    profiles: o.Profiles = None,
    json: o.Json = False,
) -> None:
    """Delete entries, after saying which and asking (with --json without asking)."""
    from placewright.cli.output import console, print_json
    from placewright.costs.profiles.store import ProfileStore

    choice = asdict(chosen) | {"before": None if before is None else _moment(before)}
    if all(value is None for value in choice.values()):
        raise OptionError(
            "nothing says what to delete; give --device, --library, --op or --before "
            "(--device '' is all)"
        )
    with ProfileStore(profiles, writable=False) as store:
        groups = store.groups(**choice)
    if not json:
        console().print(_group_table(groups))
    deleted = 0
    if groups and (yes or json or _agreed(sum(group.ops for group in groups), store.path)):
        with ProfileStore(store.path) as store:
            deleted = store.prune(**choice)
    if json:
        print_json({"deleted": deleted, "groups": [asdict(group) for group in groups]})
        return
    _say(f"{_counted(deleted)} deleted from {store.path}")


def _agreed(count: int, path: Path) -> bool:
    """What a person answers."""
    print(f"Delete {_counted(count)} from {path}? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        raise OptionError("nobody answers whether to delete; give --yes to do without asking")
    return answer.strip().lower() in ("y", "yes")


def _moment(text: str) -> datetime:
    """The beginning of a day, or a moment, in UTC unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        today = date.today().isoformat()
        raise OptionError(
            f"--before is '{text}'; write a date as {today}, or a time as {today}T12:00"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _check_table(checks: Iterable[Check]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="predictions of what was left out", title_justify="left")
    for column in ("left out", "on"):
        table.add_column(column)
    for column in ("ops", "median error", "95% below", "whole"):
        table.add_column(column, justify="right")
    for each in checks:
        whole = "" if each.end_to_end is None else f"{each.end_to_end:+.1%}"
        table.add_row(
            escape(f"{each.left_out} {each.name}"),
            "" if each.left_out == "device" else escape(each.device),
            str(each.ops),
            f"{each.median:.1%}",
            f"{each.largest:.1%}",
            whole,
        )
    return table


def _check_summary(checks: Iterable[Check]) -> Iterator[str]:
    """A line for what was left out, models and devices: the median of the rows."""
    for left_out in ("model", "device"):
        rows = [each for each in checks if each.left_out == left_out]
        if not rows:
            continue
        wholes = [abs(each.end_to_end) for each in rows if each.end_to_end is not None]
        text = f"a {left_out} left out: median error of an op {median(e.median for e in rows):.1%}"
        yield f"{text}, of the whole {median(wholes):.1%}" if wholes else text


def _group_table(groups: Iterable[ProfileGroup]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for column in ("device", "library", "ops", "first measured", "last measured"):
        table.add_column(column, justify="right" if column == "ops" else "left")
    for group in groups:
        names = (escape(group.device), escape(group.library))
        table.add_row(*names, str(group.ops), group.first, group.last)
    return table


def _entry_table(entries: Iterable[tuple[ProfileKey, Measured]]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from placewright.units import format_seconds

    table = Table()
    for column in ("op", "device", "library"):
        table.add_column(column, overflow="fold")
    for column in ("median", "5-95 %", "samples"):
        table.add_column(column, justify="right")
    table.add_column("method")
    for key, each in entries:
        table.add_row(
            *map(escape, (key.signature, key.device, key.library)),
            format_seconds(each.seconds),
            f"{format_seconds(each.low)} - {format_seconds(each.high)}",
            str(each.samples),
            each.method,
        )
    return table


def _counted(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"


def _say(text: str) -> None:
    from placewright.cli.output import console

    console().print(text, markup=False, soft_wrap=True)
