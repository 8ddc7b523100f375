"""Runs on real processes give the outputs of a single one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("psutil")

from placewright.cluster import Cluster, CpuRun, CudaRun, Device, Link  # noqa: E402
from placewright.errors import ClusterError, ExecutionError, InputError, OptionError  # noqa: E402
from placewright.plan import Plan  # noqa: E402
from placewright.planning import make_problem  # noqa: E402
from placewright.planning import plan as make_plan  # noqa: E402
from placewright.runtime import (  # noqa: E402
    RunOptions,
    RunReport,
    execute,
    plans,
    run_plan,
)
from placewright.runtime.execution import run_assignments  # noqa: E402
from placewright.runtime.plans import schedule_order  # noqa: E402
from placewright.runtime.ranks import distributed, launch, segments  # noqa: E402
from placewright.simulate.latency import schedule_placement, time_placement  # noqa: E402
from tests.runtime import models  # noqa: E402
from tests.runtime.programs import family, random_assignment, split  # noqa: E402

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("temporary")]
HERE = "tests.runtime.models"
ONCE = RunOptions(repeats=1, clocked=1)


def assert_random_placements(name: str, ranks: int, count: int) -> float:
    case = family(name)
    reports = run_assignments(
        case.program,
        case.values,
        [random_assignment(case, ranks, seed) for seed in range(count)],
        ranks,
        options=ONCE,
        modules=[HERE],
    )
    worst = max(report.max_abs_difference for report in reports)
    assert worst <= 1e-6
    assert len(reports) == count
    return worst


# -- right outputs -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "ranks"), [("gpt2", 3), ("mixtral", 2)])
def test_random_placements_give_the_outputs_of_a_single_process(name: str, ranks: int) -> None:
    assert_random_placements(name, ranks, count=3)


@pytest.mark.parametrize("room", [0, 4096])
def test_what_no_segment_has_room_for_goes_over_gloo(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if room:
        monkeypatch.setattr(segments, "MOST_BYTES", room)  # for some tensors
    else:
        monkeypatch.setattr(segments, "are_there", lambda: False)
    assert_random_placements("gpt2", 2, count=2)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", sorted(models.FAMILIES))
def test_twenty_random_placements_give_the_outputs_of_a_single_process(
    name: str, ranks: int, record_property: Callable[[str, object], None]
) -> None:
    record_property("max_abs_difference", assert_random_placements(name, ranks, count=20))


def test_a_run_reports_times_transfers_and_the_difference() -> None:
    told: list[tuple[str, float]] = []
    report = execute(
        f"torch:{HERE}:chain",
        split("chain"),
        2,
        options=RunOptions(repeats=3),
        on_progress=lambda *it: told.append(it),
    )
    assert report.max_abs_difference <= 1e-6
    assert (report.transfer_count, report.transfer_bytes) == (1, 2 * 8 * 4)
    assert 0 < report.fastest <= report.measured
    assert len(report.rank_busy_seconds) == 2
    assert all(0 < busy <= report.measured for busy in report.rank_busy_seconds)
    assert report.single_process_seconds > 0
    assert report.predicted is None
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_ranks_without_ops_and_a_single_rank_are_run_too() -> None:
    device_of = dict.fromkeys(split("chain"), 1)
    assert execute(f"torch:{HERE}:chain", device_of, 2, options=ONCE).max_abs_difference <= 1e-6
    device_of = dict.fromkeys(split("chain"), 0)
    assert execute(f"torch:{HERE}:chain", device_of, 1, options=ONCE).transfer_count == 0


@pytest.fixture(scope="module")
def gpt2_plan() -> Plan:
    return make_plan(f"torch:{HERE}:gpt2", "2x3090", planner="heft")


def test_a_plan_is_run_in_its_own_order_and_on_the_devices_it_uses(gpt2_plan: Plan) -> None:
    report: RunReport = run_plan(gpt2_plan, ONCE)
    used = sorted(set(gpt2_plan.placement.device.tolist()))
    assert report.predicted == gpt2_plan.value
    assert report.rank_cores == ()  # its devices have no cores of their own
    assert report.devices == tuple(gpt2_plan.problem.device_names[device] for device in used)
    assert report.max_abs_difference <= 1e-6
    assert set(report.to_document()) >= {"predicted", "measured", "max_abs_difference"}


def test_the_order_of_a_plan_follows_its_starts_and_its_edges(gpt2_plan: Plan) -> None:
    problem = gpt2_plan.problem
    order = schedule_order(gpt2_plan)
    position = np.array([order.index(op) for op in problem.op_names])
    assert (position[problem.edge_producer] < position[problem.consumers]).all()
    starts = gpt2_plan.schedule.op_start[np.argsort(position)]
    assert (np.diff(starts) >= -1e-12).all()


@pytest.mark.parametrize(
    ("kinds", "used", "threads"),
    [
        (["EPYC 7763"], [0], 8),
        (["EPYC 7763", "EPYC 7763"], [0], 4),  # not 8: the other CPU of the cluster is the rest
        (["EPYC 7763", "EPYC 7763"], [0, 1], 4),
        (["EPYC 7763", "T4"], [0], 8),
        (["EPYC 7763", "T4"], [0, 1], 4),
        (["T4"] * 20, [0], 1),
    ],
)
def test_a_rank_has_the_threads_of_its_device(
    kinds: list[str], used: list[int], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "cores", lambda: 8)
    devices = [Device(f"d{k}", kind, "host", memory=1e9) for k, kind in enumerate(kinds)]
    links = [Link("d0", each.name, 1e9) for each in devices[1:]]
    cluster = Cluster("mixed", tuple(devices), tuple(links))
    problem, _ = make_problem("zoo:gpt2?layers=1", cluster)
    assert plans.device_threads(problem, used) == threads


def test_one_rank_of_two_runs_on_its_half_of_the_cores(
    gpt2_plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "cores", lambda: 8)
    asked: dict[str, Any] = {}

    def started(*_: Any, **options: Any) -> RunReport:
        asked.update(options)
        raise ExecutionError("that is all")

    monkeypatch.setattr(plans, "execute", started)
    count = len(set(gpt2_plan.placement.device.tolist()))
    for given, expected in ((None, [8 // gpt2_plan.problem.device_count] * count), (3, 3)):
        with pytest.raises(ExecutionError):
            run_plan(gpt2_plan, RunOptions(threads=given))
        assert asked["options"].threads == expected


# -- cores of its own --------------------------------------------------------------------------


def on(plan: Plan, *runs: CpuRun | CudaRun | None) -> Plan:
    """The plan, its devices being these of this machine."""
    return replace(plan, problem=replace(plan.problem, device_runs=runs))


@pytest.fixture(scope="module")
def two_devices() -> Plan:
    """A chain of which the first op is on device 0 and the rest on device 1."""
    cpus = tuple(Device(name, "EPYC 7763", "host", memory=1e9) for name in ("left", "right"))
    cluster = Cluster("pair", cpus, (Link("left", "right", 1e9),))
    plan = make_plan(f"torch:{HERE}:chain", cluster, planner="single-device")
    device = np.array([split("chain")[op] for op in plan.problem.op_names])
    placement = schedule_placement(plan.problem, device)
    outcome = time_placement(plan.problem, placement)
    return replace(plan, placement=placement, outcome=outcome, value=outcome.makespan)


def test_ranks_are_pinned_to_the_cores_of_their_devices_with_as_many_threads(
    two_devices: Plan,
) -> None:
    usable = tuple(sorted(os.sched_getaffinity(0)))
    first, last = usable[:1], usable[1:] or usable
    if first == last:
        pytest.skip("this machine has one core")
    plan = on(two_devices, CpuRun(last), CpuRun(first))
    report = run_plan(plan, ONCE)
    assert report.rank_cores == (last, first)
    assert report.rank_threads == (len(last), 1)
    assert report.threads_per_rank == len(last)
    assert report.max_abs_difference <= 1e-6
    assert tuple(sorted(os.sched_getaffinity(0))) == usable
    assert run_plan(plan, RunOptions(repeats=1, threads=2)).rank_threads == (2, 2)


def test_a_rank_is_really_on_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    usable = sorted(os.sched_getaffinity(0))
    seen: set[frozenset[int]] = set()
    processes = launch.Ranks

    class Watched(processes):  # type: ignore[misc, valid-type]
        def events(self, timeout: float) -> Any:
            for rank, event in super().events(timeout):
                if event.get("doing") == "running its ops":
                    seen.add(frozenset(os.sched_getaffinity(self._processes[rank].pid)))
                yield rank, event

    monkeypatch.setattr(distributed, "Ranks", Watched)
    cores = [usable[:1], usable[-1:]]
    report = execute(
        f"torch:{HERE}:chain",
        split("chain"),
        2,
        options=RunOptions(repeats=1, threads=1, rank_cores=cores),
    )
    assert seen == {frozenset(each) for each in cores}
    assert report.rank_cores == tuple(map(tuple, cores))


def test_a_plan_on_a_gpu_that_is_not_there_is_refused(two_devices: Plan) -> None:
    with pytest.raises(ClusterError, match="device 'right' runs on cuda 99, but"):
        run_plan(on(two_devices, None, CudaRun(99)))


def test_cores_that_are_not_there_are_told_before_anything_runs(
    two_devices: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "execute", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(InputError, match="core 99999 is not there"):
        run_plan(on(two_devices, CpuRun((99999,)), None))


def test_a_plan_on_cores_of_another_host_is_refused(two_devices: Plan) -> None:
    with pytest.raises(InputError, match="device 'left' is of host 'nowhere', and this is"):
        run_plan(on(two_devices, CpuRun((0,), "nowhere"), None))


# -- what cannot be run ------------------------------------------------------------------------


def test_a_plan_of_something_without_weights_is_refused() -> None:
    with pytest.raises(OptionError, match="has no program to run"):
        run_plan(make_plan("zoo:gpt2", "2x3090", planner="single-device"))


def test_a_plan_for_another_program_is_refused(gpt2_plan: Plan) -> None:
    with pytest.raises(InputError, match="plan this program again"):
        run_plan(replace(gpt2_plan, source=f"torch:{HERE}:chain"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "repeats is 0"),
        ({"threads": 0}, "threads is 0"),
        ({"timeout": 0.0}, "timeout is 0.0"),
        ({"timeout": float("inf")}, "at most a week"),
    ],
)
def test_impossible_options_are_refused(options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        execute(f"torch:{HERE}:chain", split("chain"), 2, options=RunOptions(**options))
