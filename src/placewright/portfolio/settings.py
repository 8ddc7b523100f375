"""What a run is asked for beside its problem and its limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from placewright.budget import Progress, no_progress
from placewright.portfolio.events import Observer, warn_of_failures
from placewright.portfolio.incumbent import Origin


@dataclass(frozen=True)
class Settings:
    """Where it works, where its plan is kept, and who hears of it.

    `processes`: workers, as many as cores if None; `ray`: the address of a Ray cluster to work on;
    `checkpoint`: the plan file that the best so far is kept in.
    """

    origin: Origin = field(default_factory=Origin)
    processes: int | None = None
    ray: str = ""
    checkpoint: Path | None = None
    observer: Observer = warn_of_failures
    on_progress: Progress = no_progress
