"""What each device of a plan does, as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from placewright.plan import Plan
from placewright.report.blocks import device_blocks
from placewright.report.fitted_table import Column, FittedTable, short_name
from placewright.report.shares import input_texts
from placewright.report.words import device_columns
from placewright.units import format_bytes, format_seconds


def device_table(plan: Plan) -> FittedTable:
    """A line per device: how long it computes, what it keeps and sends, which blocks it has."""
    return FittedTable(plan.problem.name, list(_columns(plan)))


def _columns(plan: Plan) -> Iterator[Column]:
    problem, load = plan.problem, plan.device_load
    value = plan.value * problem.options.data_parallel  # of each pipeline, which has a part of all
    names = [short_name(name) for name in problem.device_names]
    kinds = [short_name(kind) for kind in problem.device_kinds]
    yield Column("device", names, number=False, breaks=True)
    yield Column("kind", kinds, number=False, breaks=True, spare=6)
    if plan.placement.replica_shares:
        yield Column("inputs", input_texts(plan))
    yield Column("ops", [str(len(ops)) for ops in plan.device_ops], spare=5)
    yield Column("load", [format_seconds(float(each)) for each in load])
    busy = [f"{float(each) / value:.0%}" if value else "-" for each in load]
    yield Column("busy", busy, spare=2)
    memory = [format_bytes(float(each)) for each in plan.device_memory]
    yield Column("memory", memory, spare=1)
    capacity = [format_bytes(float(each)) for each in problem.device_memory]
    yield Column("capacity", capacity, spare=3)
    for title, texts in device_columns(plan).items():
        yield Column(title, texts, spare=4)
    blocks = device_blocks(plan)
    if blocks is not None:
        yield Column("blocks", list(blocks), number=False, breaks=True)
