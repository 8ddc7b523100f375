"""Predictions of a graph's ops, what is said of them, and how they are checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from placewright.cluster import Cluster, CpuRun, Device, Link
from placewright.costs.prediction.check import check
from placewright.costs.prediction.learned import learned_from
from placewright.costs.prediction.predict import predicted_seconds
from placewright.costs.prediction.samples import samples_of
from placewright.costs.profiles.entry import Measured, ProfileKey
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.roofline import CostOptions
from placewright.errors import ProfileError
from placewright.graph import GraphBuilder
from placewright.planning import plan
from placewright.problem import DATASHEET, MEASURED, PREDICTED, REGRESSED
from placewright.verify import verify
from tests.cli.running import run
from tests.costs.prediction.stores import FIGURES, SLOW, TORCH, made_store, true_seconds

MINE = "aten.linear.default(float32[300,700], float32[500,700])"
CALLS = {
    MINE: (2.0 * 300 * 500 * 700, 4.0 * (300 * 700 + 500 * 700 + 300 * 500)),
    "aten.gelu.default(float32[150000])": (0.0, 8.0 * 150_000),
    "aten.linear.default(float32[40,40], float32[40,40])": (2.0 * 40**3, 12.0 * 1600),
}


def device(name: str, kind: str, cores: int, of: str = SLOW, share: float = 1.0) -> Device:
    figures = FIGURES[of]
    return Device(
        name,
        kind,
        memory=1e10,
        peak_flops={"fp32": share * figures.peak_flops["fp32"]},
        memory_bandwidth=share * figures.memory_bandwidth,
        run=CpuRun(tuple(range(10 * cores, 11 * cores))),
    )


def graph():
    builder = GraphBuilder("three")
    sources = []
    for number, (signature, (flops, moved)) in enumerate(CALLS.items()):
        op = builder.add_op(
            f"op{number}", signature.split("(")[0], sources, flops=flops,
            bytes_read=moved / 2, bytes_written=moved / 2, signature=signature,
        )  # fmt: skip
        sources = [builder.add_tensor(op, 100.0)]
    builder.attributes["framework"] = TORCH
    return builder.build()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return made_store(tmp_path / "profiles", noise=0.05)


def test_a_device_that_was_measured_teaches_of_its_other_ops(store: Path):
    there = device("a", "Slow CPU", 1)
    found = predicted_seconds(graph(), [there], store)["a"]
    assert found.source == REGRESSED
    expected = [true_seconds(SLOW, *work) for work in CALLS.values()]
    assert found.seconds == pytest.approx(expected, rel=0.25, abs=1e-5)


def test_its_own_samples_count_in_the_figures_it_had_then(store: Path):
    """A detected bandwidth differs from one time to the next."""
    as_then, now = (device("a", "Slow CPU", 1, share=share) for share in (1.0, 3.0))
    before, after = (predicted_seconds(graph(), [d], store)["a"].seconds for d in (as_then, now))
    assert before.tolist() == after.tolist()


def test_a_device_that_was_not_measured_is_predicted_by_its_figures(store: Path):
    """Half as fast as the slower of the two in the store."""
    slower = device("b", "Slower CPU", 4, share=0.5)
    found = predicted_seconds(graph(), [slower], store)["b"]
    assert found.source == PREDICTED
    overhead = true_seconds(SLOW, 0, 0)
    expected = [2 * true_seconds(SLOW, *work) - overhead for work in CALLS.values()]
    assert found.seconds == pytest.approx(expected, rel=0.3, abs=1e-5)


def test_cpus_say_nothing_of_gpus(store: Path):
    gpu = Device("gpu", "RTX 3090", memory=1e9, peak_flops={"fp32": 1e13}, memory_bandwidth=1e12)
    assert predicted_seconds(graph(), [gpu], store) == {}


def test_too_few_samples_predict_nothing(tmp_path: Path):
    few = made_store(tmp_path / "few", models=1, size=2)
    assert predicted_seconds(graph(), [device("a", "Slow CPU", 1)], few) == {}


def test_the_spread_is_that_of_the_noise(tmp_path: Path):
    for noise in (0.1, 0.4):
        path = made_store(tmp_path / str(noise), models=10, noise=noise)
        with ProfileStore(path) as store:
            learned = learned_from(samples_of(store, "torch", True).on(SLOW))
        assert learned.spread == pytest.approx(noise, rel=0.4)


def test_times_that_were_not_measured_teach_nothing(store: Path):
    wrong = Measured(9.0, 9.0, 9.0, 1, "regressed", flops=1.0, dtype="fp32")
    with ProfileStore(store) as mine:
        before = len(samples_of(mine, "torch", True))
        mine.put({ProfileKey("aten.mul.Tensor()", SLOW, TORCH): wrong})
        assert len(samples_of(mine, "torch", True)) == before
        assert len(samples_of(mine, "onnxruntime", True)) == 0


def test_a_plan_takes_the_best_source_of_each_time(store: Path):
    """Measured before predicted before datasheet, per op and device, and says which."""
    key = ProfileKey(MINE, SLOW, TORCH)
    with ProfileStore(store) as mine:
        mine.put({key: Measured(0.25, 0.2, 0.3, 20, "context")})
    gpu = Device("c", "mine", memory=1e10, peak_flops={"fp32": 1e13}, memory_bandwidth=1e12)
    devices = (device("a", "Slow CPU", 1), device("b", "Slower CPU", 4, share=0.5), gpu)
    links = (Link("a", "b", 1e9), Link("b", "c", 1e9))
    made = plan(
        graph(), Cluster("three", devices, links), planner="heft",
        costs=CostOptions(profiles=store), pinned={"op0": "a"},
    )  # fmt: skip
    problem = made.problem
    assert verify(made).ok
    assert problem.op_time[0, 0] == 0.25
    sources = problem.op_cost_source
    assert sources[:, 0].tolist() == [MEASURED, REGRESSED, REGRESSED]
    assert set(sources[:, 2]) == {DATASHEET}
    assert problem.op_cost_spread[0, 0] == pytest.approx(np.log(0.25 / 0.2) / 1.645)


def test_leaving_out_finds_what_noise_there_is(store: Path):
    checks = check(ProfileStore(store))
    models = [each for each in checks if each.left_out == "model"]
    devices = [each for each in checks if each.left_out == "device"]
    assert (len(models), len(devices)) == (8, 2)
    assert all(each.ops == 20 and each.end_to_end is not None for each in models)
    assert np.median([each.median for each in models]) < 0.15
    assert np.median([abs(each.end_to_end or 1) for each in models]) < 0.1
    assert all(each.median < 0.15 for each in devices)


def test_a_model_left_out_teaches_nothing(store: Path):
    """Its ops take ten times as long as the others': so much is the prediction below."""
    strange = {
        ProfileKey(f"aten.gelu.default(float32[{n}])", SLOW, TORCH): Measured(
            10 * true_seconds(SLOW, 0, 8.0 * n), 0, 99, 5, "context",
            bytes_read=4.0 * n, bytes_written=4.0 * n, dtype="fp32",
        )
        for n in range(1_000_000, 3_000_000, 250_000)
    }  # fmt: skip
    from placewright.costs.profiles.entry import ProfiledProgram

    with ProfileStore(store) as mine:
        mine.put(strange)
        mine.put_program(
            ProfiledProgram("hf:strange", TORCH, dict.fromkeys((k.signature for k in strange), 1))
        )
        (found,) = (each for each in check(mine) if each.name == "hf:strange")
    assert found.end_to_end == pytest.approx(-0.9, abs=0.05)


def test_nothing_to_leave_out_is_said(tmp_path: Path):
    path = made_store(tmp_path / "one", models=1, size=3)
    with pytest.raises(ProfileError, match="measure two models or two devices"):
        check(ProfileStore(path))
    result = run("profiles", "check", "--profiles", str(path))
    assert (result.code, result.out) == (2, "")


def test_the_command_prints_what_was_left_out(store: Path):
    out = run("profiles", "check", "--profiles", str(store)).out
    for text in ("model hf:model3", f"device {SLOW}", "a model left out: median error"):
        assert text in out
    rows = run("profiles", "check", "--profiles", str(store), "--json").json
    assert {row["left_out"] for row in rows} == {"model", "device"}
    assert rows[0].keys() >= {"name", "device", "ops", "median", "predicted", "end_to_end"}
