"""What a run measured is what the next plan expects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from placewright.cluster import Cluster
from placewright.costs.profiles.entry import Measured, ProfileKey
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.roofline import CostOptions
from placewright.errors import InputError, OptionError
from placewright.graph import Graph
from placewright.plan import Plan
from placewright.planning import plan as make_plan
from placewright.problem import DATASHEET, MEASURED
from placewright.runtime.results import RunReport
from placewright.runtime.tuning.calibrate import calibrate
from tests.runtime.layered import FAST, LIBRARY, SLOW, imported, layered, really, two_cpus
from tests.runtime.simulated import simulated_run

GRAPH = layered()
ON_ONE = {"b0": "slow", "b1": "slow", "b2": "slow", "b3": "slow", "first": "fast", "a0": "fast",
          "a1": "fast", "a2": "fast", "a3": "fast", "sum": "fast"}  # fmt: skip
FIRST = "aten.linear.default(10000)"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with ProfileStore(tmp_path / "profiles.sqlite") as opened:
        yield opened


def planned(cluster: Cluster | None = None, profiles: Path | None = None) -> Plan:
    """A branch on each device."""
    return make_plan(
        imported(GRAPH), cluster or two_cpus(), planner="heft", pinned=ON_ONE,
        costs=CostOptions(profiles=profiles),
    )  # fmt: skip


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned()


@pytest.fixture(scope="module")
def report(plan: Plan) -> RunReport:
    return simulated_run(plan, really(plan.problem))


def test_measured_times_go_to_the_store_and_the_next_plan_has_them(
    plan: Plan, report: RunReport, store: ProfileStore
) -> None:
    assert (plan.problem.op_cost_source == DATASHEET).all()
    done = calibrate(plan, report, store, graph=GRAPH)
    assert (done.kept, done.new, done.samples, done.set_aside) == (10, 10, 10, ())
    again = planned(profiles=store.path)
    placed = np.arange(GRAPH.op_count), plan.placement.device
    assert (again.problem.op_cost_source[placed] == MEASURED).all()
    truth = really(plan.problem)
    assert again.problem.op_time[placed] == pytest.approx(truth.op_time[placed])
    keys = {key for key, _ in store.entries()}
    assert {key.device for key in keys} == {FAST, SLOW}
    assert {key.library for key in keys} == {LIBRARY}


def test_an_entry_says_that_a_run_gave_it_and_what_the_op_has_to_do(
    plan: Plan, report: RunReport, store: ProfileStore
) -> None:
    calibrate(plan, report, store, graph=GRAPH)
    key = ProfileKey("aten.mm.default(100000)", FAST, LIBRARY)
    entry = store.get([key])[key]
    assert (entry.method, entry.samples, entry.dtype) == ("run", 1, "fp32")
    assert (entry.flops, entry.bytes_read, entry.bytes_before) == (4e9, 1e5, 2e4)
    assert entry.spread == pytest.approx(0.1)  # one sample alone would claim to be exact


def test_the_report_says_how_far_the_old_times_were(
    plan: Plan, report: RunReport, store: ProfileStore
) -> None:
    done = calibrate(plan, report, store, graph=GRAPH)
    truth = really(plan.problem).op_time[np.arange(GRAPH.op_count), plan.placement.device]
    assert done.measured == pytest.approx(truth.sum())
    assert done.planned == pytest.approx(float(plan.device_load.sum()))
    assert done.error == pytest.approx(0.25)  # of four ops 0, of two 1/4, of four 2/3
    again = planned(profiles=store.path)
    second = calibrate(again, simulated_run(again, really(plan.problem)), store, graph=GRAPH)
    assert (second.error, second.new) == (pytest.approx(0.0), 0)


def test_calls_of_one_signature_on_equal_devices_are_one_entry_their_median(
    store: ProfileStore,
) -> None:
    cluster = two_cpus()
    one = replace(cluster.devices[0], run=replace(cluster.devices[0].run, cores=(0,)))
    plan = planned(replace(cluster, devices=(one, cluster.devices[1])))
    truth = replace(plan.problem, op_time=plan.problem.op_time * [[1.0, 3.0]])
    done = calibrate(plan, simulated_run(plan, truth), store, graph=GRAPH)
    assert (done.kept, done.samples) == (6, 10)
    key = ProfileKey("aten.mm.default(100000)", SLOW, LIBRARY)
    seconds = [truth.op_time[GRAPH.op_index["a0"], 0], truth.op_time[GRAPH.op_index["b0"], 1]]
    assert store.get([key])[key].seconds == pytest.approx(np.median(seconds))


def test_several_clocked_calls_are_so_many_samples(
    plan: Plan, report: RunReport, store: ProfileStore
) -> None:
    disturbed = simulated_run(plan, replace(plan.problem, op_time=plan.problem.op_time * 50))
    passes = (report.steps, report.steps, disturbed.steps)
    assert not calibrate(plan, report, store, graph=GRAPH).is_noisy
    done = calibrate(plan, replace(report, passes=passes), store, graph=GRAPH)
    assert done.samples == 30 and done.is_noisy
    key = ProfileKey(FIRST, FAST, LIBRARY)
    entry = store.get([key])[key]
    assert entry.seconds == pytest.approx(plan.problem.op_time[0, 0] * 4 / 3)
    assert entry.high > 10 * entry.seconds  # the spread tells of the disturbed one


def test_a_run_goes_before_what_was_measured_otherwise(
    plan: Plan, report: RunReport, store: ProfileStore
) -> None:
    seconds = float(plan.problem.op_time[0, 0])
    key = ProfileKey(FIRST, FAST, LIBRARY)
    store.put({key: Measured(seconds, seconds / 2, seconds * 2, 60, "context", memory=77.0)})
    done = calibrate(plan, report, store, graph=GRAPH)
    assert (done.kept, done.new) == (10, 9)
    entry = store.get([key])[key]
    assert (entry.method, entry.memory) == ("run", 77.0)
    assert entry.seconds == pytest.approx(seconds * 4 / 3)
    assert entry.high == pytest.approx(entry.seconds * 2)  # many samples know how it varies


@pytest.mark.parametrize("factor", [0.2, 5.0])
def test_few_samples_far_from_what_was_measured_before_are_set_aside(
    factor: float, plan: Plan, report: RunReport, store: ProfileStore
) -> None:
    seconds = float(plan.problem.op_time[0, 0]) * factor * 4 / 3
    key = ProfileKey(FIRST, FAST, LIBRARY)
    store.put({key: Measured(seconds, seconds, seconds, 60, "context")})
    done = calibrate(plan, report, store, graph=GRAPH)
    assert (done.set_aside, done.kept) == (("first",), 9)
    assert store.get([key])[key].method == "context"
    thrice = replace(report, passes=(report.steps,) * 3)
    assert calibrate(plan, thrice, store, graph=GRAPH).set_aside == ()
    assert store.get([key])[key].method == "run"


def test_what_was_only_computed_before_does_not_count_as_measured(
    plan: Plan, report: RunReport, store: ProfileStore
) -> None:
    key = ProfileKey(FIRST, FAST, LIBRARY)
    store.put({key: Measured(9.0, 9.0, 9.0, 3, "regressed")})
    assert calibrate(plan, report, store, graph=GRAPH).set_aside == ()
    assert store.get([key])[key].method == "run"


# -- what cannot be kept -----------------------------------------------------------------------


def test_a_rank_with_other_threads_than_its_cores_is_left_out(
    plan: Plan, report: RunReport, store: ProfileStore
) -> None:
    pinned = replace(report, rank_cores=((0, 1), (2,)), rank_threads=(4, 1))
    done = calibrate(plan, pinned, store, graph=GRAPH)
    assert {key.device for key, _ in store.entries()} == {SLOW}
    assert list(done.left_out) == ["fast"]
    assert "4 threads instead of the 2 of its cores" in done.left_out["fast"]
    with pytest.raises(OptionError, match="device 'fast' ran with 4 threads"):
        calibrate(plan, replace(pinned, rank_threads=(4, 4)), store, graph=GRAPH)
    whole = replace(pinned, rank_threads=(2, 1))
    assert calibrate(plan, whole, store, graph=GRAPH).left_out == {}


def test_a_rank_that_shared_the_cores_is_left_out(
    plan: Plan, report: RunReport, store: ProfileStore
) -> None:
    threads = replace(report, rank_threads=(2, 1))
    with pytest.raises(OptionError, match="device 'fast' was not kept to its cores"):
        calibrate(plan, threads, store, graph=GRAPH)
    swapped = replace(threads, rank_cores=((0, 3), (2,)))
    assert list(calibrate(plan, swapped, store, graph=GRAPH).left_out) == ["fast"]


def test_devices_that_are_nothing_on_this_machine_teach_nothing(store: ProfileStore) -> None:
    plan = make_plan(imported(GRAPH), "2x3090", planner="heft", costs=CostOptions(profiles=None))
    report = simulated_run(plan, plan.problem)
    with pytest.raises(OptionError, match="does not say what it is on this machine"):
        calibrate(plan, report, store, graph=GRAPH)
    assert list(store.entries()) == []


def test_a_source_that_is_another_by_now_is_refused(
    plan: Plan, report: RunReport, store: ProfileStore
) -> None:
    with pytest.raises(InputError, match=r"torch:models:layered has no op 'a3' any more"):
        calibrate(plan, report, store, graph=layered(3))
    nameless: Graph = replace(GRAPH, op_signatures=())
    with pytest.raises(InputError, match="does not say which calls its ops are"):
        calibrate(plan, report, store, graph=nameless)
    with pytest.raises(InputError, match="no times of its steps"):
        calibrate(plan, replace(report, passes=()), store, graph=GRAPH)
    assert list(store.entries()) == []
