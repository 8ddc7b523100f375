"""The Standard Evaluation: small batches, a line for each op, a few steps of the large batch."""

from __future__ import annotations

import os
import statistics

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from placewright.cluster import Cluster, CpuRun, Device, Link  # noqa: E402
from placewright.costs.detect import cpu_kind  # noqa: E402
from placewright.costs.machine import examine  # noqa: E402
from placewright.costs.profiles.profiling import profile  # noqa: E402
from placewright.costs.profiles.store import ProfileStore  # noqa: E402
from placewright.costs.roofline import CostOptions  # noqa: E402
from placewright.errors import OptionError  # noqa: E402
from placewright.importers.torch import export  # noqa: E402
from placewright.importers.torch.programs import load_executable  # noqa: E402
from placewright.importers.torch.signature import signature  # noqa: E402
from placewright.measuring import standard_evaluation as module  # noqa: E402
from placewright.measuring.standard_evaluation import standard_evaluation  # noqa: E402
from placewright.planning import plan  # noqa: E402
from placewright.problem import MEASURED, REGRESSED  # noqa: E402
from placewright.report.costs import cost_words  # noqa: E402
from placewright.verify import verify  # noqa: E402
from tests.cli.running import run  # noqa: E402

HERE = "torch:tests.costs.profiles.models"
SOURCE = f"{HERE}:batched"  # a batch of 16
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
FIGURES = {"peak_flops": {"fp32": 1e10}, "memory_bandwidth": 1e10}
MANY = 4e9


def cluster(*memories):
    """Devices of a core each, the last of as many as there are."""
    kind, last = cpu_kind(examine().processor), len(memories) - 1
    runs = [CpuRun((CORES[d],)) for d in range(last)] + [CpuRun(tuple(CORES[last:]))]
    devices = tuple(
        Device(f"core{d}", kind, memory=memory, run=runs[d], **FIGURES)
        for d, memory in enumerate(memories)
    )
    links = tuple(Link("core0", each.name, 1e10) for each in devices[1:])
    return Cluster("cores", devices, links)


@pytest.fixture
def store(tmp_path):
    with ProfileStore(tmp_path / "profiles.sqlite") as opened:
        yield opened


def entries(store):
    return {key.signature: each for key, each in store.entries()}


def test_without_steps_the_large_batch_is_regressed_and_plans_say_so(store):
    [done] = standard_evaluation(SOURCE, cluster(MANY), store, batches=(2, 4), steps=0)
    assert (done.batches, done.batch) == ((2, 4), 16)
    assert (done.known, done.corrected) == (1, 0)  # a transposed weight has no batch
    assert done.regressed == len(done.estimates) > 0
    kept = entries(store)
    assert {s for s, each in kept.items() if each.method == "regressed"} == set(done.estimates)
    made = plan(SOURCE, cluster(MANY), planner="heft", costs=CostOptions(profiles=store.path))
    has_batch = np.array([kind != "aten.t" for kind in made.problem.op_types])
    assert (made.problem.op_cost_source[has_batch] == REGRESSED).all() and verify(made).ok
    assert (made.problem.op_cost_source[~has_batch] == MEASURED).all()
    assert "% regressed" in cost_words(made)
    seconds = {kept[s].seconds for s in done.estimates}
    assert set(made.problem.op_time[has_batch, 0].tolist()) == seconds


def test_steps_of_the_large_batch_correct_what_was_regressed(store):
    [done] = standard_evaluation(SOURCE, cluster(MANY), store, steps=3)
    assert done.batches == (2, 4, 8) and not done.left_out  # its halvings
    assert (done.regressed, done.corrected) == (0, len(done.estimates))
    kept = entries(store)
    assert {kept[s].method for s in done.estimates} == {"context"}
    made = plan(SOURCE, cluster(MANY), planner="heft", costs=CostOptions(profiles=store.path))
    assert (made.problem.op_cost_source == MEASURED).all()
    [again] = standard_evaluation(SOURCE, cluster(MANY), store)
    assert (again.known, again.regressed, again.batches) == (done.corrected + 1, 0, ())


def test_steps_held_out_are_as_many_again_and_nothing_is_learnt_from_them(store, monkeypatch):
    seen = []
    real = module.measure_in_context

    def seeing(executable, *args, **kwargs):
        found = real(executable, *args, **kwargs)
        seen.append((kwargs.get("steps"), found.calls))
        return found

    monkeypatch.setattr(module, "measure_in_context", seeing)
    [done] = standard_evaluation(
        SOURCE, cluster(MANY), store, batches=(2, 4), steps=3, hold_out=True
    )
    steps, calls = seen[-1]
    assert steps == 6
    assert done.held_out == {name: seconds[1::2] for name, seconds in calls.items()}
    learnt = {name: seconds[::2] for name, seconds in calls.items()}
    nodes = {node.name: signature(node) for node in load_executable(SOURCE).calls}
    alone = [name for name in nodes if list(nodes.values()).count(nodes[name]) == 1]
    kept = entries(store)
    checked = [name for name in alone if nodes[name] in done.estimates]
    assert checked
    for name in checked:
        assert kept[nodes[name]].seconds == statistics.median(learnt[name])


def test_the_large_batch_is_exported_once(store, monkeypatch):
    seen = []
    real = export.export_module

    def counted(module, args, kwargs=None, *, training=False):
        seen.append(args[0].shape[0])
        return real(module, args, kwargs, training=training)

    monkeypatch.setattr(export, "export_module", counted)
    [done] = standard_evaluation(SOURCE, cluster(MANY), store, batches=(2, 4), steps=1)
    assert done.corrected and seen.count(done.batch) == 1 and len(seen) > 2


def test_what_was_measured_goes_before_what_was_regressed_whichever_came_first(store):
    [first] = profile(SOURCE, cluster(MANY), store)
    measured = entries(store)
    [done] = standard_evaluation(SOURCE, cluster(MANY), store, batches=(2, 4), steps=0)
    assert done.known == first.measured and done.regressed == 0
    assert entries(store) == measured
    store.prune(device="")
    [done] = standard_evaluation(SOURCE, cluster(MANY), store, batches=(2, 4), steps=0)
    [after] = profile(SOURCE, cluster(MANY), store)
    assert {entries(store)[s].method for s in done.estimates} == {"context"}
    assert (after.known, after.measured) == (done.known, first.measured - done.known)


def test_bytes_of_outputs_and_of_temporaries_are_regressed_to_what_they_are(store):
    [done] = standard_evaluation(SOURCE, cluster(MANY), store, batches=(2, 4), steps=0)
    estimates = {s: each.memory for s, each in done.estimates.items()}
    store.prune(device="")
    standard_evaluation(SOURCE, cluster(MANY), store, batches=(2, 4), steps=1)
    for text, each in entries(store).items():
        if text in estimates:
            assert estimates[text] == pytest.approx(each.memory, rel=0.1, abs=64.0), text


def test_a_model_that_fits_no_device_is_corrected_over_several(store, monkeypatch):
    """Ops of each kind of device are measured where the sequential placement has them."""
    placements = []
    real = module._placed_sequentially

    def noted(*args):
        placements.append(real(*args))
        return placements[-1]

    monkeypatch.setattr(module, "_placed_sequentially", noted)
    some = cluster(20e3, MANY)
    found = standard_evaluation(f"{HERE}:heavy", some, store, batches=(1, 2), steps=2)
    [placement] = placements
    assert set(placement.values()) == {"core0", "core1"}
    if len(CORES) == 2:  # the devices are the same
        assert [(each.regressed, each.devices) for each in found] == [(0, ("core0", "core1"))]
    assert sum(each.corrected for each in found) >= len(found[0].estimates)
    assert os.sched_getaffinity(0) == set(CORES)


def test_a_large_batch_without_the_memory_stays_regressed_and_says_why(store, monkeypatch):
    [done] = standard_evaluation(SOURCE, cluster(5500.0), store, batches=(1, 2))
    assert done.corrected == 0 and done.regressed > 0
    assert "KiB" in done.left_out or "memory" in done.left_out
    monkeypatch.setattr(module, "available_memory", lambda: 100.0)
    store.prune(device="")
    [done] = standard_evaluation(SOURCE, cluster(MANY), store, batches=(1, 2))
    assert "may be used" in done.left_out and done.regressed > 0


def test_an_interrupt_in_the_large_batch_keeps_what_was_regressed(store, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_correct", interrupted)
    with pytest.raises(KeyboardInterrupt):
        standard_evaluation(SOURCE, cluster(MANY), store, batches=(1, 2))
    methods = [each.method for each in entries(store).values()]
    assert "regressed" in methods and "context" in methods


@pytest.mark.parametrize(
    ("source", "given", "said"),
    [
        (SOURCE, {"batches": (2,)}, "--batches is 2; give 2 or more, from 1 and below"),
        (SOURCE, {"batches": (2, 16)}, "--batches is 2,16; give 2 or more"),
        (SOURCE, {"batches": (0, 2)}, "--batches is 0,2; give 2 or more"),
        (SOURCE, {"steps": -1}, "--steps is -1; give 0 or more"),
        (f"{HERE}:two_layers", {}, "'two_layers' takes no batch"),
        (f"{HERE}:batched_in_two_ways", {"batches": (1, 2)}, "at batch 1 is another program"),
        ("hf:gpt2?n_layer=1", {}, "has a batch of 1"),
        ("model.pt2", {}, "model.pt2 cannot be made for other batches"),
        ("zoo:gpt2", {}, "zoo:gpt2 cannot be made for other batches"),
    ],
)
def test_what_cannot_be_done_is_refused(store, source, given, said):
    with pytest.raises(OptionError, match=said):
        standard_evaluation(source, cluster(MANY), store, **given)
    assert not entries(store)


def test_batches_that_do_not_fit_are_refused_or_passed_over(store):
    small = cluster(5500.0)
    with pytest.raises(OptionError, match="may be used of a device; give smaller --batches"):
        standard_evaluation(SOURCE, small, store, batches=(1, 15))
    [done] = standard_evaluation(SOURCE, small, store, steps=0)
    assert max(done.batches) < 8


def test_a_training_step_is_evaluated_too(store):
    [done] = standard_evaluation(
        f"{HERE}:batched_loss", cluster(MANY), store, batches=(2, 4), steps=1, training=True
    )
    assert done.corrected == len(done.estimates) > 0
    assert np.isfinite([each.seconds for each in done.estimates.values()]).all()


def test_the_command_evaluates_and_says_what_it_did(tmp_path):
    path, profiles = tmp_path / "cluster.yaml", tmp_path / "profiles.sqlite"
    cluster(MANY).save(path)
    given = [SOURCE, "-c", path, "--profiles", profiles, "--standard-evaluation"]
    [done] = run("profile", *given, "--batches", "2,4", "--steps", "0", "--json").json
    assert (done["batches"], done["batch"], done["corrected"]) == ([2, 4], 16, 0)
    assert done["regressed"] > 0 and done["profiles"] == str(profiles)
    told = run("profile", *given, "--steps", "1")
    assert told.code == 0 and "corrected" in told.out
    for wrong in (["--batches", "2;4"], ["--method", "isolated"], ["--missing", "predict"]):
        assert run("profile", *given, *wrong).code == 2
    assert run("profile", *given[:-1], "--steps", "1").code == 2
