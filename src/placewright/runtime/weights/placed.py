"""Weights where a rank computes; on a GPU without a copy of them all in memory of the host."""

from __future__ import annotations

from collections.abc import Collection

import torch

from placewright.runtime.weights.base import Weights
from placewright.system.accelerators.places import CudaPlace


def loaded_on(
    weights: Weights, names: Collection[str], place: CudaPlace | None
) -> dict[str, torch.Tensor]:
    """These weights on a GPU, loaded and moved one after the other, or on the CPU (None).

    Errors as of `load`.
    """
    if place is None:
        return weights.load(names)
    with place.entered():
        found = {name: weights.load([name])[name].to(place.device) for name in sorted(names)}
        place.settle()
    return found
