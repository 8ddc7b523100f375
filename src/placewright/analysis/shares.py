"""What devices that share the inputs come to, each as quick as it is."""

from __future__ import annotations

import numpy as np

from placewright.graph import Floats, Wide


def harmonic(seconds: Floats, count: Floats | Wide) -> Floats:
    """The largest load at best shares of ``count[k]`` devices that alone take ``seconds[..., k]``.

    Seconds: 1 / Σ count / seconds over the last axis. It is no less for a sum than the sum of what
    it is for each part: what is shared in one proportion is not shared better than each by itself.

    >>> harmonic(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    0.75
    """
    with np.errstate(divide="ignore"):
        rate = np.where(count > 0, count / np.where(count > 0, seconds, 1.0), 0.0).sum(axis=-1)
        found: Floats = 1.0 / rate
    return found
