"""The default planner beside its targets: what `auto` has after so many seconds, and its proof.

    python benchmarks/default.py [--only moirai,invocation,rwnn,zoo,kill] [--moirai DIR]
        [--invocation DIR] [--reference FILE [--make-reference SECONDS]] [--match TEXT]
        [--kills 50] [--json FILE]

A table per section, times in ms but for the seconds of planning:

- ``moirai``: every JSON file of `--moirai DIR`, 30 s, with transfers per edge and contention on
  ports; known figures of the published workloads are the targets, other files have none;
- ``invocation``: every JSON file of `--invocation DIR` for ``invocation-latency``, 60 s;
- ``rwnn``: the networks of DiviML's Table I as `diviml.py` draws them, 10 s, against the reference;
- ``zoo``: Swin, GPT-3 and AlphaFold2 at the sizes of Moirai's Table IV on both testbeds, 30 s,
  against the reference: the best of the planners of `default_reference`;
- ``kill``: ``placewright plan`` ended with ``kill -9`` at random moments; its plan file must be
  whole, verified and not old.

`reached` is when the first plan was told that is as good as the target (where only a bound is asked
for: when it was proved), `gap` is what the run itself proved, `met` is about all that is asked for.
`load` is the machine's mean load of the last minute: more than its cores, and the seconds were
shared.

References take long, so they are made apart: `--make-reference SECONDS` gives each exact or
searching planner so long on every instance of the sections rwnn and zoo and writes
`--reference FILE` after each. The best value of each planner stays, so that a second run only adds
to it. Meant are 600 s for zoo (some five hours) and 3600 s for rwnn (two days):

    python benchmarks/default.py --only zoo --reference known.json --make-reference 600
    python benchmarks/default.py --only zoo --reference known.json
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import diviml
import moirai
import numpy as np
from default_kill import killed_rows
from default_reference import Reference, key_of
from rich.console import Console
from rich.table import Table

from placewright.objectives import OBJECTIVES
from placewright.plan import Plan
from placewright.planning import make_problem, plan_problem
from placewright.portfolio import Event, Limits, best_proposal
from placewright.portfolio.work import Task, perform
from placewright.problem import Problem
from placewright.simulate import evaluate
from placewright.system.references import referred

SECTIONS = ("moirai", "invocation", "rwnn", "zoo", "kill")
PORTS = {"contention": "port", "transfer_unit": "edge"}
INVOCATION = {"objective": "invocation-latency"}

SAME = 1e-6
"""A value is as good as another if it is larger by no more than this share."""

WARM_UP_SECONDS = 1.0  # for each member, compiling not counted


@dataclass(frozen=True)
class Goal:
    """What is asked for, as far as it is not None: at most `value` and at least `bound` in ms, at
    most `gap` as a share of the value."""

    value: float | None = None
    gap: float | None = None
    bound: float | None = None

    def is_reached(self, value: float | None, bound: float) -> bool:
        """Whether a plan of `value` with `bound` proved is what `reached` waits for."""
        if self.value is not None:
            return value is not None and value <= self.value * (1 + SAME)
        return self.bound is not None and bound >= self.bound * (1 - SAME)

    def is_met(self, value: float, bound: float, gap: float) -> bool | None:
        """None where nothing is asked for."""
        asked = [
            None if self.value is None else value <= self.value * (1 + SAME),
            None if self.gap is None else gap <= self.gap,
            None if self.bound is None else bound >= self.bound * (1 - SAME),
        ]
        answers = [each for each in asked if each is not None]
        return all(answers) if answers else None

    def __str__(self) -> str:
        parts = [] if self.value is None else [f"≤ {self.value:.6g}"]
        parts += [] if self.gap is None else [f"gap ≤ {self.gap:.4g}"]
        parts += [] if self.bound is None else [f"bound ≥ {self.bound:.6g}"]
        return ", ".join(parts) or "-"


MOIRAI_SECONDS, INVOCATION_SECONDS, RWNN_SECONDS, ZOO_SECONDS = 30.0, 60.0, 10.0, 30.0

# By stem of the published file, in lower case: (seconds, goal) of each run.
MOIRAI_GOALS = {
    "googlenet": ((MOIRAI_SECONDS, Goal(value=1.2782, gap=1e-4)),),
    "transformer": ((MOIRAI_SECONDS, Goal(value=19.40)), (300.0, Goal(bound=18.0))),
}
INVOCATION_GOALS = {
    "op_bert_l-3_inference": Goal(408.48, gap=0.005),
    "op_bert_l-12_inference": Goal(729.57, gap=0.024),
    "op_resnet50_inference": Goal(651.13, gap=0.15),
    "layer_bert24_inference": Goal(100.219, gap=1e-4),
    "layer_resnet50_inference": Goal(1156.9, gap=0.08),
}
ONE_CHANNEL_GAP = 0.05
ZOO_IMPROVEMENT = 0.10


@dataclass(frozen=True)
class Row:
    """One run: milliseconds, but `allowed`, `reached` and `seconds` (of the run) are seconds.

    `events`: [seconds, value, bound, source] of every better plan and bound.
    """

    instance: str
    allowed: float
    reached: float | None
    value: float
    bound: float
    gap: float
    target: str
    met: bool | None
    seconds: float
    found_by: str
    bound_source: str
    load: float
    baseline: str = ""
    ratio: float | None = None
    events: list[tuple[float, float | None, float, str]] = field(default_factory=list, repr=False)

    def cells(self) -> list[str]:
        reached = "-" if self.reached is None else f"{self.reached:.2f}"
        ratio = [] if self.ratio is None else [self.baseline, f"{self.ratio:.3f}"]
        met = "" if self.met is None else "yes" if self.met else "NO"
        shown = [f"{self.value:.4f}", f"{self.bound:.4f}", f"{self.gap:.2%}", self.target, met]
        return [self.instance, f"{self.allowed:g}", reached, *shown, f"{self.load:.1f}", *ratio]


@dataclass
class Section:
    title: str
    columns: tuple[str, ...]
    rows: list[Any] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


COLUMNS = ("instance", "allowed s", "reached s", "value", "bound", "gap", "target", "met", "load")


def main() -> None:
    arguments = parsed()
    if arguments.make_reference is not None:
        make_reference(arguments)
        return
    done: dict[str, Section] = {}
    warm_up(arguments.only)
    for name in arguments.only:
        section = done[name] = TABLES[name](arguments)
        Console(width=170).print(table_of(section), *section.findings, sep="\n", end="\n\n")
        if arguments.json:  # after each table, so that an interrupted run leaves what it has
            arguments.json.write_text(json.dumps(documents(done), indent=1) + "\n", "utf-8")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", help=f"of {', '.join(SECTIONS)} (all that the other options allow)")
    add("--moirai", type=Path, metavar="DIR", help="workload files for latency")
    add("--invocation", type=Path, metavar="DIR", help="workload files for invocation latency")
    add("--match", default="", help="only instances whose name has this in it")
    add("--ops", default="10,32", help="ops in a module of rwnn (10,32)")
    add("--reference", type=Path, metavar="FILE", help="what rwnn and zoo are compared with")
    add("--make-reference", type=float, metavar="SECONDS", help="write that file and stop")
    add("--kills", type=int, default=50, help="runs that are killed (50)")
    add("--seed", type=int, default=0)
    add("--json", type=Path, metavar="FILE", help="write rows, with their events, to this file")
    arguments = parser.parse_args()
    needs = {
        "moirai": "moirai",
        "invocation": "invocation",
        "rwnn": "reference",
        "zoo": "reference",
    }
    given = {name for name in SECTIONS if name == "kill" or getattr(arguments, needs[name])}
    arguments.only = (
        arguments.only.split(",") if arguments.only else sorted(given, key=SECTIONS.index)
    )
    for name in arguments.only:
        if name not in SECTIONS:
            parser.error(f"--only: there is no '{name}'; choose from {', '.join(SECTIONS)}")
        if name not in given:
            parser.error(f"section {name} needs --{needs[name]}")
    if arguments.make_reference is not None and not arguments.reference:
        parser.error("--make-reference needs --reference, the file to write")
    return arguments


def warm_up(sections: list[str]) -> None:
    """Have every member work for a moment, however long its kernels take to compile.

    A worker process that is ended while it compiles leaves nothing in the cache.
    """
    objectives = {"moirai": "latency", "rwnn": "latency", "zoo": "latency"}
    objectives["invocation"] = "invocation-latency"
    for objective in sorted({objectives[name] for name in sections if name in objectives}):
        problem, _ = make_problem("zoo:gpt2?layers=2", "2x3090", {"objective": objective})
        problem = pickle.loads(pickle.dumps(problem))  # as workers have it
        found = best_proposal(problem, Limits(WARM_UP_SECONDS), processes=1).placement
        value = evaluate(problem, found).value
        for member, start in product(referred(OBJECTIVES[objective].members), (None, found)):
            options = dict(member.options)
            task = Task(0, member, options, WARM_UP_SECONDS, 0, start, value)
            perform(problem, task, lambda message: None)


# -- sections ------------------------------------------------------------------------------------


def moirai_files(arguments: argparse.Namespace) -> Section:
    section = Section("Published workloads, ports and edges: latency in ms", COLUMNS)
    for file in files_in(arguments.moirai, arguments.match):
        problem = make_problem(file, None, PORTS)[0]
        for seconds, goal in MOIRAI_GOALS.get(file.stem.lower(), ((MOIRAI_SECONDS, Goal()),)):
            section.rows.append(row(file.stem, problem, seconds, goal, arguments))
    return section


def invocation_files(arguments: argparse.Namespace) -> Section:
    section = Section("Published workloads: invocation latency in ms", COLUMNS)
    for file in files_in(arguments.invocation, arguments.match):
        problem = make_problem(file, None, INVOCATION)[0]
        goal = INVOCATION_GOALS.get(file.stem.lower(), Goal())
        section.rows.append(row(file.stem, problem, INVOCATION_SECONDS, goal, arguments))
    return section


def randomly_wired(arguments: argparse.Namespace) -> Section:
    section = Section("DiviML's Table I: latency in ms", (*COLUMNS, "reference", "ratio"))
    reference = Reference.read(arguments.reference)
    for name, problem in rwnn_networks(arguments):
        best = reference.best("rwnn", name)
        gap = ONE_CHANNEL_GAP if " 1-chan" in name else None
        goal = Goal(best.milliseconds if best else None, gap)
        baseline = best.planner if best else "none"
        section.rows.append(row(name, problem, RWNN_SECONDS, goal, arguments, baseline))
    return section


def zoo(arguments: argparse.Namespace) -> Section:
    section = Section("Moirai's models on its testbeds: latency in ms", (*COLUMNS, "best", "ratio"))
    reference = Reference.read(arguments.reference)
    for name, problem in zoo_models(arguments):
        best = reference.best("zoo", name)
        goal = Goal(best.milliseconds if best else None)
        baseline = best.planner if best else "none"
        section.rows.append(row(name, problem, ZOO_SECONDS, goal, arguments, baseline))
    ratios = [each.ratio for each in section.rows if each.ratio is not None]
    if ratios:
        less, as_fast = 1 - float(np.mean(ratios)), float(np.mean(1 / np.array(ratios)))
        worse = sum(each > 1 + SAME for each in ratios)
        section.findings.append(
            f"auto's plans are {as_fast:.3f} times as fast as the best baseline's on the mean of "
            f"{len(ratios)} (target {1 + ZOO_IMPROVEMENT:.2f}), which is {less:.1%} less time; "
            f"slower on {worse}"
        )
    return section


def kills(arguments: argparse.Namespace) -> Section:
    columns = ("moment s", "plan", "verified", "seconds lost")
    section = Section("kill -9 at random moments", columns)
    section.rows += killed_rows(arguments.kills, arguments.seed)
    whole = sum(each.verified for each in section.rows)
    lost = max((each.lost for each in section.rows), default=0.0)
    section.findings.append(
        f"{whole} of {len(section.rows)} plans are whole and verified; "
        f"{lost:.1f} s are the most that was lost"
    )
    return section


TABLES: dict[str, Callable[[argparse.Namespace], Section]] = {
    "moirai": moirai_files,
    "invocation": invocation_files,
    "rwnn": randomly_wired,
    "zoo": zoo,
    "kill": kills,
}


# -- instances and references --------------------------------------------------------------------


def files_in(folder: Path, match: str) -> list[Path]:
    return [file for file in sorted(folder.glob("*.json")) if match in file.name]


def rwnn_networks(arguments: argparse.Namespace) -> Iterator[tuple[str, Problem]]:
    for ops in diviml.numbers(arguments.ops, ""):
        for channels, dependency in diviml.SHAPES:
            name = f"10 × {ops}, {dependency}, {channels}-chan"
            if arguments.match in name:
                yield name, diviml.network(10, ops, channels, dependency, 0)


def zoo_models(arguments: argparse.Namespace) -> Iterator[tuple[str, Problem]]:
    for cluster in moirai.CLUSTERS:
        for model in moirai.MODELS:
            if arguments.match in key_of(cluster, model):
                yield key_of(cluster, model), moirai.case_of(model, cluster, "none", 0).problem


def make_reference(arguments: argparse.Namespace) -> None:
    reference = Reference.read(arguments.reference)
    if "rwnn" in arguments.only:
        for name, problem in rwnn_networks(arguments):
            reference.add_network(name, problem, arguments.make_reference)
    if "zoo" in arguments.only:
        for name, _ in zoo_models(arguments):
            reference.add_model(name, arguments.make_reference)


# -- one run -------------------------------------------------------------------------------------


def row(
    instance: str,
    problem: Problem,
    seconds: float,
    goal: Goal,
    arguments: argparse.Namespace,
    baseline: str = "",
) -> Row:
    """`auto` on a problem for so many seconds."""
    plan, events = planned(problem, seconds, arguments.seed)
    value, bound = plan.value * 1e3, plan.lower_bound * 1e3
    told = [
        (each.seconds, each.value and each.value * 1e3, each.lower_bound * 1e3, each.source)
        for each in events
        if each.kind in ("plan", "bound")
    ]
    found = Row(
        instance,
        seconds,
        next(
            (
                at
                for at, value_then, bound_then, _ in told
                if goal.is_reached(value_then, bound_then)
            ),
            None,
        ),
        value,
        bound,
        plan.gap,
        str(goal),
        goal.is_met(value, bound, plan.gap),
        plan.seconds,
        plan.planner_options["found_by"],
        plan.bound_source,
        os.getloadavg()[0],
        baseline,
        value / goal.value if baseline and goal.value else None,
        told,
    )
    print(*found.cells(), sep=" | ", file=sys.stderr, flush=True)
    return found


def planned(problem: Problem, seconds: float, seed: int) -> tuple[Plan, list[Event]]:
    """The plan and what was told on the way. An interrupt ends all, not this run alone."""
    events: list[Event] = []
    plan = plan_problem(problem, time_limit=seconds, seed=seed, on_event=events.append)
    if events[-1].source == "interrupted":
        raise KeyboardInterrupt
    return plan, events


# -- output --------------------------------------------------------------------------------------


def table_of(section: Section) -> Table:
    table = Table(title=section.title)
    for number, column in enumerate(section.columns):
        table.add_column(column, justify="right" if number else "left")
    for each in section.rows:
        table.add_row(*each.cells())
    return table


def documents(done: dict[str, Section]) -> dict[str, Any]:
    return {
        name: {"rows": [asdict(each) for each in section.rows], "findings": section.findings}
        for name, section in done.items()
    }


if __name__ == "__main__":
    main()
