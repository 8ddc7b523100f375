"""The transfer times between devices of this host, or of several, each device being a rank."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

from placewright.budget import Progress, no_progress
from placewright.errors import ExecutionError
from placewright.runtime.links.pace import SIZES, Times
from placewright.runtime.links.pairs import Cores, Pair
from placewright.runtime.ranks.launch import Ranks, ending_on_signals
from placewright.runtime.ranks.segments import built, documents, inherited


@dataclass(frozen=True)
class Meeting:
    """Ranks of several hosts: where they meet, which is the first here, and how many there are."""

    address: str
    port: int
    first: int
    ranks: int
    interface: str


def process_times(
    cores: Sequence[Cores],
    *,
    meeting: Meeting | None = None,
    shared: bool = False,
    sizes: Sequence[int] = SIZES,
    timeout: float = 60.0,
    on_progress: Progress | None = None,
) -> dict[Pair, Times]:
    """Times between ranks on this host that are pinned to `cores`, by pairs of rank numbers.

    Over gloo, or through `shared` memory, see `ranks.segments`. With a `meeting`, between them and
    those of other hosts too: of pairs whose first rank is here.
    ExecutionError if a rank fails, or if none reports anything for `timeout` seconds.
    """
    if os.name != "posix":
        raise ExecutionError("measuring transfers between processes needs Linux or macOS")
    progress = on_progress or no_progress
    first, ranks = (meeting.first, meeting.ranks) if meeting else (0, len(cores))
    settings: dict[str, Any] = {
        "cores": [list(each) for each in cores],
        "threads": [len(each) for each in cores],
        "first": first,
        "ranks": ranks,
        "sizes": list(sizes),
        "timeout": timeout,
        "meeting": {"address": meeting.address, "port": meeting.port} if meeting else None,
    }
    found: dict[Pair, Times] = {}
    order = {pair: at for at, pair in enumerate(combinations(range(ranks), 2))}
    with (
        ending_on_signals(),
        tempfile.TemporaryDirectory(prefix="placewright-") as name,
        ExitStack() as stack,
    ):
        pairs = permutations(range(ranks), 2) if shared else ()
        segments = built(dict.fromkeys(pairs, max(sizes)), stack)
        own = range(len(cores))
        settings["segments"] = [documents(segments, rank) for rank in own]
        started = Ranks(
            Path(name),
            settings,
            worker="placewright.runtime.links.rank",
            interface=meeting.interface if meeting else None,
            descriptors=[inherited(segments, rank) for rank in own],
        )
        with started as processes:
            for _, event in processes.events(timeout):
                if event["event"] == "times":
                    pair = event["a"], event["b"]
                    found[pair] = Times(tuple(event["sizes"]), tuple(event["seconds"]))
                    progress("measuring links", (order[pair] + 1) / len(order))
    return found
