"""What a device is on the machine at hand, in cluster and plan files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placewright.cluster import CpuRun, CudaRun, Run
from placewright.errors import ClusterError

if TYPE_CHECKING:
    from placewright.formats.schema import CpuRunEntry, CudaRunEntry


def run_document(run: Run) -> dict[str, Any]:
    """As an object of a file, such as ``{"type": "cpu", "cores": [0]}``."""
    if isinstance(run, CpuRun):
        return {"type": "cpu", "cores": list(run.cores)}
    return {"type": "cuda", "index": run.index}


def read_run(entry: CpuRunEntry | CudaRunEntry | None, device: str) -> Run | None:
    """The run of `device`; ClusterError names the device where it is at fault."""
    if entry is None:
        return None
    try:
        return CpuRun(tuple(entry.cores)) if entry.type == "cpu" else CudaRun(entry.index)
    except ClusterError as error:
        raise ClusterError(f"device '{device}': {error}") from None
