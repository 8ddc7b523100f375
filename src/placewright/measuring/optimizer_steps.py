"""Profiling the optimizer's steps of a training program: one for each shape of a parameter."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from placewright.cluster import Cluster, CpuRun, Device
from placewright.costs.profiles.entry import ProfileKey
from placewright.costs.profiles.lookup import identity, library_of
from placewright.costs.profiles.optimizers import Stepper, step_seconds, step_signatures
from placewright.costs.profiles.profiling import DeviceProfile, at_hand, summary
from placewright.costs.profiles.reference import torch_watch
from placewright.costs.profiles.store import ProfileStore
from placewright.errors import OptionError
from placewright.system.pinning import pinned

if TYPE_CHECKING:
    import torch

    from placewright.costs.profiles.profiling import Progress
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
    chosen = at_hand(cluster, devices)
    parameters = step_signatures(source.executable, optimizer)
    library, report = library_of(source.graph), on_progress or (lambda what, done: None)
    return [_profile(optimizer, parameters, same, library, store, report) for same in chosen]


def _profile(
    optimizer: str,
    parameters: dict[str, torch.Tensor],
    devices: Sequence[Device],
    library: str,
    store: ProfileStore,
    report: Progress,
) -> DeviceProfile:
    device, started = devices[0], time.perf_counter()
    named = str(identity(device))
    keys = {signature: ProfileKey(signature, named, library) for signature in parameters}
    known = store.get(keys.values())
    new = [signature for signature, key in keys.items() if key not in known]
    assert isinstance(device.run, CpuRun)
    with pinned(device.run.cores):
        for count, signature in enumerate(new):
            report(f"{device.name}: step {count + 1} of {len(new)}", count / len(new))
            samples = step_seconds(optimizer, parameters[signature], torch_watch())
            store.put({keys[signature]: summary(samples, "isolated")})
    return DeviceProfile(
        tuple(each.name for each in devices),
        named,
        library,
        "isolated" if new else None,
        len(new),
        len(known),
        time.perf_counter() - started,
        optimizer=optimizer,
    )
