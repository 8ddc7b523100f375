"""The peak memory of each rank stands beside what was planned for its device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placewright.plan import Plan
from placewright.planning import plan as make_plan
from placewright.report.memory import memory_rows, planned_memory
from placewright.runtime.results import RunReport
from placewright.units import format_bytes

MIB = float(1 << 20)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan("zoo:gpt2?layers=2", "2x3090", planner="heft")


def report(*peaks: float) -> RunReport:
    none = {"measured": 1.0, "fastest": 1.0, "single_process_seconds": 1.0}
    sent = {"max_abs_difference": 0.0, "transfer_count": 0, "transfer_bytes": 0}
    ranks = {"rank_busy_seconds": (1.0,), "ranks": 1, "threads_per_rank": 1, "repeats": 1}
    return RunReport(**none, **sent, **ranks, rank_peak_memory=peaks)  # type: ignore[arg-type]


def test_a_row_for_each_rank_in_the_order_of_the_devices_used(plan: Plan) -> None:
    used = sorted(set(plan.placement.device.tolist()))
    peaks = [(rank + 1) * 3 * MIB for rank in range(len(used))]
    names = tuple(plan.problem.device_names[device] for device in used)
    rows = list(memory_rows(plan, replace(report(*peaks), devices=names)))
    assert [name for name, _ in rows] == [
        f"memory, rank {rank} {name}" for rank, name in enumerate(names)
    ]
    assert rows[0][1].startswith("3.0 MiB at its peak, ")
    for (_, words), device in zip(rows, used, strict=True):
        assert words.endswith(f", {format_bytes(float(plan.device_memory[device]))} planned")


def test_planned_memory_leaves_out_devices_that_are_not_used(plan: Plan) -> None:
    alone = make_plan("zoo:gpt2?layers=2", "2x3090", planner="single-device")
    (planned,) = planned_memory(alone)
    assert planned == max(alone.device_memory)


def test_threads_of_one_process_have_no_rows(plan: Plan) -> None:
    assert list(memory_rows(plan, report())) == []
