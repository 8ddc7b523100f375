"""``placewright imports``: what is kept of sources that take long to import."""

from __future__ import annotations

from typing import Annotated

import typer

from placewright.cli import options as o


def command(
    clear: Annotated[bool, typer.Option("--clear", help="Remove them all.")] = False,
    json: o.Json = False,
) -> None:
    """Say where imported models are kept, and how many; or remove them.

    PLACEWRIGHT_IMPORTS names another folder; with PLACEWRIGHT_IMPORTS=off nothing is kept.
    """
    from placewright.cli.output import console, print_json
    from placewright.importers.cache import store
    from placewright.units import format_bytes

    place = store.folder()
    found = store.clear() if clear else store.entries()
    total = sum(entry.bytes for entry in found)
    if json:
        print_json(
            {
                "folder": None if place is None else str(place),
                "imports": len(found),
                "bytes": total,
                "most_bytes": store.MOST_BYTES,
                "removed": clear,
            }
        )
        return
    if place is None:
        console().print(f"no imports are kept: {store.VARIABLE} is {store.OFF}", markup=False)
        return
    imports = "1 import" if len(found) == 1 else f"{len(found)} imports"
    kept = "removed" if clear else f"of at most {format_bytes(store.MOST_BYTES)}"
    console().print(f"{place}: {imports}, {format_bytes(total)} {kept}", markup=False)
