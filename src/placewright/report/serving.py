"""Plans for a mix of prefill and decode, as a record and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from placewright.exporters.request_batches import Tried
from placewright.graph import Floats
from placewright.problem import ROUNDING
from placewright.report.cache import cache_record, cache_words
from placewright.report.fitted_table import Column, FittedTable, short_name, texts_of
from placewright.report.records import plan_record, records_of_lines
from placewright.report.terminal import provenance
from placewright.serving.planning import RequestComparison
from placewright.serving.served import KindPlan, ServingPlan
from placewright.units import format_bytes, format_seconds


def serving_record(served: ServingPlan, path: str | Path | None = None) -> dict[str, Any]:
    """As `records.plan_record`, with the value of the request and what each phase takes."""
    rate = served.tokens_per_second
    figures: dict[str, Any] = {
        "value": served.value,
        "lower_bound": served.lower_bound,
        "gap": served.gap,
        "status": served.status,
    }
    if served.plan.throughput is not None:
        per_second = rate / served.output
        figures["throughput"] = per_second if math.isfinite(per_second) else None
    serving = {
        "prompt": _whole(served.prompt),
        "output": _whole(served.output),
        "context": served.context,
        "seconds_to_first_token": served.seconds_to_first_token,
        "seconds_per_token": served.seconds_per_token,
        "seconds_per_request": served.seconds_per_request,
        "tokens_per_second": rate if math.isfinite(rate) else None,
        "in_flight": served.in_flight * served.batch,
        **cache_record(served.plan),
    }
    if len(served.kinds) > 1:
        serving["kinds"] = [_kind_record(kind) for kind in served.kinds]
    return plan_record(served.plan, path) | figures | {"serving": serving}


def _whole(tokens: float) -> float:
    return int(tokens) if tokens == int(tokens) else tokens


def _kind_record(kind: KindPlan) -> dict[str, Any]:
    return {
        "prompt": kind.mix.prompt,
        "output": kind.mix.output,
        "share": kind.mix.share,
        "seconds_to_first_token": kind.seconds_to_first_token,
        "seconds_per_token": kind.seconds_per_token,
        "seconds_per_request": kind.seconds_per_request,
    }


def request_records(
    lines: Sequence[RequestComparison], path: str | Path | None = None
) -> list[dict[str, Any]]:
    """A record per planner, as `records_of_lines` has them."""
    return records_of_lines(lines, [line.served for line in lines], serving_record, path)


def request_table(lines: Sequence[RequestComparison]) -> FittedTable:
    """A line per planner: what requests come to, the best marked."""
    plans = [line.served for line in lines if line.served is not None]
    best = min(each.value for each in plans)
    marked = [line.served is not None and line.served.value == best for line in lines]
    names = [line.planner + " *" * mark for line, mark in zip(lines, marked, strict=True)]
    columns = [
        Column("planner", names, number=False, breaks=True),
        *_request_columns([line.served for line in lines], plans[0].plan.throughput is not None),
    ]
    styles = [
        "dim" if line.served is None else "bold" if mark else ""
        for line, mark in zip(lines, marked, strict=True)
    ]
    return FittedTable(plans[0].plan.problem.name, columns, styles)


def _request_columns(served: Sequence[ServingPlan | None], many: bool) -> Iterator[Column]:
    """What the requests of each plan come to; a dash where there is no plan."""

    def column(title: str, text: Callable[[ServingPlan], str], spare: int = 0) -> Column:
        return Column(title, texts_of(served, text), spare=spare)

    value = "time per request" if many else "request"
    yield column(value, lambda each: format_seconds(each.value))
    yield column("first token", lambda each: format_seconds(each.seconds_to_first_token), 4)
    yield column("per token", lambda each: format_seconds(each.seconds_per_token), 3)
    yield column("tokens/s", lambda each: f"{each.tokens_per_second:.4g}", 1)
    yield column("sequences", sequences_text, 5)
    yield column("lower bound", lambda each: format_seconds(each.lower_bound), 6)
    yield column("gap", lambda each: f"{each.gap:.1%}", 2)
    yield column("planned in", lambda each: format_seconds(each.plan.seconds), 7)


def sequences_text(served: ServingPlan) -> str:
    """How many sequences fit on every device, for tables."""
    fit = served.capacity.fit
    return "-" if fit is None else str(fit)


def serving_summary(served: ServingPlan) -> str:
    """The answer in a few lines."""
    plan = served.plan
    what = "time per request" if plan.throughput is not None else "request"
    return "\n".join(
        [
            f"{what} {format_seconds(served.value)} ({served.prompt:.6g} tokens in, "
            f"{served.output:.6g} out), lower bound {format_seconds(served.lower_bound)} "
            f"({served.bound_source}), "
            f"gap {served.gap:.1%}",
            f"first token {format_seconds(served.seconds_to_first_token)}, "
            f"{format_seconds(served.seconds_per_token)} per token, "
            f"{served.tokens_per_second:.4g} tokens per second{_at_once(served)}",
            cache_words(plan, served.context),
            provenance(plan),
        ]
    )


def _at_once(served: ServingPlan) -> str:
    """How many sequences these are of, and whether more would be needed to fill the pipeline."""
    sequences = served.in_flight * served.batch
    if sequences == 1:
        return ""
    full = served.plan.throughput is None or served.batch * served.output / served.value <= (
        served.tokens_per_second * (1 + ROUNDING)
    )
    return f" with {sequences} sequences at once" + (
        "" if full else ", more than which do not fit: the pipeline is not full"
    )


def kinds_table(served: ServingPlan) -> Table:
    """A line per kind of request."""
    table = Table(title="kinds of requests", title_justify="left")
    for column in ("in", "out", "share", "first token", "per token", "request"):
        table.add_column(column, justify="right")
    for kind in served.kinds:
        table.add_row(
            str(kind.mix.prompt),
            str(kind.mix.output),
            f"{kind.mix.share:.1%}",
            format_seconds(kind.seconds_to_first_token),
            format_seconds(kind.seconds_per_token),
            format_seconds(kind.seconds_per_request),
        )
    return table


def tried_table(tried: Sequence[Tried], best: int) -> Table:
    """A line per batch that was looked at, the best marked."""
    table = Table(title="sequences of a batch", title_justify="left")
    for column in ("batch", "tokens/s", "first token", "per token"):
        table.add_column(column, justify="right")
    for each in tried:
        mark = " *" if each.batch == best else ""
        first, step = each.seconds_to_first_token, each.seconds_per_token
        table.add_row(
            f"{each.batch}{mark}",
            "does not fit" if each.tokens_per_second is None else f"{each.tokens_per_second:.4g}",
            "-" if first is None else format_seconds(first),
            "-" if step is None else format_seconds(step),
            style="bold" if mark else "",
        )
    return table


def serving_table(served: ServingPlan) -> FittedTable:
    """A line per device: its part of each phase, what it keeps, how many sequences fit."""
    return FittedTable(served.plan.problem.name, list(_device_columns(served)))


def _device_columns(served: ServingPlan) -> Iterator[Column]:
    problem, capacity = served.plan.problem, served.capacity
    fits = [capacity.at_device(d) for d in range(problem.device_count)]
    names = [short_name(name) for name in problem.device_names]
    kinds = [short_name(kind) for kind in problem.device_kinds]
    yield Column("device", names, number=False, breaks=True)
    yield Column("kind", kinds, number=False, breaks=True, spare=6)
    yield Column("ops", [str(len(ops)) for ops in served.decode.device_ops], spare=5)
    yield Column("prefill", _seconds(served.prefill.device_load))
    yield Column("per token", _seconds(served.decode.device_load))
    yield Column("weights", _bytes(capacity.weights), spare=2)
    yield Column("KV cache", _bytes(capacity.cache), spare=1)
    yield Column("capacity", _bytes(problem.device_memory), spare=4)
    yield Column("sequences", ["-" if fit is None else str(fit) for fit in fits], spare=3)


def _seconds(amounts: Floats) -> list[str]:
    return [format_seconds(float(each)) for each in amounts]


def _bytes(amounts: Floats) -> list[str]:
    return [format_bytes(float(each)) for each in amounts]
