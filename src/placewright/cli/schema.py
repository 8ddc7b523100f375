"""``placewright schema``: the file formats as JSON Schema."""

from __future__ import annotations

from typing import Annotated

import typer

from placewright.cli import completion


def command(
    name: Annotated[
        str,
        typer.Argument(
            help="graph, cluster, plan or profiles.",
            metavar="FORMAT",
            autocompletion=completion.formats,
        ),
    ],
) -> None:
    """Print the JSON Schema of a file format."""
    from placewright.cli.output import print_json
    from placewright.formats.schema import json_schema

    print_json(json_schema(name))
