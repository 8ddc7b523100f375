"""Columns of the table of devices that several objectives share."""

from __future__ import annotations

import numpy as np

from placewright.graph import Floats, Ints
from placewright.units import format_bytes


def sent(device_count: int, source: Ints, size: Floats) -> dict[str, list[str]]:
    """What each device sends, of transfers from `source` of `size` bytes."""
    total = np.bincount(source, size, device_count)
    return {"sent": [format_bytes(float(each)) for each in total]}
