"""What a device is on the machine at hand, in cluster and plan files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placewright.cluster import CpuRun, CudaRun, Run
from placewright.errors import ClusterError

if TYPE_CHECKING:
    from placewright.formats.schema import CpuRunEntry, CudaRunEntry


def run_document(run: Run) -> dict[str, Any]:
    """As an object of a file, such as ``{"type": "cpu", "cores": [0]}``."""
    host = {"host": run.host} if run.host else {}
    if isinstance(run, CpuRun):
        return {"type": "cpu", "cores": list(run.cores), **host}
    return {"type": "cuda", "index": run.index, **host}


def read_run(entry: CpuRunEntry | CudaRunEntry | None, device: str) -> Run | None:
    """The run of `device`; ClusterError names the device where it is at fault."""
    if entry is None:
        return None
    try:
        if entry.type == "cpu":
            return CpuRun(tuple(entry.cores), entry.host)
        return CudaRun(entry.index, entry.host)
    except ClusterError as error:
        raise ClusterError(f"device '{device}': {error}") from None
