"""`placewright run` on plans of each kind, from the command line to what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from placewright.cluster import Cluster, Device, Link
from placewright.planning import plan
from tests.cli.running import run

pytestmark = pytest.mark.timeout(120)
HERE = "torch:tests.runtime.models"


def two() -> Cluster:
    devices = tuple(Device(name, "EPYC 7763", "host", memory=1e9) for name in ("a", "b"))
    return Cluster("two", devices, (Link("a", "b", 1e9),))


@pytest.fixture(scope="module")
def latency(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "latency.json"
    plan(f"{HERE}:unet", two(), planner="getf").save(path)
    return path


@pytest.fixture(scope="module")
def throughput(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "throughput.json"
    plan(f"{HERE}:chain", two(), planner="single-device", objective="throughput").save(path)
    return path


def record_of(*arguments: object) -> dict[str, Any]:
    found = run("run", *arguments, "--json")
    assert found.code == 0, found.err
    return dict(found.json)


@pytest.mark.parametrize(
    "option", [("--schedule", "gpipe"), ("--micro-batches", 3), ("--steps", 2)]
)
def test_options_of_pipelines_are_refused_for_other_plans(
    latency: Path, option: tuple[str, object]
) -> None:
    found = run("run", latency, *option)
    assert (found.code, found.out) == (2, "")
    assert f"{option[0]} is for pipelines of torch programs; plan with --objective" in found.err


def test_a_wrong_plan_is_not_run(latency: Path, tmp_path: Path) -> None:
    document = json.loads(latency.read_text())
    document["value"] /= 2
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    found = run("run", tmp_path / "wrong.json")
    assert (found.code, found.out) == (4, "")
    assert "the plan is wrong: the value is" in found.err


@pytest.mark.parametrize("launcher", ["local", "processes"])
def test_a_plan_for_latency_is_run_and_compared(latency: Path, launcher: str) -> None:
    record = record_of(latency, "--launcher", launcher, "--repeats", 1)
    assert record["max_abs_difference"] <= 1e-6
    assert record["measured"] > 0
    assert record["predicted"] == record["value"]
    assert len(record["ops"]) > 0


def test_a_plan_for_throughput_is_run_as_a_pipeline(throughput: Path) -> None:
    record = record_of(throughput, "--repeats", 1, "--micro-batches", 3, "--schedule", "1f1b")
    assert record["max_abs_difference"] == 0
    assert (record["micro_batches"], record["schedule"]) == (3, "1f1b")
    assert "measured per sample" in run("run", throughput, "--repeats", 1).out


def test_inputs_of_a_file_are_run_or_refused_in_a_sentence(latency: Path, tmp_path: Path) -> None:
    file, options = tmp_path / "inputs.npz", ("--launcher", "local", "--repeats", 1)
    np.savez(file, x=np.zeros((2, 3, 16, 16), np.float32))
    assert record_of(latency, "--inputs", file, *options)["max_abs_difference"] <= 1e-6
    np.savez(file, y=np.zeros(1))
    found = run("run", latency, "--inputs", file, *options)
    assert (found.code, found.out) == (2, "")
    assert found.err == f"placewright: {file}: the model has no input 'y'; it has 'x'\n"


@pytest.mark.parametrize(
    ("kind", "arguments", "complaint"),
    [
        ("throughput", ["--trace", "trace.json"], "leave out --trace"),
        ("throughput", ["--launcher", "local"], "a pipeline runs on processes"),
        ("throughput", ["--steps", "2"], "for inference, which takes no training steps"),
        ("latency", ["--interface", "lo"], "add --launcher torchrun"),
        ("latency", ["--learning-rate", "0.1"], "add --optimizer"),
        ("latency", ["--optimizer", "sgd"], "no gradients for the optimizer"),
        ("latency", ["--launcher", "local", "--limit-memory"], "limit it with processes"),
        ("latency", ["--launcher", "torchrun"], "MASTER_ADDR is not set"),
        ("latency", ["--weights", "nowhere.safetensors"], "there is no 'nowhere.safetensors'"),
    ],
)
def test_what_does_not_go_together_is_refused(
    latency: Path, throughput: Path, kind: str, arguments: list[str], complaint: str
) -> None:
    found = run("run", {"latency": latency, "throughput": throughput}[kind], *arguments)
    assert found.code == 2
    assert complaint in found.err
