"""What each device of a plan does, as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.markup import escape
from rich.table import Table

from placewright.plan import Plan
from placewright.report.blocks import device_blocks
from placewright.report.shares import input_texts
from placewright.report.words import device_columns
from placewright.units import format_bytes, format_seconds

BORDER = 3  # characters that a column takes beside its text
TEXT_ROOM = 20  # characters that a column of text keeps, where its texts are longer
NOTE = "more columns: in a wider terminal, or with --wide"


@dataclass(frozen=True)
class Column:
    title: str
    texts: list[str]
    number: bool = True
    breaks: bool = False  # into lines, where it is long
    spare: int = 0  # left out where there is no room, the largest first; 0: always there

    @property
    def width(self) -> int:
        longest = max(map(cell_len, (self.title, *self.texts)))
        return BORDER + (min(longest, TEXT_ROOM) if self.breaks else longest)


@dataclass(frozen=True)
class DeviceTable:
    """A line per device: how long it computes, what it keeps and sends, which blocks it has.

    Where the terminal is too narrow for all columns, the less important ones are left out, and
    that is said.
    """

    plan: Plan

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = list(_columns(self.plan))
        kept = fitting(columns, options.max_width)
        table = Table(title=escape(self.plan.problem.name), title_justify="left")
        for column in kept:
            justify: JustifyMethod = "right" if column.number else "left"
            table.add_column(column.title, justify=justify, no_wrap=not column.breaks)
        for row in zip(*(column.texts for column in kept), strict=True):
            table.add_row(*map(escape, row))
        yield table
        if len(kept) < len(columns):
            yield NOTE


def fitting(columns: Iterable[Column], room: int) -> list[Column]:
    """The columns without as many of the spare ones as it takes to fit into `room` characters."""
    kept = list(columns)
    for dropped in sorted((each for each in kept if each.spare), key=lambda each: -each.spare):
        if 1 + sum(each.width for each in kept) <= room:
            break
        kept.remove(dropped)
    return kept


def _columns(plan: Plan) -> Iterator[Column]:
    problem, load, value = plan.problem, plan.device_load, plan.value
    yield Column("device", list(problem.device_names), number=False)
    yield Column("kind", list(problem.device_kinds), number=False, breaks=True, spare=4)
    if plan.placement.replica_shares:
        yield Column("inputs", input_texts(plan))
    yield Column("ops", [str(len(ops)) for ops in plan.device_ops], spare=3)
    yield Column("load", [format_seconds(float(each)) for each in load])
    yield Column("busy", [f"{float(each) / value:.0%}" if value else "-" for each in load])
    yield Column("memory", [format_bytes(float(each)) for each in plan.device_memory])
    capacity = [format_bytes(float(each)) for each in problem.device_memory]
    yield Column("capacity", capacity, spare=1)
    for title, texts in device_columns(plan).items():
        yield Column(title, texts, spare=2)
    blocks = device_blocks(plan)
    if blocks is not None:
        yield Column("blocks", list(blocks), number=False, breaks=True)
