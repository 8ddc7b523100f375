"""How fast the latency simulator and HEFT are: ns per op, evaluations and plans per second.

    python benchmarks/simulator.py [WORKLOAD.json ...]

One thread, kernels warm. Per graph and contention option: the makespan-only evaluation that
search calls, on HEFT's placement and on one drawn at random (where most tensors cross devices);
the full schedule; and HEFT itself, from a problem to a placement with its order.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from placewright.budget import Budget, no_progress
from placewright.cluster import Cluster
from placewright.costs.clusters import load_cluster
from placewright.importers import load
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.timing import repeat_timing
from placewright.plan import Placement
from placewright.planners import create
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.simulate.latency import schedule_placement, time_placement

SOURCES = ("zoo:googlenet", "zoo:gpt2", "zoo:gpt3-330m", "zoo:gpt3-13b", "zoo:alphafold2-3.2b")
CLUSTER = "moirai-inter-server"
EVALUATED_OPS = 4_000_000


def main(files: list[str]) -> None:
    table = Table(title="latency simulator, one thread, warm")
    columns = ("ops", "edges", "contention", "HEFT", "schedule ns/op", "eval ns/op (HEFT)",
               "eval/s", "eval ns/op (random)", "eval/s")  # fmt: skip
    table.add_column("graph")
    for column in columns:
        table.add_column(column, justify="right")
    for source in [*files, *SOURCES]:
        for contention in ("none", "port"):
            table.add_row(*measure(source, contention))
    Console(width=170).print(table)


def measure(source: str, contention: str) -> list[str]:
    imported = load(source)
    cluster = imported.cluster or large_enough(load_cluster(CLUSTER))
    problem, _ = make_problem(imported, cluster, {"contention": contention})
    heft = create("heft")
    placement = heft.plan(problem, Budget(), 0, no_progress).placement
    fresh, _ = make_problem(imported, cluster, {"contention": contention})
    planning = best_of(1, lambda: heft.plan(fresh, Budget(), 0, no_progress))
    scheduling = best_of(5, lambda: time_placement(problem, placement)) / problem.op_count * 1e9
    units = np.random.default_rng(0).integers(0, problem.device_count, problem.unit_count)
    at_random = schedule_placement(problem, units[problem.op_unit].astype(np.int32))
    cells = []
    for each in (placement, at_random):
        seconds = evaluation(problem, each)
        cells += [f"{seconds / problem.op_count * 1e9:.1f}", f"{1 / seconds:,.0f}"]
    counts = [f"{problem.op_count:,}", f"{problem.edge_count:,}"]
    name = source.rpartition("/")[2]
    return [name, *counts, contention, f"{planning * 1e3:.1f} ms", f"{scheduling:.0f}", *cells]


def evaluation(problem: Problem, placement: Placement) -> float:
    """Seconds per makespan-only evaluation."""
    arrays, repeats = arrays_of(problem), max(1, EVALUATED_OPS // problem.op_count)
    repeat_timing(arrays, placement.device, placement.sequence, 1)
    run = lambda: repeat_timing(arrays, placement.device, placement.sequence, repeats)  # noqa: E731
    return best_of(3, run) / repeats


def best_of(times: int, run: Callable[[], object]) -> float:
    found = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        run()
        found = min(found, time.perf_counter() - started)
    return found


def large_enough(cluster: Cluster) -> Cluster:
    """The same devices with memory for any model, so that memory decides nothing here."""
    from dataclasses import replace

    devices = tuple(replace(device, memory=1e15) for device in cluster.devices)
    return replace(cluster, devices=devices)


if __name__ == "__main__":
    main(sys.argv[1:])
