"""``placewright planners``: the table of planners."""

from __future__ import annotations

from functools import partial

from placewright.cli import options as o


def command(json: o.Json = False) -> None:
    """List the planners: what each does and where it comes from."""
    from placewright.cli.output import console, print_json
    from placewright.planners import TABLE

    if json:
        print_json(
            [
                {
                    "name": row.name,
                    "objective": row.objective,
                    "summary": row.summary,
                    "paper": row.paper,
                    "options": dict(row.options),
                }
                for row in TABLE
            ]
        )
        return
    from placewright.report.fitted_table import LIST_NOTE, Column, FittedTable

    text = partial(Column, number=False, breaks=True, room=16)
    columns = (
        text("planner", [row.name for row in TABLE], room=20),
        text("objective", [row.objective for row in TABLE], room=20, spare=1),
        text("what it does", [row.summary for row in TABLE]),
        text("from", [row.paper for row in TABLE], spare=2),
    )
    console().print(FittedTable("", columns, note=LIST_NOTE))
