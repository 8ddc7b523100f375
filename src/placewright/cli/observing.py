"""What the default planner tells on its way, written to a file as it comes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.cli.output import remark

if TYPE_CHECKING:
    from placewright.portfolio.events import Event, Observer


@contextmanager
def observed(path: Path | None) -> Iterator[Observer]:
    """An observer that writes every event to `path`, a JSON object per line, if there is one.

    Members that failed are also named on stderr.
    """
    if path is None:
        yield _name_failures
        return
    with path.open("w", encoding="utf-8") as file:

        def write(event: Event) -> None:
            file.write(json.dumps(event.to_document(), allow_nan=False) + "\n")
            file.flush()
            _name_failures(event)

        yield write


def _name_failures(event: Event) -> None:
    if event.kind == "failure":
        remark(f"placewright: planner '{event.source}' failed and was left out: {event.message}")
