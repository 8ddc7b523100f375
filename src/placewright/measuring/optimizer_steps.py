"""Profiling the optimizer's steps of a training program: one for each shape of a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from placewright.budget import Progress, no_progress
from placewright.cluster import Cluster
from placewright.costs.profiles.alone import Clock, profile_alone
from placewright.costs.profiles.lookup import library_of
from placewright.costs.profiles.optimizers import Stepper, step_seconds, step_signatures
from placewright.costs.profiles.profiling import DeviceProfile, at_hand
from placewright.costs.profiles.reference import torch_watch
from placewright.costs.profiles.store import ProfileStore
from placewright.errors import OptionError
from placewright.system.accelerators.places import Place

if TYPE_CHECKING:
    from placewright.importers.torch.once import Source


def profile_steps(
    source: Source,
    optimizer: Stepper,
    cluster: Cluster,
    store: ProfileStore,
    *,
    devices: Sequence[str] = (),
    on_progress: Progress | None = None,
) -> list[DeviceProfile]:
    """Measure a step of `optimizer` for each distinct parameter of a training program.

    `devices` and the rest are as in `profile`, which measures the program's own ops. OptionError
    for an optimizer that there is not, or a source that is not one of training; ExecutionError
    for a step that fails.
    """
    if optimizer not in get_args(Stepper):
        raise OptionError(f"optimizer is '{optimizer}'; choose {', '.join(get_args(Stepper))}")
    if not source.training:
        raise OptionError(f"{source.name} is no training program, so no optimizer steps in it")
    if optimizer == "none":
        return []
    chosen = at_hand(cluster, devices, gpus=True)
    parameters = step_signatures(source.executable, optimizer)
    library, report = library_of(source.graph), on_progress or no_progress

    def start(place: Place) -> Clock:
        return lambda signature: step_seconds(
            optimizer, parameters[signature], torch_watch(place), place=place
        )

    found = (
        profile_alone("step", parameters, start, same, library, store, report=report)
        for same in chosen
    )
    return [replace(each, optimizer=optimizer) for each in found]
