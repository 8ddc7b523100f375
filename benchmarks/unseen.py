"""The default planner on networks that nobody tuned it on: families drawn by seed.

    python benchmarks/unseen.py [--seeds 0:28] [--chunks 4] [--host 12] [--seconds 10]
        [--against lns,milp-split] [--reference FILE [--make-reference SECONDS]] [--json FILE]

Each seed is an instance of `unseen_families`: a family, an objective, 2 to 8 equal or unequal
devices, loose or tight memory; with ``--chunks`` the network is there so many times, weights
shared, as chunks of a batch go through it, and with ``--host`` tensors take time on their way
through host memory (a file of references is then for these). For each: the value, bound and gap of
`auto` in so many seconds and how many cores it used; its value over the best of the other planners
given the same seconds (``--against``; ``all`` for every one of the objective), but where the bound
leaves them less than 0.5 %; and its value over the reference. A reference is the best value and
bound of a run of `auto` for ``--make-reference`` seconds, each kept if it is better than what the
file has. `unseen_reference.json` has seeds 0 to 39: of as long as it took to prove them, else of
240 s beside other work; those of 0, 3, 5, 24, 25 and 26 are of luckier runs of 12 to 30 s, those
of 21 and 22 of `annealing` with a free order in 30 s and the best of four in 3 s.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table
from unseen_families import instance

from placewright import planners
from placewright.errors import InfeasibleError, OptionError
from placewright.plan import Plan
from placewright.planning import plan_problem
from placewright.problem import Problem
from placewright.solving import solve

CLOSE, CLOSE_ENOUGH = 0.005, 0.02  # of the reference: for nearly all, and for all
WORST = 10  # that are named


@dataclass(frozen=True)
class Row:
    """Milliseconds, but `cores`; ratios are `auto`'s value over others', None without these."""

    seed: int
    name: str
    value: float
    bound: float
    gap: float
    cores: float
    best_other: str
    over_other: float | None
    over_reference: float | None

    def cells(self) -> list[str]:
        ratios = (self.over_other, self.over_reference)
        shown = ["-" if each is None else f"{each:.4f}" for each in ratios]
        figures = [f"{self.value:.4f}", f"{self.bound:.4f}", f"{self.gap:.2%}", f"{self.cores:.2f}"]
        return [self.name, *figures, self.best_other, *shown]


COLUMNS = ("instance", "value", "bound", "gap", "cores", "best other", "over it", "over reference")


def main() -> None:
    arguments = parsed()
    reference = read_reference(arguments.reference)
    rows: list[Row] = []
    for seed in arguments.seeds:
        name, problem = instance(seed, arguments.chunks, arguments.host)
        try:
            if arguments.make_reference is not None:
                plan = plan_problem(problem, time_limit=arguments.make_reference)
                keep(reference, seed, plan)
                write(arguments.reference, reference)
                print(f"{name}: {plan.value * 1e3:.5f} ms, gap {plan.gap:.2%}", flush=True)
                continue
            rows.append(row(seed, name, problem, arguments, reference))
        except InfeasibleError as error:  # tight memory may leave no plan
            print(f"{name}: {error}", flush=True)
            continue
        print(*rows[-1].cells(), sep=" | ", flush=True)
        if arguments.json:
            write(arguments.json, [asdict(each) for each in rows])
    if rows:
        Console(width=170).print(table_of(rows), *findings(rows), sep="\n")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seeds", default="0:28", help="FIRST:END, the end left out, or a list (0:28)")
    add("--chunks", type=int, default=1, help="each network so often, weights shared (1)")
    add("--host", type=float, default=math.inf, help="GB/s through host memory (endless)")
    add("--seconds", type=float, default=10.0, help="for each plan (10)")
    add("--against", default="", help="other planners for the same seconds, or all")
    add("--reference", type=Path, metavar="FILE")
    add("--make-reference", type=float, metavar="SECONDS", help="write that file and stop")
    add("--json", type=Path, metavar="FILE", help="write the rows to this file")
    arguments = parser.parse_args()
    if arguments.make_reference is not None and not arguments.reference:
        parser.error("--make-reference needs --reference, the file to write")
    first, colon, end = arguments.seeds.partition(":")
    numbers = range(int(first), int(end)) if colon else map(int, arguments.seeds.split(","))
    arguments.seeds = list(numbers)
    return arguments


# -- one instance ----------------------------------------------------------------------------------


def row(
    seed: int,
    name: str,
    problem: Problem,
    arguments: argparse.Namespace,
    reference: dict[str, dict[str, float]],
) -> Row:
    before, started = processor_seconds(), os.times().elapsed
    plan = plan_problem(problem, time_limit=arguments.seconds)
    elapsed = os.times().elapsed - started
    cores = (processor_seconds() - before) / elapsed if elapsed else 0.0
    against = arguments.against if plan.gap > CLOSE else ""  # else no other is better by more
    other, value = best_other(problem, against, arguments.seconds)
    known = reference.get(str(seed))
    return Row(
        seed,
        name,
        plan.value * 1e3,
        plan.lower_bound * 1e3,
        plan.gap,
        cores,
        other,
        plan.value / value if other else None,
        plan.value * 1e3 / known["value"] if known else None,
    )


def processor_seconds() -> float:
    """Of this process and its children, and of those of each that have ended."""
    this = psutil.Process()
    return sum(sum(each.cpu_times()[:4]) for each in (this, *this.children(recursive=True)))


def best_other(problem: Problem, asked: str, seconds: float) -> tuple[str, float]:
    """The best of the planners asked for, and its value; "" without any."""
    names = [each for each in asked.split(",") if each]
    if asked == "all":
        table = planners.planners_for(problem.options.objective)
        names = [each.name for each in table if each.name != "auto"]
    best, value = "", np.inf
    for name in names:
        try:
            planner = planners.create(name, {}, problem.options.objective)
            if planner.supports(problem):
                continue
            found = solve(problem, planner, time_limit=seconds)
        except (InfeasibleError, OptionError):
            continue
        if found.value < value:
            best, value = name, found.value
    return best, value


# -- references and findings -----------------------------------------------------------------------


def read_reference(file: Path | None) -> dict[str, dict[str, float]]:
    if file is None or not file.exists():
        return {}
    found: dict[str, dict[str, float]] = json.loads(file.read_text("utf-8"))
    return found


def keep(reference: dict[str, dict[str, float]], seed: int, plan: Plan) -> None:
    known = reference.setdefault(str(seed), {"value": np.inf, "bound": 0.0})
    known["value"] = min(known["value"], plan.value * 1e3)
    known["bound"] = max(known["bound"], plan.lower_bound * 1e3)


def write(file: Path, document: Any) -> None:
    file.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def table_of(rows: Sequence[Row]) -> Table:
    table = Table(title="Networks drawn by seed: values in ms")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if number else "left")
    for each in rows:
        table.add_row(*each.cells())
    return table


def findings(rows: Sequence[Row]) -> list[str]:
    gaps = np.array([each.gap for each in rows])
    said = [
        f"gaps: {np.mean(gaps <= 1e-4):.0%} proved, median {np.median(gaps):.2%}, "
        f"largest {gaps.max():.2%}"
    ]
    for what in ("other", "reference"):
        ratios = np.array([r for each in rows if (r := getattr(each, f"over_{what}")) is not None])
        if len(ratios):
            worst = sorted(rows, key=lambda each: -(getattr(each, f"over_{what}") or 0.0))[:WORST]
            listed = (f"{each.seed} ({getattr(each, f'over_{what}') or 0:.4f})" for each in worst)
            near, all_near = np.mean(ratios <= 1 + CLOSE), np.mean(ratios <= 1 + CLOSE_ENOUGH)
            said.append(
                f"against the {what}: within {CLOSE:.1%} on {near:.0%}, within {CLOSE_ENOUGH:.0%} "
                f"on {all_near:.0%}; mean {ratios.mean():.4f}; the worst: {', '.join(listed)}"
            )
    return said


if __name__ == "__main__":
    main()
