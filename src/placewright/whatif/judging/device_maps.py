"""Device maps as Accelerate and Transformers have them: a device for each prefix of module paths.

``{"model.embed_tokens": 0, "model.layers.0": 0, "model.layers.1": "cpu", "lm_head": 1}``. A number
is that accelerator of the cluster, in its order; ``"cpu"`` its first CPU; any other text a device's
name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from placewright.analysis.offloading import (
    fetched_bytes,
    fetching,
    helper_bytes,
    without_memory,
)
from placewright.errors import FormatError
from placewright.graph import Ints
from placewright.problem import Problem
from placewright.units import format_bytes, listed, parse_whole, printable
from placewright.whatif.judging.filling import UNSAID, filled

COMPUTED_THERE = (
    "ops placed on a CPU are computed there; Accelerate copies the weights of such modules to a "
    "GPU at every call instead"
)
_LEAVES = ("weight", "bias")  # a map may name a parameter; it is where its module is
_ACCELERATOR = re.compile(r"(?:cuda|xpu|npu|mlu|musa|hpu|mps)(?::(\d+))?")


def is_device_map(document: object) -> bool:
    """Whether the content of a JSON file is one: an object of devices, and no file of ours."""
    return (
        isinstance(document, dict)
        and bool(document)
        and not {"format", "fpgas"} & document.keys()
        and all(isinstance(value, (int, str)) for value in document.values())
    )


def ops_of_map(
    problem: Problem, document: Mapping[str, object], path: Path
) -> tuple[Ints, list[str]]:
    """`[op]` its device, by the longest prefix of its module's path; and what is worth saying.

    FormatError names a device that there is not, or an op that no entry covers.
    """
    devices = {
        _module(key): device_number(problem, value, f"{path}: '{printable(key)}'")
        for key, value in document.items()
    }
    used: set[str] = set()
    by_module = {module: _longest(module, devices, used) for module in set(problem.op_modules)}
    said = np.array([by_module[module] for module in problem.op_modules], dtype=np.int32)
    if "" in devices:  # what is of no module and keeps nothing goes along with others
        said[(said == UNSAID) & (problem.op_memory > 0)] = devices[""]
    above = {key[:k] for key in devices for k, letter in enumerate(key) if letter == "."}
    follows = np.array([module in above or module == "" for module in problem.op_modules])
    device, remarks = filled(problem, said, follows, str(path))
    unused = [key for key in devices if key and key not in used]
    if unused:
        remarks.append(f"no op is of {listed([repr(printable(key)) for key in unused])}")
    return device, remarks


def as_dispatched(problem: Problem, device: Ints) -> tuple[Problem, str, str]:
    """The problem as Accelerate runs a device map: what is on a CPU waits there for the first GPU.

    With that GPU's name and a remark. Both are empty for a map of CPUs alone, or of GPUs alone,
    which is run as it says; so is one of a pipeline or of training, which Accelerate does not run.
    """
    used = np.unique(device).tolist()
    cpus = [each for each in used if problem.is_cpu[each]]
    gpus = [each for each in used if not problem.is_cpu[each]]
    if not cpus or not gpus:
        return problem, "", ""
    if problem.options.objective != "latency" or problem.is_backward.any():
        return problem, "", COMPUTED_THERE
    fetched = fetched_bytes(problem)
    waits = problem.is_cpu[device]
    taken = helper_bytes(problem, fetched, waits)
    for cpu in cpus:
        problem = fetching(problem, cpu, gpus[0], fetched)
    name, size = problem.device_names[gpus[0]], format_bytes(float(fetched[waits].sum()))
    remark = (
        f"what is on a CPU is computed by {name}, as Accelerate does: {size} of weights come there "
        f"at every call, and {format_bytes(taken)} of its memory are for them and their cache"
    )
    return without_memory(problem, gpus[0], taken), name, remark


def device_number(problem: Problem, value: object, where: str) -> int:
    """The device that a number or a text means; FormatError, beginning with `where`, if none."""
    names = problem.device_names
    if isinstance(value, str) and value in names:
        return names.index(value)
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, str):
        match = _ACCELERATOR.fullmatch(value)
        number = parse_whole((match[1] or "0") if match else value)
    if number is not None:
        accelerators = np.flatnonzero(~problem.is_cpu).tolist()
        if 0 <= number < len(accelerators):
            return int(accelerators[number])
        there = f"{len(accelerators)} ({', '.join(names[each] for each in accelerators)})"
        raise FormatError(f"{where} is on accelerator {number}; the cluster has {there}")
    if value == "cpu":
        if problem.is_cpu.any():
            return int(np.flatnonzero(problem.is_cpu)[0])
        raise FormatError(f"{where} is on 'cpu'; the cluster has no CPU, add one to its file")
    hint = "; what lies on disk is copied at every call, which is not priced" * (value == "disk")
    raise FormatError(
        f"{where} is on {printable(repr(value))}, which is no device of {', '.join(names)}{hint}"
    )


def _module(key: str) -> str:
    head, _, last = key.rpartition(".")
    return head if last in _LEAVES else key


def _longest(module: str, devices: Mapping[str, int], used: set[str]) -> int:
    """The device of the longest prefix of a path, whole parts; `UNSAID` if there is none."""
    parts = module.split(".") if module else []
    for count in range(len(parts), -1, -1):
        key = ".".join(parts[:count])
        if key in devices and (key or module or len(devices) == 1):
            used.add(key)
            return devices[key]
    return UNSAID
