"""The data of a page: what it holds is what the plan says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from placewright.objectives import OBJECTIVES
from placewright.solving import solve
from tests.builders import chain
from tests.report.html.pages import column, names, written
from tests.report.html.plans import plan_for, plan_for_steps

OP, TRANSFER, READING, COMPUTING, WRITING = range(5)
FORWARD, BACKWARD = 7, 8


def slices(timeline):
    """Rows (track's name, kind, start, finish, item, amount)."""
    offsets = np.array(timeline["offsets"])
    tracks = np.repeat([each["name"] for each in timeline["tracks"]], np.diff(offsets))
    columns = [
        column(timeline[name]).tolist() for name in ("kind", "start", "finish", "item", "amount")
    ]
    return list(zip(tracks.tolist(), *columns, strict=True))


def test_a_page_has_the_schedule_of_the_plan_to_the_last_bit(tmp_path):
    plan = plan_for("latency")
    problem, schedule = plan.problem, plan.schedule
    moves = schedule.transfers
    expected = [
        (problem.device_names[device], OP, start, finish, op, 0)
        for op, (device, start, finish) in enumerate(
            zip(plan.placement.device, schedule.op_start, schedule.op_finish, strict=True)
        )
    ] + [
        (
            f"{problem.device_names[moves.source[k]]} → {problem.device_names[moves.target[k]]}",
            TRANSFER,
            moves.start[k],
            moves.finish[k],
            problem.tensor_producer[moves.tensor[k]],
            problem.tensor_bytes[moves.tensor[k]],
        )
        for k in range(len(moves))
    ]
    [page] = written(tmp_path, plan).data["plans"]
    assert sorted(slices(page["timeline"])) == sorted(expected)


def test_slices_of_a_track_are_in_the_order_of_their_starts(tmp_path):
    [page] = written(tmp_path, plan_for("latency")).data["plans"]
    timeline = page["timeline"]
    starts = column(timeline["start"])
    for first, end in zip(timeline["offsets"], timeline["offsets"][1:], strict=False):
        assert (np.diff(starts[first:end]) >= 0).all()


def test_a_page_has_the_batches_of_the_plan(tmp_path):
    plan = plan_for("batch-throughput")
    batches = plan.outcome.batches
    [page] = written(tmp_path, plan).data["plans"]
    found = [row for row in slices(page["timeline"]) if row[1] == OP]
    expected = [
        (plan.problem.device_names[device], OP, start, finish, op, size)
        for op, device, size, start, finish in zip(
            batches.op, batches.device, batches.size, batches.start, batches.finish, strict=True
        )
    ]
    assert sorted(found) == sorted(expected)
    assert page["timeline"]["sized"]


def test_a_page_has_the_invocations_of_the_plan(tmp_path):
    plan = plan_for("invocation-latency")
    table = plan.outcome.invocations
    [page] = written(tmp_path, plan).data["plans"]
    found = sum(finish - start for _, kind, start, finish, *_ in slices(page["timeline"])
                if kind in (READING, COMPUTING, WRITING))  # fmt: skip
    assert found == pytest.approx((table.incoming + table.compute + table.outgoing).sum())
    assert len(page["subgraphs"]) == len(table)
    on_accelerators = (~plan.problem.is_cpu[plan.placement.device]).sum()
    assert sum(row["ops"] for row in page["subgraphs"]) == on_accelerators


def test_a_page_has_the_loads_of_the_plan(tmp_path):
    plan = plan_for("throughput")
    [page] = written(tmp_path, plan).data["plans"]
    loads = page["loads"]
    assert loads["load"] == plan.outcome.load[loads["devices"]].tolist()
    parts = np.array([part["seconds"] for part in loads["parts"]])
    assert parts.sum(axis=0) == pytest.approx(loads["load"])
    assert sorted(loads["devices"]) == plan.used_devices


def test_a_page_of_a_step_has_the_passes_of_its_stages(tmp_path):
    plan = plan_for_steps()
    [page] = written(tmp_path, plan).data["plans"]
    count, row = plan.problem.options.micro_batches, plan.placement.row
    assert [track["device"] for track in page["timeline"]["tracks"]] == list(row)
    found = Counter((track, kind) for track, kind, *_ in slices(page["timeline"]))
    names = [plan.problem.device_names[device] for device in row]
    assert found == {(name, kind): count for name in names for kind in (FORWARD, BACKWARD)}
    end = max(finish for _, _, _, finish, *_ in slices(page["timeline"]))
    assert end == pytest.approx(plan.outcome.step.seconds, rel=1e-6)
    assert page["loads"]["step"]
    idle = f"Devices are idle for {plan.outcome.step.idle.mean():.0%} of a step of 4 micro-batches"
    assert idle in page["answer"]["limits"][1]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_page_of_any_objective_has_its_answer_model_and_devices(tmp_path, objective):
    plan = plan_for(objective)
    document = written(tmp_path, plan).data
    [page], [model] = document["plans"], document["models"]
    assert page["answer"]["value"] == plan.value
    assert page["answer"]["bound"] == plan.lower_bound
    assert page["answer"]["limits"]
    assert names(model["ops"]) == list(plan.problem.op_names)
    assert column(page["placement"]["device"]).tolist() == plan.placement.device.ravel().tolist()
    assert [row["load"] for row in page["devices"]["rows"]] == plan.device_load.tolist()
    assert document["comparison"] is None


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_sentence_says_value_and_bound(tmp_path, objective):
    plan = plan_for(objective)
    [page] = written(tmp_path, plan).data["plans"]
    sentence = page["answer"]["sentence"]
    assert ("proven optimal" in sentence) == (plan.status == "optimal")
    assert plan.bound_source in sentence


def test_what_crosses_is_what_the_transfers_move(tmp_path):
    plan = plan_for("latency")
    moves = plan.schedule.transfers
    [page] = written(tmp_path, plan).data["plans"]
    crossing = column(page["crossings"]["bytes"]).sum()
    assert crossing == plan.problem.tensor_bytes[moves.tensor].sum()
    sent = next(each for each in page["devices"]["columns"] if each["title"] == "sent")
    assert sum(sent["values"]) == crossing


def test_the_crossings_of_batches_are_those_of_all_inputs(tmp_path):
    plan = plan_for("batch-throughput")
    moves = plan.outcome.transfers
    [page] = written(tmp_path, plan).data["plans"]
    crossing = column(page["crossings"]["bytes"]).sum()
    assert crossing == (plan.problem.tensor_bytes[moves.tensor] * moves.inputs).sum()


def test_memory_over_time_reaches_the_peak_that_the_plan_counts(tmp_path):
    problem = chain([2.0, 3.0, 4.0], [100.0, 100.0], tensor_bytes=5.0, memory="peak")
    plan = solve(problem, "heft")
    [page] = written(tmp_path, plan).data["plans"]
    assert page["memory"]["counted"]
    for each in page["memory"]["devices"]:
        peak = each["kept"] + column(each["alive"]).max()
        assert peak == page["devices"]["rows"][each["device"]]["memory"]


def test_a_plan_that_takes_no_time_has_a_page(tmp_path):
    problem = chain([1.0, 1.0], [10.0, 10.0])
    plan = solve(replace(problem, op_time=np.zeros((2, 2))), "heft")
    [page] = written(tmp_path, plan).data["plans"]
    assert page["answer"]["value"] == 0
    assert page["answer"]["limits"] == []


def test_the_shares_of_the_critical_path_are_named_the_largest_first(tmp_path):
    plan = solve(chain([8.0, 8.0], [8.0, 8.0], tensor_bytes=5.0), "heft")
    [page] = written(tmp_path, plan).data["plans"]
    assert page["answer"]["limits"] == [
        "The critical path of 4.000 s is 50% computing on y, 25% computing on x and 25% transfers "
        "x → y.",
        "The memory of x (8 B of 8 B) and y (8 B of 8 B) is full.",
    ]


def test_plans_of_one_model_share_its_names(tmp_path):
    latency = plan_for("latency")
    other = solve(latency.problem, "memory-fill")
    document = written(tmp_path, latency, other, plan_for("throughput")).data
    assert [plan["model"] for plan in document["plans"]] == [0, 0, 1]


def test_a_comparison_marks_the_blocks_that_plans_place_differently(tmp_path):
    one = solve(plan_for("latency").problem, "single-device")
    two = solve(one.problem, "heft")
    comparison = written(tmp_path, one, two).data["comparison"]
    shares = [
        column(lane["share"]).reshape(len(lane["blocks"]), -1) for lane in comparison["lanes"]
    ]
    moved = np.abs(shares[0] - shares[1]).max(axis=1) > 0.005
    assert comparison["differs"] == moved.tolist()
    assert comparison["comparable"]
    assert comparison["labels"] == ["single-device", "heft"]


def test_equal_plans_are_told_apart_and_differ_nowhere(tmp_path):
    plan = plan_for("latency")
    comparison = written(tmp_path, plan, plan).data["comparison"]
    assert comparison["labels"] == ["heft (1)", "heft (2)"]
    assert not any(comparison["differs"])
