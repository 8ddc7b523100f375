"""What a build of llama.cpp calls its devices: the name of its backend and a number, CUDA0.

The names are those of ggml's backends: ggml-cuda.h (which builds for AMD and Moore Threads too),
ggml-vulkan.h, ggml-sycl.h and ggml-metal.
"""

from __future__ import annotations

from placewright.errors import OptionError
from placewright.exporters.devices import AMD, APPLE, INTEL, NVIDIA, gpu_index, maker
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
_OF_MAKERS = {NVIDIA: "cuda", AMD: "rocm", INTEL: "sycl", APPLE: "metal"}
"""Of which nobody said the backend."""


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
        return backend or _OF_MAKERS[maker(problem, each)]

    mine = driven_by(device)
    return f"{BACKENDS[mine]}{gpu_index(problem, device, lambda each: driven_by(each) == mine)}"
