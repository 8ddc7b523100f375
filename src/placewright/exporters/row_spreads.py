"""Rows that use many devices: where ops of several stages overlap, these can be the best."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placewright.exporters.pieces import Pieces
from placewright.exporters.row_costs import RowCosts
from placewright.exporters.rows import Row, Stage
from placewright.graph import Floats


def spread_rows(pieces: Pieces, costs: RowCosts, first: Stage | None) -> Iterator[Row]:
    """Pieces shared out over the quickest GPUs, two and more: equally, and by their speed.

    In the order of the cluster. `first` is the first stage of a row, which a CPU keeps.
    """
    problem, members = pieces.problem, costs.classes[1]
    lead = [first] if first is not None and problem.is_cpu[members[first[0]][0]] else []
    start = lead[0][2] + 1 if lead else 0
    seconds = costs.seconds[:, start, -1] if start < pieces.count else np.array([])
    gpus = [
        (float(seconds[one]), device, one)
        for one, devices in enumerate(members)
        for device in devices
        if start < pieces.count and np.isfinite(seconds[one]) and not problem.is_cpu[device]
    ]
    for count in range(2, min(len(gpus), pieces.count - start) + 1):
        chosen = sorted(sorted(gpus)[:count], key=lambda gpu: gpu[1])
        classes = [one for _, _, one in chosen]
        speed = np.array([1.0 / max(took, 1e-12) for took, _, _ in chosen])
        for share in (np.ones(count), speed):
            yield Row(np.inf, (*lead, *_stages(classes, share, start, pieces.count)))
        if lead:
            equal = _stages(classes, np.ones(count), 0, pieces.count)
            yield Row(np.inf, (*lead, (equal[0][0], start, equal[0][2]), *equal[1:]))


def _stages(classes: list[int], share: Floats, start: int, end: int) -> list[Stage]:
    """A stage per class, of as many pieces as its share says."""
    total = np.cumsum(share)
    ends = start + np.ceil(total / total[-1] * (end - start) - 1e-9).astype(int)
    firsts = [start, *ends[:-1].tolist()]
    return [
        (one, first, last - 1)
        for one, first, last in zip(classes, firsts, ends.tolist(), strict=True)
    ]
