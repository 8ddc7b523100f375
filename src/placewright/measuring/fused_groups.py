"""Profiling the groups that ``--coarsen fusion`` makes: what each takes when it is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from placewright.budget import Progress, no_progress
from placewright.cluster import Cluster
from placewright.coarsen.fusion import fusion_groups
from placewright.costs.catalog import complete
from placewright.costs.profiles.alone import Clock, profile_alone
from placewright.costs.profiles.entry import Missing
from placewright.costs.profiles.fused import fused_groups
from placewright.costs.profiles.lookup import library_of
from placewright.costs.profiles.profiling import DeviceProfile, at_hand
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.roofline import CostOptions, build_problem
from placewright.options import Options
from placewright.system.accelerators.places import Place

if TYPE_CHECKING:
    from placewright.importers.torch.once import Source


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
    from placewright.costs.profiles.compiling import GroupClock, check_compiler
    from placewright.importers.torch.once import Source

    check_compiler()
    chosen = at_hand(cluster, devices)
    exported = exported or Source(source, training=training)
    executable, graph = exported.executable, exported.graph
    problem = build_problem(graph, complete(cluster), Options(), CostOptions(profiles=None))
    groups: dict[str, list[str]] = {}
    for ops, signature in fused_groups(graph, fusion_groups(problem)).items():
        groups.setdefault(signature, [graph.op_names[op] for op in ops])
    library, report = library_of(graph), on_progress or no_progress

    def start(place: Place) -> Clock:
        clock = GroupClock(executable)
        return lambda signature: clock.samples(groups[signature])

    found = (
        profile_alone("group", groups, start, same, library, store, missing=missing, report=report)
        for same in chosen
    )
    return [replace(each, compiled=True) for each in found]
