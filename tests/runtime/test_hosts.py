"""Runs over several hosts, which network namespaces of this machine play."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from placewright.cluster import Cluster, Device, Link  # noqa: E402
from placewright.plan import Plan  # noqa: E402
from placewright.planning import plan as make_plan  # noqa: E402
from placewright.simulate.latency import schedule_placement, time_placement  # noqa: E402
from tests.runtime.faults import repeated  # noqa: E402
from tests.runtime.namespaces import INTERFACE, Host, hosts, torchrun, why_not  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]
COUNT = int(os.environ.get("FAULTS", "1"))  # how often a link goes down
WAIT = 200  # seconds for a run, most of it for Python to start
MESSAGE = 1 << 20  # bytes that a rank sends to the next


def planned(count: int, bandwidth: float = 1e9) -> Plan:
    """An op on each device, the rest on the last; links of so many bytes per second."""
    cpus = tuple(Device(f"d{n}", "EPYC 7763", f"host{n}", memory=1e9) for n in range(count))
    links = tuple(Link(a.name, b.name, bandwidth) for a, b in pairwise(cpus))
    cluster = Cluster("hosts", cpus, links)
    plan = make_plan("torch:tests.runtime.models:broad", cluster, planner="single-device")
    device = np.minimum(np.arange(plan.problem.op_count), count - 1)
    placement = schedule_placement(plan.problem, device)
    outcome = time_placement(plan.problem, placement)
    return replace(plan, placement=placement, outcome=outcome, value=outcome.makespan)


def arguments(plan: Plan, folder: Path, *more: object) -> tuple[object, ...]:
    plan.save(folder / "plan.json")
    command = ("run", folder / "plan.json", "--launcher", "torchrun", "--interface", INTERFACE)
    return (*command, "--json", *more)


def report(plan: Plan, among: list[Host], folder: Path) -> dict[str, object]:
    """What rank 0 says; the others say nothing."""
    with torchrun(among, folder, *arguments(plan, folder, "--repeats", 3)) as started:
        told = [each.communicate(timeout=WAIT) for each in started]
    assert [each.returncode for each in started] == [0] * len(among), told
    (out, _), *others = told
    assert [silent for silent, _ in others] == [""] * len(others)
    assert [host.processes for host in among] == [""] * len(among)
    found: dict[str, object] = json.loads(out)
    return found


@pytest.mark.parametrize("count", [2, 3])
def test_hosts_give_the_outputs_of_one_process(count: int, tmp_path: Path) -> None:
    with hosts(count) as among:
        found = report(planned(count), among, tmp_path)
    assert found["ranks"] == count
    assert found["transfer_bytes"] == MESSAGE * (count - 1)
    assert found["max_abs_difference"] == pytest.approx(0, abs=1e-6)


def test_the_speed_of_the_link_shows_in_the_plan_and_in_the_run(tmp_path: Path) -> None:
    predicted, measured = {}, {}
    for megabits in (20, 80):
        plan = planned(2, bandwidth=megabits * 1e6 / 8)
        with hosts(2) as among:
            if not among[0].slow_down(megabits):
                pytest.skip("this kernel has no tbf to slow a link down")
            measured[megabits] = float(str(report(plan, among, tmp_path)["measured"]))
        predicted[megabits] = plan.value
    print(f"predicted {predicted}, measured {measured}")
    assert predicted[20] == pytest.approx(MESSAGE * 8 / 20e6, rel=0.1)
    for megabits in (20, 80):
        assert measured[megabits] >= 0.8 * predicted[megabits]
    assert measured[20] > 2 * measured[80]


@pytest.mark.timeout(600 * COUNT)
@pytest.mark.parametrize("down", [0, 1])
def test_a_link_that_goes_down_ends_the_job_on_every_host(down: int, tmp_path: Path) -> None:
    repeated(COUNT, lambda _: _a_link_goes_down(down, tmp_path))


def _a_link_goes_down(down: int, tmp_path: Path) -> None:
    more = ("--repeats", 100_000, "--timeout", 20)
    with hosts(2) as among:
        with torchrun(among, tmp_path, *arguments(planned(2), tmp_path, *more)) as started:
            while among[0].received() < 20 * MESSAGE:
                assert all(each.poll() is None for each in started)
                time.sleep(0.1)
            among[down].unplug()
            told = ended(started)
        assert [host.processes for host in among] == ["", ""]
    for rank, (out, err) in enumerate(told):
        assert out == ""
        own = [line for line in err.splitlines() if line.startswith("placewright: ")]
        assert len(own) == 1, err
        assert own[0].startswith(f"placewright: rank {rank} ")
        assert (tmp_path / f"code-{rank}").read_text() == "5\n"


def ended(started: list[subprocess.Popen[str]]) -> list[tuple[str, str]]:
    return [each.communicate(timeout=WAIT) for each in started]
