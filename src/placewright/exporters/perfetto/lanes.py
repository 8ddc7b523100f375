"""Tracks for what may go on at once: as many as it takes, each slice on the first that is free."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from placewright.exporters.perfetto.events import Process
from placewright.outcome import BatchTransfers, Transfers


def lanes(process: Process, name: str, spans: Sequence[tuple[float, float]]) -> list[int]:
    """`[span]` the track of what lasts from … to; one track where there is nothing."""
    tracks = [process.track(name)]
    free = [0.0]  # of each track, when its last span ends
    found = [0] * len(spans)
    for number in sorted(range(len(spans)), key=lambda each: spans[each]):
        start, finish = spans[number]
        at = next((k for k, end in enumerate(free) if end <= start), len(free))
        if at == len(free):
            free.append(0.0)
            tracks.append(process.track(f"{name} ({at + 1})"))
        free[at], found[number] = finish, tracks[at]
    return found


def transfer_lanes(
    process: Process, names: Sequence[str], moves: Transfers | BatchTransfers
) -> list[int]:
    """`[transfer]` its track: those of its two devices, which are called by `names`."""
    pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in range(len(moves)):
        pairs[int(moves.source[row]), int(moves.target[row])].append(row)
    found = [0] * len(moves)
    for (source, target), rows in sorted(pairs.items()):
        spans = [(float(moves.start[row]), float(moves.finish[row])) for row in rows]
        each = lanes(process, f"{names[source]} → {names[target]}", spans)
        for row, track in zip(rows, each, strict=True):
            found[row] = track
    return found
