"""Ranks as processes of this machine.

Each rank is given its own stage with the weights it needs, in a private temporary directory (so
factories need not be deterministic, nor is a model built once per rank; the directory holds a copy
of the weights while the run lasts). Ranks talk over torch.distributed's gloo backend on the
loopback interface.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from placewright.runtime.job import Hear, Job, Results
from placewright.runtime.launch import Ranks, ending_on_signals


def launch_processes(job: Job, hear: Hear) -> Results:
    """Run a job on processes; ExecutionError, all being ended, if one fails or none is heard."""
    from placewright.runtime.job_files import load_outputs, save_job

    with ending_on_signals(), tempfile.TemporaryDirectory(prefix="placewright-") as name:
        folder = Path(name)
        for rank in range(job.ranks):
            save_job(folder, rank, [stages[rank] for stages in job.cuts], job.values)
        _write_settings(folder, job)
        with Ranks(folder, job.ranks, job.own.threads) as processes:
            for rank, event in processes.events(job.timeout):
                hear(rank, event)
        return [load_outputs(folder, rank) for rank in range(job.ranks)]


def _write_settings(folder: Path, job: Job) -> None:
    settings = {
        "ranks": job.ranks,
        "threads": job.own.threads,
        "cores": job.own.cores,
        "calls": job.calls.to_document(),
        "timeout": job.timeout,
        "path": sys.path,
        "modules": job.modules,
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
