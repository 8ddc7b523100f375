"""llama.cpp: which device has which layers, by ``-ngl``, ``-dev`` and ``-ts``.

Slots 0 … n − 1 are the layers, slot n is the output. The last ``-ngl`` of these n + 1 are on
devices, the others on the CPU; ``-ts`` shares the devices' slots out, in the order of ``-dev``:
slot t of them is on the first device whose cumulated share is above t / their number. Whole numbers
that add up to that number are exact. The input embedding is in host memory. Devices of other hosts
are RPC devices (`servers`), weights of a layer that are on the CPU are named by ``-ot``
(`overrides`).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from placewright.errors import OptionError
from placewright.exporters.devices import PCI_ORDER, main_cpu, main_host
from placewright.exporters.engines import find_engine, limits_of
from placewright.exporters.llama_cpp.backends import check_backend
from placewright.exporters.llama_cpp.overrides import without_parts
from placewright.exporters.llama_cpp.servers import (
    DEFAULT_PORT,
    Server,
    device_names,
    servers_of,
)
from placewright.exporters.pieces import check_one_row
from placewright.exporters.stages import BlockPlan, block_plan
from placewright.formats import files
from placewright.plan import Plan
from placewright.serving.capacity import SEQUENCES, told_number
from placewright.units import parse_whole

ENGINE = "llama-cpp"


@dataclass(frozen=True)
class Command:
    """The `arguments` of ``llama-server`` on the main host, and what runs on others before it."""

    arguments: list[str]
    servers: tuple[Server, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        """As it is written: `environment` and `servers` where there are any."""
        servers = [
            {
                "host": each.host,
                "port": each.port,
                **_environment(each.arguments),
                "arguments": each.arguments,
            }
            for each in self.servers
        ]
        found = {**_environment(self.arguments), "arguments": self.arguments}
        return found | ({"servers": servers} if servers else {})

    @property
    def lines(self) -> list[str]:
        """One for the shell of each host."""
        remote = [
            f"on {each.host}: {_line(['ggml-rpc-server', *each.arguments])}"
            for each in self.servers
        ]
        return [*remote, _line(["llama-server", "-m", "MODEL.gguf", *self.arguments])]


def _environment(words: list[str]) -> dict[str, Any]:
    """`environment` in which CUDA0, CUDA1 are the numbers of the plan, if any of them is told."""
    devices = (name for word in words for name in word.split(","))
    return {"environment": PCI_ORDER} if any(each.startswith("CUDA") for each in devices) else {}


def _line(words: list[str]) -> str:
    variables = _environment(words).get("environment", {})
    return shlex.join([*(f"{name}={value}" for name, value in variables.items()), *words])


def write_arguments(
    path: str | Path,
    plan: Plan,
    *,
    rpc_port: str | None = None,
    main_host: str | None = None,
    backend: str | None = None,
) -> list[str]:
    """Write `arguments`, and those of RPC servers, as a JSON object; the commands."""
    found = command(plan, rpc_port=_port(rpc_port), main=main_host, backend=check_backend(backend))
    files.write_json(path, found.document)
    return found.lines


def _port(given: str | None) -> int:
    if given is None:
        return DEFAULT_PORT
    port = parse_whole(given)
    if port is None or not 0 < port < 2**16:
        raise OptionError(f"rpc-port={given}: a port is a whole number from 1 to {2**16 - 1}")
    return port


def command(
    plan: Plan,
    *,
    rpc_port: int = DEFAULT_PORT,
    main: str | None = None,
    backend: str | None = None,
) -> Command:
    """How llama.cpp runs a plan; OptionError for what it cannot express.

    `main` is the host that ``llama-server`` runs on (see `devices.main_host`), `backend` what all
    GPUs are driven by (see `backends.device_name`).
    """
    problem = plan.problem
    host = main_host(problem, main)
    cpu = main_cpu(problem, host)
    parted = without_parts(plan, cpu)
    found = block_plan(parted.plan, ENGINE)
    check_one_row(found.blocks, ENGINE)
    slots = _slots(found)
    _check(found, slots, cpu)
    used = [(device, count) for device, count in slots if device != cpu]
    _check_number(len(used))
    servers = servers_of(problem, [device for device, _ in used], host, rpc_port, backend)
    names = device_names(problem, [device for device, _ in used], servers, backend)
    counts = [count for _, count in used]
    return Command(
        [
            *(["--rpc", ",".join(each.endpoint for each in servers)] if servers else []),
            *_split(names, counts),
            *(word for rule in parted.rules for word in ("-ot", rule)),
            *(["--no-op-offload"] if parted.rules else []),
            *_context(plan),
        ],
        tuple(servers),
    )


def _split(names: list[str], counts: list[int]) -> list[str]:
    if not names:
        return ["-ngl", "0"]
    return [
        *("-sm", "layer", "-ngl", str(sum(counts)), "-dev", ",".join(names)),
        *("-ts", ",".join(map(str, counts))),
    ]


def _context(plan: Plan) -> list[str]:
    """The tokens and sequences that the plan has a KV cache for, where it says them."""
    context, sequences = told_number(plan, "context"), told_number(plan, SEQUENCES)
    if plan.planner_options.get("engine") != ENGINE or not (context and sequences):
        return []
    return ["-c", str(context * sequences), "-np", str(sequences)]


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


def _check(found: BlockPlan, slots: list[tuple[int, int]], cpu: int | None) -> None:
    problem = found.plan.problem
    devices = [device for device, _ in slots]
    for device in devices:
        if devices.count(device) > 1:
            raise OptionError(
                f"llama.cpp gives each device one row of layers, and the plan comes back to "
                f"{problem.device_names[device]}; plan with --for llama-cpp"
            )
    for device in devices:
        if device == cpu and device != devices[0]:
            raise OptionError(
                f"llama.cpp has the first layers on the CPU, and the plan has later ones on "
                f"{problem.device_names[device]}; plan with --for llama-cpp"
            )
        if cpu not in (None, device) and problem.is_cpu[device]:
            _check_other_cpu(found, device, cpu)
    _check_input(found, cpu)


def _check_number(devices: int) -> None:
    most = limits_of(find_engine(ENGINE)).most_devices
    if devices > most:
        raise OptionError(
            f"llama.cpp takes {most} devices beside its CPU at most, and the plan has layers on "
            f"{devices}; plan with --for llama-cpp"
        )


def _check_other_cpu(found: BlockPlan, device: int, cpu: int) -> None:
    problem = found.plan.problem
    if problem.device_host(device) == problem.device_host(cpu):
        raise OptionError(
            f"llama.cpp has one CPU, and the plan has layers on {problem.device_names[device]} "
            f"beside {problem.device_names[cpu]}; make them one device of the cluster"
        )


def _check_input(found: BlockPlan, cpu: int | None) -> None:
    """The input embedding is in the main host's memory: on its CPU, or of no device."""
    plan = found.plan
    before = found.device[: int(np.flatnonzero(found.blocks.repeated)[0])]
    outside = plan.planner_options.get("engine") == ENGINE and not plan.problem.is_cpu.any()
    if before.size and not outside and (before != cpu).any():
        where = plan.problem.device_names[before[before != cpu][0]]
        raise OptionError(
            f"llama.cpp keeps the input embedding in host memory, and the plan has "
            f"{found.blocks.names[0]} on {where}; plan with --for llama-cpp"
        )
