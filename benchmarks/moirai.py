"""Moirai's Figure 10 and Table V on our planners: makespan and placement time.

    python benchmarks/moirai.py [--models swin,gpt3,alphafold2] [--planners a,b] [--largest]

Swin, GPT-3 and AlphaFold2 at the sizes of Table IV, on both testbeds of Table III, with
contention on ports (eq. 8); as they are, and coarsened by fusion. A cell is the simulated
makespan over the best of its row, and the seconds that planning took (kernels warm).
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from placewright import planners
from placewright.importers import load
from placewright.importers.zoo import entries
from placewright.planning import make_problem
from placewright.solving import Comparison, compare

CLUSTERS = ("moirai-inter-server", "moirai-intra-server")
SIZES = {
    "swin": ("swin-1.8b", "swin-6.6b", "swin-13b"),
    "gpt3": ("gpt3-330m", "gpt3-1.3b", "gpt3-2.7b", "gpt3-13b"),
    "alphafold2": ("alphafold2-87m", "alphafold2-930m", "alphafold2-2.4b", "alphafold2-3.2b"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(SIZES), help="families, parted by commas")
    parser.add_argument("--planners", default="", help="names, parted by commas (the quick ones)")
    parser.add_argument("--largest", action="store_true", help="the largest size of each only")
    arguments = parser.parse_args()
    names = arguments.planners.split(",") if arguments.planners else quick()
    known = {entry.name for entry in entries()}
    models = [
        model
        for family in arguments.models.split(",")
        for model in (SIZES[family][-1:] if arguments.largest else SIZES[family])
        if model in known
    ]
    compare_all("zoo:gpt2", CLUSTERS[0], "none", names)  # compiles what is not compiled yet
    for cluster in CLUSTERS:
        for coarsening in ("none", "fusion"):
            table = Table(title=f"{cluster}, coarsening {coarsening}: makespan over best (seconds)")
            for column in ("model", "ops", "best", *names):
                table.add_column(column, justify="left" if column == "model" else "right")
            for model in models:
                table.add_row(*row(model, cluster, coarsening, names))
            Console(width=200).print(table)


def quick() -> list[str]:
    return [entry.name for entry in planners.TABLE if entry.quick]


def compare_all(source: str, cluster: str, coarsening: str, names: list[str]) -> list[Comparison]:
    problem, _ = make_problem(load(source), cluster, {"contention": "port"})
    return compare(problem, names, coarsening=coarsening)


def row(model: str, cluster: str, coarsening: str, names: list[str]) -> list[str]:
    lines = compare_all(f"zoo:{model}", cluster, coarsening, names)
    plans = {line.planner: line.plan for line in lines if line.plan is not None}
    best = min(plan.value for plan in plans.values())
    ops = next(iter(plans.values())).problem.op_count
    cells = [
        f"{plans[name].value / best:.2f} ({plans[name].seconds:.2f})" if name in plans else "-"
        for name in names
    ]
    return [model, f"{ops:,}", f"{best:.3f} s", *cells]


if __name__ == "__main__":
    main()
