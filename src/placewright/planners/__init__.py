"""The table of planners: every algorithm placewright has, and where it comes from.

A planner's code is imported when it is first used.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from placewright.errors import OptionError
from placewright.options import check_kind
from placewright.planners.table import TABLE, PlannerEntry
from placewright.system.references import referred

if TYPE_CHECKING:
    from placewright.planners.base import Planner


__all__ = ["TABLE", "PlannerEntry", "as_texts", "create", "entry", "planners_for"]


def planners_for(objective: str) -> list[PlannerEntry]:
    """The rows of the table for an objective."""
    return [row for row in TABLE if row.objective == objective]


def entry(name: str, objective: str = "latency") -> PlannerEntry:
    """The row of the planner `name` for an objective; OptionError with the nearest if none."""
    if _is_own(name):
        from placewright.planners.own import own_entry

        return own_entry(name, objective)
    rows = [row for row in TABLE if name and name in (row.name, row.formerly)]
    for row in rows:
        if row.objective == objective:
            return row
    names = [row.name for row in planners_for(objective)]
    if rows:
        raise OptionError(
            f"planner '{name}' plans for {' and '.join(row.objective for row in rows)}, not for "
            f"{objective}; there are {', '.join(names) or 'none'}"
        )
    close = difflib.get_close_matches(name.casefold(), names, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(names)}"
    raise OptionError(f"no planner '{name}'; {hint}")


def create(
    name: str, options: Mapping[str, str] | None = None, objective: str = "latency"
) -> Planner:
    """The planner `name` with its options (``-O key=value`` on the command line).

    A name with a colon is of a class of the user's own, which is imported.
    """
    given = as_texts(options)
    if _is_own(name):
        from placewright.planners.own import create_own

        return create_own(name, given)
    row = entry(name, objective)
    for option in given:
        if option not in row.options:
            known = ", ".join(row.options) or "none"
            raise OptionError(f"planner '{name}' has no option '{option}'; it has: {known}")
    planner: Planner = referred(row.home)(**row.fixed, **given)
    return planner


def as_texts(options: Mapping[str, str] | None) -> dict[str, str]:
    """Options as a command line gives them and a plan file keeps them, numbers too."""
    return {name: str(value) for name, value in (options or {}).items()}


def _is_own(name: str) -> bool:
    """Whether a planner is named by its module and class; OptionError for what is no name."""
    check_kind(name, str, "planner", "the name of one, such as 'heft'")
    return ":" in name
