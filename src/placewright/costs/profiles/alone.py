"""Measuring things one by one, each by itself, on one device: groups of ops, optimizers' steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from placewright.budget import Progress
from placewright.cluster import Device
from placewright.costs.profiles.entry import Missing, ProfileKey
from placewright.costs.profiles.lookup import identity
from placewright.costs.profiles.profiling import DeviceProfile, place_of, summary
from placewright.costs.profiles.store import ProfileStore
from placewright.errors import ExecutionError
from placewright.system.accelerators.places import Place

Clock = Callable[[str], Sequence[float]]
"""Seconds of what has a signature; ExecutionError if it cannot be run."""


def profile_alone(
    kind: str,
    signatures: Collection[str],
    start: Callable[[Place], Clock],
    devices: Sequence[Device],
    library: str,
    store: ProfileStore,
    *,
    missing: Missing = "refuse",
    report: Progress,
) -> DeviceProfile:
    """Measure what is new of `signatures`, on the first of `devices`, which are the same.

    `kind` is what each is, as the progress has it. `start` makes the clock of the device, which was
    entered, and only where something is new. What is measured is kept at once. ExecutionError for
    what fails, unless `missing` is ``predict``.
    """
    device, started = devices[0], time.perf_counter()
    named = str(identity(device))
    keys = {signature: ProfileKey(signature, named, library) for signature in signatures}
    known = store.get(keys.values())
    new = {signature: key for signature, key in keys.items() if key not in known}
    failed: dict[str, str] = {}
    place = place_of(device)
    with place.entered():
        clock = start(place) if new else None
        for count, (signature, key) in enumerate(new.items()):
            report(f"{device.name}: {kind} {count + 1} of {len(new)}", count / len(new))
            assert clock is not None
            try:
                samples = clock(signature)
            except ExecutionError as error:
                if missing == "refuse":
                    raise
                failed[signature] = str(error)
            else:
                store.put({key: summary(samples, "isolated")})
    return DeviceProfile(
        tuple(each.name for each in devices),
        named,
        library,
        "isolated" if new else None,
        len(new) - len(failed),
        len(known),
        time.perf_counter() - started,
        failed=failed,
    )
