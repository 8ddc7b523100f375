"""What an op has to do, in seconds at the peaks of a device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placewright.graph import Floats


class Work(NamedTuple):
    """`[op]` seconds of computing at the peak, of moving at the bandwidth, and of moving what calls
    moved since the last one of the same op; outputs for each multiprocessor, `inf` if not known."""

    computing: Floats
    moving: Floats
    before: Floats
    outputs: Floats

    def of(self, chosen: np.ndarray) -> Work:
        return Work(*(column[chosen] for column in self))
