"""Profiling a source on the devices at hand: what is new is measured, and kept in the store."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

import numpy as np

from placewright.budget import Progress, no_progress
from placewright.cluster import Cluster, CpuRun, CudaRun, Device
from placewright.costs.detect import cpu_kind, gpu_kind
from placewright.costs.machine import available_memory, busy_share, examine
from placewright.costs.profiles.entry import (
    DeviceFigures,
    Measured,
    Method,
    Missing,
    ProfiledProgram,
    ProfileKey,
    Way,
)
from placewright.costs.profiles.loading import load_program
from placewright.costs.profiles.lookup import identity
from placewright.costs.profiles.program import FEWEST, Program, Samples
from placewright.costs.profiles.steady import STEADY_ENOUGH
from placewright.costs.profiles.store import ProfileStore
from placewright.errors import ClusterError, ExecutionError, OptionError
from placewright.importers.costs import Cost
from placewright.system.accelerators.places import CpuPlace, CudaPlace, Place, gpu_place
from placewright.system.pinning import refuse_elsewhere
from placewright.units import format_bytes

if TYPE_CHECKING:
    from placewright.importers.torch.once import Source

CONTEXT_SHARE = 0.5  # of the free memory that a run in context may take
GPU_CONTEXT_SHARE = 0.8  # of a GPU's, which holds no other programs
NOISY = 0.3  # passes that differ by this share of their median are worth a remark
BUSY = 0.3  # so is other work that takes this share of a device's cores
KEPT_SECONDS = 2.0  # after so long, what was measured is written


@dataclass(frozen=True)
class DeviceProfile:
    """What profiling one device did.

    `measured` distinct calls are new in the store, `known` were there; `failed` holds calls that
    the device cannot run, with the reason. Of the `passes` over the program so many were `steady`
    (see `steady.Passes`). `noise` is how far 90 % of those that count lie apart, as a share of
    their median; None where it was not run as a whole. `busy` is the
    share of the device's cores that other work took before it began; None where nothing was
    measured or the system does not tell. `compiled`: groups of calls were measured, each compiled
    as one; `optimizer`: its steps were.
    """

    devices: tuple[str, ...]
    identity: str
    library: str
    method: Method | None
    measured: int
    known: int
    seconds: float
    noise: float | None = None
    busy: float | None = None
    failed: dict[str, str] = field(default_factory=dict)
    compiled: bool = False
    optimizer: str = ""
    passes: int = 0
    steady: int = 0

    @property
    def is_noisy(self) -> bool:
        return self.noise is not None and self.noise > NOISY

    @property
    def is_unsteady(self) -> bool:
        """Whether too few passes were steady, so that all count."""
        return self.passes > 0 and self.steady < min(STEADY_ENOUGH, self.passes)

    @property
    def is_busy(self) -> bool:
        return self.busy is not None and self.busy > BUSY


def profile(
    source: str,
    cluster: Cluster,
    store: ProfileStore,
    *,
    devices: Sequence[str] = (),
    training: bool = False,
    method: Way = "auto",
    missing: Missing = "refuse",
    on_progress: Progress | None = None,
    exported: Source | None = None,
) -> list[DeviceProfile]:
    """Measure every distinct call of `source` on the `devices` of `cluster` (all at hand if none).

    Devices that are the same (so many cores of one processor) are measured once. ``context`` runs
    the whole program, ``isolated`` each call by itself; ``auto`` takes the first where there is
    memory for it. What is measured is kept at once, so that an interrupted profile goes on where
    it was. `exported` is the source, where something else needs its program too. OptionError for a
    `method` or `missing` that there is not; ClusterError for a device that is not this machine's;
    ExecutionError for a call that fails, unless `missing` is ``predict``: then its time stays what
    the cost model says.
    """
    for name, value, known in (("method", method, Way), ("missing", missing, Missing)):
        if value not in get_args(known):
            raise OptionError(f"{name} is '{value}'; choose {', '.join(get_args(known))}")
    report = on_progress or no_progress
    chosen = at_hand(cluster, devices, gpus=True)
    program = load_program(exported or source, training=training)
    return [_profile_device(program, group, store, method, missing, report) for group in chosen]


# -- devices -----------------------------------------------------------------------------------


def at_hand(
    cluster: Cluster, names: Sequence[str] = (), *, gpus: bool = False
) -> list[list[Device]]:
    """The devices to measure, of these names or all, those that are the same together.

    OptionError or ClusterError for one that cannot be measured, as a GPU where there are to be
    no `gpus`.
    """
    unknown = [name for name in names if name not in cluster.device_names]
    if unknown:
        raise OptionError(
            f"cluster '{cluster.name}' has no device '{unknown[0]}'; "
            f"it has {', '.join(cluster.device_names)}"
        )
    wanted = [d for d in cluster.devices if (d.name in names if names else d.run is not None)]
    if not wanted:
        raise ClusterError(
            f"no device of cluster '{cluster.name}' says what it is on this machine; add run: "
            "to it, such as run: {type: cpu, cores: [0]}, or use cluster detect"
        )
    groups: dict[str, list[Device]] = {}
    for device in wanted:
        groups.setdefault(_checked(device, gpus), []).append(device)
    return list(groups.values())


def place_of(device: Device) -> Place:
    """What a device is on this machine, where it says that; ClusterError where it is not there."""
    if isinstance(device.run, CudaRun):
        return gpu_place(device.run.index, device.name)
    assert device.run is not None
    return CpuPlace(device.run.cores)


def _checked(device: Device, gpus: bool) -> str:
    """The identity of a device of this machine."""
    if device.run is None:
        raise ClusterError(
            f"device '{device.name}' does not say what it is on this machine; add run: to it, "
            "such as run: {type: cpu, cores: [0]}"
        )
    if isinstance(device.run, CudaRun) and not gpus:
        raise ClusterError(
            f"device '{device.name}' runs on {device.run}, but only CPUs can be measured so; "
            "name the others with --device"
        )
    refuse_elsewhere(device.name, device.run.host)
    here, what = _kind_here(device)
    if device.kind != here:
        raise ClusterError(
            f"device '{device.name}' is a '{device.kind}', but {what} a '{here}'; "
            "write that as its kind, so that other machines' times are told from these"
        )
    named = identity(device)
    assert named is not None
    return named


def _kind_here(device: Device) -> tuple[str, str]:
    """What this machine has in the place of a device, and how a sentence about it begins."""
    place = place_of(device)
    if isinstance(place, CudaPlace):
        return gpu_kind(place.name), f"{device.run} of this machine is"
    return cpu_kind(examine().processor), "this machine has"


# -- one device --------------------------------------------------------------------------------


def _profile_device(
    program: Program,
    devices: Sequence[Device],
    store: ProfileStore,
    method: Way,
    missing: Missing,
    report: Progress,
) -> DeviceProfile:
    device, started = devices[0], time.perf_counter()
    named = str(identity(device))
    keys = {text: ProfileKey(text, named, program.library) for text in program.calls}
    keep_facts(program, device, store)
    known = measured_ones(store, keys.values())
    new = [text for text, key in keys.items() if key not in known]
    chosen = _method(program, device, method) if new else None
    place = place_of(device)
    busy = busy_share(device.run.cores) if new and isinstance(device.run, CpuRun) else None
    work = _Work(program, new, keys, store, device.name, place, report, missing)
    with place.entered():
        if chosen == "context":
            work.in_context()
        elif chosen == "isolated":
            work.in_isolation(new)
    return DeviceProfile(
        tuple(each.name for each in devices),
        named,
        program.library,
        chosen,
        work.measured,
        len(known),
        time.perf_counter() - started,
        work.noise,
        busy,
        work.failed,
        passes=work.passes,
        steady=work.steady,
    )


def keep_facts(program: Program, device: Device, store: ProfileStore) -> None:
    """What prediction asks beside the entries: the device's figures, how often what is called."""
    if (figures := DeviceFigures.of(device)) is not None:
        store.put_figures(str(identity(device)), figures)
    store.put_program(ProfiledProgram(program.name, program.library, program.calls))


def measured_ones(store: ProfileStore, keys: Iterable[ProfileKey]) -> dict[ProfileKey, Measured]:
    """What there is of `keys` that was measured on the device itself."""
    return {key: each for key, each in store.get(keys).items() if each.method != "regressed"}


def usable_memory(device: Device) -> float:
    """Bytes that a run in context may take on `device` of this machine."""
    place = place_of(device)
    if isinstance(place, CudaPlace):
        there = GPU_CONTEXT_SHARE * place.free_memory
    else:
        there = CONTEXT_SHARE * available_memory()
    return there if device.memory is None else min(there, device.memory)


def _method(program: Program, device: Device, method: Way) -> Method:
    """How to measure it; OptionError where a run in context is asked for that has no memory."""
    needed = program.bytes_in_context
    there = usable_memory(device)
    if method == "context" and needed > there:
        raise OptionError(
            f"running {program.name} as a whole needs {format_bytes(needed)}, and "
            f"{format_bytes(there)} may be used; use --method isolated"
        )
    if method == "isolated" or needed > there:
        return "isolated"
    return "context"


@dataclass
class _Work:
    """Measures what is `new` on the device that this thread has entered, and keeps it."""

    program: Program
    new: Sequence[str]
    keys: dict[str, ProfileKey]
    store: ProfileStore
    device: str
    place: Place
    report: Progress
    missing: Missing
    measured: int = 0
    noise: float | None = None
    passes: int = 0
    steady: int = 0
    memory: Mapping[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def in_context(self) -> None:
        """All at once; what has been seen often enough is kept at intervals."""
        last = time.perf_counter()

        def heard(done: int, share: float, samples: Callable[[], Samples]) -> None:
            nonlocal last
            self.report(f"{self.device}: pass {done}", share)
            if time.perf_counter() - last > KEPT_SECONDS:
                self._keep_seen(samples(), FEWEST)
                last = time.perf_counter()

        found = self.program.in_context(self.place, heard)
        low, middle, high = np.percentile(found.passes, (5, 50, 95))
        self.noise = float((high - low) / middle) if middle else 0.0
        self.passes, self.steady = found.ran, found.steady
        self.memory = found.memory
        self._keep_seen(found.samples, 1)
        self.in_isolation([text for text in self.new if not found.samples.get(text)])

    def in_isolation(self, calls: Sequence[str]) -> None:
        done: list[tuple[str, list[float], Method]] = []
        last = time.perf_counter()
        try:
            for count, text in enumerate(calls):
                self.report(f"{self.device}: {count + 1} of {len(calls)}", count / len(calls))
                try:
                    done.append((text, self.program.alone(text, self.place), "isolated"))
                except ExecutionError as error:
                    if self.missing == "refuse":
                        raise
                    self.failed[text] = str(error)
                if time.perf_counter() - last > KEPT_SECONDS:
                    self._keep(done)
                    done, last = [], time.perf_counter()
        finally:  # whatever ends it
            self._keep(done)

    def _keep_seen(self, samples: Samples, fewest: int) -> None:
        seen = ((text, samples.get(text, [])) for text in self.new)
        self._keep((text, each, "context") for text, each in seen if len(each) >= fewest)

    def _work(self, text: str, method: Method) -> tuple[Cost, float]:
        """What the call has to do, and what was moved before it; nothing where it is repeated."""
        work = self.program.work(text)
        return work, self.program.bytes_before[text] if method == "context" else 0.0

    def _keep(self, found: Iterable[tuple[str, list[float], Method]]) -> None:
        self.measured += self.store.put(
            {
                self.keys[text]: summary(
                    samples, method, *self._work(text, method), self.memory.get(text, 0.0)
                )
                for text, samples, method in found
            }
        )


def summary(
    samples: Sequence[float],
    method: Method,
    work: Cost | None = None,
    before: float = 0.0,
    memory: float = 0.0,
) -> Measured:
    """The entry of some samples: the median, and what nine tenths of them lie between.

    `work` is what the call has to do, where predictions may be made from it, `before` the bytes
    that calls moved since the last of its op, and `memory` those beyond its inputs and outputs.
    """
    low, high = np.percentile(samples, (5, 95))
    middle = statistics.median(samples)
    return Measured(
        middle,
        min(float(low), middle),
        max(float(high), middle),
        len(samples),
        method,
        memory,
        flops=work.flops if work else 0.0,
        bytes_read=work.bytes_read if work else 0.0,
        bytes_written=work.bytes_written if work else 0.0,
        dtype=work.dtype if work else "",
        bytes_before=before,
    )
