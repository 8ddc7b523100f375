"""ONNX Runtime: a folder with a sub-model per stage, and a script that runs them.

    stages.json    inputs; the stages in order: model, device, execution provider and its options
    stage0.onnx …  the sub-models, with their weights
    inputs.npz     example inputs
    run.py         `scripts/run_sessions.py`
    annotated.onnx the whole model with layer annotations, where one session can run it so

A session has one CPU and one CUDA device, so layer annotations express plans for these only.
"""

from __future__ import annotations

import shlex
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from placewright.cluster import CpuRun
from placewright.costs.profiles.onnx.values import is_packed, is_plain, made_up
from placewright.errors import OptionError
from placewright.exporters.devices import check_cuda, check_one_host, gpu_index
from placewright.exporters.onnx_annotations import annotated, layer_name
from placewright.exporters.onnx_files import loaded, save_model
from placewright.exporters.onnx_stages import OnnxStages, add_types, onnx_stages
from placewright.formats import files
from placewright.formats.folders import new_folder
from placewright.importers.onnx.reading import with_values
from placewright.importers.onnx.shapes import lasting_shapes
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.runtime.onnx_sessions.inputs import blanks_of
from placewright.runtime.onnx_sessions.models import SubModels

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
ENGINE = "onnxruntime"
SETTINGS = "stages.json"
ANNOTATED = "annotated.onnx"


def write_sessions(path: str | Path, plan: Plan) -> list[str]:
    """Write the folder; how to start the script, and why there are no layer annotations."""
    stages = onnx_stages(plan, ENGINE)
    _check_devices(stages)
    layers, why = _layers(stages)
    with new_folder(path) as folder:
        records = _write_models(folder, stages)
        inputs = _write_inputs(folder, stages)
        if layers:
            save_model(annotated(stages), folder / ANNOTATED)
        document = {
            "source": plan.source,
            "stages": records,
            "inputs": inputs,
            "outputs": list(dict.fromkeys(each.name for each in stages.model.model.graph.output)),
            "annotated": layers,
        }
        files.write_json(folder / SETTINGS, document)
        script = resources.files("placewright.exporters.scripts").joinpath("run_sessions.py")
        files.write_text(folder / "run.py", script.read_text("utf-8"))
    start = shlex.join(["python", str(Path(path) / "run.py")])
    return [start, *([why] if why else [])]


def _check_devices(stages: OnnxStages) -> None:
    """OptionError for devices that one process of ONNX Runtime cannot have."""
    problem = stages.plan.problem
    check_one_host(problem, stages.used, ENGINE, "a script runs on one; plan for one host")
    for device in stages.used:
        if not problem.is_cpu[device]:
            check_cuda(problem, device, ENGINE, rocm=False)


def _layers(stages: OnnxStages) -> tuple[dict[str, Any] | None, str]:
    """The layer assignment of the whole model in one session, or why there is none."""
    problem = stages.plan.problem
    for cpu, what in ((True, "CPU"), (False, "CUDA")):
        alike = [each for each in stages.used if bool(problem.is_cpu[each]) == cpu]
        if len(alike) > 1:
            names = ", ".join(problem.device_names[each] for each in alike)
            return None, f"no {ANNOTATED}: a session has one {what} device, the plan {names}"
    rules = [
        f"{'cpu' if problem.is_cpu[each] else 'cuda'}(={layer_name(each)})" for each in stages.used
    ]
    providers = [_provider(problem, each) for each in stages.used]
    settings = ";".join(rules)
    return {"model": ANNOTATED, "settings": settings, "providers": providers}, ""


def _write_models(folder: Path, stages: OnnxStages) -> list[dict[str, Any]]:
    """Write the sub-models; what the script is to know of each."""
    found, problem = stages.model, stages.plan.problem
    models = SubModels(found, with_values(found))
    lasting = lasting_shapes(found.model, found.path)
    records = []
    for number, (part, device) in enumerate(zip(stages.parts, stages.device, strict=True)):
        name = f"stage{number}.onnx"
        model = loaded(models.build(part), found.path)
        model.graph.name = f"stage{number}"
        add_types(model, found, lasting)
        save_model(model, folder / name)
        records.append(
            {
                "model": name,
                "device": problem.device_names[device],
                "provider": _provider(problem, device),
                "threads": _threads(problem, device),
                "reads": [each.name for each in model.graph.input],
                "gives": list(part.gives),
            }
        )
    return records


def _write_inputs(folder: Path, stages: OnnxStages) -> dict[str, int | None]:
    """Example inputs, made up; ONNX's number for the type of each that numpy has only bits of.

    OptionError for a type whose elements share bytes.
    """
    generator = np.random.default_rng(0)
    blanks = blanks_of(stages.model)
    for name, blank in blanks.items():
        if is_packed(blank.type):
            raise OptionError(
                f"{ENGINE}: elements of input '{name}' of {stages.model.path} share bytes, which "
                "no array of numpy does; export the model with inputs of at least a byte"
            )
    arrays: dict[str, Any] = {name: made_up(each, generator) for name, each in blanks.items()}
    with (folder / "inputs.npz").open("wb") as file:
        np.savez(file, **arrays)
    return {n: None if is_plain(each.type) else each.type.element for n, each in blanks.items()}


def _provider(problem: Problem, device: int) -> list[Any]:
    """The execution provider of a device, and its options."""
    if problem.is_cpu[device]:
        return [CPU, {}]
    return [CUDA, {"device_id": gpu_index(problem, device)}]


def _threads(problem: Problem, device: int) -> int:
    """Of a session on a CPU that is cores of the machine; 0, as many as ONNX Runtime likes."""
    run = problem.device_run(device)
    return len(run.cores) if isinstance(run, CpuRun) else 0
