"""DiviML's tables: latencies (I), seconds until best (III), batches (IV), GPT-3 on hosts (V).

    python benchmarks/diviml.py [--tables latency,speedup,batches,gpt3] [--modules 5,10,20]
        [--ops 10,32] [--batches 16,128] [--seeds 0,1] [--time-limit 60] [--milp-limit 600]
        [--json FILE]

The networks (`zoo:rwnn?times=diviml`) have drawn times that add up as in the paper's tables; the
devices are those of cluster ``diviml``, without contention as in the paper. A table is a function
that takes the arguments and returns a `Report`: a new one is a row of `TABLES`.

`latency`: a row per number of channels and kind of dependency. Quick planners run until they are
done; ``one-plus-one-ea``, ``annealing`` and ``milp-split`` have `--time-limit` seconds each (the
first two use them up, so they never have less than ``milp-split``), ``diviml-milp`` has
`--milp-limit`. The bound is the best that any of them proved. Cells are means over the seeds.

`speedup`: seconds until ``milp-split`` has its best plan, and until ``diviml-milp``, the program of
the whole network, has one as good. Both are run anew with limits that double, so times are known
to a factor of two; ``> s`` where the whole program never gets there.

`batches` and `gpt3`: see `diviml_batches`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diviml_batches
import numpy as np
from rich.console import Console
from rich.table import Table

from placewright import planners
from placewright.errors import PlacewrightError
from placewright.plan import Plan
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.solving import solve

QUICK = ("single-device", "met", "greedy", "heft")
SEARCHES = ("one-plus-one-ea", "annealing")
BASELINES = ("met", "greedy", "heft", *SEARCHES)
MILP, SPLIT = "diviml-milp", "milp-split"
SHAPES = (
    (1, "sdep"), (2, "sdep"), (3, "sdep"), (4, "sdep"), (2, "wdep"), (3, "wdep"), (4, "wdep"),
)  # fmt: skip

SAME = 1e-3
"""A plan is as good as another if it takes longer by no more than this share."""

FIRST_LIMIT = 0.25  # seconds, doubled until there is no better plan

Row = dict[str, Any]


@dataclass
class Report:
    """A table: `lines` to print under `columns`, `rows` for JSON, and what they show in words."""

    title: str
    columns: tuple[str, ...]
    lines: list[list[str]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


def main() -> None:
    arguments = _arguments()
    solved(network(1, 5, 1, "sdep", 0), SPLIT, 1.0)  # compiles what is not compiled yet
    reports = {}
    for name in arguments.tables.split(","):
        report = reports[name] = TABLES[name](arguments)
        _print(report)
        if arguments.json:  # after each table, so that an interrupted run leaves what it has
            _write(arguments.json, reports)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default=",".join(TABLES), help=f"of {', '.join(TABLES)}")
    parser.add_argument("--modules", help="numbers of modules (latency: 10; speedup: 5,10,20)")
    parser.add_argument("--ops", help="ops in a module (latency: 10,32; speedup: 10)")
    parser.add_argument("--channels", default="1,2,3,4", help="between modules")
    parser.add_argument("--batches", default="16,128", help="inputs of a batch")
    parser.add_argument("--seeds", default="0", help="networks of each kind")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for most planners")
    parser.add_argument("--milp-limit", type=float, default=600.0, help="seconds for diviml-milp")
    parser.add_argument("--no-milp", action="store_true", help="latency without diviml-milp")
    parser.add_argument("--json", type=Path, help="write rows and findings to this file")
    arguments = parser.parse_args()
    unknown = set(arguments.tables.split(",")) - set(TABLES)
    if unknown:
        parser.error(f"--tables: there is no '{min(unknown)}'; choose from {', '.join(TABLES)}")
    return arguments


def numbers(text: str | None, default: str) -> list[int]:
    return [int(each) for each in (text or default).split(",")]


# -- networks and plans --------------------------------------------------------------------------


def network(modules: int, ops: int, channels: int, dependency: str, seed: int) -> Problem:
    query = f"modules={modules}&ops={ops}&channels={channels}&dependency={dependency}&seed={seed}"
    return make_problem(f"zoo:rwnn?times=diviml&{query}", "diviml", {"contention": "none"})[0]


def solved(problem: Problem, name: str, seconds: float) -> Plan | None:
    """The planner's plan, or None where it has none in time."""
    limit = float("inf") if planners.entry(name).quick else seconds
    try:
        return solve(problem, name, time_limit=limit)
    except PlacewrightError:
        return None


def shapes(channels: str) -> Iterator[tuple[int, str]]:
    wanted = numbers(channels, "")
    yield from (shape for shape in SHAPES if shape[0] in wanted)


# -- Table I -------------------------------------------------------------------------------------


def latency(arguments: argparse.Namespace) -> Report:
    names = (*QUICK, *SEARCHES, *(() if arguments.no_milp else (MILP,)), SPLIT)
    columns = ("network", "ops", *names, "lower bound", "ahead")
    report = Report("Table I: latency in ms (seconds of planning)", columns)
    for ops in numbers(arguments.ops, "10,32"):
        rows = []
        for modules in numbers(arguments.modules, "10"):
            for channels, dependency in shapes(arguments.channels):
                seeds = numbers(arguments.seeds, "0")
                problems = [network(modules, ops, channels, dependency, seed) for seed in seeds]
                row = _latency_row(problems, names, arguments)
                title = f"{modules} × {ops}, {dependency}, {channels}-chan"
                rows.append({"network": title, "ops": problems[0].op_count, **row})
                report.lines.append(_latency_line(rows[-1], names))
                print(*report.lines[-1], sep=" | ", flush=True)
        report.rows += rows
        report.findings += _latency_findings(ops, rows)
    return report


def _latency_row(
    problems: list[Problem], names: tuple[str, ...], arguments: argparse.Namespace
) -> Row:
    """Planner → mean ms and seconds over the problems; the mean bound; and by how much the best
    baseline takes longer than milp-split."""
    values: dict[str, list[float]] = {name: [] for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    bounds, ahead = [], []
    for problem in problems:
        found = {
            name: solved(
                problem, name, arguments.milp_limit if name == MILP else arguments.time_limit
            )
            for name in names
        }
        for name, plan in found.items():
            values[name].append(plan.value * 1e3 if plan else float("nan"))
            seconds[name].append(plan.seconds if plan else float("nan"))
        bounds.append(max(plan.lower_bound for plan in found.values() if plan) * 1e3)
        ahead.append(min(values[name][-1] for name in BASELINES) / values[SPLIT][-1] - 1)
    return {
        "milliseconds": {name: float(np.mean(each)) for name, each in values.items()},
        "seconds": {name: float(np.mean(each)) for name, each in seconds.items()},
        "lower_bound": float(np.mean(bounds)),
        "ahead": float(np.mean(ahead)),
    }


def _latency_line(row: Row, names: tuple[str, ...]) -> list[str]:
    cells = [f"{row['milliseconds'][name]:.1f} ({row['seconds'][name]:.1f})" for name in names]
    end = [f"{row['lower_bound']:.1f}", f"{row['ahead']:+.1%}"]
    return [row["network"], str(row["ops"]), *cells, *end]


def _latency_findings(ops: int, rows: list[Row]) -> list[str]:
    def mean(value: Callable[[Row], float]) -> float:
        return float(np.mean([value(row) for row in rows]))

    ahead = mean(lambda row: row["ahead"])
    best = mean(
        lambda row: min(row["milliseconds"][name] for name in BASELINES) / row["lower_bound"] - 1
    )
    gain = mean(lambda row: row["milliseconds"]["single-device"] / row["milliseconds"][SPLIT])
    gap = mean(lambda row: 1 - row["lower_bound"] / row["milliseconds"][SPLIT])
    return [
        f"{ops} ops a module: the best baseline takes {ahead:+.1%} longer than milp-split, and at "
        f"most {best:.1%} longer than any plan can; milp-split is {gain:.2f}x as fast as the best "
        f"device, its gap {gap:.1%}"
    ]


# -- Table III -----------------------------------------------------------------------------------


def speedup(arguments: argparse.Namespace) -> Report:
    columns = (
        "network", "ops", "split ms", "split s", "milp ms", "milp s", "milp s to split's", "factor",
    )  # fmt: skip
    report = Report("Table III: seconds until the best plan", columns)
    for ops in numbers(arguments.ops, "10"):
        for modules in numbers(arguments.modules, "5,10,20"):
            for channels, dependency in ((1, "sdep"), (2, "sdep"), (2, "wdep")):
                if channels in numbers(arguments.channels, ""):
                    for seed in numbers(arguments.seeds, "0"):
                        problem = network(modules, ops, channels, dependency, seed)
                        title = f"{modules} × {ops}, {dependency}, {channels}-chan"
                        row = {"network": title, "seed": seed, "modules": modules}
                        row.update(_speedup_row(problem, arguments))
                        report.rows.append(row)
                        report.lines.append(_speedup_line(row))
                        print(*report.lines[-1], sep=" | ", flush=True)
    for modules in sorted({row["modules"] for row in report.rows}):
        report.findings.append(_speedup_finding(modules, report.rows))
    return report


def _speedup_row(problem: Problem, arguments: argparse.Namespace) -> Row:
    split = _improving(problem, SPLIT, arguments.time_limit)
    milp = _improving(problem, MILP, arguments.milp_limit)
    target = min(value for _, value in split)
    split_seconds, milp_seconds = _reached(split, target), _reached(milp, target)
    best = min((value for _, value in milp), default=float("inf"))
    waited = arguments.milp_limit if milp_seconds is None else milp_seconds
    assert split_seconds is not None  # the target is its own
    return {
        "ops": problem.op_count,
        "split_ms": target * 1e3,
        "split_seconds": split_seconds,
        "milp_ms": best * 1e3,
        "milp_seconds": _reached(milp, best),
        "milp_seconds_to_split": milp_seconds,
        "factor": waited / split_seconds,
    }


def _improving(problem: Problem, name: str, limit: float) -> list[tuple[float, float]]:
    """(seconds, value) of runs with limits that double up to `limit`, or until it is done."""
    runs = []
    seconds = FIRST_LIMIT
    while True:
        seconds = min(seconds, limit)
        plan = solved(problem, name, seconds)
        if plan is not None:
            runs.append((plan.seconds, plan.value))
        if seconds >= limit or (plan is not None and plan.seconds < 0.9 * seconds):
            return runs
        seconds *= 2


def _reached(runs: list[tuple[float, float]], value: float) -> float | None:
    """The seconds of the first run whose plan is as good; None if none is."""
    times = [seconds for seconds, each in runs if each <= value * (1 + SAME)]
    return min(times, default=None)


def _speedup_line(row: Row) -> list[str]:
    reached = row["milp_seconds_to_split"]
    censored = "> " if reached is None else ""
    shown = f"{censored}{reached:.1f}" if reached is not None else "never"
    best = row["milp_seconds"]
    return [
        row["network"],
        str(row["ops"]),
        f"{row['split_ms']:.1f}",
        f"{row['split_seconds']:.2f}",
        f"{row['milp_ms']:.1f}",
        "-" if best is None else f"{best:.1f}",
        shown,
        f"{censored}{row['factor']:.0f}x",
    ]


def _speedup_finding(modules: int, rows: list[Row]) -> str:
    chosen = [row for row in rows if row["modules"] == modules]
    factor = float(np.mean([row["factor"] for row in chosen]))
    missed = sum(row["milp_seconds_to_split"] is None for row in chosen)
    censored = (
        f" at least: in {missed} of {len(chosen)} the whole program never got there"
        if missed
        else ""
    )
    return (
        f"{modules} modules: milp-split is {factor:.0f}x as fast as diviml-milp to its own best "
        f"value{censored}"
    )


# -- Tables IV and V -----------------------------------------------------------------------------


def batches(arguments: argparse.Namespace) -> Report:
    names = diviml_batches.batch_names(arguments)
    columns = ("network", *names, "upper bound", "ahead")
    report = Report("Table IV: inputs per second", columns)
    kinds = list(shapes(arguments.channels))
    seeds, ops = numbers(arguments.seeds, "0"), numbers(arguments.ops, "10")
    for row in diviml_batches.batch_rows(arguments, kinds, seeds, ops):
        rates = [f"{row['per_second'][name]:.1f}" for name in names]
        line = [row["network"], *rates, f"{row['upper_bound']:.1f}", f"{row['ahead']:+.1%}"]
        report.rows.append(row)
        report.lines.append(line)
        print(*line, sep=" | ", flush=True)
    report.findings.append(diviml_batches.batch_finding(report.rows))
    return report


def gpt3(arguments: argparse.Namespace) -> Report:
    report = Report("Table V: GPT-3 on six hosts", ("way", "inputs per second"))
    for row in diviml_batches.gpt3_rows(arguments):
        report.rows.append(row)
        report.lines.append([row["way"], f"{row['per_second']:.2f}"])
        print(*report.lines[-1], sep=" | ", flush=True)
    return report


# -- output --------------------------------------------------------------------------------------


def _print(report: Report) -> None:
    table = Table(title=report.title)
    for column in report.columns:
        table.add_column(column, justify="left" if column == "network" else "right")
    for line in report.lines:
        table.add_row(*line)
    console = Console(width=200)
    console.print(table)
    for finding in report.findings:
        console.print(finding)


def _write(path: Path, reports: dict[str, Report]) -> None:
    content = {
        name: {"rows": report.rows, "findings": report.findings} for name, report in reports.items()
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


TABLES: dict[str, Callable[[argparse.Namespace], Report]] = {
    "latency": latency,
    "speedup": speedup,
    "batches": batches,
    "gpt3": gpt3,
}


if __name__ == "__main__":
    main()
