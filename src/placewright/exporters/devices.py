"""What the devices of a plan are called by engines: GPUs by number, CPUs as ``cpu``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

import numpy as np

from placewright.cluster import CudaRun
from placewright.errors import OptionError
from placewright.problem import Problem

NOBODY = -1  # instead of a device's number

# GPUs are numbered as `nvidia-smi` does; CUDA by itself has the fastest first.
PCI_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
PCI_VARIABLE = "CUDA_DEVICE_ORDER=PCI_BUS_ID"

NVIDIA, AMD, APPLE, INTEL = "NVIDIA", "AMD", "Apple", "Intel"
_AMD = r"AMD\b|Radeon|Instinct|RX \d{4}|W\d{4}\b|MI\d{2,3}[A-Z]?\b"
MAKERS = {
    APPLE: re.compile(r"M\d( .*)?\Z"),
    AMD: re.compile(_AMD, re.IGNORECASE),
    INTEL: re.compile(r"Intel\b|Arc\b", re.IGNORECASE),
}
"""What the kinds of their accelerators begin with; all others are NVIDIA's."""


def gpu_index(
    problem: Problem, device: int, counted: Callable[[int], bool] = lambda each: True
) -> int:
    """The number of a GPU: what its ``run`` says, else its place among its host's accelerators.

    Of these only the `counted` ones. OptionError where only some GPUs of the host say theirs.
    """
    host = problem.device_host(device)
    accelerators = [
        each
        for each in range(problem.device_count)
        if not problem.is_cpu[each] and problem.device_host(each) == host and counted(each)
    ]
    said = [isinstance(problem.device_run(each), CudaRun) for each in accelerators]
    if any(said) and not all(said):
        raise OptionError(
            "some GPUs of the cluster say which they are (run: {type: cuda, index: N}) and others "
            "do not; give all of them a number, or none"
        )
    run = problem.device_run(device)
    return run.index if isinstance(run, CudaRun) else accelerators.index(device)


def numbered_gpus(problem: Problem) -> list[int]:
    """The GPUs in the order of their numbers, or of the cluster where only some have one."""
    gpus: list[int] = np.flatnonzero(~problem.is_cpu).tolist()
    with suppress(OptionError):
        gpus.sort(key=lambda device: gpu_index(problem, device))
    return gpus


def first_gpu(problem: Problem, used: Collection[int]) -> int:
    """The used GPU of the lowest number, which computes what a CPU keeps; `NOBODY` if none is."""
    return next((gpu for gpu in numbered_gpus(problem) if gpu in used), NOBODY)


def main_host(problem: Problem, asked: str | None = None) -> str:
    """Where an engine's program runs: the host `asked` for, or that of the first CPU, or device."""
    hosts = [problem.device_host(each) for each in range(problem.device_count)]
    if asked is not None:
        if asked not in hosts:
            named = ", ".join(dict.fromkeys(host for host in hosts if host))
            known = f"the plan's hosts are {named}" if named else "the plan's host has no name"
            raise OptionError(f"main-host={asked}: no device is there; {known}")
        return asked
    cpus = np.flatnonzero(problem.is_cpu)
    return hosts[int(cpus[0]) if cpus.size else 0]


def main_cpu(problem: Problem, host: str) -> int | None:
    """The first CPU of the main host; None where the cluster names none there."""
    cpus = (each for each in range(problem.device_count) if problem.is_cpu[each])
    return next((each for each in cpus if problem.device_host(each) == host), None)


def maker(problem: Problem, device: int) -> str:
    """Who made an accelerator, as its kind tells: ``NVIDIA`` where it tells no other."""
    kind = problem.device_kinds[device]
    return next((name for name, known in MAKERS.items() if known.match(kind)), NVIDIA)


def is_apple(problem: Problem, device: int) -> bool:
    """Whether it is the GPU of an Apple chip, by its kind."""
    return maker(problem, device) == APPLE


def is_called_cuda(problem: Problem, device: int) -> bool:
    """Whether programs call it a CUDA device: NVIDIA's, and AMD's, which ROCm calls so."""
    return maker(problem, device) in (NVIDIA, AMD)


def check_cuda(problem: Problem, device: int, engine: str, *, rocm: bool = True) -> None:
    """OptionError for an accelerator that is called no CUDA device, or, without `rocm`, is none."""
    made = maker(problem, device)
    if made == NVIDIA or (made == AMD and rocm):
        return
    kind = problem.device_kinds[device]
    raise OptionError(
        f"{engine}: device '{problem.device_names[device]}' is an "
        f"{kind if kind.startswith(made) else f'{made} {kind}'}, and the export knows CUDA devices "
        "and CPUs; plan for these"
    )


def check_one_host(problem: Problem, devices: Iterable[int], engine: str, otherwise: str) -> None:
    """OptionError where devices are of several hosts."""
    hosts = {problem.device_host(each) for each in devices}
    if len(hosts) > 1:
        named = ", ".join(sorted(host or "this one" for host in hosts))
        raise OptionError(f"{engine}: the plan is on several hosts ({named}); {otherwise}")


def visible_devices(problem: Problem, devices: Sequence[int], engine: str) -> dict[str, str]:
    """The environment in which an engine sees these GPUs in this order.

    OptionError where they are of several hosts, or no CUDA devices.
    """
    for device in devices:
        check_cuda(problem, device, engine)
    otherwise = "their GPUs have no common numbers; plan for the GPUs of one host"
    check_one_host(problem, devices, engine, otherwise)
    order = ",".join(str(gpu_index(problem, each)) for each in devices)
    return {**PCI_ORDER, "CUDA_VISIBLE_DEVICES": order}
