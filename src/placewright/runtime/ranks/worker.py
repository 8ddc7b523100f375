"""A rank: the process that runs its stages and reports to the process that started it.

Started by `launch.py`, as every worker that calls `serve`, with the job's directory, the rank,
the pipe to report on and the parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.runtime.ranks.joining import connect, file_store, leave
from placewright.system.accelerators.places import CudaPlace, GpuPeak
from placewright.system.allocator import keep_freed_memory
from placewright.system.memory import Peak, limit_memory
from placewright.system.pinning import pinned

if TYPE_CHECKING:
    from placewright.runtime.ranks.calls import Caller
    from placewright.runtime.ranks.state import Optimizer


Settings = Mapping[str, Any]
Work = Callable[[Path, int, Settings, "Reporter"], None]


def main() -> None:
    serve(_run_stages)


def serve(work: Work) -> None:
    """Do ``work(folder, rank, settings, report)`` on the rank's cores, with its threads.

    The settings are those in `folder`. It ends as the process that started this one expects.
    """
    _, _, folder, rank, pipe, parent = sys.argv
    _end_with(int(parent))
    keep_freed_memory()
    report = Reporter(int(pipe))
    try:
        _do(work, Path(folder), int(rank), report)
    except BaseException as error:
        report.failure(error)
        os._exit(1)  # gloo's threads would try to part in order
    report("done")


def _do(work: Work, folder: Path, rank: int, report: Reporter) -> None:
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    cores = settings["cores"][rank]
    with pinned(cores) if cores else nullcontext():  # before torch starts threads of its own
        import torch

        torch.set_num_threads(settings["threads"][rank])
        torch.set_num_interop_threads(1)
        work(folder, rank, settings, report)


class Reporter:
    """Writes events, a JSON object a line."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def __call__(self, event: str, **fields: Any) -> None:
        line = (json.dumps({"event": event, **fields}) + "\n").encode()
        with suppress(BrokenPipeError):  # the parent has ended; so will this process
            while line:
                line = line[os.write(self._pipe, line) :]

    def failure(self, error: BaseException) -> None:
        from placewright.runtime.ranks.failures import event_of

        self("error", **event_of(error))


def _end_with(parent: int) -> None:
    """End this process when its parent ends, however that ends.

    The kernel sees to it on Linux; everywhere, the parent's end of stdin closes.
    """
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the kernel was told
            os._exit(1)
    threading.Thread(target=_wait_for_end_of_stdin, daemon=True).start()


def _wait_for_end_of_stdin() -> None:
    with suppress(OSError):
        while os.read(0, 1):
            pass
    os._exit(1)


def _run_stages(folder: Path, rank: int, settings: Settings, report: Reporter) -> None:
    from placewright.runtime.ranks.job_files import save_outputs
    from placewright.runtime.stages.targets import import_all
    from placewright.system.accelerators.places import gpu_place

    report("connecting", doing="connecting to the other ranks")
    sys.path[:] = settings["path"]
    import_all(settings["modules"])
    connect(file_store(folder, settings["ranks"]), rank, settings["ranks"], settings["timeout"])
    gpu = settings["gpus"][rank]
    place = None if gpu is None else gpu_place(gpu, f"of rank {rank}", settings["timeout"])
    with place.entered() if place else nullcontext():
        outputs, peak = _outputs(folder, rank, settings, report, place)
    report("saving", doing="saving its outputs", peak_memory=peak.bytes)
    save_outputs(folder, rank, outputs)
    leave()


def _outputs(
    folder: Path, rank: int, settings: Settings, report: Reporter, place: CudaPlace | None
) -> tuple[list[Any], Peak | GpuPeak]:
    """`[stage][call]` the results, and the memory that they took."""
    from placewright.runtime.ranks.calls import Calls, run_calls
    from placewright.runtime.ranks.gpus import connection_of
    from placewright.runtime.ranks.segments import read_documents

    segments = read_documents(settings["segments"][rank])
    connection = connection_of(settings["gpus"], rank, place, settings["timeout"], segments)
    peak = own_memory(settings["memory_limits"], rank, place)
    report("loading", doing="loading its weights")
    calls = Calls.from_document(settings["calls"])
    callers = _callers(folder, rank, calls.optimizer, place)
    report("running", doing="running its ops")
    outputs = []
    for number, caller in enumerate(callers):

        def heard(kind: str, number: int = number, **fields: Any) -> None:
            report(kind, placement=number, **fields)

        outputs.append(run_calls(caller, calls, connection, heard))
    return outputs, peak


def own_memory(
    limits: Sequence[float], rank: int, place: CudaPlace | None = None
) -> Peak | GpuPeak:
    """From here on memory counts as the rank's own: it is limited, if at all, and measured.

    Connections, torch's threads and what its kernels need once are there before. That of a rank
    on a GPU is the GPU's.
    """
    import torch

    if place is not None:
        return GpuPeak(place)
    square = torch.ones(512, 512)
    torch.nn.functional.linear(square, square, square[0])
    del square
    if limits:
        limit_memory(limits[rank])
    return Peak()


def _callers(
    folder: Path, rank: int, optimizer: Optimizer | None, place: CudaPlace | None
) -> list[Caller]:
    """The rank's stages, with no other weights than their own."""
    from placewright.runtime.ranks.calls import Caller
    from placewright.runtime.ranks.job_files import load_rank
    from placewright.runtime.weights import from_document
    from placewright.runtime.weights.placed import loaded_on

    job = load_rank(folder, rank)
    names = {name for stage in job.stages for name in stage.weights.values()}
    weights = loaded_on(from_document(job.weights), names, place)
    return [Caller(stage, weights, job.inputs, optimizer, place) for stage in job.stages]
