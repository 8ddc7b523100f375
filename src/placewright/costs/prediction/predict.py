"""Times of a graph's ops by what was learnt from the profiles at hand.

From ops of the same device where it has enough of them (``regressed``), else from all devices of
its class (``predicted``), whose datasheet figures then make the difference. CPUs teach nothing of
GPUs, nor GPUs of CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from placewright.cluster import Device
from placewright.costs.catalog import is_cpu
from placewright.costs.prediction.learned import Learned, learned_from
from placewright.costs.prediction.samples import FEWEST, Samples, names_of, samples_of, work_of
from placewright.costs.profiles.entry import DeviceFigures
from placewright.costs.profiles.lookup import identity, library_of, opened
from placewright.graph import Floats, Graph
from placewright.problem import PREDICTED, REGRESSED


@dataclass(frozen=True)
class Predicted:
    """`[op]` seconds and the spread of each (of logs), from samples as `source` says."""

    seconds: Floats
    spread: Floats
    source: int


def predicted_seconds(
    graph: Graph, devices: Sequence[Device], profiles: str | Path | None
) -> dict[str, Predicted]:
    """What can be predicted, by the names of devices; nothing where there is no store."""
    if profiles is None or not devices:
        return {}
    framework = library_of(graph).partition(" ")[0]
    names, families = names_of(graph)
    found: dict[str, Predicted] = {}
    learned: dict[str | bool, Learned] = {}
    with opened(profiles) as store:
        classes = {is_cpu(device) for device in devices}
        samples = {each: samples_of(store, framework, each) for each in classes}
        kept = store.figures()
    for device in devices:
        mine, is_own = _teachers(samples[is_cpu(device)], identity(device))
        # Its own samples are in shares of the figures it had when they were measured.
        figures = kept[str(identity(device))] if is_own else DeviceFigures.of(device)
        work = work_of(graph, figures) if figures is not None else None
        if work is None or len(mine) < FEWEST:
            continue
        key = str(identity(device)) if is_own else is_cpu(device)
        if key not in learned:
            learned[key] = learned_from(mine)
        what = learned[key]
        found[device.name] = Predicted(
            what.seconds(names, families, work),
            what.spread_of(families),
            REGRESSED if is_own else PREDICTED,
        )
    return found


def _teachers(samples: Samples, device: str | None) -> tuple[Samples, bool]:
    """The samples to learn from, and whether they are the device's own."""
    own = samples.on(device) if device is not None else samples
    if device is not None and len(own) >= FEWEST:
        return own, True
    return samples, False
