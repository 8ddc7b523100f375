"""What an objective's plans have to show: the records that the file of each objective makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from placewright.graph import Flags, Floats, Ints, Whole
from placewright.plan import Plan
from placewright.report.html.columns import column
from placewright.system.references import referred

OP, TRANSFER, READING, COMPUTING, WRITING, MEASURED, WAITING, PASS, PASS_BACK = range(9)
"""The kinds of slice; `page/slices.js` has words for each."""

TrackKind = Literal["device", "link", "rank"]


@dataclass(frozen=True)
class Track:
    """A row of the timeline; `device` is the one that it is, or that a link leaves.

    A ``rank`` is what a run measured of a device.
    """

    name: str
    kind: TrackKind
    device: int


@dataclass(frozen=True, eq=False)
class Slices:
    """Columns, one entry per slice: its track, from `start` to `finish` seconds, and what it is.

    `item` is an op (of a transfer the one whose output moves; of an invocation its subgraph, of a
    pass its micro-batch); `amount` the bytes of a transfer, the inputs of a batch, else 0.
    """

    track: Whole
    kind: Whole
    start: Floats
    finish: Floats
    item: Whole
    amount: Floats | Whole
    critical: Flags


@dataclass(frozen=True, eq=False)
class Timeline:
    """Tracks, their slices, and the critical path: slices in the order of the path."""

    tracks: Sequence[Track]
    slices: Slices
    path: Sequence[int] = ()
    sized: bool = False
    """Whether the height of a slice says its `amount`: the inputs of a batch."""

    def record(self) -> dict[str, Any]:
        """Slices by track, then by start; ``offsets[track]`` where those of a track begin.

        Tracks without slices are left out.
        """
        made = self.slices
        order = np.lexsort((made.finish, made.start, made.track))
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        used, counts = np.unique(made.track, return_counts=True)
        return {
            "tracks": [vars(self.tracks[track]) for track in used.tolist()],
            "offsets": [0, *np.cumsum(counts).tolist()],
            **{
                name: column(getattr(made, name)[order])
                for name in ("kind", "start", "finish", "item", "amount", "critical")
            },
            "path": column(place[list(self.path)]),
            "sized": self.sized,
        }


@dataclass(frozen=True, eq=False)
class DeviceColumn:
    """A column of the table of devices; `unit` is ``bytes``, ``seconds`` or ``count``."""

    title: str
    unit: Literal["bytes", "seconds", "count"]
    values: Floats | Whole


@dataclass(frozen=True, eq=False)
class Drawing:
    """What one plan has to show.

    `op_seconds[op]` is how long it computes in all, `limits` are sentences on what limits the
    plan, the weightiest first, `notes` others, `parts` records for sections of its objective alone.
    """

    op_seconds: Floats
    limits: Sequence[str]
    columns: Sequence[DeviceColumn]
    timeline: Timeline | None = None
    notes: Sequence[str] = ()
    parts: dict[str, Any] = field(default_factory=dict)


def drawing(plan: Plan) -> Drawing:
    """Made by the module that the row of the plan's objective names."""
    found: Drawing = referred(f"{plan.problem.options.row.page}:drawing")(plan)
    return found


def joined(*parts: Slices) -> Slices:
    """The slices of several, the first's first."""
    names = ("track", "kind", "start", "finish", "item", "amount", "critical")
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Slices(**columns)


def transferred(plan: Plan, source: Ints, target: Ints, size: Floats) -> list[DeviceColumn]:
    """Bytes that each device sends and receives, in transfers of so many bytes."""
    count = plan.problem.device_count
    return [
        DeviceColumn("sent", "bytes", np.bincount(source, size, count)),
        DeviceColumn("received", "bytes", np.bincount(target, size, count)),
    ]


def link_tracks(plan: Plan, source: Ints, target: Ints, first: int) -> tuple[list[Track], Whole]:
    """A track for each two devices with transfers, and `[transfer]` its number from `first`."""
    names, count = plan.problem.device_names, plan.problem.device_count
    pairs, number = np.unique(source.astype(np.int64) * count + target, return_inverse=True)
    ends = [divmod(pair, count) for pair in pairs.tolist()]
    tracks = [Track(f"{names[one]} → {names[two]}", "link", one) for one, two in ends]
    return tracks, first + number


def device_tracks(plan: Plan) -> list[Track]:
    """A track per device, in their order."""
    return [Track(name, "device", d) for d, name in enumerate(plan.problem.device_names)]
