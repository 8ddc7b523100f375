"""Writes the tables of planners into docs/planners.md: `python docs/tables.py`.

They stand between two comments and come from `placewright.planners.TABLE`, whose rows
are the one place where a planner is described in a sentence.
"""

from __future__ import annotations

import re
from pathlib import Path

from placewright.planners import PlannerEntry, planners_for

PAGE = Path(__file__).parent / "planners.md"
TABLE = re.compile(r"(<!-- planners for ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """The page with its tables as the rows are now; a planner's name links to its section."""
    return TABLE.sub(lambda found: f"{found[1]}{_table(found[2], page)}{found[3]}", page)


def _table(objective: str, page: str) -> str:
    rows = [
        f"| {_name(row, page)} | {row.summary} | {row.paper} |" for row in planners_for(objective)
    ]
    return "\n".join(["| planner | what it does | from |", "|---|---|---|", *rows, ""])


def _name(row: PlannerEntry, page: str) -> str:
    heading = row.name if row.objective == "latency" else f"{row.name}, {row.objective}"
    if f"\n### {heading}\n" not in page:
        return f"`{row.name}`"
    return f"[`{row.name}`](#{heading.replace(', ', '-')})"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
