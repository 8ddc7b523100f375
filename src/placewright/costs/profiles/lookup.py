"""Measured times of a graph's ops: which of them a store has, on which device.

A time is found by the op's signature, the library that ran it, and what the device is: the kind of
a GPU; the kind of a processor and how many of its cores the device has.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from placewright.cluster import CpuRun, Device
from placewright.costs.catalog import is_cpu
from placewright.graph import Floats, Graph

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


def measured_seconds(
    graph: Graph, devices: Sequence[Device], profiles: str | Path | None
) -> dict[str, Floats]:
    """`[op]` medians by the name of each device that has any; NaN where an op has none."""
    if profiles is None or not any(graph.op_signatures):
        return {}
    # sqlite3 takes time to import
    from placewright.costs.profiles.entry import ProfileKey
    from placewright.costs.profiles.store import ProfileStore

    library, distinct = library_of(graph), set(graph.op_signatures) - {""}
    named = {device.name: identity(device) for device in devices}
    columns: dict[str, Floats] = {}
    with ProfileStore(None if profiles == USERS else profiles, writable=False) as store:
        for each in {name for name in named.values() if name is not None}:
            known = store.get(ProfileKey(signature, each, library) for signature in distinct)
            if known:
                seconds = {key.signature: found.seconds for key, found in known.items()}
                columns[each] = np.array([seconds.get(s, np.nan) for s in graph.op_signatures])
    return {device: columns[kind] for device, kind in named.items() if kind in columns}
