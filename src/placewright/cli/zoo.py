"""``placewright zoo``: models that need no file."""

from __future__ import annotations

from placewright.cli import options as o


def command(json: o.Json = False) -> None:
    """List the models made from hyper-parameters; use one as zoo:NAME[?key=value&...]."""
    from placewright.cli.output import console, print_json
    from placewright.importers.zoo import entries
    from placewright.units import format_count

    if json:
        print_json(
            [
                {
                    "name": entry.name,
                    "family": entry.family,
                    "description": entry.description,
                    "parameter_count": entry.parameter_count,
                    "parameters": dict(entry.parameters),
                }
                for entry in entries()
            ]
        )
        return
    from rich.table import Table

    table = Table()
    for column in ("name", "family", "weights", "description", "keys and defaults"):
        table.add_column(column, justify="right" if column == "weights" else "left")
    for entry in entries():
        keys = " ".join(f"{key}={value}" for key, value in entry.parameters.items())
        weights = format_count(entry.parameter_count)
        table.add_row(entry.name, entry.family, weights, entry.description, keys)
    console().print(table)
