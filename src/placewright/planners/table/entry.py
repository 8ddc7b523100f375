"""A row of the table of planners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PlannerEntry:
    """A row of the table. `options`: name → what it means and its default."""

    name: str
    objective: str
    summary: str
    paper: str
    home: str
    """``module:Class`` inside `placewright`."""
    options: Mapping[str, str] = field(default_factory=dict)
    quick: bool = True
    """Done in seconds on any graph: what `compare` asks if none is named, and `auto` first."""


AUTO: Mapping[str, str] = {
    "processes": "workers (as many as cores; 1: in this process)",
    "iterations": "rounds of members, which a run repeats exactly (none)",
    "gap": "stop at this share between value and bound (0.0001)",
    "ray": "work on a Ray cluster: auto, local, HOST:PORT or ray://HOST:PORT (none)",
}
