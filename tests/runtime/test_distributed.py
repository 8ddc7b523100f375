"""Runs on real processes give the outputs of a single one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("psutil")

from placewright.cluster import Cluster, Device, Link  # noqa: E402
from placewright.errors import ExecutionError, InputError, OptionError  # noqa: E402
from placewright.plan import Plan  # noqa: E402
from placewright.planning import make_problem  # noqa: E402
from placewright.planning import plan as make_plan  # noqa: E402
from placewright.runtime import RunReport, distributed, execute, run_plan  # noqa: E402
from placewright.runtime.distributed import run_assignments, schedule_order  # noqa: E402
from tests.runtime import models  # noqa: E402
from tests.runtime.programs import family, random_assignment, split  # noqa: E402

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("temporary")]
HERE = "tests.runtime.models"


def assert_random_placements(name: str, ranks: int, count: int) -> float:
    case = family(name)
    reports = run_assignments(
        case.program,
        case.values,
        [random_assignment(case, ranks, seed) for seed in range(count)],
        ranks,
        repeats=1,
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
        f"{HERE}:chain", split("chain"), 2, repeats=3, on_progress=lambda *it: told.append(it)
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
    assert execute(f"{HERE}:chain", device_of, 2, repeats=1).max_abs_difference <= 1e-6
    device_of = dict.fromkeys(split("chain"), 0)
    assert execute(f"{HERE}:chain", device_of, 1, repeats=1).transfer_count == 0


@pytest.fixture(scope="module")
def gpt2_plan() -> Plan:
    return make_plan(f"torch:{HERE}:gpt2", "2x3090", planner="heft")


def test_a_plan_is_run_in_its_own_order_and_on_the_devices_it_uses(gpt2_plan: Plan) -> None:
    report: RunReport = run_plan(gpt2_plan, repeats=1)
    used = sorted(set(gpt2_plan.placement.device.tolist()))
    assert report.predicted == gpt2_plan.value
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
    monkeypatch.setattr(distributed, "cores", lambda: 8)
    devices = [Device(f"d{k}", kind, "host", memory=1e9) for k, kind in enumerate(kinds)]
    links = [Link("d0", each.name, 1e9) for each in devices[1:]]
    cluster = Cluster("mixed", tuple(devices), tuple(links))
    problem, _ = make_problem("zoo:gpt2?layers=1", cluster)
    assert distributed.device_threads(problem, used) == threads


def test_one_rank_of_two_runs_on_its_half_of_the_cores(
    gpt2_plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "cores", lambda: 8)
    asked: dict[str, Any] = {}

    def started(*_: Any, **options: Any) -> RunReport:
        asked.update(options)
        raise ExecutionError("that is all")

    monkeypatch.setattr(distributed, "execute", started)
    for given, expected in ((None, 8 // gpt2_plan.problem.device_count), (3, 3)):
        with pytest.raises(ExecutionError):
            run_plan(gpt2_plan, threads=given)
        assert asked["threads"] == expected


# -- what cannot be run ------------------------------------------------------------------------


def test_a_plan_of_something_without_weights_is_refused() -> None:
    with pytest.raises(OptionError, match="only a factory brings weights"):
        run_plan(make_plan("zoo:gpt2", "2x3090", planner="single-device"))


def test_a_plan_for_another_program_is_refused(gpt2_plan: Plan) -> None:
    from dataclasses import replace

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
        execute(f"{HERE}:chain", split("chain"), 2, **options)
