"""What the devices of a plan are called by engines: GPUs by number, CPUs as ``cpu``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from placewright.cluster import CpuRun, CudaRun
from placewright.errors import OptionError
from placewright.problem import Problem


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


def check_cuda(problem: Problem, device: int, engine: str) -> None:
    """OptionError for an accelerator that is no NVIDIA GPU, where its kind says so."""
    kind = problem.device_kinds[device]
    if re.fullmatch(r"M\d( .*)?", kind):
        raise OptionError(
            f"{engine}: device '{problem.device_names[device]}' is an Apple {kind}, and the export "
            "knows CUDA devices and CPUs; plan for these"
        )


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
