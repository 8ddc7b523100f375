"""`plan`: from a source and a cluster to one verified plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.cluster import Cluster
from placewright.costs.catalog import load_cluster
from placewright.costs.roofline import CostOptions, build_problem
from placewright.errors import InputError, OptionError
from placewright.graph import Graph
from placewright.importers import Imported, load
from placewright.options import chosen_options
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.solving import best_of, compare, solve

if TYPE_CHECKING:
    from placewright.planners.base import Progress

AUTO = "auto"
DEFAULT_COSTS = CostOptions()

Source = str | Path | Graph | Imported | Problem


def plan(
    source: Source,
    cluster: Cluster | str | Path | None = None,
    *,
    planner: str = AUTO,
    objective: str | None = None,
    training: bool = False,
    costs: CostOptions = DEFAULT_COSTS,
    pinned: Mapping[str, str] | None = None,
    planner_options: Mapping[str, str] | None = None,
    coarsening: str = "none",
    time_limit: float = float("inf"),
    seed: int = 0,
    on_progress: Progress | None = None,
    **options: Any,
) -> Plan:
    """Plan `source` on `cluster` and return a verified `Plan`.

    `source` is a file, ``zoo:NAME``, ``torch:PACKAGE.MODULE:FACTORY``, ``hf:CONFIG``, a `Graph`
    or a ready `Problem`. `cluster` is a preset's name, a file or a `Cluster`; a published
    workload brings its own. `options` are fields of `Options`, such as ``contention="port"``;
    those left out are the source's own, else the defaults. `planner` ``auto`` takes the best of
    the quick planners for the objective.

    Raises InputError for what cannot be used and InfeasibleError where no plan can exist or the
    planner found none.

    >>> p = plan("zoo:gpt2", "2x3090", planner="heft")
    >>> p.planner, p.lower_bound <= p.value
    ('heft', True)
    """
    given = {**options, "objective": objective}
    problem, source_name = make_problem(
        source, cluster, given, training=training, costs=costs, pinned=pinned
    )
    if planner == AUTO:
        if planner_options:
            raise OptionError("planner 'auto' has no options; name one planner to give it options")
        return best_of(
            compare(
                problem,
                coarsening=coarsening,
                time_limit=time_limit,
                seed=seed,
                source=source_name,
                on_progress=on_progress,
            )
        )
    return solve(
        problem,
        planner,
        planner_options=planner_options,
        coarsening=coarsening,
        time_limit=time_limit,
        seed=seed,
        source=source_name,
        on_progress=on_progress,
    )


def make_problem(
    source: Source,
    cluster: Cluster | str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    training: bool = False,
    costs: CostOptions = DEFAULT_COSTS,
    pinned: Mapping[str, str] | None = None,
) -> tuple[Problem, str]:
    """The problem of a source on a cluster, and the source's name for the plan's provenance."""
    if isinstance(source, Problem):
        if cluster is not None or pinned or any((options or {}).values()):
            raise OptionError("a Problem has its devices and options already; give a graph instead")
        return source, source.name
    if isinstance(source, Graph):
        source = Imported(source, source=source.name)
    if not isinstance(source, Imported):
        source = load(source, training=training)
    if isinstance(cluster, (str, Path)):
        cluster = load_cluster(str(cluster))
    cluster = cluster or source.cluster
    if cluster is None:
        raise InputError(
            f"{source.source} has no devices of its own; name a cluster (--cluster), "
            "such as 2x3090, this-machine or a file"
        )
    chosen = chosen_options(source.options, options or {})
    return build_problem(source.graph, cluster, chosen, costs, pinned), source.source
