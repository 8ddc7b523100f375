"""What a build of llama.cpp calls its devices: the name of its backend and a number, CUDA0.

The names are those of ggml's backends: ggml-cuda.h (which builds for AMD and Moore Threads too),
ggml-vulkan.h, ggml-sycl.h and ggml-metal.
"""

from __future__ import annotations

import re

from placewright.errors import OptionError
from placewright.exporters.devices import gpu_index, is_apple
from placewright.problem import Problem

CPU = "CPU"
BACKENDS = {
    "cuda": "CUDA",
    "rocm": "ROCm",
    "musa": "MUSA",
    "vulkan": "Vulkan",
    "sycl": "SYCL",
    "metal": "MTL",
}
_KINDS = {  # of which nobody said the backend
    "rocm": re.compile(r"AMD\b|Radeon|Instinct|RX \d{4}|W\d{4}\b|MI\d{2,3}[A-Z]?\b", re.IGNORECASE),
    "sycl": re.compile(r"Intel\b|Arc\b", re.IGNORECASE),
}


def check_backend(given: str | None) -> str | None:
    """`given`, if it is None or a backend; OptionError if not."""
    if given is None or given in BACKENDS:
        return given
    raise OptionError(f"backend={given}: unknown; llama.cpp is built for {', '.join(BACKENDS)}")


def device_name(problem: Problem, device: int, backend: str | None = None) -> str:
    """The name of a device on its host; kinds say the backends where `backend` is None."""
    if problem.is_cpu[device]:
        return CPU

    def driven_by(each: int) -> str:
        return backend or _backend(problem, each)

    mine = driven_by(device)
    return f"{BACKENDS[mine]}{gpu_index(problem, device, lambda each: driven_by(each) == mine)}"


def _backend(problem: Problem, device: int) -> str:
    if is_apple(problem, device):
        return "metal"
    kind = problem.device_kinds[device]
    return next((name for name, known in _KINDS.items() if known.match(kind)), "cuda")
