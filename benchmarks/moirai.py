"""Moirai's Figure 10 and Table V on our planners: makespan and placement time.

    python benchmarks/moirai.py [--models swin,gpt3-330m] [--planners all] [--json moirai.json]

Swin, GPT-3 and AlphaFold2 at the sizes of Table IV, on both testbeds of Table III, with
contention on ports (eq. 8): a table per testbed and coarsening. A cell is the simulated makespan
on the original ops over the least of its column, and the seconds of planning (kernels warm,
coarsening not counted: it has a row of its own). Every plan is judged. "-" has its reason below
the table.

Coarsenings: `none` and `fusion` are the paper's (its GCOF), and `exact` is for the exact planners:
fusion, and then neighbours in Celeritas's order until at most --exact-ops are left. Fusion alone
leaves a program of hundreds of thousands to millions of order variables.

Planners are names, or these words: `quick`, `partitioners`, `searches` (each for --time-limit
seconds), `learned` (the paper's row of hours of training: each for --learned-seconds), `exact`
(each for --milp-seconds), `all`. On two cores the default, all but the exact and the learned
ones, takes some twenty minutes, and `learned` three quarters of an hour more. `--planners all`
takes up to two times --milp-seconds more for each model, testbed and coarsening, so with 600 s
hours:

    python benchmarks/moirai.py --planners all --coarsenings exact --models gpt3-330m
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

from placewright import planners
from placewright.bounds import Bound, lower_bound
from placewright.budget import Budget, Progress
from placewright.coarsen.contraction import Contraction, contract
from placewright.coarsen.fusion import fusion_groups
from placewright.coarsen.sequential import sequential_groups
from placewright.errors import PlacewrightError
from placewright.graph import Ints
from placewright.planners.base import NoRoomError, Planner, Proposal
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.simulate.latency import schedule_placement, time_placement
from placewright.solving import solve

CLUSTERS = ("moirai-inter-server", "moirai-intra-server")
COARSENINGS = ("none", "fusion", "exact")
MODELS = (
    "swin-1.8b", "swin-6.6b", "swin-13b",
    "gpt3-330m", "gpt3-1.3b", "gpt3-2.7b", "gpt3-13b",
    "alphafold2-87m", "alphafold2-930m", "alphafold2-2.4b", "alphafold2-3.2b",
)  # fmt: skip
EXACT = ("moirai-milp", "diviml-milp", "milp-split")
LEARNED = ("hrl", "placeto")
PARTITIONERS = ("metis", "scotch")
NEED_A_FILE = ("expert",)
WARM_UP = "gpt2"


@dataclass(frozen=True)
class Case:
    """A model on a testbed, and the coarser problem the planners see."""

    cluster: str
    coarsening: str
    model: str
    problem: Problem
    contraction: Contraction | None
    coarsening_seconds: float
    bound: Bound
    """On the makespan of `problem`."""

    @property
    def planned(self) -> Problem:
        return self.contraction.problem if self.contraction else self.problem


@dataclass(frozen=True)
class Cell:
    """One planner on one case. Seconds; no `value`: no plan, and `error` says why.

    `planned_value` and `planned_bound` are about the coarser problem: they say how near the best
    an exact planner came there.
    """

    planner: str
    value: float | None = None
    planned_value: float | None = None
    planned_bound: float | None = None
    seconds: float | None = None
    error: str = ""


Column = tuple[Case, list[Cell]]


def main() -> None:
    arguments = parsed()
    names = planners_named(arguments.planners)
    clusters, coarsenings = arguments.clusters.split(","), arguments.coarsenings.split(",")
    for name in names:
        warm_up(case_of(WARM_UP, clusters[0], "none", 0), name)
    done: list[Column] = []
    for cluster, coarsening in product(clusters, coarsenings):
        columns: list[Column] = []
        for model in models_named(arguments.models):
            case = case_of(model, cluster, coarsening, arguments.exact_ops)
            columns.append((case, [cell(case, name, arguments) for name in names]))
        console = Console(width=max(100, 18 + 17 * len(columns)))
        console.print(f"{cluster}, coarsening {coarsening}: makespan over the best (seconds)")
        console.print(table_of(columns), *reasons(columns), sep="\n", end="\n\n")
        done += columns
        if arguments.json:
            arguments.json.write_text(json.dumps(documents(done), indent=1) + "\n")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--models", default="swin,gpt3,alphafold2", help="names or families, parted by commas")
    add("--clusters", default=",".join(CLUSTERS), help="presets, parted by commas")
    add("--coarsenings", default="none,fusion", help=f"of {', '.join(COARSENINGS)}")
    add("--planners", default="quick,partitioners,searches", help="names, or the words above")
    add("--time-limit", type=float, default=5.0, help="seconds for each search (5)")
    add("--learned-seconds", type=float, default=30.0, help="seconds for each learned one (30)")
    add("--milp-seconds", type=float, default=600.0, help="seconds for each exact planner (600)")
    add("--milp-start", default="celeritas", help="what they start from besides HEFT (celeritas)")
    add("--exact-ops", type=int, default=100, help="ops that coarsening exact leaves (100)")
    add("--json", type=Path, help="write all cells to this file, after each table")
    arguments = parser.parse_args()
    for coarsening in arguments.coarsenings.split(","):
        if coarsening not in COARSENINGS:
            parser.error(f"no coarsening '{coarsening}'; there are {', '.join(COARSENINGS)}")
    return arguments


def models_named(text: str) -> list[str]:
    """The models of Table IV that are named, or whose family is; other zoo models as they are."""
    chosen = []
    for name in text.split(","):
        family = [model for model in MODELS if model.partition("-")[0] == name]
        chosen += family or [name]
    return chosen


def planners_named(text: str) -> list[str]:
    """Names in the order of the table, words replaced by what they stand for."""
    table = [row for row in planners.planners_for("latency") if row.name not in NEED_A_FILE]
    slow = [row.name for row in table if not row.quick]
    words = {
        "all": [row.name for row in table],
        "quick": [row.name for row in table if row.quick],
        "partitioners": list(PARTITIONERS),
        "exact": list(EXACT),
        "searches": [name for name in slow if name not in EXACT + LEARNED + PARTITIONERS],
        "learned": list(LEARNED),
    }
    chosen = {name for word in text.split(",") for name in words.get(word, [word])}
    for name in chosen:
        planners.entry(name)
    return [row.name for row in table if row.name in chosen]


def limit(name: str, arguments: argparse.Namespace) -> float:
    """Seconds that the planner may take. Quick ones and partitioners end by themselves."""
    if name in EXACT:
        return float(arguments.milp_seconds)
    if name in LEARNED:
        return float(arguments.learned_seconds)
    if planners.entry(name).quick or name in PARTITIONERS:
        return float("inf")
    return float(arguments.time_limit)


# -- cases ---------------------------------------------------------------------------------------


def case_of(model: str, cluster: str, coarsening: str, exact_ops: int) -> Case:
    problem, _ = make_problem(f"zoo:{model}", cluster, {"contention": "port"})
    started = time.perf_counter()
    contraction = None
    if coarsening != "none":
        group = fusion_groups(problem)
        if coarsening == "exact":
            group = few_groups(contract(problem, group).problem, exact_ops)[group]
        contraction = contract(problem, group)
    seconds = time.perf_counter() - started
    bound = lower_bound(problem)
    return Case(cluster, coarsening, model, problem, contraction, seconds, bound)


def few_groups(problem: Problem, most: int) -> Ints:
    """`[op]` group of neighbours, at the shortest reach that leaves no more than `most`."""
    reach = max(1, problem.op_count // most)
    while True:
        group = sequential_groups(problem, reach=reach)
        if group.max() < most or reach > problem.op_count:
            return group
        reach += max(1, reach // 4)


class OnCoarser:
    """A planner that is asked about the coarser problem of a contraction.

    `solve` does this for named coarsenings; this one takes any, and keeps what was proved.
    """

    objective = "latency"

    def __init__(self, planner: Planner, contraction: Contraction) -> None:
        self.name = planner.name
        self.planner, self.contraction = planner, contraction
        self.value: float | None = None
        self.bound: float | None = None

    def supports(self, problem: Problem) -> str | None:
        return self.planner.supports(self.contraction.problem)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        contraction = contract(problem, self.contraction.op_group)  # of the same, or with pins
        try:
            proposal = self.planner.plan(contraction.problem, budget, seed, on_progress)
        except NoRoomError as error:
            op = int((contraction.problem.op_unit == error.unit).argmax())
            member = int((contraction.op_group == op).argmax())
            raise NoRoomError(str(error), int(problem.op_unit[member])) from None
        self.value = time_placement(contraction.problem, proposal.placement).makespan
        self.bound = proposal.lower_bound
        kept = contraction.expand(proposal.placement)
        afresh = schedule_placement(problem, kept.device)
        orders = [afresh] if kept.sequence is None else [kept, afresh]
        return Proposal(min(orders, key=lambda each: time_placement(problem, each).makespan))


def warm_up(case: Case, name: str) -> None:
    """Compile what is not compiled yet, however long that takes."""
    if name in EXACT:
        return
    row = planners.entry(name)
    options = {"iterations": "1000"} if not row.quick and "iterations" in row.options else {}
    if row.learns:
        options = {"episodes": "16"}
    with contextlib.suppress(PlacewrightError):  # its cells will say why
        solve(case.problem, name, planner_options=options)


def cell(case: Case, name: str, arguments: argparse.Namespace) -> Cell:
    starts = arguments.milp_start and "start" in planners.entry(name).options
    planner = planners.create(name, {"start": arguments.milp_start} if starts else None)
    coarser = OnCoarser(planner, case.contraction) if case.contraction else None
    started = time.perf_counter()
    try:
        seconds = limit(name, arguments)
        plan = solve(case.problem, coarser or planner, time_limit=seconds, bound=case.bound)
    except PlacewrightError as error:
        return Cell(name, seconds=time.perf_counter() - started, error=str(error))
    if coarser:
        return Cell(name, plan.value, coarser.value, coarser.bound, plan.seconds)
    return Cell(name, plan.value, plan.value, plan.lower_bound, plan.seconds)


# -- output --------------------------------------------------------------------------------------


def table_of(columns: list[Column]) -> Table:
    """A row per planner, a column per model, as the bars of Figure 10."""
    table = Table()
    table.add_column("planner")
    for each, _ in columns:
        table.add_column(each.model, justify="right")
    table.add_row("ops", *(f"{each.problem.op_count:,}" for each, _ in columns))
    if columns[0][0].contraction:
        table.add_row(
            "coarsened",
            *(f"{each.planned.op_count:,} ({each.coarsening_seconds:.2f})" for each, _ in columns),
        )
    table.add_row("best", *(format_best(cells) for _, cells in columns), end_section=True)
    for row in zip(*(cells for _, cells in columns), strict=True):
        values = zip(row, columns, strict=True)
        table.add_row(row[0].planner, *(shown(each, cells) for each, (_, cells) in values))
    return table


def shown(one: Cell, cells: list[Cell]) -> str:
    if one.value is None:
        return "-"
    text = f"{one.value / best_of(cells):.2f} ({one.seconds:.2f})"
    return f"[bold]{text}[/bold]" if one.value == best_of(cells) else text


def format_best(cells: list[Cell]) -> str:
    return f"{best_of(cells):.4f} s"


def best_of(cells: list[Cell]) -> float:
    return min((each.value for each in cells if each.value is not None), default=float("nan"))


def reasons(columns: list[Column]) -> list[str]:
    """Why cells are empty, and how far exact planners came; the first model's words for all."""
    lines: dict[str, tuple[str, list[str]]] = {}
    for case, cells in columns:
        for each in cells:
            if each.error:
                lines.setdefault(each.planner, (each.error, []))[1].append(case.model)
    notes = [f"- {', '.join(models)}: {error}" for error, models in lines.values()]
    for case, cells in columns:
        for each in cells:
            if each.planner in EXACT and each.planned_value and each.planned_bound:
                gap = 1 - each.planned_bound / each.planned_value
                notes.append(
                    f"{each.planner} on {case.model}: {each.planned_value:.4f} s where it planned, "
                    f"at most {gap:.1%} above the best there"
                )
    return notes


def documents(columns: list[Column]) -> list[dict[str, object]]:
    return [
        {
            "cluster": case.cluster,
            "coarsening": case.coarsening,
            "model": case.model,
            "ops": case.problem.op_count,
            "planned_ops": case.planned.op_count,
            "coarsening_seconds": case.coarsening_seconds,
            "lower_bound": case.bound.value,
            **asdict(each),
        }
        for case, cells in columns
        for each in cells
    ]


if __name__ == "__main__":
    main()
