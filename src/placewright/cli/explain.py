"""``placewright explain``: why an op, a block or a device of a plan is as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placewright.cli import options as o

if TYPE_CHECKING:
    from placewright.whatif.explain.devices import DeviceExplanation
    from placewright.whatif.explain.places import PlaceExplanation


def command(
    plan: Annotated[Path, typer.Argument(help="A plan file.", metavar="PLAN")],
    name: Annotated[
        str,
        typer.Argument(
            help="An op, a block or module of the model, or a device; op:NAME, block:NAME, "
            "module:NAME or device:NAME where they are called the same.",
            metavar="NAME",
        ),
    ],
    *,
    json: o.Json = False,
) -> None:
    """Say why NAME is where PLAN has it: what other places would cost, and what forbids them.

    Every move is timed as plans are, with all else where it is. The plan is judged first: exit
    code 4 if it is wrong.
    """
    from placewright.cli.output import announce_compilation, print_json
    from placewright.report.explain import explanation_record
    from placewright.whatif.explain.devices import DeviceExplanation
    from placewright.whatif.explain.explaining import explain

    announce_compilation()
    found = explain(plan, name)
    if json:
        print_json(explanation_record(found))
    elif isinstance(found, DeviceExplanation):
        _print_device(found)
    else:
        _print_place(found)


def _print_place(found: PlaceExplanation) -> None:
    from placewright.cli.output import console
    from placewright.report.explain import chain_lines, place_words, places_table, ties_table

    out = console()
    out.print(place_words(found), markup=False, soft_wrap=True)
    if found.moves:
        out.print(places_table(found))
    if {id(each) for each in found.ties} - {id(each) for each in found.moves}:
        out.print(ties_table(found.plan, found.ties, "allowed moves that change least"))
    for line in chain_lines(found):
        out.print(line, markup=False, soft_wrap=True)


def _print_device(found: DeviceExplanation) -> None:
    from placewright.cli.output import console
    from placewright.report.explain import device_lines, leaving_title, ties_table

    out = console()
    for line in device_lines(found):
        out.print(line, markup=False, soft_wrap=True)
    if found.leaving:
        out.print(ties_table(found.plan, found.leaving, leaving_title(found)))
