"""DiviML's comparison on randomly wired networks, in the shape of Table I: latency and seconds.

    python benchmarks/diviml.py [--modules 10] [--ops 10,32] [--channels 1,2] [--time-limit 60]

Networks of random modules (`zoo:rwnn`) on the cluster ``diviml``, without contention, for both
kinds of dependency. A cell is the simulated latency in ms and the seconds that planning took
(kernels warm); the bound is the best that any of the planners proved.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from placewright import planners
from placewright.errors import PlacewrightError
from placewright.plan import Plan
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.solving import solve

PLANNERS = (
    "single-device", "met", "greedy", "heft", "one-plus-one-ea", "annealing", "diviml-milp",
    "milp-split",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modules", default="10", help="numbers of modules, parted by commas")
    parser.add_argument("--ops", default="10", help="ops in a module, parted by commas")
    parser.add_argument("--channels", default="1,2", help="between modules, parted by commas")
    parser.add_argument("--planners", default=",".join(PLANNERS), help="names, parted by commas")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each planner")
    arguments = parser.parse_args()
    names = arguments.planners.split(",")
    table = Table(title="latency in ms (seconds of planning)")
    for column in ("network", "ops", *names, "lower bound"):
        table.add_column(column, justify="left" if column == "network" else "right")
    planned(rwnn(1, 5, 1, "sdep"), names, 1.0)  # compiles what is not compiled yet
    for modules in numbers(arguments.modules):
        for ops in numbers(arguments.ops):
            for channels in numbers(arguments.channels):
                for dependency in ("sdep", "wdep"):
                    problem = rwnn(modules, ops, channels, dependency)
                    title = f"{modules} × {ops}, {channels} ch., {dependency}"
                    plans = planned(problem, names, arguments.time_limit)
                    table.add_row(title, str(problem.op_count), *cells(plans))
    Console(width=220).print(table)


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def rwnn(modules: int, ops: int, channels: int, dependency: str) -> Problem:
    query = f"modules={modules}&ops={ops}&channels={channels}&dependency={dependency}"
    return make_problem(f"zoo:rwnn?{query}", "diviml", {"contention": "none"})[0]


def planned(problem: Problem, names: list[str], seconds: float) -> list[Plan | str]:
    """A plan of each planner, or why there is none."""
    found: list[Plan | str] = []
    for name in names:
        entry = planners.entry(name)
        limit = float("inf") if entry.quick else seconds
        try:
            found.append(solve(problem, name, time_limit=limit))
        except PlacewrightError as error:
            found.append(str(error))
    return found


def cells(plans: list[Plan | str]) -> list[str]:
    row = [
        "-" if isinstance(each, str) else f"{each.value * 1e3:.3f} ({each.seconds:.2f})"
        for each in plans
    ]
    bounds = [each.lower_bound for each in plans if not isinstance(each, str)]
    return [*row, f"{max(bounds) * 1e3:.3f}" if bounds else "-"]


if __name__ == "__main__":
    main()
