"""The top of a report as a piece of HTML, which notebooks show in place of a plan.

It holds its style and no script, takes the colours of the notebook, light or dark, and names in
it are only ever text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from placewright.plan import Plan
from placewright.report.html.answer import answer_record
from placewright.report.html.drawing import drawing
from placewright.units import format_seconds

MOST = 200  # characters of a name
BAR = (
    "height:.5em;max-width:36em;border-radius:3px;background:linear-gradient(to right,"
    "#0072b2 {share:.1f}%,#e69f00 {share:.1f}%)"
)


def plan_html(plan: Plan) -> str:
    """The answer in a sentence, its figures, what limits the plan and what its times rest on."""
    answer = answer_record(plan, drawing(plan))
    return "".join(
        (
            '<div style="font-family:sans-serif;line-height:1.4">',
            f'<bdi style="font-weight:600;overflow-wrap:anywhere">{_named(plan)}</bdi>',
            _paragraph(_capital(answer["sentence"])),
            _bar(plan),
            _figures(answer),
            _listed("What limits it", answer["limits"]),
            _listed("What its times rest on", _costs(answer["costs"])),
            _listed("Notes", map(_capital, answer["notes"])),
            _paragraph(_capital(answer["provenance"]), "opacity:.75;font-size:smaller"),
            "</div>",
        )
    )


def _named(plan: Plan) -> str:
    name = plan.problem.name
    return escape(name if len(name) <= MOST else f"{name[:MOST]}…")


def _bar(plan: Plan) -> str:
    """The value, of which no plan can do without the part up to the bound."""
    if not plan.value:
        return ""
    share = 100 * min(1.0, plan.lower_bound / plan.value)
    said = f"lower bound {format_seconds(plan.lower_bound)}, value {format_seconds(plan.value)}"
    return f'<div role="img" aria-label="{escape(said)}" style="{BAR.format(share=share)}"></div>'


def _figures(answer: dict[str, Any]) -> str:
    bound = answer["bound_source"]
    rows = (
        (answer["words"], format_seconds(answer["value"]), answer["throughput"] or ""),
        ("lower bound", format_seconds(answer["bound"]), bound),
        ("gap", f"{answer['gap']:.1%}", answer["status"]),
    )
    cells = (
        f'<tr><th scope="row" style="text-align:left">{escape(_capital(what))}</th>'
        f"<td>{escape(figure)}</td>"
        f'<td style="text-align:left;opacity:.75">{escape(detail)}</td></tr>'
        for what, figure, detail in rows
    )
    return f"<table>{''.join(cells)}</table>"


def _costs(shares: dict[str, float]) -> Iterator[str]:
    for source, share in shares.items():
        yield f"{source}: {'under 1%' if share < 0.005 else f'{share:.0%}'}"


def _listed(title: str, items: Iterable[str]) -> str:
    rows = "".join(f'<li style="overflow-wrap:anywhere">{escape(each)}</li>' for each in items)
    return f'<b>{escape(title)}</b><ul style="margin:0">{rows}</ul>' if rows else ""


def _paragraph(text: str, style: str = "") -> str:
    return f'<p style="margin:.4em 0;overflow-wrap:anywhere;{style}">{escape(text)}</p>'


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
