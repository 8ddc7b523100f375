"""Celeritas on training graphs of tens of thousands of ops: its Tables 2, 3 and 4, simulated.

    python benchmarks/celeritas.py [SOURCE ...]

One training step (forward and backward) on preset `celeritas`: four V100 with 32 GB over PCIe.
Batches are such that the model needs two of them or more, as in the paper's experiments.

1. Ops and communication-to-computation ratio before and after operation fusion (Table 2). Ops
   that are colocated never send each other anything; the last column counts that too, as if
   there were no colocation.
2. Simulated seconds per step, under the cluster's contention, every plan judged (Table 3); the
   last column is by how much Celeritas is below the next best, order-place aside, as there.
3. Seconds to place, kernels warm, from the problem to a placement of every op (Table 4).

Where the paper says OOM there is "no room": the planner found no placement within memory. HRL,
which the paper gave 5 hours, Placeto and our default planner have LIMIT seconds each, the clock
running from the problem to the judged plan. It takes ten minutes or so.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from placewright import planners
from placewright.analysis.orders import mean_edge_time
from placewright.budget import Budget, no_progress
from placewright.coarsen.contraction import contract
from placewright.coarsen.sequential import ccr, sequential_groups
from placewright.errors import InfeasibleError, MissingExtraError
from placewright.plan import Plan
from placewright.planning import make_problem, plan_problem
from placewright.problem import Problem

SOURCES = (
    "zoo:gpt3-330m?granularity=head&layers=72&batch=4",
    "zoo:gpt3-2.7b?granularity=head&layers=40&batch=2",
    "zoo:t5-large?granularity=head&layers=40&batch=32",
    "zoo:inception-v3?batch=512",
)
CLUSTER = "celeritas"
NAMES = ("metis", "memory-fill", "m-topo", "m-etf", "m-sct", "heft", "order-place", "celeritas")
LIMITED = ("hrl", "placeto", "auto")
LIMIT = 60.0
WARM_UP = "zoo:googlenet"
REPEATS = 5

Step = Plan | str
"""The judged plan, or why there is none."""


def main(sources: list[str]) -> None:
    small, _ = make_problem(WARM_UP, CLUSTER, training=True)
    for name in (*NAMES, *LIMITED):
        step(name, small, 2.0)  # compiles what is not compiled yet
    problems = {
        source: make_problem(source, CLUSTER, training=True)[0] for source in sources or SOURCES
    }
    console = Console(width=160)
    console.print(fusion_table(problems))
    for table in planner_tables(problems):
        console.print(table)


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


def planner_tables(problems: dict[str, Problem]) -> tuple[Table, Table]:
    names = (*NAMES, *LIMITED)
    steps = titled("simulated seconds per step (Celeritas Table 3)", "model", (*names, "speed up"))
    seconds = titled("seconds to place, warm (Celeritas Table 4)", "model", names)
    for source, problem in problems.items():
        found = {name: step(name, problem) for name in names}
        best = min((each.value for each in found.values() if isinstance(each, Plan)), default=None)
        steps.add_row(source, *(shown(each, best) for each in found.values()), speed_up(found))
        seconds.add_row(source, *(placing(name, each) for name, each in found.items()))
    return steps, seconds


def step(name: str, problem: Problem, limit: float = LIMIT) -> Step:
    """What a planner comes to, those in LIMITED in so many seconds."""
    try:
        seconds = limit if name in LIMITED else float("inf")
        return plan_problem(problem, planner=name, time_limit=seconds)
    except InfeasibleError:
        return "no room"
    except MissingExtraError:
        return "not installed"


def placing(name: str, found: Step) -> str:
    """Least seconds of several runs, each with a planner and a problem that know nothing yet."""
    if isinstance(found, str):
        return "-"
    if name in LIMITED:
        return f"{found.seconds:.2f}"
    least = float("inf")
    for _ in range(REPEATS):
        planner, fresh = planners.create(name), replace(found.problem)
        started = time.perf_counter()
        planner.plan(fresh, Budget(), 0, no_progress)
        least = min(least, time.perf_counter() - started)
    return f"{least:.2f}"


def speed_up(found: dict[str, Step]) -> str:
    """By how much Celeritas is below the next best of the paper's; negative if that is better."""
    ours = found["celeritas"]
    others = [
        each.value
        for name, each in found.items()
        if name not in ("celeritas", "order-place", "auto") and isinstance(each, Plan)
    ]
    if not others or isinstance(ours, str):
        return "-"
    return f"{1 - ours.value / min(others):+.1%}"


def shown(found: Step, best: float | None) -> str:
    if isinstance(found, str):
        return found
    return f"[bold]{found.value:.3f}[/bold]" if found.value == best else f"{found.value:.3f}"


def titled(title: str, first: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title)
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right")
    return table


if __name__ == "__main__":
    main(sys.argv[1:])
