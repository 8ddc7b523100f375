"""Plans for a mix of prefill and decode, as a record and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from placewright.exporters.request_batches import Tried
from placewright.problem import ROUNDING
from placewright.report.cache import cache_record, cache_words
from placewright.report.records import plan_record
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


def request_records(lines: Sequence[RequestComparison]) -> list[dict[str, Any]]:
    """A record per planner; one without a plan has ``value`` null and ``error``."""
    return [
        serving_record(line.served)
        if line.served is not None
        else {"planner": line.planner, "value": None, "status": "unknown", "error": line.error}
        for line in lines
    ]


def request_table(lines: Sequence[RequestComparison]) -> Table:
    """A line per planner: what requests come to, the best marked."""
    plans = [line.served for line in lines if line.served is not None]
    table = Table(title=escape(plans[0].plan.problem.name), title_justify="left")
    table.add_column("planner")
    value = "time per request" if plans[0].plan.throughput is not None else "request"
    columns = (value, "first token", "per token", "tokens/s", "sequences", "lower bound", "gap")
    for column in (*columns, "planned in"):
        table.add_column(column, justify="right")
    best = min(each.value for each in plans)
    for line in lines:
        if line.served is None:
            table.add_row(line.planner, "-", style="dim")
            continue
        served = line.served
        fit = served.capacity.sequences
        mark = " *" if served.value == best else ""
        table.add_row(
            line.planner + mark,
            format_seconds(served.value),
            format_seconds(served.seconds_to_first_token),
            format_seconds(served.seconds_per_token),
            f"{served.tokens_per_second:.4g}",
            "-" if fit is None else str(fit),
            format_seconds(served.lower_bound),
            f"{served.gap:.1%}",
            format_seconds(served.plan.seconds),
            style="bold" if mark else "",
        )
    return table


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


def serving_table(served: ServingPlan) -> Table:
    """A line per device: its part of each phase, what it keeps, how many sequences fit."""
    plan, capacity = served.plan, served.capacity
    problem = plan.problem
    table = Table(title=escape(problem.name), title_justify="left")
    table.add_column("device")
    table.add_column("kind")
    columns = ("ops", "prefill", "per token", "weights", "KV cache", "capacity", "sequences")
    for column in columns:
        table.add_column(column, justify="right")
    for d, name in enumerate(problem.device_names):
        fit = capacity.at_device(d)
        table.add_row(
            escape(name),
            escape(problem.device_kinds[d]),
            str(len(served.decode.device_ops[d])),
            format_seconds(float(served.prefill.device_load[d])),
            format_seconds(float(served.decode.device_load[d])),
            format_bytes(float(capacity.weights[d])),
            format_bytes(float(capacity.cache[d])),
            format_bytes(float(problem.device_memory[d])),
            "-" if fit is None else str(fit),
        )
    return table
