"""Celeritas on training graphs of tens of thousands of ops: its Tables 2, 3 and 4, simulated.

    python benchmarks/celeritas.py [SOURCE ...]

One training step (forward and backward) on preset `celeritas`: four V100 with 32 GB over PCIe.
Batches are such that the model needs two of them or more, as in the paper's experiments.

1. Ops and communication-to-computation ratio before and after operation fusion (Table 2). Ops
   that are colocated never send each other anything; the last column counts that too, as if
   there were no colocation.
2. Simulated seconds per step, under the cluster's contention, every plan judged (Table 3).
3. Seconds to place, kernels warm, from the problem to a placement of every op (Table 4).
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from placewright import planners
from placewright.coarsen.contraction import contract
from placewright.coarsen.orders import mean_edge_time
from placewright.coarsen.sequential import ccr, sequential_groups
from placewright.errors import InfeasibleError, MissingExtraError
from placewright.planners.base import Budget, Planner, no_progress
from placewright.planners.celeritas import Celeritas, OrderPlace
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.solving import solve

SOURCES = (
    "zoo:gpt3-330m?granularity=head&layers=72&batch=4",
    "zoo:gpt3-2.7b?granularity=head&layers=40&batch=2",
    "zoo:t5-large?granularity=head&layers=40&batch=32",
    "zoo:inception-v3?batch=512",
)
CLUSTER = "celeritas"
NAMES = ("metis", "memory-fill", "m-topo", "m-etf", "m-sct", "heft", "order-place", "celeritas")
WARM_UP = "zoo:googlenet"
REPEATS = 3


def main(sources: list[str]) -> None:
    chosen = {name: planner for name in NAMES if (planner := planner_named(name)) is not None}
    small, _ = make_problem(WARM_UP, CLUSTER, training=True)
    for planner in chosen.values():
        step(planner, small)
    problems = {
        source: make_problem(source, CLUSTER, training=True)[0] for source in sources or SOURCES
    }
    console = Console(width=150)
    console.print(fusion_table(problems))
    steps, seconds = planner_tables(problems, chosen)
    console.print(steps)
    console.print(seconds)


def planner_named(name: str) -> Planner | None:
    """The planner, or None if this version has none of that name or lacks what it needs."""
    own = {"celeritas": Celeritas, "order-place": OrderPlace}
    if name in own:
        return own[name]()
    try:
        return planners.create(name) if name in {row.name for row in planners.TABLE} else None
    except MissingExtraError:
        return None


def fusion_table(problems: dict[str, Problem]) -> Table:
    columns = ("ops", "groups", "fewer", "CCR", "after", "lower", "lower, all tensors")
    table = titled("operation fusion (Celeritas Table 2)", "model", columns)
    for source, problem in problems.items():
        coarse = contract(problem, sequential_groups(problem)).problem
        before, after = ccr(problem), ccr(coarse)
        everything = mean_edge_time(problem).sum() / mean_edge_time(coarse).sum()
        table.add_row(
            source,
            f"{problem.op_count:,}",
            f"{coarse.op_count:,}",
            f"{problem.op_count / coarse.op_count:.0f}×",
            f"{before:.2f}",
            f"{after:.3f}",
            f"{before / after:.1f}×",
            f"{everything:.1f}×",
        )
    return table


def planner_tables(problems: dict[str, Problem], chosen: dict[str, Planner]) -> tuple[Table, Table]:
    steps = titled("simulated seconds per step (Celeritas Table 3)", "model", tuple(chosen))
    seconds = titled("seconds to place, warm (Celeritas Table 4)", "model", tuple(chosen))
    for source, problem in problems.items():
        values = {name: step(planner, problem) for name, planner in chosen.items()}
        best = min((value for value in values.values() if value is not None), default=None)
        steps.add_row(source, *(shown(value, best) for value in values.values()))
        seconds.add_row(
            source,
            *(
                "-" if values[name] is None else f"{placing(planner, problem):.2f}"
                for name, planner in chosen.items()
            ),
        )
    return steps, seconds


def step(planner: Planner, problem: Problem) -> float | None:
    """The makespan of the judged plan, or None if the planner found none that fits."""
    try:
        return solve(problem, planner).value
    except (InfeasibleError, MissingExtraError):
        return None


def placing(planner: Planner, problem: Problem) -> float:
    """Least seconds of several runs, each on a problem that has nothing computed yet."""
    least = float("inf")
    for _ in range(REPEATS):
        fresh = replace(problem)
        started = time.perf_counter()
        planner.plan(fresh, Budget(), 0, no_progress)
        least = min(least, time.perf_counter() - started)
    return least


def shown(value: float | None, best: float | None) -> str:
    if value is None:
        return "no room"
    return f"[bold]{value:.3f}[/bold]" if value == best else f"{value:.3f}"


def titled(title: str, first: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title)
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right")
    return table


if __name__ == "__main__":
    main(sys.argv[1:])
