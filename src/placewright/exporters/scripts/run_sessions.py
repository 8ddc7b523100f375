"""Run the sub-models of a plan in order, each in a session of ONNX Runtime on its device.

    python run.py [--inputs FILE.npz] [--outputs FILE.npz] [--repeats 10] [--profile PREFIX]

What a stage gives stays on its device where all that read it are there, else it goes through the
host's memory. Nodes run as they are written; --optimize lets ONNX Runtime change and fuse them.
--annotated runs the whole model in one session, by its layer annotations. Inputs and outputs of
bfloat16 are their bits (uint16), those of other types that numpy lacks bytes (uint8).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

HERE = Path(__file__).resolve().parent
HOST = ("cpu", 0)


def main() -> None:
    options = parsed()
    plan = json.loads((HERE / "stages.json").read_text("utf-8"))
    stages = [whole(plan)] if options.annotated else plan["stages"]
    check_providers(stages)
    sessions = [opened(stage, options) for stage in stages]
    for stage, session in zip(stages, sessions, strict=True):
        print(f"{stage['model']} on {stage['device']}: {where(session)}")
    inputs = loaded(options.inputs, plan["inputs"])
    places = homes(stages, plan["outputs"])
    seconds = []
    for _ in range(options.repeats):
        started = time.perf_counter()
        values = run(stages, sessions, inputs, places)
        seconds.append(time.perf_counter() - started)
    print(f"{statistics.median(seconds) * 1e3:.3f} ms, the median of {len(seconds)}")
    if options.outputs:
        arrays: dict[str, Any] = {name: array(values[name]) for name in plan["outputs"]}
        np.savez(options.outputs, **arrays)
    if options.profile:
        for session in sessions:
            print(session.end_profiling())


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the sub-models of a plan in order.")
    parser.add_argument("--inputs", default=HERE / "inputs.npz", help="arrays by input name")
    parser.add_argument("--outputs", help="write the outputs to this .npz file")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--optimize", action="store_true", help="let ONNX Runtime fuse nodes")
    parser.add_argument("--profile", help="write what ran where to PREFIX_STAGE_….json")
    parser.add_argument("--annotated", action="store_true", help="the whole model in one session")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats is at least 1")
    return options


def loaded(path: str | Path, types: dict[str, int | None]) -> dict[str, ort.OrtValue]:
    """The arrays of a file; those of a type that numpy lacks are bits, which `types` tells of."""
    values = {}
    with np.load(path, allow_pickle=False) as given:
        for name in given.files:
            if name not in types:
                sys.exit(f"{path}: '{name}' is none of the plan's inputs: {', '.join(types)}")
            bits = types[name]
            values[name] = (
                ort.OrtValue.ortvalue_from_numpy(given[name])
                if bits is None
                else ort.OrtValue.ortvalue_from_numpy_with_onnx_type(given[name], bits)
            )
    return values


def whole(plan: dict[str, Any]) -> dict[str, Any]:
    """The annotated model as the only stage."""
    layers = plan["annotated"]
    if layers is None:
        sys.exit("there is no annotated.onnx: a session has one CPU and one CUDA device")
    devices = dict.fromkeys(stage["device"] for stage in plan["stages"])
    made = {name for stage in plan["stages"] for name in stage["gives"]}
    reads = dict.fromkeys(name for stage in plan["stages"] for name in stage["reads"])
    return {
        "model": layers["model"],
        "device": " and ".join(devices),
        "providers": layers["providers"],
        "layers": layers["settings"],
        "threads": max(stage["threads"] for stage in plan["stages"]),
        "reads": [name for name in reads if name not in made],
        "gives": plan["outputs"],
    }


def providers(stage: dict[str, Any]) -> list[Any]:
    return stage.get("providers") or [stage["provider"]]


def check_providers(stages: list[dict[str, Any]]) -> None:
    """End with one sentence where this ONNX Runtime has no provider for a device."""
    able = ort.get_available_providers()
    for stage in stages:
        for name, _ in providers(stage):
            if name not in able:
                sys.exit(
                    f"{stage['model']} is planned for {stage['device']}, which needs {name}, and "
                    f"this ONNX Runtime has {', '.join(able)}; install onnxruntime-gpu"
                )


def opened(stage: dict[str, Any], options: argparse.Namespace) -> ort.InferenceSession:
    settings = ort.SessionOptions()
    levels = ort.GraphOptimizationLevel
    settings.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if options.optimize else levels.ORT_DISABLE_ALL
    )
    settings.intra_op_num_threads = stage["threads"]
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if "layers" in stage:
        settings.add_session_config_entry("session.layer_assignment_settings", stage["layers"])
    if options.profile:
        settings.enable_profiling = True
        settings.profile_file_prefix = f"{options.profile}_{Path(stage['model']).stem}"
    chosen = [(name, dict(details)) for name, details in providers(stage)]
    return ort.InferenceSession(HERE / stage["model"], settings, providers=chosen)


def where(session: ort.InferenceSession) -> str:
    """How many nodes each provider has taken: CUDA leaves some, such as shapes, to the CPU."""
    taken: Counter[str] = Counter()
    for each in session.get_provider_graph_assignment_info():
        taken[each.ep_name] += len(each.get_nodes())
    return ", ".join(f"{count} nodes on {name}" for name, count in taken.items()) or "no nodes"


def place(stage: dict[str, Any]) -> tuple[str, int]:
    """What bindings call the device of a stage."""
    names = dict(providers(stage))
    if len(names) > 1 or "CUDAExecutionProvider" not in names:
        return HOST
    return "cuda", int(names["CUDAExecutionProvider"]["device_id"])


def homes(stages: list[dict[str, Any]], outputs: list[str]) -> dict[str, tuple[str, int]]:
    """Where each tensor that a stage gives is to be; the outputs are on the host."""
    found = {name: place(stage) for stage in stages for name in stage["gives"]}
    for stage in stages:
        for name in stage["reads"]:
            if found.get(name) != place(stage):
                found[name] = HOST
    return found | dict.fromkeys(outputs, HOST)


def run(
    stages: list[dict[str, Any]],
    sessions: list[ort.InferenceSession],
    inputs: dict[str, Any],
    places: dict[str, tuple[str, int]],
) -> dict[str, Any]:
    """All values after one pass: the inputs, and what the stages give."""
    values = dict(inputs)
    for stage, session in zip(stages, sessions, strict=True):
        missing = [name for name in stage["reads"] if name not in values]
        if missing:
            sys.exit(f"the inputs lack '{missing[0]}'; give an .npz file with that array")
        binding = session.io_binding()
        for name in stage["reads"]:
            binding.bind_ortvalue_input(name, values[name])
        for name in stage["gives"]:
            binding.bind_output(name, *places[name])
        session.run_with_iobinding(binding)
        values |= dict(zip(stage["gives"], binding.get_outputs(), strict=True))
    return values


def array(value: ort.OrtValue) -> np.ndarray[Any, Any]:
    """An output as numpy has it: of bfloat16 its bits, of other types that it lacks the bytes."""
    try:
        found: np.ndarray[Any, Any] = value.numpy()
    except RuntimeError:
        raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
        if value.data_type() != "tensor(bfloat16)":
            return np.frombuffer(raw, np.uint8)
        return np.frombuffer(raw, np.uint16).reshape(tuple(value.shape()))
    return found.astype(str) if found.dtype == object else found


if __name__ == "__main__":
    main()
