"""How far predictions are off: models and devices left out of what is learnt from, in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from placewright.costs.prediction.learned import log_errors
from placewright.costs.prediction.samples import FEWEST, Samples, samples_of
from placewright.costs.profiles.entry import ProfiledProgram
from placewright.costs.profiles.store import ProfileStore
from placewright.errors import ProfileError
from placewright.graph import Floats

LeftOut = Literal["model", "device"]


@dataclass(frozen=True)
class Check:
    """What was left out, and how well the rest predicts it.

    `name` is a model's source or a device, `device` where its ops were measured, `ops` how many.
    `median` is the median of |predicted / measured - 1| over its distinct ops and `largest` the
    95th percentile; `predicted` and `measured` are seconds of all its calls one after the other,
    None where not all of them are known.
    """

    left_out: LeftOut
    name: str
    device: str
    library: str
    ops: int
    median: float
    largest: float
    predicted: float | None = None
    measured: float | None = None

    @property
    def end_to_end(self) -> float | None:
        """predicted / measured - 1 of the whole."""
        return self.predicted / self.measured - 1 if self.predicted and self.measured else None


def check(store: ProfileStore) -> list[Check]:
    """Leave out every model and every device in turn. ProfileError where there are too few ops."""
    found, profiled = [], store.programs()
    for framework in dict.fromkeys(group.library.partition(" ")[0] for group in store.groups()):
        programs = [p for p in profiled if p.library.partition(" ")[0] == framework]
        for is_cpu in (True, False):
            samples = samples_of(store, framework, is_cpu)
            found += [*_models(samples, programs), *_devices(samples)]
    if not found:
        raise ProfileError(
            f"{store.path}: nothing can be left out; measure two models or two devices of a kind "
            f"with {FEWEST} distinct ops each"
        )
    return found


def _models(samples: Samples, programs: list[ProfiledProgram]) -> Iterator[Check]:
    """A program at a time, on each device, from what is left of that device."""
    for device in dict.fromkeys(samples.devices):
        on_device = samples.on(device)
        for program in programs:
            out = np.array([text in program.calls for text in on_device.signatures], dtype=bool)
            if not out.any() or np.count_nonzero(~out) < FEWEST:
                continue
            errors, asked = log_errors(on_device, out), on_device.where(out)
            whole = _whole(asked, errors, program.calls)
            yield _checked("model", program.name, device, program.library, errors, whole)


def _devices(samples: Samples) -> Iterator[Check]:
    """A device at a time, from all others of its class."""
    for device in dict.fromkeys(samples.devices):
        out = np.array([each == device for each in samples.devices], dtype=bool)
        if np.count_nonzero(~out) < FEWEST:
            continue
        yield _checked("device", device, device, "", log_errors(samples, out), None)


def _whole(asked: Samples, errors: Floats, calls: Mapping[str, int]) -> tuple[float, float] | None:
    """Seconds of all calls, predicted and measured."""
    if set(asked.signatures) != set(calls):
        return None
    count = np.array([calls[text] for text in asked.signatures])
    measured = asked.seconds
    return float(count @ (measured * np.exp(-errors))), float(count @ measured)


def _checked(
    left_out: LeftOut,
    name: str,
    device: str,
    library: str,
    errors: Floats,
    whole: tuple[float, float] | None,
) -> Check:
    off = np.abs(np.exp(-errors) - 1)
    return Check(
        left_out,
        name,
        device,
        library,
        len(errors),
        float(np.median(off)),
        float(np.quantile(off, 0.95)),
        *(whole or (None, None)),
    )
