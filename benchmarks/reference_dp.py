"""`ideal-dp` beside the program of its paper (Tarnawski et al., NeurIPS 2020), by turns.

    python benchmarks/reference_dp.py PROGRAM FILE... [--times 1] [--json]

PROGRAM is the paper's, built from its published source as its authors say
(``g++ -O3 throughput-dp/dp.cpp -o dp.exe``); FILEs are its throughput inputs. Both find the best
contiguous split, one thread each, on the same machine in the same run. The program's seconds are of
the whole process, which reads the file in some milliseconds; those of `ideal-dp` are of the planner
with its kernels compiled, the median of several tries around each turn of the program. Beside them
the whole `solve`, which also checks the input, times the plan, bounds it and verifies it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from placewright import planners
from placewright.budget import Budget, no_progress
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.solving import solve

PLANNER, OBJECTIVE = "ideal-dp", "throughput"
TRIES = 15  # of ours, before a turn of the program and after it


@dataclass(frozen=True)
class Row:
    """Values are milliseconds; `ratio` is the program's time over the planner's."""

    workload: str
    value: float
    program_value: float
    program_seconds: float
    planner_seconds: float
    solve_seconds: float
    ratio: float

    def cells(self) -> list[str]:
        return [
            self.workload,
            f"{self.value:.4f} / {self.program_value:.4f}",
            f"{self.program_seconds:.3f} s",
            f"{self.planner_seconds * 1e3:.2f} ms",
            f"{self.ratio:,.0f}×",
            f"{self.solve_seconds * 1e3:.2f} ms ({self.solve_seconds / self.planner_seconds:.2f}×)",
        ]


COLUMNS = ("workload", "value / theirs", "program", PLANNER, "faster", "solve (over the planner)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", type=Path)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--times", type=int, default=1, help="turns of each (1)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for file in arguments.files:
        rows.append(compared(arguments.program.resolve(), file, arguments.times))
        print(*rows[-1].cells(), sep=" | ", flush=True, file=sys.stderr)
    if arguments.json:
        print(json.dumps([asdict(each) for each in rows], indent=1))
        return
    table = Table(title=f"{PLANNER} beside the paper's program")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if number else "left")
    for each in rows:
        table.add_row(*each.cells())
    Console(width=130).print(table)


def compared(program: Path, file: Path, times: int) -> Row:
    problem, _ = make_problem(file, None, {"objective": OBJECTIVE, "contiguous": True})
    value = solve(problem, PLANNER).value  # compiles
    planning, solving = tried(problem)
    runs = []
    for _ in range(times):
        runs.append(run(program, file))
        for known, more in zip((planning, solving), tried(problem), strict=True):
            known += more
    seconds, planner_seconds = statistics.median(s for s, _ in runs), statistics.median(planning)
    return Row(
        file.stem,
        value * 1e3,
        runs[0][1],
        seconds,
        planner_seconds,
        statistics.median(solving),
        seconds / planner_seconds,
    )


def tried(problem: Problem) -> tuple[list[float], list[float]]:
    """Seconds of the planner alone, and of the whole solve, by turns."""
    planner = planners.create(PLANNER, {}, OBJECTIVE)
    planning, solving = [], []
    for _ in range(TRIES):
        planning.append(seconds_of(lambda: planner.plan(problem, Budget(), 0, no_progress)))
        solving.append(seconds_of(lambda: solve(problem, PLANNER)))
    return planning, solving


def seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def run(program: Path, file: Path) -> tuple[float, float]:
    """Seconds of the paper's program, and the largest load that it found."""
    started = time.perf_counter()
    with file.open("rb") as workload:
        done = subprocess.run([program], stdin=workload, capture_output=True, check=True)
    seconds = time.perf_counter() - started
    return seconds, float(json.loads(done.stdout)["maxLoad"])


if __name__ == "__main__":
    main()
