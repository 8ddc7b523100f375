"""Tuning: plan, run, learn from the run, plan again, as long as the measured time improves.

Rounds differ by what the plan expects: each run's times of ops go to the store, and its links into
the cluster (see `calibrate`), and the next plan starts from the best so far. What counts is what
was measured: a plan that was predicted faster and ran slower is not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from placewright.cluster import Cluster
from placewright.costs.clusters import load_cluster
from placewright.costs.profiles.profiling import profile
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.roofline import CostOptions
from placewright.errors import OptionError
from placewright.graph import Graph, Ints
from placewright.importers import Imported, load
from placewright.plan import Plan
from placewright.planning import AUTO
from placewright.planning import plan as make_plan
from placewright.runtime.plans import run_plan
from placewright.runtime.results import RunReport
from placewright.runtime.tuning.calibrate import CalibrationReport, calibrate
from placewright.runtime.tuning.link_correction import corrected

if TYPE_CHECKING:
    from placewright.budget import Progress

    Runner = Callable[[Plan], RunReport]

ROUNDS = 3
PATIENCE = 2  # rounds without improvement: what one learns of ops it moved helps the next


@dataclass(frozen=True)
class Round:
    """One plan, its run, and what was learnt from that; `kept`: it was the fastest so far."""

    number: int
    plan: Plan
    report: RunReport
    calibration: CalibrationReport
    kept: bool

    @property
    def predicted(self) -> float:
        return self.plan.value

    @property
    def measured(self) -> float:
        return self.report.measured

    @property
    def error(self) -> float:
        """|predicted / measured - 1|."""
        return abs(self.predicted / self.measured - 1) if self.measured else 0.0


@dataclass(frozen=True)
class Tuning:
    """All rounds, and the last that was kept: the plan of the least measured time."""

    rounds: tuple[Round, ...]

    @property
    def best(self) -> Round:
        return next(each for each in reversed(self.rounds) if each.kept)


@dataclass(frozen=True)
class TuneOptions:
    """At most so many `rounds`, in each so many seconds of planning (`time_limit`).

    Ops that the store does not know are measured before the first, unless `measure_first` is
    False: then its plan goes by datasheets and predictions.
    """

    rounds: int = ROUNDS
    planner: str = AUTO
    time_limit: float = float("inf")
    seed: int = 0
    training: bool = False
    measure_first: bool = True

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise OptionError(f"rounds is {self.rounds}; it must be at least 1")


def tune(
    source: str | Imported,
    cluster: Cluster | str | Path,
    store: ProfileStore,
    options: TuneOptions | None = None,
    *,
    run: Runner | None = None,
    on_round: Callable[[Round], None] | None = None,
    on_progress: Progress | None = None,
) -> Tuning:
    """Look for the plan of `source` on `cluster` that takes least when it is run, by running it.

    It ends after `PATIENCE` rounds in a row that did not improve on the measured time, with a plan
    that was run already, or after so many rounds. What is measured stays in `store`. `run` runs a
    plan (`run_plan` on this machine if none); `on_round` is told of each round.

    Raises what `profile`, `plan`, `run_plan` and `calibrate` raise.
    """
    options = options or TuneOptions()
    cluster = cluster if isinstance(cluster, Cluster) else load_cluster(cluster)
    if options.measure_first:
        name = source if isinstance(source, str) else source.source
        profile(name, cluster, store, training=options.training, on_progress=on_progress)
    imported = load(source, training=options.training) if isinstance(source, str) else source
    runner = run or partial(run_plan, on_progress=on_progress)
    rounds: list[Round] = []
    best: Round | None = None
    while len(rounds) < options.rounds:
        planned = _planned(imported, cluster, store, options, best, on_progress)
        before = next((each for each in rounds if is_same(each.plan, planned)), None)
        if before is not None and before is not best:
            break  # what it takes is known, and that it is not the fastest
        done = _round(len(rounds) + 1, planned, runner(planned), best, store, imported.graph)
        rounds.append(done)
        best = done if done.kept else best
        if on_round is not None:
            on_round(done)
        if before is not None or not any(each.kept for each in rounds[-PATIENCE:]):
            break
        cluster = corrected(cluster, done.calibration.links)
    return Tuning(tuple(rounds))


def _planned(
    imported: Imported,
    cluster: Cluster,
    store: ProfileStore,
    options: TuneOptions,
    best: Round | None,
    on_progress: Progress | None,
) -> Plan:
    """A plan with the costs known by now, from the best plan so far."""
    return make_plan(
        imported,
        cluster,
        planner=options.planner,
        objective="latency",
        costs=CostOptions(profiles=store.path),
        time_limit=options.time_limit,
        seed=options.seed,
        warm_start=None if best is None else best.plan,
        on_progress=on_progress,
    )


def _round(
    number: int,
    plan: Plan,
    report: RunReport,
    best: Round | None,
    store: ProfileStore,
    graph: Graph,
) -> Round:
    """What a run taught. Of two runs of one plan the faster counts, with the newer costs."""
    calibration = calibrate(plan, report, store, graph=graph)
    if best is not None and is_same(best.plan, plan) and best.measured < report.measured:
        report = replace(best.report, predicted=plan.value)
    kept = best is None or report.measured <= best.measured
    return Round(number, plan, report, calibration, kept)


def is_same(one: Plan, other: Plan) -> bool:
    """Whether a run of both does the same: ops on the same devices, in the same order on each."""
    same = np.array_equal(one.placement.device, other.placement.device)
    return same and all(
        np.array_equal(_in_order(one, ops), _in_order(other, ops)) for ops in one.device_ops
    )


def _in_order(plan: Plan, ops: Ints) -> Ints:
    return ops[np.argsort(plan.schedule.op_start[ops], kind="stable")]
