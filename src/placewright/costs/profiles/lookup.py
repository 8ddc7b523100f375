"""Measured times of a graph's ops: which of them a store has, on which device.

A time is found by the op's signature, the library that ran it, and what the device is: the kind of
a GPU; the kind of a processor and how many of its cores the device has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from placewright.cluster import CpuRun, Device
from placewright.costs.catalog import is_cpu
from placewright.graph import Flags, Floats, Graph

if TYPE_CHECKING:
    from placewright.costs.profiles.entry import Measured
    from placewright.costs.profiles.store import ProfileStore

USERS = "user"
"""In the place of a file: the user's own store."""


def identity(device: Device) -> str | None:
    """What a device is, as the store names it; None for a processor of unknown cores.

    >>> identity(Device("a", "EPYC 7763", run=CpuRun((0, 1))))
    'EPYC 7763, 2 cores'
    """
    if isinstance(device.run, CpuRun):
        count = len(device.run.cores)
        return f"{device.kind}, {count} core{'s' if count > 1 else ''}"
    return None if is_cpu(device) else device.kind


def library_of(graph: Graph) -> str:
    """What runs the graph's ops, such as ``torch 2.13.0``; empty for a graph of no library."""
    return str(graph.attributes.get("framework", ""))


def is_there(profiles: str | Path | None) -> bool:
    """Whether there may be a store: a file that was given, or the user's own where there is one."""
    if profiles != USERS:
        return profiles is not None
    from placewright.costs.profiles.store import default_path  # platformdirs takes time to import

    return default_path().exists()


def opened(profiles: str | Path) -> ProfileStore:
    """The store in a file, or the user's, for reading."""
    # sqlite3 takes time to import
    from placewright.costs.profiles.store import ProfileStore

    return ProfileStore(None if profiles == USERS else profiles, writable=False)


@dataclass(frozen=True)
class Found:
    """`[op]` what a store says of a device: seconds, NaN where it has none; the spread of each
    (of logs); whether they were extrapolated from smaller batches."""

    seconds: Floats
    spread: Floats
    is_regressed: Flags


def measured_seconds(
    graph: Graph, devices: Sequence[Device], profiles: str | Path | None
) -> dict[str, Found]:
    """What the store has of the graph's ops, by the name of each device that has any."""
    distinct = set(graph.op_signatures) - {""}
    known = known_costs(distinct, library_of(graph), devices, profiles)
    columns: dict[int, Found] = {}  # devices that are the same share theirs
    for costs in known.values():
        if id(costs) not in columns:
            columns[id(costs)] = _columns(graph, costs)
    return {device: columns[id(costs)] for device, costs in known.items()}


def known_costs(
    signatures: Collection[str],
    library: str,
    devices: Sequence[Device],
    profiles: str | Path | None,
) -> dict[str, dict[str, Measured]]:
    """What the store has by these signatures, by the name of each device that has any."""
    if profiles is None or not signatures:
        return {}
    from placewright.costs.profiles.entry import ProfileKey

    named = {device.name: identity(device) for device in devices}
    found: dict[str, dict[str, Measured]] = {}
    with opened(profiles) as store:
        for each in {name for name in named.values() if name is not None}:
            known = store.get(ProfileKey(signature, each, library) for signature in signatures)
            if known:
                found[each] = {key.signature: measured for key, measured in known.items()}
    return {device: found[kind] for device, kind in named.items() if kind in found}


def _columns(graph: Graph, known: Mapping[str, Measured]) -> Found:
    rows = [
        (m.seconds, m.spread, m.method == "regressed") if m is not None else (np.nan, 0.0, False)
        for m in map(known.get, graph.op_signatures)
    ]
    seconds, spread, is_regressed = np.array(rows).T
    return Found(seconds, spread, is_regressed.astype(bool))
