"""What there is to learn from: the measured ops of one class of devices.

A class is all CPUs or all others; overheads and efficiencies of one say little about the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placewright.cluster import Device
from placewright.costs.catalog import peak_flops
from placewright.costs.prediction.families import VIEW, family_of
from placewright.costs.prediction.work import Work
from placewright.costs.profiles.entry import DeviceFigures, Measured, ProfileKey, op_name
from placewright.costs.profiles.reuse import bytes_before
from placewright.costs.profiles.store import ProfileStore
from placewright.errors import ClusterError
from placewright.graph import ITEM_BYTES, Flags, Floats, Graph

FEWEST = 20
"""Samples that are enough to learn from."""


@dataclass(frozen=True)
class Samples:
    """Columns with an entry per measured op on a device."""

    signatures: tuple[str, ...]
    devices: tuple[str, ...]
    ops: tuple[str, ...]
    families: tuple[str, ...]
    work: Work
    seconds: Floats

    def __len__(self) -> int:
        return len(self.signatures)

    def where(self, chosen: Flags) -> Samples:
        kept = np.flatnonzero(chosen)

        def of(column: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(column[i] for i in kept)

        return Samples(
            of(self.signatures),
            of(self.devices),
            of(self.ops),
            of(self.families),
            self.work.of(kept),
            self.seconds[kept],
        )

    def on(self, device: str) -> Samples:
        return self.where(np.array([each == device for each in self.devices], dtype=bool))


def samples_of(store: ProfileStore, framework: str, is_cpu: bool) -> Samples:
    """The measured ops of CPUs, or of other devices, by a `framework` such as ``torch``.

    Any framework's where it is empty. Times that were not measured themselves, and devices of
    which no figures are known, teach nothing.
    """
    figures = {n: each for n, each in store.figures().items() if each.is_cpu == is_cpu}
    found = [
        (key, measured)
        for key, measured in store.entries()
        if key.device in figures
        and measured.dtype
        and measured.method != "regressed"
        and (not framework or key.library.split(" ")[0] == framework)
    ]
    return _columns(found, figures)


def _columns(
    found: Sequence[tuple[ProfileKey, Measured]], figures: Mapping[str, DeviceFigures]
) -> Samples:
    signatures, devices, ops, families = [], [], [], []
    work, seconds = [], []
    for key, measured in found:
        moved = measured.bytes_read + measured.bytes_written
        of_device = figures[key.device]
        peak = dtype_peak(of_device.peak_flops, measured.dtype)
        if peak is None:
            continue
        signatures.append(key.signature)
        devices.append(key.device)
        ops.append(op_name(key.signature))
        families.append(VIEW if not measured.flops + moved else family_of(ops[-1]))
        bandwidth = of_device.memory_bandwidth
        outputs = measured.bytes_written / ITEM_BYTES[measured.dtype]
        work.append(
            (
                measured.flops / peak,
                moved / bandwidth,
                measured.bytes_before / bandwidth,
                float(_for_each(of_device.multiprocessors, np.array(outputs))),
            )
        )
        seconds.append(measured.seconds)
    columns = np.array(work).reshape(-1, len(Work._fields)).T
    names = (tuple(signatures), tuple(devices), tuple(ops), tuple(families))
    return Samples(*names, Work(*columns), np.array(seconds))


def dtype_peak(peaks: Mapping[str, float], dtype: str) -> float | None:
    """FLOP/s in a dtype or the next wider one there is a peak for; None where there is none."""
    try:
        return peak_flops(Device("device", "measured", peak_flops=peaks), dtype)
    except ClusterError:
        return None


def work_of(graph: Graph, figures: DeviceFigures) -> Work | None:
    """`[op]` what the ops of a graph are to a device; None where it lacks the peak of a dtype."""
    peaks = {dtype: dtype_peak(figures.peak_flops, dtype) for dtype in set(graph.op_dtypes)}
    peak = np.array([peaks[dtype] or np.nan for dtype in graph.op_dtypes])
    if np.isnan(peak).any():
        return None
    moving = (graph.op_bytes_read + graph.op_bytes_written) / figures.memory_bandwidth
    # Ops are in the order of their program.
    before = np.array(bytes_before(names_of(graph)[0], moving.tolist()))
    item = np.array([ITEM_BYTES[dtype] for dtype in graph.op_dtypes])
    outputs = _for_each(figures.multiprocessors, graph.op_bytes_written / item)
    return Work(graph.op_flops / peak, moving, before, outputs)


def _for_each(multiprocessors: int | None, outputs: Floats) -> Floats:
    """Outputs for each multiprocessor; infinite where either is not known."""
    share = outputs / (multiprocessors or np.nan)
    found: Floats = np.where(share > 0, share, np.inf)
    return found


def names_of(graph: Graph) -> tuple[list[str], list[str]]:
    """The ops' names, of their signatures where they have them, and their families."""
    names = [
        op_name(signature) if signature else kind
        for signature, kind in zip(graph.op_signatures or ("",) * graph.op_count,
                                   graph.op_types, strict=True)
    ]  # fmt: skip
    works = (graph.op_flops + graph.op_bytes_read + graph.op_bytes_written) > 0
    families = [family_of(n) if w else VIEW for n, w in zip(names, works, strict=True)]
    return names, families
