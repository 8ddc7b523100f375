"""Tables that leave out their less important columns where the terminal is narrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.markup import escape
from rich.table import Table

from placewright.units import printable

BORDER = 3  # characters that a column takes beside its text
TEXT_ROOM = 20  # characters that a column of text keeps, where its texts are longer
LEAST_ROOM = 8  # and where they are folded: fewer characters are no text any more
NAME_FRONT, NAME_BACK = 20, 11  # characters that are left of a name that is too long
NOTE = "more columns: in a wider terminal, or with --wide"
LIST_NOTE = "more columns: in a wider terminal, or with --json"

T = TypeVar("T")


@dataclass(frozen=True)
class Column:
    title: str
    texts: Sequence[str]
    number: bool = True
    breaks: bool = False  # into lines, where it is long
    room: int = TEXT_ROOM  # characters that it keeps where it breaks
    spare: int = 0  # left out where there is no room, the largest first; 0: always there

    @property
    def shown(self) -> list[str]:
        return [printable(text, keep="\n") for text in self.texts]

    @property
    def width(self) -> int:
        longest = max(map(cell_len, (self.title, *self.shown)))
        return BORDER + (min(longest, self.room) if self.breaks else longest)


@dataclass(frozen=True)
class FittedTable:
    """A line per text of the columns; which columns were left out, if any, is said below.

    `styles` has one for each line, or none at all; `note` says where the other columns are.
    """

    title: str
    columns: Sequence[Column]
    styles: Sequence[str] = ()
    note: str = NOTE

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept = fitting(self.columns, options.max_width)
        table = Table(title=escape(self.title) or None, title_justify="left")
        for column in kept:
            _add(table, column)
        rows = zip(*(column.shown for column in kept), strict=True)
        for number, row in enumerate(rows):
            table.add_row(*map(escape, row), style=self.styles[number] if self.styles else "")
        yield table
        if len(kept) < len(self.columns):
            yield self.note


def _add(table: Table, column: Column) -> None:
    justify: JustifyMethod = "right" if column.number else "left"
    table.add_column(
        column.title,
        justify=justify,
        min_width=min(column.width - BORDER, LEAST_ROOM) if column.breaks else None,
        no_wrap=not column.breaks,
        overflow="fold" if column.breaks else "ellipsis",
    )


def texts_of(found: Iterable[T | None], text: Callable[[T], str]) -> list[str]:
    """A text for each that there is, a dash for the others."""
    return ["-" if each is None else text(each) for each in found]


def fitting(columns: Iterable[Column], room: int) -> list[Column]:
    """The columns without as many of the spare ones as it takes to fit into `room` characters."""
    kept = list(columns)
    for dropped in sorted((each for each in kept if each.spare), key=lambda each: -each.spare):
        if 1 + sum(each.width for each in kept) <= room:
            break
        kept.remove(dropped)
    return kept


def short_name(name: str) -> str:
    """A name from a file as a table shows it: of a long one the front and the end.

    The end stays, for names often differ in a number there.

    >>> short_name("gpu0"), short_name("node" * 20 + "-gpu7")
    ('gpu0', 'nodenodenodenodenode…denode-gpu7')
    """
    name = printable(name)
    if cell_len(name) <= NAME_FRONT + 1 + NAME_BACK:
        return name
    back = chop_cells(name[::-1], NAME_BACK)[0][::-1]
    return f"{chop_cells(name, NAME_FRONT)[0]}…{back}"
