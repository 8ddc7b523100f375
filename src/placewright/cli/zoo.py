"""``placewright zoo``: models that need no file."""

from __future__ import annotations

from functools import partial

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
    from placewright.report.fitted_table import LIST_NOTE, Column, FittedTable

    there = list(entries())
    keys = [" ".join(f"{key}={each.parameters[key]}" for key in each.parameters) for each in there]
    text = partial(Column, number=False, breaks=True, room=16)
    columns = (
        text("name", [each.name for each in there]),
        text("family", [each.family for each in there], spare=2),
        Column("weights", [format_count(each.parameter_count) for each in there], spare=1),
        text("description", [each.description for each in there], spare=3),
        text("keys and defaults", keys),
    )
    console().print(FittedTable("", columns, note=LIST_NOTE))
