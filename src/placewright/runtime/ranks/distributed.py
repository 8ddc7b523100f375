"""Ranks as processes of this machine.

Each rank is given its own stage in a private temporary directory, and its own weights: what it
cannot load itself from files comes in shared memory. So do tensors, see `segments`, or they go over
torch.distributed's gloo back end on the loopback interface; between GPUs over NCCL.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from placewright.runtime.ranks.job import Hear, Job, Results
from placewright.runtime.ranks.launch import Ranks, ending_on_signals
from placewright.runtime.ranks.segments import Segment, built, documents, inherited, sizes_of


def launch_processes(job: Job, hear: Hear) -> Results:
    """Run a job on processes; ExecutionError, all being ended, if one fails or none is heard."""
    from placewright.runtime.ranks.job_files import load_outputs

    with ending_on_signals(), tempfile.TemporaryDirectory(prefix="placewright-") as name:
        folder = Path(name)
        with ExitStack() as stack:
            segments = built(sizes_of(job.cuts, job.own.gpus), stack)
            descriptors = _hand_out(folder, job, segments, stack)
            started = Ranks(folder, _settings(job, segments), descriptors=descriptors)
            with started as processes:
                stack.pop_all().close()  # the ranks have inherited their weights
                for rank, event in processes.events(job.timeout):
                    hear(rank, event)
        return [load_outputs(folder, rank) for rank in range(job.ranks)]


def _hand_out(
    folder: Path, job: Job, segments: Sequence[Segment], stack: ExitStack
) -> list[tuple[int, ...]]:
    """Write each rank's file; what it must inherit is open until `stack` ends."""
    from placewright.runtime.ranks.job_files import save_rank
    from placewright.runtime.weights import hand_over

    descriptors = []
    for rank in range(job.ranks):
        handed = stack.enter_context(hand_over(job.values.weights, job.weights_of(rank)))
        stages = [stages[rank] for stages in job.cuts]
        save_rank(folder, rank, stages, handed.document, job.values.inputs)
        descriptors.append((*handed.descriptors, *inherited(segments, rank)))
    return descriptors


def _settings(job: Job, segments: Sequence[Segment]) -> dict[str, Any]:
    return {
        "ranks": job.ranks,
        "threads": job.own.threads,
        "cores": job.own.cores,
        "gpus": job.own.gpus,
        "segments": [documents(segments, rank) for rank in range(job.ranks)],
        "calls": job.calls.to_document(),
        "timeout": job.timeout,
        "path": sys.path,
        "modules": job.modules,
        "memory_limits": job.memory_limits,
    }
