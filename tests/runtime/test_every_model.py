"""Every model, on any launcher, with planned and random placements: outputs of one process."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from placewright.cluster import Cluster, Device, Link  # noqa: E402
from placewright.importers.torch.programs import from_training  # noqa: E402
from placewright.importers.torch.training import export_training  # noqa: E402
from placewright.planning import plan  # noqa: E402
from placewright.runtime import RunOptions, RunReport, run_plan  # noqa: E402
from placewright.runtime.execution import run_assignments  # noqa: E402
from placewright.runtime.ranks.state import Optimizer  # noqa: E402
from tests.runtime import models  # noqa: E402
from tests.runtime.programs import (  # noqa: E402
    Case,
    case_of,
    case_of_program,
    family,
    random_assignment,
)

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("temporary")]
HERE = "tests.runtime.models"
MODELS = sorted(models.FAMILIES | models.OTHERS)
TRAINED = ("resnet", "lstm", "unet", "diffusion", "gpt2", "bert")
QUICK = ("resnet",)
LOCAL = RunOptions(launcher="local", repeats=1, clocked=0, threads=1)
PROCESSES = RunOptions(repeats=1, clocked=0, threads=1)


def made(name: str) -> models.Made:
    return (models.FAMILIES | models.OTHERS)[name]()


def case_named(name: str) -> Case:
    return family(name) if name in models.FAMILIES else case_of(*made(name))


def run_random(case: Case, ranks: int, count: int, options: RunOptions) -> list[RunReport]:
    assignments = [random_assignment(case, ranks, seed) for seed in range(count)]
    reports = run_assignments(
        case.program, case.values, assignments, ranks, options=options, modules=[HERE]
    )
    assert len(reports) == count
    return reports


def devices(count: int) -> Cluster:
    names = [f"d{number}" for number in range(count)]
    made = tuple(Device(name, "EPYC 7763", "host", memory=1e9) for name in names)
    pairs = [(a, b) for a in names for b in names if a < b]
    return Cluster("some", made, tuple(Link(a, b, 1e9) for a, b in pairs))


@pytest.mark.parametrize("name", MODELS)
def test_threads_give_the_outputs_of_one_process_on_random_placements(name: str) -> None:
    reports = run_random(case_named(name), 3, 4, LOCAL)
    assert max(report.max_abs_difference for report in reports) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", MODELS)
def test_processes_give_the_outputs_of_one_process_on_random_placements(
    name: str, ranks: int
) -> None:
    reports = run_random(case_named(name), ranks, 10, PROCESSES)
    assert max(report.max_abs_difference for report in reports) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("options", [LOCAL, PROCESSES], ids=["local", "processes"])
@pytest.mark.parametrize(("planner", "count"), [("getf", 2), ("m-topo", 4), ("celeritas", 3)])
@pytest.mark.parametrize("name", MODELS)
def test_plans_give_the_outputs_of_one_process(
    name: str, planner: str, count: int, options: RunOptions
) -> None:
    found = plan(f"torch:{HERE}:{name}", devices(count), planner=planner)
    report = run_plan(found, options)
    assert report.max_abs_difference <= 1e-6
    assert report.ranks == len(set(found.placement.device.tolist()))


# -- ONNX Runtime --------------------------------------------------------------------------------


class Logits(torch.nn.Module):
    """A model by the order of its tensors, without anything else in or out."""

    def __init__(self, module: torch.nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.module, self.names = module, names

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        named = dict(zip(self.names, tensors, strict=False))
        if "input_ids" in named:
            named["attention_mask"] = torch.ones_like(named["input_ids"])
        found = self.module(*tensors[len(self.names) :], **named)
        return found if isinstance(found, torch.Tensor) else found.logits


def exported(name: str, path: Path) -> Path:
    module, args, kwargs = made(name)
    if hasattr(module, "config"):
        module.config.use_cache = False
    if name == "mixtral":  # by default experts multiply as many tokens as are sent to them
        module.set_experts_implementation("batched_mm")
    tensors = {key: value for key, value in kwargs.items() if isinstance(value, torch.Tensor)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Logits(module, tuple(tensors)).eval(),
            (*tensors.values(), *args),
            path,
            dynamo=False,
            opset_version=17,
        )
    return path


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["getf", "m-topo"])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_onnx_runtime_gives_the_outputs_of_one_session(
    name: str, count: int, planner: str, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    file = exported(name, tmp_path / "model.onnx")
    report = run_plan(plan(str(file), devices(count), planner=planner), LOCAL)
    assert report.max_abs_difference <= 1e-6


# -- training ------------------------------------------------------------------------------------


class Loss(torch.nn.Module):
    """The mean square of whatever the model gives."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        for each in module.modules():
            if isinstance(each, torch.nn.Dropout):
                each.p = 0.0
            elif isinstance(each, torch.nn.Module) and hasattr(each, "attention_dropout"):
                each.attention_dropout = 0.0  # type: ignore[assignment]

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        found = self.module(*args, **kwargs)
        found = found if isinstance(found, torch.Tensor) else found.logits
        return found.float().square().mean()


def trained(name: str) -> Case:
    module, args, kwargs = made(name)
    program = export_training(Loss(module), args, kwargs)
    return case_of_program(from_training(program, name, (args, kwargs)))


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in TRAINED[1:])]
)
def test_training_on_random_placements_loses_as_one_process_does(name: str) -> None:
    options = RunOptions(
        launcher="local", repeats=19, clocked=0, threads=1, optimizer=Optimizer("sgd", 0.01)
    )
    for report in run_random(trained(name), 3, 2, options):
        assert report.max_abs_difference <= 1e-6
        assert len(report.losses) == 20
        assert report.losses[-1] < report.losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", TRAINED)
def test_training_on_processes_loses_as_one_process_does(name: str, ranks: int) -> None:
    options = RunOptions(repeats=19, clocked=0, threads=1, optimizer=Optimizer("adamw", 0.001))
    for report in run_random(trained(name), ranks, 3, options):
        assert report.max_abs_difference <= 1e-6
