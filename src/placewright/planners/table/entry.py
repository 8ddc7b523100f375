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
    formerly: str = ""
    """A name it had before, which is still taken."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """What its constructor gets beside the options."""
    quick: bool = True
    """Done in seconds on any graph: what `compare` asks if none is named, and `auto` first."""
    learns: bool = False
    """Has a learning curve to tell (`budget.Lesson`)."""
