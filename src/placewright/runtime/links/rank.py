"""A rank that takes part in measuring links: started by `ranks.py`, it reports the times it led.

All pairs are measured one after the other, so that they do not disturb each other.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

from placewright.runtime.ranks.joining import barrier, connect, file_store
from placewright.runtime.ranks.worker import Reporter, Settings, serve


def main() -> None:
    serve(_measure)


def _measure(folder: Path, index: int, settings: Settings, report: Reporter) -> None:
    """`index` counts the ranks of this host."""
    import torch

    from placewright.runtime.links.exchange import PATIENCE_SECONDS, follow, lead
    from placewright.runtime.ranks.gpus import connection_of
    from placewright.runtime.ranks.segments import read_documents

    rank, ranks, timeout = settings["first"] + index, settings["ranks"], settings["timeout"]
    report("connecting", doing="connecting to the other ranks")
    store = _store(settings["meeting"], timeout) if settings["meeting"] else None
    connect(store or file_store(folder, ranks), rank, ranks, timeout)
    segments = read_documents(settings["segments"][index])
    opened = connection_of((), rank, None, PATIENCE_SECONDS, segments).channel
    for a, b in combinations(range(ranks), 2):
        report("pair", doing=f"measuring transfers between ranks {a} and {b}")
        if rank == a:
            times = lead(a, b, opened, settings["sizes"])
            report("times", a=a, b=b, sizes=times.sizes, seconds=times.seconds)
        elif rank == b:
            follow(b, a, opened)
        barrier()
    torch.distributed.destroy_process_group()


def _store(meeting: dict[str, Any], timeout: float) -> Any:
    from placewright.runtime.links.stores import join

    return join(meeting["address"], meeting["port"], timeout, prefix="ranks")
