"""What the devices of a plan are called by engines: GPUs by number, CPUs as ``cpu``."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import numpy as np

from placewright.cluster import CpuRun, CudaRun
from placewright.errors import OptionError
from placewright.problem import Problem

NOBODY = -1  # instead of a device's number


def gpu_index(problem: Problem, device: int) -> int:
    """The number of a GPU: what its ``run`` says, else its place among the cluster's accelerators.

    OptionError where only some GPUs say theirs.
    """
    accelerators = [each for each in range(problem.device_count) if not problem.is_cpu[each]]
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


def check_one_host(problem: Problem, devices: Iterable[int], engine: str, otherwise: str) -> None:
    """OptionError where devices say that they are of several hosts."""
    runs = (problem.device_run(each) for each in devices)
    hosts = {run.host for run in runs if isinstance(run, CudaRun | CpuRun)}
    if len(hosts) > 1:
        raise OptionError(
            f"{engine}: the plan is on several hosts ({', '.join(sorted(hosts))}); {otherwise}"
        )


def visible_devices(problem: Problem, devices: Iterable[int]) -> dict[str, str]:
    """The environment in which an engine sees these GPUs in this order."""
    order = ",".join(str(gpu_index(problem, each)) for each in devices)
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": order}
