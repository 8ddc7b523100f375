"""``placewright warm-up``: compile what planning needs, before anybody waits for it."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from placewright.cli import completion
from placewright.cli import options as o
from placewright.objectives import OBJECTIVES


def command(
    objective: Annotated[
        str | None,
        typer.Option(
            help="For this objective only.", autocompletion=completion.one_of(tuple(OBJECTIVES))
        ),
    ] = None,
    json: o.Json = False,
) -> None:
    """Compile the kernels that planning uses, and keep them: for container images.

    What is compiled already is left as it is, so that a second call does nothing. Kernels are kept
    where NUMBA_CACHE_DIR says, else beside the package, or in the user's cache folder if that
    cannot be written.
    """
    from placewright.cli.output import console, print_json, progress
    from placewright.errors import OptionError
    from placewright.portfolio.members import everybody
    from placewright.portfolio.warm_up import cold_members, warm_up_all

    if objective is not None and objective not in OBJECTIVES:
        raise OptionError(f"objective is '{objective}'; choose {', '.join(OBJECTIVES)}")
    began = time.monotonic()
    members = {each: everybody(each) for each in ([objective] if objective else OBJECTIVES)}
    compiled = {
        each: [member.title for member in cold_members(each, some)]
        for each, some in members.items()
    }
    with progress(quiet=json) as on_progress:
        warm_up_all(members, on_progress)
    seconds = time.monotonic() - began
    if json:
        print_json({"compiled": compiled, "seconds": seconds})
        return
    count = sum(map(len, compiled.values()))
    what = f"compiled for {count} planners in {seconds:.0f} s" if count else "nothing to compile"
    console().print(what, markup=False)
