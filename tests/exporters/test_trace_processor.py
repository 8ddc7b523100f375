"""Perfetto's trace processor finds in a trace what the plan and the run say, to the nanosecond."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placewright
from placewright.exporters.perfetto import trace, write_trace
from placewright.plan import Plan
from placewright.solving import solve
from tests.exporters import trace_processor
from tests.report.html.plans import plan_for, plan_for_steps, with_names
from tests.runtime.simulated import simulated_run
from tests.runtime.test_comparison import two_devices

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        trace_processor.missing() is not None, reason=str(trace_processor.missing())
    ),
]

SLICES = """
    select s.id, s.name, s.category, s.ts, s.dur, s.depth, t.name as track, p.name as process
    from slice s join thread_track k on s.track_id = k.id
    join thread t using (utid) join process p using (upid)
"""
FLOWS = "select slice_out, slice_in from flow"
FAULTS = "select name, value from stats where severity != 'info' and value > 0"
Row = dict[str, Any]
Arrow = tuple[Row, Row]
Timed = tuple[str, str, float, float]
"""A track, a name, and seconds: from, for."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with trace_processor.chromium() as found:
        yield found


@pytest.fixture
def loaded(browser: Any, tmp_path: Path) -> Callable[..., tuple[dict[int, Row], list[Arrow]]]:
    """`loaded(plan, …)`: its slices by number, and the ends of each arrow; nothing was wrong."""

    def load(plan: Plan, report: Any = None) -> tuple[dict[int, Row], list[Arrow]]:
        path = tmp_path / "trace.json"
        write_trace(path, plan, report)
        with trace_processor.loaded(browser, path.read_bytes()) as processor:
            assert processor.rows(FAULTS) == []
            slices = {row["id"]: row for row in processor.rows(SLICES)}
            assert processor.rows("select count(*) as number from slice") == [
                {"number": len(slices)}
            ]
            ends = processor.rows(FLOWS)
        return slices, [(slices[row["slice_out"]], slices[row["slice_in"]]) for row in ends]

    return load


def assert_the_same(found: list[Row], wanted: list[Timed]) -> None:
    """As many slices on each track, of the same names and times; a nanosecond is rounded away."""
    assert Counter(row["track"] for row in found) == Counter(each[0] for each in wanted)

    def key(each: tuple[Any, ...]) -> tuple[Any, ...]:
        return each[0], each[1], each[2]

    rows = sorted(((r["track"], r["name"], r["ts"], r["dur"]) for r in found), key=key)
    for row, (track, name, start, lasts) in zip(rows, sorted(wanted, key=key), strict=True):
        assert row[:2] == (track, name)
        assert row[2:] == pytest.approx((start * 1e9, lasts * 1e9), abs=1.01)


def as_shown(name: str) -> str:
    """What Perfetto 52 makes of a name: it undoes escapes only where there is a quote."""
    if '"' in name:
        return name
    return json.dumps(name, ensure_ascii=False)[1:-1].replace(2 * "\\", "\\u005c")


def of(found: dict[int, Row], category: str, process: str = "planned") -> list[Row]:
    return [r for r in found.values() if (r["category"], r["process"]) == (category, process)]


def assert_ops(found: list[Row], plan: Plan) -> None:
    start, lasts = plan.schedule.op_start, plan.schedule.op_finish - plan.schedule.op_start
    problem = plan.problem
    devices = [as_shown(problem.device_names[device]) for device in plan.placement.device]
    names = [as_shown(name) for name in problem.op_names]
    assert_the_same(found, list(zip(devices, names, start, lasts, strict=True)))


def assert_transfers(found: list[Row], plan: Plan) -> None:
    """On tracks of their two devices; several where they go at once."""
    problem, moves = plan.problem, plan.schedule.transfers
    names = [as_shown(name) for name in problem.device_names]
    wanted = []
    for row, tensor in enumerate(moves.tensor):
        track = f"{names[moves.source[row]]} → {names[moves.target[row]]}"
        name = as_shown(problem.op_names[problem.tensor_producer[tensor]])
        lasts = float(moves.finish[row] - moves.start[row])
        wanted.append((track, name, float(moves.start[row]), lasts))
    assert_the_same([row | {"track": row["track"].split(" (")[0]} for row in found], wanted)


def assert_arrows(found: list[Arrow], plan: Plan) -> None:
    """From each op that sends to the transfer, and from that to each op that it is for."""
    problem, moves = plan.problem, plan.schedule.transfers
    names = [as_shown(name) for name in problem.op_names]
    wanted: Counter[tuple[str, str, str, str]] = Counter()
    for row, tensor in enumerate(moves.tensor):
        name = names[problem.tensor_producer[tensor]]
        readers = problem.consumers[slice(*problem.consumer_offsets[tensor : tensor + 2])]
        only = moves.consumer[row]
        here = [only] if only >= 0 else readers[plan.placement.device[readers] == moves.target[row]]
        for reader in here:
            wanted[name, "op", name, "transfer"] += 1
            wanted[name, "transfer", names[reader], "op"] += 1
    ends = ((a["name"], a["category"], b["name"], b["category"]) for a, b in found)
    assert Counter(ends) == wanted


def peaks() -> Plan:
    """Each device computes and sends, transfers share links, and some ops take no time."""
    return placewright.plan("zoo:gpt2?layers=6&granularity=head", "a100+2xt4+cpu", planner="greedy")


def training() -> Plan:
    return placewright.plan("zoo:gpt2?layers=2", "2x3090", planner="heft", training=True)


def odd_names() -> Plan:
    return with_names('<b>"quoted"\\</b>\\', "x" * 10_000, "אופ \u202e", "C:\\op\\", "→ 矢\t\n")


@pytest.mark.parametrize("make", [lambda: plan_for("latency"), peaks, training, odd_names])
def test_ops_transfers_and_arrows_are_those_of_the_plan(loaded: Any, make: Any) -> None:
    plan = make()
    assert len(plan.schedule.transfers)
    slices, flows = loaded(plan)
    assert len(slices) == plan.problem.op_count + len(plan.schedule.transfers)
    assert_ops(of(slices, "op"), plan)
    assert_transfers(of(slices, "transfer"), plan)
    assert_arrows(flows, plan)


@pytest.mark.parametrize(
    "options",
    [{}, {"load": "duplex"}, {"training": True, "schedule": "gpipe", "load": "overlap"}],
    ids=["sum", "duplex", "gpipe"],
)
def test_a_pipeline_has_each_op_once_and_its_devices_are_busy_for_their_loads(
    loaded: Any, options: Any
) -> None:
    plan = placewright.plan(
        "zoo:gpt2?layers=4", "a100+2xt4+cpu", planner="linear-dp", objective="throughput", **options
    )
    slices, flows = loaded(plan)
    assert flows == []
    assert {row["depth"] for row in slices.values()} == {0}  # one after another on its track
    process = "planned: one period of the pipeline"
    problem, device = plan.problem, plan.placement.device
    found = {row["name"]: row for row in of(slices, "op", process)}
    assert len(found) == len(of(slices, "op", process)) == problem.op_count
    for op, name in enumerate(problem.op_names):
        assert found[name]["track"] == problem.device_names[device[op]]
        assert found[name]["dur"] == pytest.approx(problem.op_time[op, device[op]] * 1e9, abs=1.01)
    assert_busy(slices, process, plan)
    assert max(row["ts"] + row["dur"] for row in slices.values()) == pytest.approx(
        plan.value * 1e9, abs=1.01
    )


@pytest.mark.parametrize(
    "make",
    [plan_for_steps, lambda: plan_for("batch-throughput"), lambda: plan_for("invocation-latency")],
    ids=["steps", "batches", "invocations"],
)
def test_passes_batches_and_invocations_are_read_as_they_were_written(
    loaded: Any, make: Any
) -> None:
    plan = make()
    slices, flows = loaded(plan)
    written = trace(plan)["traceEvents"]
    begun = [each for each in written if each["ph"] in "XB"]
    assert Counter(each["name"] for each in begun) == Counter(r["name"] for r in slices.values())
    assert max(row["ts"] + row["dur"] for row in slices.values()) == pytest.approx(
        max(each["ts"] + each.get("dur", 0) for each in written) * 1e3, abs=1.01
    )
    assert len(flows) == sum(each["ph"] in "tf" for each in written)


def assert_busy(slices: dict[int, Row], process: str, plan: Plan) -> None:
    """What a device's slices take, added up, is what the plan says that it does."""
    parts = {"op": "compute", "in": "incoming", "out": "outgoing"}
    for category, column in parts.items():
        rows = of(slices, category, process)
        seconds = getattr(plan.outcome, column).sum(axis=0)
        for device, name in enumerate(plan.problem.device_names):
            mine = [row["dur"] for row in rows if row["track"].split()[0] == name]
            assert sum(mine) == pytest.approx(seconds[device] * 1e9, abs=1.0 + len(mine))


def test_a_run_is_beside_its_plan_with_every_step(loaded: Any) -> None:
    plan = solve(two_devices(), "heft")
    problem = plan.problem
    report = simulated_run(plan, replace(problem, op_time=problem.op_time * np.float64(1.25)))
    slices, flows = loaded(plan, report)
    assert_ops(of(slices, "op"), plan)
    assert_transfers(of(slices, "transfer"), plan)
    tracks = [f"rank {rank}: {name}" for rank, name in enumerate(report.devices)]
    for kind in ("op", "send", "wait"):
        steps = [each for each in report.steps if each.kind == kind]
        said = "" if kind == "op" else f"{kind} "
        wanted = [(tracks[s.rank], said + s.name, s.start, s.finish - s.start) for s in steps]
        assert wanted
        assert_the_same(of(slices, kind, "measured"), wanted)
    arrows = [(a, b) for a, b in flows if a["process"] == b["process"] == "measured"]
    ends = sorted((a["name"], b["name"]) for a, b in arrows if a["track"] != b["track"])
    assert ends == [("send a", "b"), ("send b", "d"), ("send c", "d")]
    assert_arrows([each for each in flows if each not in arrows], plan)
