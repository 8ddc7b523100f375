"""What the default planner tells on its way, written to a file as it comes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.cli.gaps import Gaps
from placewright.cli.output import remark
from placewright.errors import OptionError
from placewright.formats import files
from placewright.planning import LEARNING, tells

if TYPE_CHECKING:
    from placewright.portfolio.events import Event, Observer


@contextmanager
def observed(
    path: Path | None, planner: str, coarsening: str = "none", gaps: Gaps | None = None
) -> Iterator[Observer]:
    """An observer that writes every event to `path`, a JSON object per line, if there is one.

    `gaps` hears of them too. Members that failed or sit out are also named on stderr. OptionError
    if `planner` has no events to tell.
    """
    told = gaps or Gaps()

    def tell(event: Event) -> None:
        told.hear(event)
        _tell(event)

    if path is not None and not tells(planner, coarsening):
        raise OptionError(
            "--events is for planner auto without --coarsen, and for those that learn "
            f"({', '.join(LEARNING)}); leave one of them out"
        )
    if path is None:
        yield tell
        return
    with files.writing(path):
        file = path.open("w", encoding="utf-8")
    try:

        def write(event: Event) -> None:
            with files.writing(path):
                file.write(json.dumps(event.to_document(), allow_nan=False) + "\n")
                file.flush()
            tell(event)

        yield write
    finally:
        with files.writing(path):  # what could not be written is tried once more
            file.close()


def _tell(event: Event) -> None:
    if event.kind == "failure":
        remark(f"placewright: planner '{event.source}' failed and was left out: {event.message}")
    elif event.kind == "absence":
        remark(f"placewright: {event.message}")
