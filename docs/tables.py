"""Writes the tables of planners into their pages: `python docs/tables.py`.

Each stands between two comments:

- ``<!-- planners for OBJECTIVE -->`` in docs/planners.md: what there is, with links;
- ``<!-- facts -->``, ``<!-- options -->`` and ``<!-- values -->`` in docs/planners/NAME.md: what
  the planner is, its options, and what it came to in docs/planners/values.json.

The first three come from `placewright.planners.TABLE`, whose rows are the one place where a planner
is described in a sentence; the values from ``benchmarks/each_planner.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from placewright.planners import TABLE, PlannerEntry, planners_for
from placewright.units import format_seconds

DOCS = Path(__file__).parent
INDEX = DOCS / "planners.md"
VALUES = DOCS / "planners" / "values.json"
BLOCK = re.compile(r"(<!-- ([\w-]+)(?: for ([\w-]+))? -->\n).*?(<!-- end -->)", re.DOTALL)
AUTO, ALONE = "auto", "single-device"


def pages() -> Iterator[Path]:
    """The index and the page of each planner."""
    yield INDEX
    yield from (page_of(name) for name in dict.fromkeys(row.name for row in TABLE))


def page_of(name: str) -> Path:
    return DOCS / "planners" / f"{name}.md"


def with_tables(path: Path) -> str:
    """A page with its tables as rows and values are now."""
    tables: dict[str, Callable[[str], list[str]]] = {
        "planners": _planners,
        "facts": lambda _: _facts(path.stem),
        "options": lambda _: _options(path.stem),
        "values": lambda _: _values(path.stem),
    }

    def written(found: re.Match[str]) -> str:
        lines = tables[found[2]](found[3])
        return f"{found[1]}{chr(10).join([*lines, ''])}{found[4]}"

    return BLOCK.sub(written, path.read_text("utf-8"))


def rows_of(name: str) -> list[PlannerEntry]:
    return [row for row in TABLE if row.name == name]


def _planners(objective: str) -> list[str]:
    """The planners for an objective, each with a link to its page."""
    head = ["| planner | what it does | from |", "|---|---|---|"]
    return head + [
        f"| [`{row.name}`](planners/{row.name}.md) | {row.summary} | {row.paper} |"
        for row in planners_for(objective)
    ]


def _facts(name: str) -> list[str]:
    """A row per objective: what the planner does, where it is from, whether it is quick."""
    head = ["| objective | what it does | from | quick |", "|---|---|---|---|"]
    return head + [
        f"| `{row.objective}` | {row.summary} | {row.paper} | {'yes' if row.quick else 'no'} |"
        for row in rows_of(name)
    ]


def _options(name: str) -> list[str]:
    """A row per option and meaning, with the objectives that it is for where there are several."""
    rows = rows_of(name)
    meanings: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for option, meaning in row.options.items():
            meanings.setdefault((option, meaning), []).append(f"`{row.objective}`")
    if not meanings:
        return ["None."]
    several = len(rows) > 1
    head = "| option | meaning (default) |" + (" for |" if several else "")
    rule = "|---|---|" + ("---|" if several else "")
    return [
        *(head, rule),
        *(
            f"| `{option}` | {meaning} |" + (f" {', '.join(users)} |" if several else "")
            for (option, meaning), users in meanings.items()
        ),
    ]


def _values(name: str) -> list[str]:
    """A row per case: the planner's value beside those of others, and the best bound."""
    cases = _cases_with(name)
    if not cases:
        return ["Not measured: it takes a placement from you."]
    others = [each for each in (ALONE, AUTO) if each != name]
    titles = ["model, cluster", f"`{name}`", *(f"`{each}`" for each in others)]
    titles += ["best quick one", "lower bound"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for case in cases.values():
        cells = [_shown(case, each) for each in (name, *others)]
        row = [_what(case), *cells, _best_quick(case), format_seconds(case["lower_bound"])]
        lines.append(f"| {' | '.join(row)} |")
    reasons = (case["planners"][name]["why"] for case in cases.values())
    found = [f"No plan: {why}." for why in dict.fromkeys(reasons) if why]
    return [*lines, *([""] if found else []), *found]


def _cases_with(name: str) -> dict[str, Any]:
    cases: dict[str, Any] = json.loads(VALUES.read_text("utf-8"))
    return {title: case for title, case in cases.items() if name in case["planners"]}


def _what(case: dict[str, Any]) -> str:
    """The model and the cluster, and what was asked beside the objective."""
    options = [f"{name} {str(value).lower()}" for name, value in case["options"].items()]
    more = f", {', '.join(options)}" if options else ""
    return f"`{case['objective']}`: `{case['source']}` on `{case['cluster']}`{more}"


def _shown(case: dict[str, Any], planner: str) -> str:
    value = case["planners"][planner]["value"]
    return "no plan" if value is None else format_seconds(value)


def _best_quick(case: dict[str, Any]) -> str:
    quick = {
        name: each["value"]
        for name, each in case["planners"].items()
        if each["value"] is not None and not each["limit"]
    }
    if not quick:
        return "no plan"
    best = min(quick, key=quick.__getitem__)
    return f"{format_seconds(quick[best])} (`{best}`)"


if __name__ == "__main__":
    for each in pages():
        each.write_text(with_tables(each), "utf-8")
