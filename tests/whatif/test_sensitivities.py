"""What other hardware would do is what planning on the changed cluster comes to."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.errors import OptionError, VerificationError
from placewright.plan import Plan
from placewright.planning import make_problem, plan, plan_problem
from placewright.solving import solve
from placewright.verify import verify
from placewright.whatif import sensitivities as module
from placewright.whatif.sensitivities import changes, sensitivities
from tests.builders import chain, throughput_chain
from tests.report.html.plans import QUICK, plan_for

GIB = 2.0**30
MODEL = "zoo:gpt2?layers=2"


def boxes(memory=(0.3 * GIB, 12 * GIB, 12 * GIB), bandwidth=12e9) -> Cluster:
    """Three devices of which the first is short of memory, with a link between each two."""
    kinds = ("RTX 4090", "RTX 3060", "T4")
    devices = tuple(
        Device(name, kind, memory=each)
        for name, kind, each in zip("abc", kinds, memory, strict=True)
    )
    pairs = (("a", "b"), ("a", "c"), ("b", "c"))
    links = tuple(Link(one, two, bandwidth=bandwidth, latency=1e-5) for one, two in pairs)
    return Cluster("boxes", devices=devices, links=links)


def changed(cluster: Cluster, kind: str, name: str) -> Cluster:
    """The cluster as a person would change it to see what a change of that name does."""
    if kind == "memory":
        device = name.removeprefix("1 GiB more on ")
        devices = [
            replace(each, memory=each.memory + GIB) if each.name == device else each
            for each in cluster.devices
        ]
        return replace(cluster, devices=tuple(devices))
    if kind == "link":
        ends = set(name.removesuffix(" twice as fast").split(" – "))
        links = [
            replace(each, bandwidth=2 * each.bandwidth) if {each.a, each.b} == ends else each
            for each in cluster.links
        ]
        return replace(cluster, links=tuple(links))
    lost = name.removeprefix("without ")
    return replace(
        cluster,
        devices=tuple(each for each in cluster.devices if each.name != lost),
        links=tuple(each for each in cluster.links if lost not in (each.a, each.b)),
    )


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_what_is_said_agrees_with_planning_on_the_changed_cluster_within_the_gap(objective):
    planner = {"latency": "heft", "throughput": "linear-dp"}[objective]
    cluster = boxes()
    found = plan(MODEL, cluster, planner=planner, objective=objective)
    told = sensitivities(found, 60.0, planner=planner)
    assert {each.change.kind for each in told} >= {"memory", "device"}
    for each in told:
        other = changed(cluster, each.change.kind, each.change.name)
        problem, _ = make_problem(MODEL, other, {"objective": objective})
        for column in ("op_time", "device_memory", "link_latency", "link_seconds_per_byte"):
            assert getattr(problem, column) == pytest.approx(getattr(each.change.problem, column))
        again = plan_problem(problem, planner=planner)
        assert verify(each.plan).ok
        assert each.plan.lower_bound <= again.value * (1 + 1e-9)
        assert again.lower_bound <= each.plan.value * (1 + 1e-9)
        assert each.plan.value <= again.value * (1 + 1e-9)


@pytest.mark.parametrize("objective", QUICK)
def test_more_memory_and_a_faster_link_never_make_a_plan_worse(objective):
    found = plan_for(objective)
    for each in sensitivities(found, 60.0, planner=QUICK[objective][0]):
        if each.change.keeps:
            assert each.plan.value <= found.value * (1 + 1e-9)


def test_the_fullest_memory_the_busiest_route_and_a_spare_device_are_changed():
    found = solve(chain([6.0, 6.0], [6.0, 80.0], tensor_bytes=1.0), "heft")
    names = [each.name for each in changes(found)]
    assert names == ["1 GiB more on x", "x – y twice as fast", "without x", "without y"]
    memory, link, *_ = changes(found)
    assert memory.problem.device_memory.tolist() == [6.0 + GIB, 80.0]
    assert link.problem.link_seconds_per_byte.tolist() == [[0.0, 0.05], [0.05, 0.0]]


def test_a_device_without_memory_is_not_the_fullest():
    found = solve(chain([6.0, 6.0], [0.0, 80.0]), "heft")
    assert next(changes(found)).name == "1 GiB more on y"


def test_through_host_memory_the_way_of_one_device_is_changed():
    found = solve(throughput_chain(), "linear-dp")
    [link] = [each for each in changes(found) if each.kind == "link"]
    before = found.problem.host_seconds_per_byte
    faster = link.problem.host_seconds_per_byte
    different = np.flatnonzero((before != faster).any(axis=0))
    assert len(different) == 1
    assert (faster[:, different] == before[:, different] / 2).all()


def test_a_device_without_which_nothing_fits_says_so():
    found = solve(chain([6.0, 6.0], [6.0, 8.0]), "heft")
    lost = [each for each in sensitivities(found, 60.0, planner="heft") if not each.plan]
    assert [each.change.kind for each in lost] == ["device", "device"]
    assert "needs 12 B" in lost[0].error


def test_what_cannot_be_is_refused():
    found = solve(chain([1.0], [8.0, 8.0]), "heft")
    for seconds in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(OptionError, match="seconds above 0"):
            sensitivities(found, seconds)
    wrong = replace(found, value=found.value / 2)
    assert isinstance(wrong, Plan)
    with pytest.raises(VerificationError):
        sensitivities(wrong, 1.0)


def test_seconds_are_shared_by_the_changes(monkeypatch):
    asked = []

    def planned(problem, **given):
        asked.append(given["time_limit"])
        return solve(problem, "heft")

    monkeypatch.setattr(module, "plan_problem", planned)
    told = sensitivities(solve(chain([6.0, 6.0], [12.0, 12.0]), "heft"), 12.0)
    assert asked == [12.0 / len(told)] * len(told)


def test_ctrl_c_ends_it_also_where_planning_keeps_what_it_has(monkeypatch):
    asked = []

    def planned(problem, **given):
        asked.append(given)
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return solve(problem, "heft")

    found = solve(chain([6.0, 6.0], [12.0, 12.0]), "heft")
    monkeypatch.setattr(module, "plan_problem", planned)
    with pytest.raises(KeyboardInterrupt):
        sensitivities(found, 12.0)
    assert len(asked) == 1
