"""llama.cpp: which device has which layers, by ``-ngl`` and ``-ts``.

Slots 0 … n − 1 are the layers, slot n is the output. The last ``-ngl`` of these n + 1 are on GPUs,
the others on the CPU; ``-ts`` shares the GPUs' slots out, in the order of ``-dev``: slot t of them
is on the first GPU whose cumulated share is above t / their number. Whole numbers that add up to
that number are exact. The input embedding is in host memory.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from placewright.errors import OptionError
from placewright.exporters.devices import check_one_host, gpu_index
from placewright.exporters.pieces import check_one_row
from placewright.exporters.stages import BlockPlan, Stage, block_plan
from placewright.formats import files
from placewright.plan import Plan

ENGINE = "llama-cpp"


def write_arguments(path: str | Path, plan: Plan) -> list[str]:
    """Write the arguments as a JSON object; the command."""
    found = arguments(plan)
    files.write_json(path, {"arguments": found})
    return [shlex.join(["llama-server", "-m", "MODEL.gguf", *found])]


def arguments(plan: Plan) -> list[str]:
    """``-sm layer -ngl … -dev … -ts …``; OptionError for what llama.cpp cannot express."""
    found = block_plan(plan, ENGINE)
    check_one_row(found.blocks, ENGINE)
    slots = _slots(found)
    gpus = [(device, count) for device, count in slots if not plan.problem.is_cpu[device]]
    _check(found, slots)
    count = sum(number for _, number in gpus)
    if not gpus:
        return ["-ngl", "0"]
    names = [f"CUDA{gpu_index(plan.problem, device)}" for device, _ in gpus]
    return [
        *("-sm", "layer", "-ngl", str(count), "-dev", ",".join(names)),
        *("-ts", ",".join(str(number) for _, number in gpus)),
    ]


def _slots(found: BlockPlan) -> list[tuple[int, int]]:
    """`(device, slots)` of each stage that has any, along the data."""
    rows = np.flatnonzero(found.blocks.repeated)
    of_slot = [*found.device[rows].tolist(), int(found.device[-1])]
    _check_output(found, int(rows[-1]))
    stages: list[tuple[int, int]] = []
    for device in of_slot:
        if stages and stages[-1][0] == device:
            stages[-1] = (device, stages[-1][1] + 1)
        else:
            stages.append((device, 1))
    return stages


def _check_output(found: BlockPlan, last: int) -> None:
    after = found.device[last + 1 :]
    if len(set(after.tolist())) > 1:
        names = ", ".join(found.blocks.names[last + 1 :])
        raise OptionError(
            f"llama.cpp has one slot for the output, and the plan has {names} on several devices; "
            "plan with --for llama-cpp"
        )


def _check(found: BlockPlan, slots: list[tuple[int, int]]) -> None:
    problem = found.plan.problem
    devices = [device for device, _ in slots]
    for device in devices:
        if devices.count(device) > 1:
            raise OptionError(
                f"llama.cpp gives each device one row of layers, and the plan comes back to "
                f"{problem.device_names[device]}; plan with --for llama-cpp"
            )
    for device in devices[1:]:
        if problem.is_cpu[device]:
            raise OptionError(
                f"llama.cpp has the first layers on the CPU, and the plan has later ones on "
                f"{problem.device_names[device]}; plan with --for llama-cpp"
            )
    check_one_host(problem, devices, "llama.cpp", "its RPC servers are not exported yet")
    _check_input(found, found.stages[0])


def _check_input(found: BlockPlan, stage: Stage) -> None:
    """The input embedding is in host memory: on a CPU, or of no device of the cluster."""
    plan = found.plan
    before = int(np.flatnonzero(found.blocks.repeated)[0])
    outside = plan.planner_options.get("engine") == ENGINE and not plan.problem.is_cpu.any()
    on_cpu = plan.problem.is_cpu[found.device[:before]].all()
    if before and not on_cpu and not outside:
        raise OptionError(
            f"llama.cpp keeps the input embedding in host memory, and the plan has "
            f"{found.blocks.names[0]} on {found.device_name(stage)}; plan with --for llama-cpp"
        )
