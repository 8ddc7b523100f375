"""How plans run: predicted beside measured, and what the default plan gains.

    python benchmarks/running.py [--only MODEL ...] [--launcher local|processes] [--repeats 9]

Two devices of a core each of this machine, costs measured (profiles of every op, and links as the
launcher moves tensors). Of each model several placements run in one go: the default planner's,
HEFT's, one device, the even split (half of the work, in the program's order, on each), blocks of
ops in turns, ops drawn at random in runs of 20, and every op drawn at random. All of them take
turns, twice: `measured` is the mean of the two medians, `noise` how far they lie apart, `error` how
far the prediction is from what was measured. Kendall's tau says how well predictions rank a model's
placements, of all pairs and of those that predictions tell apart by more than the noise of either.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from placewright.cluster import Cluster, CpuRun
from placewright.costs.profiles.profiling import profile
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.roofline import CostOptions
from placewright.plan import Plan
from placewright.planning import plan
from placewright.problem import Problem
from placewright.runtime import RunOptions
from placewright.runtime.execution import Assignment, load, run_assignments
from placewright.runtime.links import measure_links
from placewright.simulate.latency import schedule_placement, time_placement

MODELS = {
    "Inception": "torch:running_models:inception",
    "two towers": "torch:running_models:two_towers",
    "ensemble": "torch:running_models:ensemble",
    "mixture": "torch:running_models:mixture",
    "U-Net": "torch:running_models:unet",
    "BERT": "hf:bert?num_hidden_layers=4",
    "GPT-2": "hf:gpt2?n_layer=4",
    "ViT": "hf:vit?num_hidden_layers=4",
    "ResNet-50": "hf:resnet",
    "T5": "hf:t5?num_layers=4",
}
LONG = 0.05  # seconds: what takes less on one device is not judged
PLANNING_SECONDS = 20.0
RUN_OF_OPS = 20


@dataclass(frozen=True)
class Row:
    """Seconds; `error` and `noise` as shares of what was measured."""

    model: str
    placement: str
    predicted: float
    measured: float
    error: float
    noise: float
    difference: float


def main() -> None:
    arguments = _arguments()
    transport = "thread" if arguments.launcher == "local" else "gloo"
    cluster = measure_links(2, transport)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profiles.sqlite"
        for name in arguments.only or MODELS:
            for row in _rows(name, cluster, path, arguments):
                rows.append(row)
                print(f"{name}, {row.placement}: {row.error:+.1%}", file=sys.stderr)
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _print(rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(MODELS))
    parser.add_argument("--launcher", choices=("local", "processes"), default="local")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _rows(name: str, cluster: Cluster, path: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    source, costs = MODELS[name], CostOptions(profiles=path)
    with ProfileStore(path) as store:
        profile(source, cluster, store)
    options = RunOptions(
        launcher=arguments.launcher,
        repeats=arguments.repeats,
        clocked=0,
        threads=1,
        rank_cores=[
            device.run.cores for device in cluster.devices if isinstance(device.run, CpuRun)
        ],
        timeout=300.0,
    )
    best = plan(source, cluster, costs=costs, time_limit=PLANNING_SECONDS)
    placements = {"auto": best, **_others(best, source, cluster, costs)}
    program, values = load(source, options, training=False)
    assignments = [_assignment(each) for each in placements.values()]
    reports = run_assignments(program, values, assignments * 2, 2, options=options)
    for number, (placement, found) in enumerate(placements.items()):
        first, second = reports[number], reports[number + len(placements)]
        measured = (first.measured + second.measured) / 2
        yield Row(
            name,
            placement,
            found.value,
            measured,
            found.value / measured - 1,
            abs(first.measured - second.measured) / measured,
            first.max_abs_difference,
        )


def _others(best: Plan, source: str, cluster: Cluster, costs: CostOptions) -> dict[str, Plan]:
    problem = best.problem
    draw = random.Random(0)
    order = problem.topological_order
    rank = np.empty(problem.op_count, dtype=int)
    rank[order] = np.arange(problem.op_count)
    work = np.cumsum(problem.op_time[order].min(axis=1))
    half = int(np.searchsorted(work, work[-1] / 2))
    coins = [draw.randrange(2) for _ in range(problem.op_count // RUN_OF_OPS + 1)]
    return {
        "heft": plan(source, cluster, planner="heft", costs=costs),
        "one device": _placed(best, np.zeros(problem.op_count, dtype=int)),
        "memory-fill": plan(source, cluster, planner="memory-fill", costs=costs),
        "even split": _placed(best, (rank > half).astype(int)),
        "in turns": _placed(best, rank // (problem.op_count // 8 + 1) % 2),
        "random": _placed(best, np.array([coins[each // RUN_OF_OPS] for each in rank])),
        "op by op": _placed(best, np.array([draw.randrange(2) for _ in range(problem.op_count)])),
    }


def _placed(best: Plan, device: np.ndarray) -> Plan:
    """The plan with each op on `device[op]`, those that belong together where the first is."""
    from dataclasses import replace

    problem = best.problem
    together = device.copy()
    for unit in range(int(problem.op_unit.max()) + 1):
        members = np.flatnonzero(problem.op_unit == unit)
        together[members] = device[members[0]]
    placement = schedule_placement(problem, together)
    outcome = time_placement(problem, placement)
    return replace(best, placement=placement, outcome=outcome, value=outcome.makespan)


def _assignment(found: Plan) -> Assignment:
    from placewright.runtime.plans import schedule_order

    problem: Problem = found.problem
    devices = found.placement.device.tolist()
    return Assignment(dict(zip(problem.op_names, devices, strict=True)), schedule_order(found))


def kendall(rows: Sequence[Row], *, apart: bool) -> float | None:
    """Of pairs of placements those ranked alike less those ranked otherwise, as a share.

    With `apart` only pairs whose predictions differ by more than the noise of either; None where
    there are none. Equal predictions are no pair.
    """
    signs = []
    for a, b in itertools.combinations(rows, 2):
        difference = abs(a.predicted - b.predicted) / min(a.predicted, b.predicted)
        if difference > (max(a.noise, b.noise) if apart else 1e-9):
            signs.append(np.sign(a.predicted - b.predicted) * np.sign(a.measured - b.measured))
    return float(np.mean(signs)) if signs else None


def _print(rows: list[Row]) -> None:
    table = Table(title="placements: predicted against measured", title_justify="left")
    for column in ("model", "placement"):
        table.add_column(column)
    for column in ("predicted", "measured", "error", "noise", "of one device", "predicted so"):
        table.add_column(column, justify="right")
    console = Console(width=110)
    long: list[tuple[str, list[Row]]] = []
    for model, group in itertools.groupby(rows, key=lambda row: row.model):
        mine = list(group)
        one = next(row for row in mine if row.placement == "one device")
        for row in mine:
            table.add_row(
                model,
                row.placement,
                f"{1e3 * row.predicted:.1f} ms",
                f"{1e3 * row.measured:.1f} ms",
                f"{row.error:+.1%}",
                f"{row.noise:.1%}",
                f"{one.measured / row.measured:.2f}x",
                f"{one.predicted / row.predicted:.2f}x",
            )
        table.add_section()
        if one.measured >= LONG:
            long.append((model, mine))
    console.print(table)
    if long:
        _summarise(long, console)


def _summarise(long: Sequence[tuple[str, list[Row]]], console: Console) -> None:
    rows = [row for _, mine in long for row in mine]
    errors = [abs(row.error) for row in rows]
    console.print(
        f"of {len(rows)} placements of models that take 50 ms or more: median error "
        f"{statistics.median(errors):.1%}, worst {max(errors):.1%}; median noise "
        f"{statistics.median(row.noise for row in rows):.1%}; largest difference of an output "
        f"{max(row.difference for row in rows):.1g}"
    )
    for apart, which in ((False, "all pairs"), (True, "pairs told apart by more than the noise")):
        taus = [(model, kendall(mine, apart=apart)) for model, mine in long]
        known = [(model, tau) for model, tau in taus if tau is not None]
        if known:
            told = ", ".join(f"{model} {tau:.2f}" for model, tau in known)
            mean = statistics.mean(tau for _, tau in known)
            console.print(f"Kendall's tau of {which}: mean {mean:.2f} ({told})")


if __name__ == "__main__":
    main()
