"""Profiling the groups that ``--coarsen fusion`` makes: what each takes when it is compiled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from placewright.cluster import Cluster, CpuRun, Device
from placewright.coarsen.fusion import fusion_groups
from placewright.costs.catalog import complete
from placewright.costs.profiles.entry import Missing, ProfileKey
from placewright.costs.profiles.fused import fused_groups
from placewright.costs.profiles.lookup import identity, library_of
from placewright.costs.profiles.profiling import DeviceProfile, at_hand, summary
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.roofline import CostOptions, build_problem
from placewright.errors import ExecutionError
from placewright.options import Options
from placewright.system.pinning import pinned

if TYPE_CHECKING:
    from placewright.costs.profiles.profiling import Progress
    from placewright.importers.torch.once import Source
    from placewright.importers.torch.programs import Executable


def profile_groups(
    source: str,
    cluster: Cluster,
    store: ProfileStore,
    *,
    devices: Sequence[str] = (),
    training: bool = False,
    missing: Missing = "refuse",
    on_progress: Progress | None = None,
    exported: Source | None = None,
) -> list[DeviceProfile]:
    """Measure every distinct group of `source` that is fused, compiled by Inductor.

    The arguments are those of `profile`, which measures single ops. What is measured is kept at
    once. OptionError where there is no C++ compiler; ExecutionError for a group that fails, unless
    `missing` is ``predict``.
    """
    from placewright.costs.profiles.compiling import check_compiler
    from placewright.importers.torch.once import Source

    check_compiler()
    chosen = at_hand(cluster, devices)
    exported = exported or Source(source, training=training)
    executable, graph = exported.executable, exported.graph
    problem = build_problem(graph, complete(cluster), Options(), CostOptions(profiles=None))
    groups: dict[str, list[str]] = {}
    for ops, signature in fused_groups(graph, fusion_groups(problem)).items():
        groups.setdefault(signature, [graph.op_names[op] for op in ops])
    library, report = library_of(graph), on_progress or (lambda what, done: None)
    return [_profile(executable, groups, same, library, store, missing, report) for same in chosen]


def _profile(
    executable: Executable,
    groups: dict[str, list[str]],
    devices: Sequence[Device],
    library: str,
    store: ProfileStore,
    missing: Missing,
    report: Progress,
) -> DeviceProfile:
    from placewright.costs.profiles.compiling import GroupClock

    device, started = devices[0], time.perf_counter()
    named = str(identity(device))
    keys = {signature: ProfileKey(signature, named, library) for signature in groups}
    known = store.get(keys.values())
    new = [signature for signature in groups if keys[signature] not in known]
    failed: dict[str, str] = {}
    assert isinstance(device.run, CpuRun)
    with pinned(device.run.cores):
        clock = GroupClock(executable) if new else None
        for count, signature in enumerate(new):
            report(f"{device.name}: group {count + 1} of {len(new)}", count / len(new))
            assert clock is not None
            try:
                samples = clock.samples(groups[signature])
            except ExecutionError as error:
                if missing == "refuse":
                    raise
                failed[signature] = str(error)
            else:
                store.put({keys[signature]: summary(samples, "isolated")})
    return DeviceProfile(
        tuple(each.name for each in devices),
        named,
        library,
        "isolated" if new else None,
        len(new) - len(failed),
        len(known),
        time.perf_counter() - started,
        failed=failed,
        compiled=True,
    )
