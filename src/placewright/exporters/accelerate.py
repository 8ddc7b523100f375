"""Hugging Face Accelerate and Transformers: a ``device_map``, module → device.

Whole blocks by the paths of their modules. What the map must cover besides (modules without ops of
their own, other names of tied weights) is looked up in the model, which is built without weights.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from placewright.errors import OptionError
from placewright.exporters.devices import PCI_VARIABLE, check_one_host, gpu_index, is_apple
from placewright.exporters.loading import without_phase
from placewright.exporters.stages import BlockPlan, block_plan
from placewright.formats import files
from placewright.plan import Plan

Device = int | str

SCRIPT = '''"""Loads {model} on the devices of a plan (python {name} DIRECTORY)."""

import sys

from transformers import {factory}

DEVICE_MAP = {device_map}

if __name__ == "__main__":
    model = {factory}.from_pretrained(
        sys.argv[1], device_map=DEVICE_MAP, dtype="auto", local_files_only=True
    )
    print(getattr(model, "hf_device_map", model.device))  # no map where one device has all
'''


def write_device_map(path: str | Path, plan: Plan) -> list[str]:
    """Write the device_map as a JSON object; what to do with it."""
    found = device_map(plan)
    if plan.source.startswith("zoo:"):
        raise OptionError(
            f"accelerate: a device_map names modules, and those of the plan are of {plan.source}, "
            "which no library has; plan hf:CONFIG or torch:PACKAGE.MODULE:FACTORY"
        )
    files.write_json(path, found)
    order = f"  # with {PCI_VARIABLE}" if _has_gpus(found) else ""
    return [f"dispatch_model(model, device_map=json.load(open({str(path)!r}))){order}"]


def write_load_script(path: str | Path, plan: Plan) -> list[str]:
    """Write a script that loads the model's weights with the device_map; how to start it."""
    if not plan.source.startswith("hf:"):
        raise OptionError(
            f"transformers: the plan is of {plan.source or 'no source'}, which Transformers does "
            "not load; plan hf:CONFIG"
        )
    found = device_map(plan, "transformers")
    text = SCRIPT.format(
        model=_in_docstring(plan.source),
        name=_in_docstring(Path(path).name),
        factory=f"AutoModelFor{_kind(plan.source)}",
        device_map=json.dumps(found, indent=4),
    )
    files.write_text(path, text)
    order = f"{PCI_VARIABLE} " if _has_gpus(found) else ""
    return [f"{order}python {shlex.quote(str(path))} DIRECTORY_OF_THE_MODEL"]


def _in_docstring(text: str) -> str:
    return json.dumps(text)[1:-1].replace('"', "'")


def _has_gpus(mapped: Mapping[str, Device]) -> bool:
    return any(isinstance(each, int) for each in mapped.values())


def device_map(plan: Plan, engine: str = "accelerate") -> dict[str, Device]:
    """Module → GPU number, ``mps`` or ``cpu``; OptionError for a plan not to be run so."""
    found = block_plan(plan, engine)
    if copied := plan.planner_options.get("copied"):
        raise OptionError(
            f"{engine} keeps tied weights together, and the plan holds those of {copied} twice; "
            f"plan with --for {engine}"
        )
    _check_devices(found, engine)
    mapped = {
        name: _device(found, int(device))
        for name, device in zip(found.blocks.names, found.device, strict=True)
    }
    mapped |= _modules_beside(found, mapped)
    if plan.source.startswith(("hf:", "torch:")):
        _complete(mapped, _model(plan.source), engine)
    return mapped


def _check_devices(found: BlockPlan, engine: str) -> None:
    problem = found.plan.problem
    used = sorted({int(each) for each in found.device})
    check_one_host(problem, used, engine, f"{engine} runs on one; plan for one host")
    cpus = [each for each in used if problem.is_cpu[each]]
    gpus = [each for each in used if not problem.is_cpu[each]]
    if cpus and gpus:
        first = problem.device_names[min(gpus, key=lambda each: gpu_index(problem, each))]
        where = found.plan.planner_options.get("offload", f"{problem.device_names[cpus[0]]} itself")
        if any(is_apple(problem, each) for each in gpus):
            raise OptionError(
                f"{engine} leaves nothing on the CPU where an Apple GPU computes, and the plan has "
                f"{first} and {problem.device_names[cpus[0]]}; plan for the GPU alone"
            )
        if where != first:
            raise OptionError(
                f"{engine} brings what is on a CPU to the first GPU, {first}, to compute it, and "
                f"the plan has it computed by {where}; plan with --for {engine}"
            )
    if len(cpus) > 1:
        raise OptionError(
            f"{engine} knows one CPU, and the plan uses {len(cpus)} "
            f"({', '.join(problem.device_names[each] for each in cpus)}); plan for one"
        )


def _device(found: BlockPlan, device: int) -> Device:
    problem = found.plan.problem
    if problem.is_cpu[device]:
        return "cpu"
    return "mps" if is_apple(problem, device) else gpu_index(problem, device)


def _modules_beside(found: BlockPlan, mapped: Mapping[str, Device]) -> dict[str, Device]:
    """Modules that are in no block but have ops of their own, such as rotary positions."""
    problem = found.plan.problem
    beside: dict[str, Device] = {}
    for module in dict.fromkeys(problem.op_modules):
        inside = any(_covers(name, module) for name in [*mapped, *beside])
        holds = any(_covers(module, name) for name in mapped)
        if module and not inside and not holds:
            ops = np.flatnonzero([each == module for each in problem.op_modules])
            beside[module] = _device(found, int(found.plan.placement.device[ops[0]]))
    return beside


def _covers(name: str, module: str) -> bool:
    return module == name or module.startswith(f"{name}.")


def _complete(mapped: dict[str, Device], model: Any, engine: str) -> None:
    """Add what else keeps parameters or buffers: with what it shares, else on the first device.

    A tensor of a module that holds blocks is named itself, as Accelerate's own maps do.
    """
    first = next(iter(mapped.values()))
    modules = dict(model.named_modules())
    for name in [each for each in mapped if each not in modules]:
        del mapped[name]  # a block that is an op of the root, or of a module that is cut
    kept = [
        (name, tensor_name, tensor)
        for name, module in modules.items()
        for tensor_name, tensor in _own_tensors(module)
    ]
    home = _homes(mapped, kept, engine)
    for name, tensor_name, tensor in kept:
        if _mapped(mapped, name) is None:
            holds = not name or any(_covers(name, each) for each in mapped)
            key = ".".join(filter(None, (name, tensor_name))) if holds else name
            mapped[key] = home.get(id(tensor), (first, ""))[0]


def _homes(
    mapped: Mapping[str, Device], kept: list[tuple[str, str, Any]], engine: str
) -> dict[int, tuple[Device, str]]:
    """Tensor → device and module that have it; OptionError where one is on two devices."""
    home: dict[int, tuple[Device, str]] = {}
    for name, _, tensor in kept:
        device = _mapped(mapped, name)
        if device is None:
            continue
        known, owner = home.setdefault(id(tensor), (device, name))
        if known != device:
            raise OptionError(
                f"{engine} keeps tied weights together, and the plan has '{owner}' on {known} "
                f"and '{name}' on {device}; plan with --for {engine}"
            )
    return home


def _own_tensors(module: Any) -> list[tuple[str, Any]]:
    return [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]


def _mapped(mapped: Mapping[str, Device], module: str) -> Device | None:
    return next((device for name, device in mapped.items() if _covers(name, module)), None)


def _model(source: str) -> Any:
    """The model of a source, without weights for ``hf:``."""
    scheme, _, rest = source.partition(":")
    if scheme == "torch":
        from placewright.importers.torch.sources import load_factory

        return load_factory(rest)[0]
    from placewright.importers.torch.sources import load_hf

    return load_hf(without_phase(rest))[0]


def _kind(source: str) -> str:
    from placewright.importers.torch.sources import hf_kind

    return hf_kind(without_phase(source.partition(":")[2]))
