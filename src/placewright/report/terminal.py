"""Plans and comparisons as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from placewright.options import Options
from placewright.plan import Plan
from placewright.report.blocks import block_words
from placewright.report.cache import cache_words
from placewright.report.costs import cost_words
from placewright.report.fitted_table import Column, FittedTable, fitting
from placewright.report.memory import memory_rows
from placewright.report.shares import share_words
from placewright.report.words import (
    counts,
    rate_words,
    value_title,
    value_words,
)
from placewright.solving import Comparison
from placewright.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from placewright.runtime import RunReport

NARROWEST = 4  # characters that a column takes at least, its border included
UNBOUNDED = 1 << 20  # characters: a terminal in which every table fits


def summary(plan: Plan) -> str:
    """The answer in two lines, and others on a KV cache, blocks and shares where there are such."""
    value = (
        f"{_value(plan)}, lower bound "
        f"{format_seconds(plan.lower_bound)} ({plan.bound_source}), gap {plan.gap:.1%}"
    )
    more = (cache_words(plan), block_words(plan), share_words(plan), provenance(plan))
    return "\n".join(filter(None, (value, *more)))


def line(plan: Plan) -> str:
    """The answer in one line."""
    used, there = len(plan.used_devices), plan.problem.device_count
    return (
        f"{_value(plan)}, lower bound {format_seconds(plan.lower_bound)}, gap {plan.gap:.1%}, "
        f"{used} of {there} devices"
    )


def provenance(plan: Plan) -> str:
    """Who planned what, on which terms, and on which costs."""
    return "; ".join(filter(None, (terms(plan), cost_words(plan))))


def terms(plan: Plan) -> str:
    """Who planned what, and on which terms; how long it took, unless the plan is from a file."""
    amounts = ", ".join(f"{count} {what}" for what, count in counts(plan).items())
    took = "" if math.isnan(plan.seconds) else f", {format_seconds(plan.seconds)}"
    return "; ".join(
        filter(
            None,
            (
                f"planner {plan.planner}{_finder(plan)}{took}",
                f"{plan.problem.op_count} ops, {amounts}",
                _chosen(plan.problem.options),
            ),
        )
    )


def _value(plan: Plan) -> str:
    """The value, and the throughput where that is what people ask for."""
    text = f"{value_words(plan.problem)} {format_seconds(plan.value)}"
    if plan.throughput is None:
        return text
    rate = f"{plan.throughput:.4g} {rate_words(plan.problem)} per second"
    if (plan.problem.input_samples or 1) > 1 and 0 < plan.throughput < math.inf:
        rate = f"{format_seconds(1 / plan.throughput)} per sample, {rate}"
    return f"{text} ({rate})"


def _chosen(options: Options) -> str:
    """The options that belong to the objective, in words."""
    words = []
    for name, value in options.to_document().items():
        if isinstance(value, bool):
            words.append(name if value else f"not {name}")
        elif name != "objective":
            words.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(words)


@dataclass(frozen=True)
class ComparisonTable:
    """A line per planner, the best marked; with the load and memory of each device if they fit."""

    lines: Sequence[Comparison]
    title: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plans = [line.plan for line in self.lines if line.plan is not None]
        devices = plans[0].problem.device_names if plans else ()
        if NARROWEST * len(devices) <= options.max_width:  # else it is not worth measuring
            whole = self._table(devices)
            unbounded = options.update(max_width=UNBOUNDED)
            if Measurement.get(console, unbounded, whole).maximum <= options.max_width:
                yield whole
                return
        columns = self._columns()
        yield FittedTable(self.title, columns, [_style(mark) for mark in self._marks()])
        if devices and len(fitting(columns, options.max_width)) == len(columns):
            yield "load and memory of each device: in a wider terminal, or with --wide"

    def _marks(self) -> list[bool | None]:
        """Whether each line is the best; None where it has no plan."""
        values = [None if line.plan is None else line.plan.value for line in self.lines]
        best = min((value for value in values if value is not None), default=0.0)
        return [None if value is None else value == best for value in values]

    def _columns(self) -> list[Column]:
        """What is said of every plan, whatever its devices."""
        plans = [line.plan for line in self.lines]
        names = [
            line.planner + " *" * bool(mark)
            for line, mark in zip(self.lines, self._marks(), strict=True)
        ]

        def texts(text: Callable[[Plan], str], missing: str = "") -> list[str]:
            return [missing if plan is None else text(plan) for plan in plans]

        value = next((value_title(plan.problem) for plan in plans if plan), "makespan")
        bounds = texts(lambda plan: format_seconds(plan.lower_bound))
        return [
            Column("planner", names, number=False, breaks=True),
            Column(value, texts(lambda plan: format_seconds(plan.value), "-")),
            Column("lower bound", bounds, spare=2),
            Column("gap", texts(lambda plan: f"{plan.gap:.1%}"), spare=1),
            Column("planned in", texts(lambda plan: format_seconds(plan.seconds)), spare=3),
        ]

    def _table(self, devices: Sequence[str]) -> Table:
        """The same, with two lines for each device beside it."""
        columns = self._columns()
        table = Table(title=escape(self.title), title_justify="left")
        for column in columns:
            table.add_column(column.title, justify="right" if column.number else "left")
        for name in devices:
            table.add_column(f"{escape(name)}\nload, memory", justify="right")
        rows = zip(*(column.shown for column in columns), strict=True)
        for line, mark, row in zip(self.lines, self._marks(), rows, strict=True):
            plan = line.plan
            loads = [] if plan is None else [_load_and_memory(plan, d) for d in range(len(devices))]
            table.add_row(*map(escape, row), *loads, style=_style(mark))
        return table


def _style(mark: bool | None) -> str:
    """Of a line that is the best, one of the others, or one without a plan (None)."""
    return "dim" if mark is None else "bold" if mark else ""


def run_table(plan: Plan, report: RunReport) -> Table:
    """Measured beside predicted, and how far the outputs are from those of one process."""
    table = Table(title=escape(plan.problem.name), title_justify="left", show_header=False)
    predicted, measured = plan.value, report.measured
    table.add_row("predicted", format_seconds(predicted))
    table.add_row(
        "measured", f"{format_seconds(measured)} (fastest {format_seconds(report.fastest)})"
    )
    if report.single_process_seconds is not None:
        table.add_row("one process", format_seconds(report.single_process_seconds))
    table.add_row("measured / predicted", f"{measured / predicted:.2f}" if predicted else "-")
    table.add_row("largest difference of an output", _difference(report))
    sent = f"{report.transfer_count}, {format_bytes(report.transfer_bytes)}"
    table.add_row("transfers", sent)
    for rank, busy in enumerate(report.rank_busy_seconds):
        device = report.devices[rank] if report.devices else ""
        table.add_row(escape(f"busy, rank {rank} {device}"), format_seconds(busy))
    for name, words in memory_rows(plan, report):
        table.add_row(escape(name), words)
    for name, words in _token_rows(report):
        table.add_row(name, words)
    return table


def _difference(report: RunReport) -> str:
    found = f"{report.max_abs_difference:.3g}"
    if report.random_ops:
        found += f" ({report.random_ops} ops draw at random, otherwise in one process)"
    return found


def _token_rows(report: RunReport) -> list[tuple[str, str]]:
    """What a run that decodes made, and how fast; none for any other."""
    rows = [
        (
            "tokens" if len(report.tokens) == 1 else f"tokens of sequence {number}",
            " ".join(map(str, tokens)),
        )
        for number, tokens in enumerate(report.tokens)
    ]
    rate, predicted = report.tokens_per_second, report.predicted_tokens_per_second
    if rate is not None:
        beside = f" (predicted {predicted:.4g})" if predicted else ""
        rows.append(("same tokens as one process", "yes" if report.same_tokens else "no"))
        rows.append(("tokens per second", f"{rate:.4g}{beside}"))
    return rows


def failures(lines: Sequence[Comparison]) -> list[str]:
    """A sentence for each planner that has no plan."""
    return [
        line.error if f"'{line.planner}'" in line.error else f"{line.planner}: {line.error}"
        for line in lines
        if line.plan is None
    ]


def _load_and_memory(plan: Plan, device: int) -> str:
    return (
        f"{format_seconds(float(plan.device_load[device]))}\n"
        f"{format_bytes(float(plan.device_memory[device]))}"
    )


def _finder(plan: Plan) -> str:
    """Which member of a portfolio found the plan."""
    found_by = plan.planner_options.get("found_by")
    return f" ({found_by})" if found_by else ""
