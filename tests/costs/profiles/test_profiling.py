"""Profiling a source and planning with what was measured."""

from __future__ import annotations

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from placewright.cluster import Cluster, CpuRun, CudaRun, Device, Link  # noqa: E402
from placewright.costs.detect import cpu_kind  # noqa: E402
from placewright.costs.machine import examine  # noqa: E402
from placewright.costs.profiles import profiling  # noqa: E402
from placewright.costs.profiles.profiling import profile  # noqa: E402
from placewright.costs.profiles.program import FEWEST, Context  # noqa: E402
from placewright.costs.profiles.store import ProfileStore  # noqa: E402
from placewright.costs.profiles.torch_program import TorchProgram  # noqa: E402
from placewright.costs.roofline import CostOptions  # noqa: E402
from placewright.errors import ClusterError, ExecutionError, OptionError  # noqa: E402
from placewright.plan import Plan  # noqa: E402
from placewright.planning import make_problem, plan  # noqa: E402
from placewright.problem import DATASHEET, GIVEN, MEASURED  # noqa: E402
from placewright.report.costs import cost_shares, cost_words  # noqa: E402
from placewright.verify import verify  # noqa: E402
from tests.cli.running import run  # noqa: E402

HERE = "torch:tests.costs.profiles.models"
CORE = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
FIGURES = {"memory": 4e9, "peak_flops": {"fp32": 1e10}, "memory_bandwidth": 1e10}


def cluster(**changes):
    """A core of this machine, and a GPU that is not here."""
    own = {"kind": cpu_kind(examine().processor), "run": CpuRun((CORE,)), **FIGURES} | changes
    devices = (Device("core", **own), Device("gpu", "T4"))
    return Cluster("pair", devices, (Link("core", "gpu", 1e10),))


@pytest.fixture
def store(tmp_path):
    with ProfileStore(tmp_path / "profiles.sqlite") as opened:
        yield opened


def test_what_is_measured_once_is_known_from_then_on(store):
    [first] = profile(f"{HERE}:two_layers", cluster(), store)
    [again] = profile(f"{HERE}:two_layers", cluster(), store)
    [family] = profile(f"{HERE}:five_layers", cluster(), store)
    assert (first.measured, first.known, first.method) == (4, 0, "context")
    assert (again.measured, again.known, again.method) == (0, 4, None)
    assert (family.measured, family.known) == (0, 4)
    [other] = profile(f"{HERE}:words", cluster(), store)
    assert other.measured == 2 and other.known == 0


def test_the_process_is_on_its_own_cores_again_afterwards(store):
    before = os.sched_getaffinity(0), torch.get_num_threads()
    profile(f"{HERE}:two_layers", cluster(), store)
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == before


def test_plans_take_measured_times_and_say_so(store, tmp_path):
    profile(f"{HERE}:two_layers", cluster(), store)
    costs = CostOptions(profiles=store.path)
    made = plan(f"{HERE}:two_layers", cluster(), planner="heft", costs=costs)
    sources = made.problem.op_cost_source
    assert (sources[:, 0] == MEASURED).all() and (sources[:, 1] == DATASHEET).all()
    assert sum(cost_shares(made).values()) == pytest.approx(1.0)
    known = {key.signature: each.seconds for key, each in store.entries()}
    assert set(made.problem.op_time[:, 0].tolist()) == set(known.values())
    made.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert (again.problem.op_cost_source == sources).all()
    assert verify(again).ok and cost_words(again) == cost_words(made)


def test_without_a_store_costs_are_the_datasheets(store):
    profile(f"{HERE}:two_layers", cluster(), store)
    problem, _ = make_problem(f"{HERE}:two_layers", cluster(), costs=CostOptions(profiles=None))
    assert (problem.op_cost_source == DATASHEET).all()


def test_times_of_a_published_graph_go_before_all(workloads):
    problem, _ = make_problem(workloads / "moirai" / "googlenet.json")
    assert (problem.op_cost_source == GIVEN).all()


def test_an_interrupted_profile_keeps_what_is_done(store, monkeypatch):
    measured = []
    real = TorchProgram.alone

    def third_is_interrupted(program, call, threads):
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(call)
        return real(program, call, threads)

    monkeypatch.setattr(TorchProgram, "alone", third_is_interrupted)
    with pytest.raises(KeyboardInterrupt):
        profile(f"{HERE}:two_layers", cluster(), store, method="isolated")
    monkeypatch.undo()
    [rest] = profile(f"{HERE}:two_layers", cluster(), store, method="isolated")
    assert (rest.known, rest.measured) == (2, 2)


def test_a_run_in_context_that_is_interrupted_keeps_what_it_has_seen_often_enough(
    store, monkeypatch
):
    """Five equal layers: two passes are ten calls of each, and two of what stands once."""
    monkeypatch.setattr(profiling, "KEPT_SECONDS", -1.0)
    real = TorchProgram.in_context

    def interrupted(program, threads, heard):
        def after_two(done, share, samples):
            heard(done, share, samples)
            if done == 2:
                raise KeyboardInterrupt

        return real(program, threads, after_two)

    monkeypatch.setattr(TorchProgram, "in_context", interrupted)
    with pytest.raises(KeyboardInterrupt):
        profile(f"{HERE}:five_layers", cluster(), store)
    kept = dict(store.entries())
    assert {key.op for key in kept} == {"aten.linear.default", "aten.relu.default"}
    assert all(each.samples >= FEWEST for each in kept.values())
    monkeypatch.undo()
    [rest] = profile(f"{HERE}:five_layers", cluster(), store)
    assert (rest.known, rest.measured) == (2, 2)
    assert kept.items() <= dict(store.entries()).items()


def test_ways_that_there_are_not_are_refused(store):
    with pytest.raises(OptionError, match="method is 'guess'; choose auto, context, isolated"):
        profile(f"{HERE}:two_layers", cluster(), store, method="guess")
    with pytest.raises(OptionError, match="missing is 'guess'; choose refuse, predict"):
        profile(f"{HERE}:two_layers", cluster(), store, missing="guess")


@pytest.mark.parametrize(
    ("busy", "passes", "steady", "said"),
    [
        (0.9, [1.0, 1.0, 1.0], 3, ["other work took 90% of the cores before measuring began"]),
        (0.1, [1.0, 1.0, 2.0], 3, ["the times of whole passes vary by 90%"]),
        (0.1, [1.0, 1.1, 1.0], 2, ["as fast as at its best in 2 of 9 passes, so all of them"]),
        (0.1, [1.0, 1.1, 1.0], 3, []),
        (None, [1.0, 1.1, 1.0], 9, []),
    ],
)
def test_a_machine_that_does_other_work_is_remarked(
    tmp_path, monkeypatch, busy, passes, steady, said
):
    real = TorchProgram.in_context

    def with_passes(program, threads, heard):
        samples = real(program, threads, heard).samples
        return Context(samples, tuple(passes), ran=9, steady=steady)

    monkeypatch.setattr(TorchProgram, "in_context", with_passes)
    monkeypatch.setattr(profiling, "busy_share", lambda cores: busy)
    cluster().save(tmp_path / "cluster.yaml")
    given = ("-c", tmp_path / "cluster.yaml", "--profiles", tmp_path / "store", "--json")
    done = run("profile", f"{HERE}:two_layers", *given)
    assert done.json[0]["busy"] == busy
    assert (done.json[0]["passes"], done.json[0]["steady"]) == (9, steady)
    lines = [line for line in done.err.splitlines() if "quieten the machine" in line]
    assert len(lines) == len(said)
    assert all(each in line for each, line in zip(said, lines, strict=True))


def test_a_call_that_fails_ends_the_profile_or_is_left_to_the_model(store, monkeypatch):
    real = TorchProgram.alone

    def fails(program, call, threads):
        if call.startswith("aten.relu.default"):
            raise ExecutionError("aten.relu.default(float32[3,16]) cannot be run here (…)")
        return real(program, call, threads)

    monkeypatch.setattr(TorchProgram, "alone", fails)
    with pytest.raises(ExecutionError, match="relu"):
        profile(f"{HERE}:two_layers", cluster(), store, method="isolated")
    [done] = profile(f"{HERE}:two_layers", cluster(), store, method="isolated", missing="predict")
    assert list(done.failed) == ["aten.relu.default(float32[3,16])"]
    costs = CostOptions(profiles=store.path)
    problem, _ = make_problem(f"{HERE}:two_layers", cluster(), costs=costs)
    relus = np.array([kind == "aten.relu" for kind in problem.op_types])
    assert (problem.op_cost_source[relus, 0] == DATASHEET).all()
    assert (problem.op_cost_source[~relus, 0] == MEASURED).all()


@pytest.mark.parametrize(
    ("changes", "devices", "error", "said"),
    [
        ({}, ["nobody"], OptionError, "has no device 'nobody'; it has core, gpu"),
        ({}, ["gpu"], ClusterError, "device 'gpu' does not say what it is on this machine"),
        ({"run": None}, [], ClusterError, "no device of cluster 'pair' says what it is"),
        ({"run": CudaRun(0)}, [], ClusterError, "cuda 0, but .* take devices that run on cpu"),
        ({"kind": "EPYC 9999"}, [], ClusterError, "write that as its kind"),
        ({"run": CpuRun((4000,))}, [], ClusterError, "core 4000 is not there"),
        ({"run": CpuRun((0,), "nowhere")}, [], ClusterError, "is of host 'nowhere', and this is"),
    ],
)
def test_devices_that_cannot_be_measured_are_refused(store, changes, devices, error, said):
    with pytest.raises(error, match=said):
        profile(f"{HERE}:two_layers", cluster(**changes), store, devices=devices)


def test_a_program_too_large_for_its_device_is_measured_call_by_call(store):
    small = cluster(memory=1000.0)
    [done] = profile(f"{HERE}:two_layers", small, store)
    assert done.method == "isolated"
    with pytest.raises(OptionError, match="use --method isolated"):
        profile(f"{HERE}:words", cluster(memory=10.0), store, method="context")


def test_the_command_measures_and_plan_uses_it(tmp_path):
    path, profiles = tmp_path / "cluster.yaml", tmp_path / "profiles.sqlite"
    cluster().save(path)
    given = [f"{HERE}:two_layers", "-c", path, "--profiles", profiles, "--json"]
    [first] = run("profile", *given).json
    [again] = run("profile", *given).json
    assert (first["measured"], again["measured"], again["known"]) == (4, 0, 4)
    made = run("plan", *given, "-p", "single-device")
    assert made.code == 0 and set(made.json["costs"]) <= {"measured", "datasheet"}
    assert "4" in run("profile", *given[:-1]).out
    assert run("profile", *given, "--method", "guess").code == 2
