"""``placewright planners``: the table of planners."""

from __future__ import annotations

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
    from rich.table import Table

    table = Table()
    for column in ("planner", "objective", "what it does", "from"):
        table.add_column(column)
    for row in TABLE:
        table.add_row(row.name, row.objective, row.summary, row.paper)
    console().print(table)
