"""A plan knows its figures, and survives its file to the byte."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given

from placewright.errors import FormatError, GraphError, InfeasibleError
from placewright.outcome import Schedule, Transfers
from placewright.plan import Placement, Plan
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import small
from tests.strategies import problems
from tests.test_problem import assert_equal

NO_TRANSFERS = Transfers(*([],) * 6)
NO_LOADS = {name: [] for name in ("compute", "incoming", "outgoing", "sync", "load")}


def plan_of(**changes: object) -> Plan:
    """The four ops of `small` on x one after another: 1 + 2 + 3 + 1 seconds."""
    figures: dict[str, object] = {
        "problem": small(),
        "placement": Placement([0, 0, 0, 0]),
        "outcome": Schedule([0, 1, 3, 6], [1, 3, 6, 7], NO_TRANSFERS),
        "value": 7.0,
        "lower_bound": 5.0,
        "bound_source": "critical path",
        "planner": "by hand",
    }
    return Plan(**figures | changes)  # type: ignore[arg-type]


def test_the_plan_made_by_hand_holds():
    assert verify(plan_of()).violations == ()


def test_the_gap_is_the_share_of_the_value_above_the_bound():
    assert plan_of().gap == pytest.approx(2 / 7)
    assert plan_of(lower_bound=7.0).gap == 0
    assert plan_of(value=0.0, lower_bound=0.0).gap == 0


@pytest.mark.parametrize(
    ("bound", "status"), [(7.0, "optimal"), (7 * (1 - 0.9e-4), "optimal"), (6.99, "feasible")]
)
def test_a_plan_within_a_ten_thousandth_of_its_bound_is_optimal(bound, status):
    assert plan_of(lower_bound=bound).status == status


def test_loads_and_memory_are_counted_where_ops_are_placed():
    plan = plan_of(placement=Placement([0, 1, 1, 0]))
    assert plan.device_load.tolist() == [2, 10]
    assert plan.device_memory.tolist() == [5, 5]
    assert plan.device_of() == {"a": "x", "b": "y", "c": "y", "d": "x"}


def test_a_device_without_ops_has_no_load():
    assert plan_of().device_load.tolist() == [7, 0]
    assert plan_of().device_memory.tolist() == [10, 0]


def test_the_makespan_is_the_last_finish():
    assert plan_of().schedule.makespan == 7
    assert len(plan_of().schedule.transfers) == 0


def test_transfers_of_unequal_columns_are_refused():
    with pytest.raises(GraphError, match=r"columns of schedule.transfers differ in length"):
        Transfers([0], [-1], [0], [1], [0.0], [])


def test_a_plan_cannot_be_changed_by_accident():
    plan = plan_of()
    for array in (plan.placement.device, plan.schedule.op_start):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


# -- files ---------------------------------------------------------------------------------------


def solved(problem, planner="heft"):
    try:
        return solve(problem, planner, source="test")
    except InfeasibleError:
        assume(False)


@given(problems())
def test_a_plan_reads_back_equal_and_saves_the_same_bytes_again(tmp_path_factory, problem):
    folder = tmp_path_factory.mktemp("plans")
    plan = solved(problem)
    plan.save(folder / "one.json")
    loaded = Plan.load(folder / "one.json")
    loaded.save(folder / "two.json")
    assert (folder / "one.json").read_bytes() == (folder / "two.json").read_bytes()
    assert_equal(loaded.problem, plan.problem)
    assert verify(loaded).violations == ()
    assert (loaded.value, loaded.lower_bound, loaded.status, loaded.gap) == (
        plan.value, plan.lower_bound, plan.status, plan.gap,
    )  # fmt: skip


def test_the_same_problem_gives_the_same_file_again(tmp_path):
    for name in ("one.json", "two.json"):
        solve(small(), "m-etf").save(tmp_path / name)
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


def test_how_long_planning_took_is_not_in_the_file(tmp_path):
    plan_of(seconds=1.25).save(tmp_path / "plan.json")
    assert math.isnan(Plan.load(tmp_path / "plan.json").seconds)


def test_provenance_is_in_the_file(tmp_path):
    plan_of(seed=3, planner_options={"depth": "2"}, source="zoo:x").save(tmp_path / "plan.json")
    plan = Plan.load(tmp_path / "plan.json")
    assert (plan.planner, plan.seed, plan.planner_options, plan.source, plan.bound_source) == (
        "by hand", 3, {"depth": "2"}, "zoo:x", "critical path",
    )  # fmt: skip


def test_a_sequence_is_not_in_the_file_for_the_schedule_says_it(tmp_path):
    placement = Placement([0, 0, 0, 0], np.array([0, -1, -2, 1, 2, -3, -4, 3]))
    plan_of(placement=placement).save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").placement.sequence is None


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("placement",), [0], r"^p.json: placement has 1 entries for 4 ops$"),
        (("schedule", "op_start"), [0.0], r"^p.json: schedule.op_start has 1 entries for 4 ops$"),
        (("schedule", "op_finish"), [], r"^p.json: schedule.op_finish has 0 entries for 4 ops$"),
        (("schedule", "transfers", "start"), [1.0], r"^p.json: the columns of schedule.transfers"),
        (("problem", "ops", "memory"), [1.0], r"^p.json: problem 'small': op_memory has shape"),
        (("problem", "ops", "time", 0), [1.0], r"^p.json: problem 'small': op_time is no array"),
        (("problem", "options", "objective"), "speed", r"^p.json: no objective 'speed'"),
        (("problem", "routes", "channels", 0), [], r"^p.json: problem 'small': routes.channels"),
        (
            ("loads",),
            NO_LOADS,
            r"^p.json: field loads: belongs to another objective",
        ),
        (("problem", "ops", "pinned"), [], r"^p.json: problem 'small': ops.pinned is empty; fill"),
        (("problem", "routes", "host_latency"), [[], []], r"^p.json: .*: routes.host_latency is e"),
        (("problem", "batches"), {"sizes": [1], "time": [[[]]]}, r"^p.json: .*: batches.time is e"),
        (("problem", "ops", "type"), [], r"^p.json: problem 'small': ops.type is empty; fill it"),
        (("value",), "seven", r"^p.json: field value: "),
        (("value",), -1, r"^p.json: field value: "),
    ],
)
def test_a_malformed_plan_is_refused_naming_file_and_field(path, value, message):
    document = json.loads(json.dumps(plan_of().to_document()))
    place = document
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    with pytest.raises(FormatError, match=message):
        Plan.from_document(document, "p.json")


def test_a_wrong_plan_loads_for_judging_it_is_for_verify(tmp_path):
    replace(plan_of(), value=3.0).save(tmp_path / "plan.json")
    assert not verify(Plan.load(tmp_path / "plan.json")).ok


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"device": None}, "the placement's device is no array of whole numbers; give one"),
        ({"device": 3}, "device is no array of whole numbers"),
        ({"device": [0.5, 1.0]}, "device is no array of whole numbers"),
        ({"device": [math.nan]}, "device is no array of whole numbers"),
        ({"device": [[0], [1, 2]]}, "device is no array of whole numbers"),
        ({"device": [True]}, "device is no array of whole numbers"),
        ({"device": [2**40]}, "device has 1099511627776; give a number from 0, or -1 for none"),
        ({"sequence": "x"}, "sequence is no array of whole numbers"),
        ({"replicas": 3}, "replicas is 3; give a tuple of numbers for each stage"),
        ({"replicas": ((0.5, 1),)}, r"replicas is \(\(0\.5, 1\),\); give a tuple of numbers"),
        ({"row": "x"}, r"row is \('x',\); give a tuple of numbers"),
    ],
)
def test_a_placement_of_what_is_no_whole_number_is_refused(given, says):
    with pytest.raises(GraphError, match=says):
        Placement(**{"device": [0], **given})


def test_whole_numbers_may_be_of_any_type():
    for device in (np.zeros(2), np.zeros(2, np.uint8), np.zeros(2, np.int64), [0, np.int32(0)]):
        found = Placement(device).device
        assert found.dtype == np.int32 and found.tolist() == [0, 0]
