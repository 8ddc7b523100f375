"""What-if answers as people read them: tables, and records for ``--json``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from placewright.plan import Plan
from placewright.report.fitted_table import Column, FittedTable, texts_of
from placewright.report.records import plan_record
from placewright.report.serving import sequences_text, serving_record
from placewright.report.words import rate_words, value_title
from placewright.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from placewright.whatif.replan import Point, Replan
    from placewright.whatif.robustness import Percentiles
    from placewright.whatif.sweep_lines import SweepLine

# -- sweep -----------------------------------------------------------------------------------


def sweep_table(lines: Sequence[SweepLine], title: str) -> FittedTable:
    """A line per variant, those on the front marked; one without a plan has the reason."""
    served = any(line.served for line in lines)
    priced = any(line.price is not None for line in lines)
    figures = _served_columns(lines) if served else _figure_columns(lines)
    columns = [
        Column("variant", [_marked(line) for line in lines], number=False, breaks=True),
        Column("devices", [str(line.devices) for line in lines], spare=5 if priced else 3),
        *figures,
        *(_price_columns(lines, served) if priced else ()),
        Column("than above", [line.than_previous for line in lines], number=False, spare=1),
        _planner_column(lines),
    ]
    return FittedTable(title, columns, [_style(line) for line in lines])


def _marked(line: SweepLine) -> str:
    return line.name + (" *" if line.front else "")


def _style(line: SweepLine) -> str:
    return "bold" if line.front else "dim" if line.plan is None else ""


def _figure_columns(lines: Sequence[SweepLine]) -> Iterator[Column]:
    """What one run takes on each variant."""
    found = [line.plan for line in lines]
    plans = [plan for plan in found if plan is not None]
    yield Column(_value_title(plans), texts_of(found, lambda plan: format_seconds(plan.value)))
    if any(plan.throughput is not None for plan in plans):
        yield Column(f"{rate_words(plans[0].problem)}/s", texts_of(found, _rate))
    bounds = texts_of(found, lambda plan: format_seconds(plan.lower_bound))
    yield Column("lower bound", bounds, spare=7)
    yield Column("gap", texts_of(found, lambda plan: f"{plan.gap:.1%}"), spare=2)


def _rate(plan: Plan) -> str:
    return "-" if plan.throughput is None else f"{plan.throughput:.4g}"


def _served_columns(lines: Sequence[SweepLine]) -> Iterator[Column]:
    """What requests take on each variant."""
    served = [line.served for line in lines]
    first = texts_of(served, lambda each: format_seconds(each.seconds_to_first_token))
    yield Column("first token", first, spare=6)
    step = texts_of(served, lambda each: format_seconds(each.seconds_per_token))
    yield Column("per token", step, spare=4)
    yield Column("tokens/s", texts_of(served, lambda each: f"{each.tokens_per_second:.4g}"))
    yield Column("gap", texts_of(served, lambda each: f"{each.gap:.1%}"), spare=2)
    yield Column("sequences", texts_of(served, sequences_text), spare=8)


def _price_columns(lines: Sequence[SweepLine], served: bool) -> Iterator[Column]:
    """What the devices cost, and what tokens come to."""
    yield Column("USD/hour", [_dollars(line.price) for line in lines])
    if served:
        yield Column("USD/1M tokens", [_dollars(line.price_of_tokens) for line in lines])


def _planner_column(lines: Sequence[SweepLine]) -> Column:
    """It stays where it has the reason of a variant that has no plan."""
    failed = any(line.plan is None for line in lines)
    texts = [_planner(line) for line in lines]
    return Column("planner", texts, number=False, breaks=True, spare=0 if failed else 7)


def _planner(line: SweepLine) -> str:
    """Who found the plan, and for which variant if not for this one; or why there is none."""
    if line.plan is None:
        return line.error
    of = f" (of {line.carried})" if line.carried else ""
    return line.plan.planner + of


def _dollars(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:.2f}"


def _value_title(plans: Sequence[Plan]) -> str:
    """What the values are, where they are of one kind: batches of many sizes are not."""
    titles = {value_title(plan.problem) for plan in plans}
    return titles.pop() if len(titles) == 1 else "value"


def sweep_legend(lines: Sequence[SweepLine]) -> str:
    """What the mark means, and what is proved of the lines."""
    what = "tokens per second" if any(line.served for line in lines) else "the objective"
    cost = "price" if any(line.price is not None for line in lines) else "number of devices"
    words = [f"* no other variant is better in {what} and the {cost}"]
    if any(line.than_previous in ("better", "worse") for line in lines):
        words.append("better, worse: proved, for a bound is between the two")
    if any(line.than_previous == "open" for line in lines):
        words.append("open: the two differ by less than the search leaves open (see gap)")
    if any(line.carried for line in lines):
        words.append("of …: the plan of that variant, which is as good here as any that was found")
    return "\n".join(words)


def sweep_records(lines: Sequence[SweepLine]) -> list[dict[str, Any]]:
    """A record per variant: that of its plan, or ``value`` null and ``error``, with its name.

    `device_count`, `price` (USD per hour or null) and `front` (on the Pareto front) besides; for a
    mix also `price_of_tokens` (USD per million of the output, or null). `better_than` names the
    variants that it is proved to be better than, `than_previous` says ``better``, ``worse``,
    ``equal`` or ``open`` (null without a plan before it), `carried_from` whose plan it is, or null.
    """
    return [
        {
            "variant": line.name,
            "device_count": line.devices,
            "price": line.price,
            "front": line.front,
            "better_than": list(line.better_than),
            "than_previous": line.than_previous or None,
            "carried_from": line.carried or None,
            **_line_record(line),
        }
        for line in lines
    ]


def _line_record(line: SweepLine) -> dict[str, Any]:
    if line.plan is None:
        return {"value": None, "status": "unknown", "error": line.error}
    if line.served is None:
        return plan_record(line.plan)
    return {"price_of_tokens": line.price_of_tokens, **serving_record(line.served)}


# -- replan ----------------------------------------------------------------------------------


def replan_table(result: Replan) -> Table:
    """A line per answer, from the fewest bytes moved to the most; the chosen one is marked."""
    problem = result.chosen.plan.problem
    table = Table(title=escape(problem.name), title_justify="left")
    table.add_column("answer")
    for column in ("moved", "of all", "ops", value_title(problem), "gap"):
        table.add_column(column, justify="right")
    for point in result.points:
        mark = " *" if point is result.chosen else ""
        share = point.moved_bytes / result.total_bytes if result.total_bytes else 0.0
        table.add_row(
            point.kind + mark,
            format_bytes(point.moved_bytes),
            f"{share:.1%}",
            str(point.moved_ops),
            format_seconds(point.plan.value),
            f"{point.plan.gap:.1%}",
            style="bold" if mark else "",
        )
    return table


def replan_record(result: Replan, path: str | Path | None = None) -> dict[str, Any]:
    """`chosen` as ``plan --json`` has it, and the `points`; bytes moved in all and by force."""
    return {
        "chosen": _point_record(result.chosen) | {"plan": None if path is None else str(path)},
        "points": [
            _point_record(point) | {"chosen": point is result.chosen} for point in result.points
        ],
        "forced_bytes": result.forced_bytes,
        "total_bytes": result.total_bytes,
    }


def _point_record(point: Point) -> dict[str, Any]:
    return {
        "kind": point.kind,
        "moved_bytes": point.moved_bytes,
        "moved_ops": point.moved_ops,
        **plan_record(point.plan),
    }


# -- robustness ------------------------------------------------------------------------------


def percentiles_line(found: Percentiles, noise: float) -> str:
    """The three percentiles in words, for under the summary of a plan."""
    return (
        f"with costs varying by {noise:.0%}: median {format_seconds(found.p50)}, 90% of runs "
        f"between {format_seconds(found.p5)} and {format_seconds(found.p95)}"
    )


def robust_line(before: Percentiles, after: Percentiles) -> str:
    """What a robust plan gains over the plan it started from."""
    if after.p95 >= before.p95:
        return "robust: no plan with a smaller 95th percentile was found"
    gain = 1 - after.p95 / before.p95
    return (
        f"robust: 95th percentile {format_seconds(before.p95)} → {format_seconds(after.p95)} "
        f"({-gain:.1%})"
    )
