"""Traces are what viewers of Chrome's trace-event format read, and say what happened."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.errors import FormatError, InfeasibleError, InputError
from placewright.exporters.perfetto import MEASURED, PER_MICRO_BATCH, PLANNED, trace, write_trace
from placewright.options import Options
from placewright.outcome import BatchSchedule, Invocations, Loads
from placewright.plan import Placement, Plan
from placewright.problem import Problem
from placewright.simulate import evaluate
from placewright.solving import solve
from tests.builders import small, throughput_chain
from tests.naive.steps import every_step
from tests.report.html.plans import plan_for_steps
from tests.runtime.simulated import simulated_run
from tests.runtime.test_comparison import two_devices
from tests.strategies import placements, problems
from tests.strategies.batch import batch_problems
from tests.strategies.invocation import invocation_problems
from tests.strategies.steps import step_problems
from tests.strategies.throughput import pipelines

Event = dict[str, Any]
NANOSECOND = 1e-3  # in microseconds, as times are in a trace


@pytest.fixture(scope="module")
def plan() -> Plan:
    return solve(two_devices(), "heft")


def slower(problem: Problem) -> Problem:
    return replace(problem, op_time=problem.op_time * 2, link_latency=problem.link_latency * 3)


def events(document: dict[str, Any], phase: str, process: int | None = None) -> list[Event]:
    return [each for each in document["traceEvents"]
            if each["ph"] == phase and process in (None, each["pid"])]  # fmt: skip


def tracks(document: dict[str, Any], process: int) -> dict[int, str]:
    named = (each for each in events(document, "M", process) if each["name"] == "thread_name")
    return {each["tid"]: each["args"]["name"] for each in named}


def assert_valid(document: dict[str, Any]) -> None:
    """What a viewer asks of a trace: known phases, fields, nesting, and flows within slices."""
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text) == document
    for each in document["traceEvents"]:
        assert each["ph"] in "MXBEstf" and isinstance(each.get("name", ""), str)
        assert isinstance(each["pid"], int) and isinstance(each["tid"], int)
        assert each["ts"] >= 0
    slices = defaultdict(list)
    for each in events(document, "X"):
        assert each["dur"] >= 0
        slices[each["pid"], each["tid"]].append((each["ts"], each["ts"] + each["dur"]))
        assert each["tid"] in tracks(document, each["pid"])
    begun: dict[tuple[int, int], float] = {}
    for each in document["traceEvents"]:
        if each["ph"] == "B":
            assert (each["pid"], each["tid"]) not in begun
            begun[each["pid"], each["tid"]] = each["ts"]
        if each["ph"] == "E":
            track = each["pid"], each["tid"]
            slices[track].append((begun.pop(track), each["ts"]))
    assert not begun
    for spans in slices.values():
        around: list[float] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while around and around[-1] <= start + NANOSECOND:
                around.pop()
            assert not around or end <= around[-1] + NANOSECOND  # one after, or within, another
            around.append(end)
    assert_flows_are_whole(document, slices)


def assert_flows_are_whole(
    document: dict[str, Any], slices: dict[tuple[int, int], list[tuple[float, float]]]
) -> None:
    flows = defaultdict(list)
    for each in document["traceEvents"]:
        if each["ph"] in "stf":
            flows[each["id"]].append(each)
            inside = slices[each["pid"], each["tid"]]
            assert any(low <= each["ts"] <= high + NANOSECOND for low, high in inside)
    for points in flows.values():
        phases = "".join(each["ph"] for each in points)
        assert phases[0] == "s" and phases[-1] == "f" and set(phases[1:-1]) <= {"t"}
        assert [each["ts"] for each in points] == sorted(each["ts"] for each in points)
        assert len({each["pid"] for each in points}) == 1
        assert points[-1]["bp"] == "e"


def test_a_plan_has_a_track_for_each_device_and_each_two_that_send(plan: Plan) -> None:
    document = trace(plan)
    assert_valid(document)
    assert list(tracks(document, PLANNED).values()) == ["x", "y", "x → y", "y → x"]
    assert tracks(document, MEASURED) == {}
    found = {(each["name"], each["cat"]): each for each in events(document, "X")}
    assert len(found) == 4 + 3
    first = found["a", "op"]
    assert (first["ts"], first["dur"], first["tid"]) == (0.0, 1e6, 1)
    assert first["args"] == {
        "op": "a", "type": "op", "module": "", "memory bytes": 4.0, "planned seconds": 1.0,
    }  # fmt: skip
    moved = found["a", "transfer"]
    assert (moved["ts"], moved["dur"]) == (1e6, 8.5e6)
    assert moved["args"] == {"from": "x", "to": "y", "bytes": 8.0, "planned seconds": 8.5}


def test_arrows_lead_from_an_op_through_the_transfer_to_every_reader(plan: Plan) -> None:
    document = trace(plan)
    named = tracks(document, PLANNED)
    paths = defaultdict(list)
    for each in document["traceEvents"]:
        if each["ph"] in "stf":
            paths[each["id"]].append(named[each["tid"]])
    assert sorted(paths.values()) == [
        ["x", "x → y", "y"], ["x", "x → y", "y"], ["y", "y → x", "x"], ["y", "y → x", "x"],
    ]  # fmt: skip


def test_a_run_has_a_track_for_each_rank_and_what_was_planned_beside_it(plan: Plan) -> None:
    document = trace(plan, simulated_run(plan, slower(plan.problem)))
    assert_valid(document)
    assert list(tracks(document, MEASURED).values()) == ["rank 0: x", "rank 1: y"]
    found = {each["name"]: each for phase in "XB" for each in events(document, phase, MEASURED)}
    assert {"a", "send a", "wait a", "wait b", "d"} <= set(found)
    assert found["b"]["args"]["planned seconds"] == 4.0
    assert found["b"]["args"]["measured seconds"] == 8.0
    assert found["wait a"]["args"]["from"] == "rank 0"
    assert (found["send a"]["args"]["to"], found["send a"]["args"]["bytes"]) == ("rank 1", 8)
    planned = {(each["name"], each["cat"]): each for each in events(document, "X", PLANNED)}
    assert planned["b", "op"]["args"]["measured seconds"] == 8.0
    assert planned["a", "transfer"]["args"]["measured seconds"] == 9.5
    ends = events(document, "f", MEASURED)
    named = tracks(document, MEASURED)
    assert [named[each["tid"]] for each in ends] == ["rank 1: y", "rank 0: x", "rank 0: x"]


def test_an_arrow_that_would_run_backwards_is_left_out(plan: Plan) -> None:
    report = simulated_run(plan, plan.problem)
    steps = tuple(
        replace(step, start=0.0, finish=0.5) if (step.kind, step.name) == ("wait", "a") else step
        for step in report.steps
    )
    document = trace(plan, replace(report, passes=(steps,)))
    assert_valid(document)
    assert len(events(document, "f", MEASURED)) == 2


def test_processes_and_tracks_say_their_names_and_order(plan: Plan) -> None:
    document = trace(plan, simulated_run(plan, plan.problem))
    said = [
        (each["pid"], each["args"]["name"])
        for each in events(document, "M")
        if each["name"] == "process_name"
    ]
    assert said == [(PLANNED, "planned"), (MEASURED, "measured")]
    for process in (PLANNED, MEASURED):
        orders = {each["tid"]: each["args"]["sort_index"] for each in events(document, "M", process)
                  if each["name"] == "thread_sort_index"}  # fmt: skip
        assert orders == {track: track for track in tracks(document, process)}


def test_transfers_that_overlap_have_tracks_of_their_own() -> None:
    problem = two_devices(options=Options(contention="none"), link_latency=[[0, 50], [50, 0]])
    document = trace(solve(problem, "heft"))
    assert_valid(document)
    assert list(tracks(document, PLANNED).values()) == ["x", "y", "x → y", "y → x", "y → x (2)"]


@settings(max_examples=30)
@given(st.data())
def test_every_schedule_makes_a_trace_that_viewers_read(data: st.DataObject) -> None:
    problem = data.draw(problems(memory=False))
    placement = Placement(data.draw(placements(problem)))
    outcome = evaluate(problem, placement)
    made = Plan(problem, placement, outcome, outcome.value, 0.0, "none", "random")
    assert_valid(trace(made))
    assert_valid(trace(made, simulated_run(made, problem)))


def test_the_file_is_the_same_each_time_and_escapes_what_names_hold(
    plan: Plan, tmp_path: Path
) -> None:
    odd = 'a "quoted"\\ name </script>\n\x1b[31m'
    named = replace(plan, problem=replace(plan.problem, op_names=(odd, "b", "c", "d")))
    first, second = tmp_path / "one.json", tmp_path / "two.json"
    write_trace(first, named)
    write_trace(second, named)
    assert first.read_bytes() == second.read_bytes()
    document = json.loads(first.read_text("utf-8"))
    assert odd in {each["name"] for each in events(document, "X")}
    assert document == trace(named)


def test_a_file_that_cannot_be_written_leaves_nothing(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be written"):
        write_trace(tmp_path / "nowhere" / "trace.json", plan)
    with pytest.raises(InputError, match="no times of its steps"):
        report = replace(simulated_run(plan, plan.problem), passes=())
        write_trace(tmp_path / "trace.json", plan, report)
    assert list(tmp_path.iterdir()) == []


def test_one_that_begins_after_a_slice_of_no_length_is_not_around_it() -> None:
    problem = small(op_pinned=[0, 0, 0, 0], op_time=[[0, 9], [2, 9], [0, 9], [1, 9]])
    plan = solve(problem, "heft")
    said = [(each["ph"], each.get("name", ""), each["ts"])
            for each in trace(plan)["traceEvents"] if each["ph"] in "XBE"]  # fmt: skip
    assert said == [
        ("X", "a", 0.0), ("B", "b", 0.0), ("E", "", 2e6),
        ("X", "c", 2e6), ("B", "d", 2e6), ("E", "", 3e6),
    ]  # fmt: skip


def test_a_name_that_ends_in_a_backslash_is_written_so_that_perfetto_finds_its_end(
    plan: Plan, tmp_path: Path
) -> None:
    named = replace(plan, problem=replace(plan.problem, op_names=("C:\\", "\\\\", '\\"', "d")))
    path = tmp_path / "trace.json"
    write_trace(path, named)
    text = path.read_text("utf-8")
    assert 2 * "\\" not in text
    assert json.loads(text) == trace(named)


# -- pipelines ---------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.data())
def test_in_a_period_each_device_does_what_its_load_says(data: st.DataObject) -> None:
    problem = data.draw(pipelines(memory=False))
    placement = Placement(data.draw(placements(problem)))
    loads = evaluate(problem, placement)
    assert isinstance(loads, Loads)
    document = trace(Plan(problem, placement, loads, loads.value, 0.0, "none", "random"))
    assert_valid(document)
    assert events(document, "s") == []
    assert_added_up(document, problem, loads)
    ends = [0.0, *(each["ts"] + each.get("dur", 0) for each in document["traceEvents"])]
    assert max(ends) == pytest.approx(loads.value * 1e6, abs=NANOSECOND)


def assert_added_up(document: dict[str, Any], problem: Problem, loads: Loads) -> None:
    """The seconds that slices say, by device and by what is done."""
    wanted = {"op": loads.compute, "in": loads.incoming, "out": loads.outgoing}
    named = tracks(document, PLANNED)
    found: dict[tuple[str, str], float] = defaultdict(float)
    for each in document["traceEvents"]:
        if each["ph"] in "XB" and each["cat"] in wanted:
            args = each["args"]
            seconds = args["planned seconds"] * args.get("share", 1.0)
            found[named[each["tid"]].split()[0], each["cat"]] += seconds
    for device, name in enumerate(problem.device_names):
        for kind, column in wanted.items():
            assert found[name, kind] == pytest.approx(column[:, device].sum())


def test_replicas_share_what_their_stage_does_and_add_up_gradients() -> None:
    options = Options(objective="throughput", replicate=True)
    problem = throughput_chain(options=options, op_sync_bytes=[1.0, 1.0, 1.0, 1.0])
    placement = Placement([0, 0, 0, 0], replicas=((0, 1),))
    loads = evaluate(problem, placement)
    document = trace(Plan(problem, placement, loads, loads.value, 0.0, "none", "by hand"))
    assert_valid(document)
    found = [(each["tid"], each["name"], each["dur"]) for each in events(document, "X")]
    halves = [("a", 5e5), ("b", 5e5), ("c", 5e5), ("d", 1e6), ("add up gradients", 2e6)]
    assert sorted(found) == sorted((tid, *each) for tid in (1, 2) for each in halves)


def test_backward_passes_of_gpipe_begin_together() -> None:
    options = Options(objective="throughput", schedule="gpipe")
    problem = throughput_chain(options=options, is_backward=[False, False, True, True])
    placement = Placement([0, 1, 0, 1])
    loads = evaluate(problem, placement)
    document = trace(Plan(problem, placement, loads, loads.value, 0.0, "none", "by hand"))
    begins = {each["name"]: each["ts"] for each in events(document, "X")}
    assert begins == {
        "a": 0.0, "out a": 1e6, "in a": 0.0, "b": 1e6, "out b": 2e6,
        "in b": 4e6, "c": 6e6, "out c": 7e6, "in c": 4e6, "d": 7e6,
    }  # fmt: skip


def test_replicas_with_unequal_shares_have_their_part_of_what_ops_take_there() -> None:
    options = Options(objective="throughput", replicate=True, shares="unequal")
    problem = throughput_chain(options=options, op_time=[[2, 6, 9]] * 4)
    placement = Placement([0, 0, 0, 0], replicas=((0, 1),), replica_shares=((0.75, 0.25),))
    loads = evaluate(problem, placement)
    document = trace(Plan(problem, placement, loads, loads.value, 0.0, "none", "by hand"))
    assert_valid(document)
    found = [(each["tid"], each["dur"], each["args"]["share"]) for each in events(document, "X")]
    assert sorted(found) == [(1, 1.5e6, 0.75)] * 4 + [(2, 1.5e6, 0.25)] * 4


# -- steps of micro-batches --------------------------------------------------------------------


@settings(max_examples=40)
@given(step_problems(), st.data())
def test_a_step_has_the_passes_of_its_stages_and_an_arrow_along_them(
    made: Any, data: st.DataObject
) -> None:
    rows = list(every_step(*made))
    if not rows:
        return
    problem, placement = made[0], data.draw(st.sampled_from(rows))[1]
    loads = evaluate(problem, placement)
    assert isinstance(loads, Loads)
    assert loads.step is not None
    document = trace(Plan(problem, placement, loads, loads.value, 0.0, "none", "by hand"))
    assert_valid(document)
    passes = [each for each in document["traceEvents"]
              if each["pid"] == PLANNED and each["ph"] in "XB"]  # fmt: skip
    stages, count = len(placement.row), problem.options.micro_batches
    ways = 2 if problem.is_backward.any() else 1
    assert len(passes) == stages * count * ways
    assert tracks(document, PLANNED) == {
        stage + 1: problem.device_names[device] for stage, device in enumerate(placement.row)
    }
    ends = [each["ts"] + each.get("dur", 0) for each in document["traceEvents"]
            if each["pid"] == PLANNED]  # fmt: skip
    assert max(ends) == pytest.approx(loads.step.seconds * 1e6, abs=NANOSECOND)
    arrows = len(events(document, "s"))
    assert arrows == count * (ways * (stages - 1) + ways - 1)
    of_each = trace_of_passes(document)
    for name, load in zip(problem.device_names, loads.load.tolist(), strict=True):
        assert of_each[name] == pytest.approx(load * 1e6, abs=20 * NANOSECOND)


def trace_of_passes(document: dict[str, Any]) -> dict[str, float]:
    """Microseconds of what each device does in the passes of a micro-batch."""
    found: dict[str, float] = defaultdict(float)
    named = tracks(document, PER_MICRO_BATCH)
    for each in events(document, "X", PER_MICRO_BATCH):
        found[named[each["tid"]]] += each["dur"]
    begun: dict[int, float] = {}
    for each in document["traceEvents"]:
        if each["pid"] == PER_MICRO_BATCH and each["ph"] == "B":
            begun[each["tid"]] = each["ts"]
        if each["pid"] == PER_MICRO_BATCH and each["ph"] == "E":
            found[named[each["tid"]]] += each["ts"] - begun[each["tid"]]
    return found


def test_a_pass_says_its_micro_batch_stage_and_what_it_does() -> None:
    plan = plan_for_steps()
    document = trace(plan)
    first = next(each for each in events(document, "X", PLANNED) if each["name"] == "backward 2")
    args = first["args"]
    stage, device = args["stage"], plan.placement.row[args["stage"] - 1]
    assert (args["micro-batch"], stage) == (2, first["tid"])
    parts = ("receives", "computes", "sends")
    does = [args[f"{each}, seconds"] for each in parts]
    assert does == [float(each[1, device]) for each in (
        plan.outcome.incoming, plan.outcome.compute, plan.outcome.outgoing)]  # fmt: skip
    assert sum(does) == pytest.approx(args["planned seconds"])


# -- batches and invocations -------------------------------------------------------------------


@settings(max_examples=40)
@given(batch_problems(), st.integers(0, 2**32 - 1))
def test_batches_and_their_transfers_are_those_of_the_plan(problem: Problem, seed: int) -> None:
    plan = solve(problem, "greedy", seed=seed)
    outcome = plan.outcome
    assert isinstance(outcome, BatchSchedule)
    document = trace(plan)
    assert_valid(document)
    found = [each for each in document["traceEvents"] if each["ph"] in "XB"]
    ran = [each for each in found if each["cat"] == "op"]
    sizes = dict(zip(zip(outcome.batches.op.tolist(), outcome.batches.device.tolist(), strict=True),
                     outcome.batches.size.tolist(), strict=True))  # fmt: skip
    named = {name: op for op, name in enumerate(problem.op_names)}
    assert len(ran) == len(outcome.batches)
    for each in ran:
        device = each["tid"] - 1
        assert each["args"]["inputs"] == sizes[named[each["args"]["op"]], device]
    moved = sum(each["args"]["bytes"] for each in found if each["cat"] == "transfer")
    sent = problem.tensor_bytes[outcome.transfers.tensor] * outcome.transfers.inputs
    assert moved == pytest.approx(sent.sum())
    arrows = [each for each in document["traceEvents"] if each["ph"] in "sf"]
    assert len(arrows) >= 2 * len(outcome.transfers)


@settings(max_examples=40)
@given(invocation_problems())
def test_invocations_have_their_parts_and_cpus_their_ops(problem: Problem) -> None:
    try:
        plan = solve(problem, "greedy")
    except InfeasibleError:
        return
    outcome = plan.outcome
    assert isinstance(outcome, Invocations)
    document = trace(plan)
    assert_valid(document)
    slices = [each for each in document["traceEvents"] if each["ph"] in "XB"]
    seconds: dict[str, float] = defaultdict(float)
    for each in slices:
        seconds[each["cat"]] += each["args"]["planned seconds"]
    table = outcome.invocations
    wanted = (("reads", table.incoming), ("computes", table.compute), ("writes", table.outgoing))
    for kind, column in wanted:
        assert seconds[kind] == pytest.approx(column.sum())
    on_cpus = problem.is_cpu[plan.placement.device]
    assert sum(each["cat"] == "op" for each in slices) == on_cpus.sum()
