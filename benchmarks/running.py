"""How plans run: predicted beside measured, and what the default plan gains.

    python benchmarks/running.py [--gpu] [--only MODEL ...] [--launcher local|processes]
        [--repeats 9]

Two devices of a core each of this machine; with ``--gpu`` its first GPU and its cores, between
which tensors are handed from thread to thread (``local``). Costs are measured (profiles of every
op, and links as the launcher moves tensors). Of each model eight placements run in one go: the
default planner's, HEFT's, one device (the GPU, where there is one), memory-fill, the even split
(half of the work, in the program's order, on each), blocks of ops in turns, ops drawn at random in
runs of 20, and every op drawn at random. All of them take turns, twice: `measured` is the mean of
the two medians, `noise` how far they lie apart, `error` how far the prediction is from what was
measured.

Kendall's tau says how well predictions rank a model's placements. On two equal devices most of the
eight are predicted to take the same time, since a chain of ops takes as long wherever it is cut:
their order means nothing, to predictions or to clocks. So five or six more are ranked, whose
predicted times are spread (`running_placements.spread`): chosen from some fifty splits, blocks in
turns and random placements before anything runs, and each at least 5 % slower than the one before.
A model that has no five such placements is not ranked so. Tau is printed of these, and of the
eight: of all pairs, and of those that predictions tell apart by more than the noise of either.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from running_placements import candidates, named, spread

from placewright.cluster import Cluster, CpuRun, CudaRun, Device
from placewright.costs.profiles.profiling import place_of, profile
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.roofline import CostOptions
from placewright.errors import ClusterError
from placewright.plan import Plan
from placewright.planning import plan
from placewright.problem import Problem
from placewright.runtime import RunOptions
from placewright.runtime.execution import Assignment, load, run_assignments
from placewright.runtime.links import measure_links

BRANCHING = {
    "Inception": "torch:running_models:inception",
    "two towers": "torch:running_models:two_towers",
    "ensemble": "torch:running_models:ensemble",
    "mixture": "torch:running_models:mixture",
}
CHUNKED = {
    "BERT in chunks": "torch:running_models:bert_in_chunks",
    "GPT-2 in chunks": "torch:running_models:gpt2_in_chunks",
    "ViT in chunks": "torch:running_models:vit_in_chunks",
    "ResNet in chunks": "torch:running_models:resnet_in_chunks",
    "T5 in chunks": "torch:running_models:t5_in_chunks",
    "U-Net in chunks": "torch:running_models:unet_in_chunks",
}
SERIAL = {
    "U-Net": "torch:running_models:unet",
    "BERT": "hf:bert?num_hidden_layers=4",
    "GPT-2": "hf:gpt2?n_layer=4",
    "ViT": "hf:vit?num_hidden_layers=4",
    "ResNet-50": "hf:resnet",
    "T5": "hf:t5?num_layers=4",
}
MODELS = BRANCHING | CHUNKED | SERIAL
GROUPS = {"overlapping": [*BRANCHING, *CHUNKED], "plain": [*BRANCHING, *SERIAL]}
LONG, GPU_LONG = 0.05, 0.002  # seconds: what takes less on one device is not judged


@dataclass(frozen=True)
class Row:
    """Seconds; `error` and `noise` as shares of what was measured.

    Whether it is one of the `eight`, and whether one of those that are `ranked`.
    """

    model: str
    placement: str
    predicted: float
    measured: float
    error: float
    noise: float
    difference: float
    eight: bool
    ranked: bool


def main() -> None:
    arguments = _arguments()
    cluster = gpu_and_cpu() if arguments.gpu else _two_cpus(arguments.launcher)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profiles.sqlite"
        for name in arguments.only or GROUPS.get(arguments.group, MODELS):
            for row in _rows(name, cluster, path, arguments):
                rows.append(row)
                print(
                    f"{name}, {row.placement}: {row.measured * 1e3:.2f} ms, predicted "
                    f"{row.error:+.1%}",
                    file=sys.stderr,
                )
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _print(rows, GPU_LONG if arguments.gpu else LONG)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--only", nargs="*", choices=list(MODELS))
    parser.add_argument("--group", choices=list(GROUPS), help="of models; all if not given")
    parser.add_argument("--launcher", choices=("local", "processes"), default="local")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--planning-seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _two_cpus(launcher: str) -> Cluster:
    return measure_links(2, "thread" if launcher == "local" else None)


def gpu_and_cpu() -> Cluster:
    """The first GPU of this machine, then its CPU."""
    whole = measure_links(None, "thread")
    gpus = [device for device in whole.devices if isinstance(device.run, CudaRun)]
    cpus = [device for device in whole.devices if isinstance(device.run, CpuRun)]
    if not gpus:
        raise ClusterError("this machine has no GPU that computes for PyTorch")
    ends = {gpus[0].name, cpus[0].name}
    links = tuple(link for link in whole.links if {link.a, link.b} == ends)
    return replace(whole, devices=(gpus[0], cpus[0]), links=links)


def _rows(name: str, cluster: Cluster, path: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    source, costs = MODELS[name], CostOptions(profiles=path)
    with ProfileStore(path) as store:
        profile(source, cluster, store)
    options = RunOptions(
        launcher=arguments.launcher,
        repeats=arguments.repeats,
        clocked=0,
        threads=[place_of(device).threads for device in cluster.devices],
        rank_cores=[_cores(device) for device in cluster.devices],
        rank_gpus=[_gpu_index(device) for device in cluster.devices] if arguments.gpu else (),
        timeout=300.0,
    )
    best = plan(source, cluster, costs=costs, time_limit=arguments.planning_seconds)
    old = named(best, lambda planner: plan(source, cluster, planner=planner, costs=costs))
    plans = old | candidates(best)
    chosen = spread({name: found.value for name, found in plans.items()})
    placements = {each: plans[each] for each in dict.fromkeys((*old, *chosen))}
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
            placement in old,
            placement in chosen,
        )


def _cores(device: Device) -> tuple[int, ...]:
    return device.run.cores if isinstance(device.run, CpuRun) else ()


def _gpu_index(device: Device) -> int | None:
    return device.run.index if isinstance(device.run, CudaRun) else None


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


def _print(rows: list[Row], least: float) -> None:
    table = Table(title="placements (*: ranked): predicted, measured", title_justify="left")
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
                f"{row.placement} *" if row.ranked else row.placement,
                f"{1e3 * row.predicted:.1f} ms",
                f"{1e3 * row.measured:.1f} ms",
                f"{row.error:+.1%}",
                f"{row.noise:.1%}",
                f"{one.measured / row.measured:.2f}x",
                f"{one.predicted / row.predicted:.2f}x",
            )
        table.add_section()
        if one.measured >= least:
            long.append((model, mine))
    console.print(table)
    if long:
        _summarise(long, least, console)


def _summarise(long: Sequence[tuple[str, list[Row]]], least: float, console: Console) -> None:
    rows = [row for _, mine in long for row in mine]
    errors = [abs(row.error) for row in rows]
    console.print(
        f"of {len(rows)} placements of models that take {least * 1e3:.0f} ms or more: median error "
        f"{statistics.median(errors):.1%}, worst {max(errors):.1%}; median noise "
        f"{statistics.median(row.noise for row in rows):.1%}; largest difference of an output "
        f"{max(row.difference for row in rows):.1g}"
    )
    eight = [(model, [row for row in mine if row.eight]) for model, mine in long]
    ranked = [(model, [row for row in mine if row.ranked]) for model, mine in long]
    _print_taus("placements whose predicted times are spread", ranked, console)
    _print_taus("the eight placements, all pairs", eight, console)
    _print_taus("the eight, pairs told apart by more than the noise", eight, console, apart=True)


def _print_taus(
    what: str, long: Sequence[tuple[str, list[Row]]], console: Console, *, apart: bool = False
) -> None:
    taus = [(model, len(mine), kendall(mine, apart=apart)) for model, mine in long]
    known = [(model, count, tau) for model, count, tau in taus if tau is not None]
    if not known:
        return
    told = ", ".join(f"{model} {tau:.2f} of {count}" for model, count, tau in known)
    mean = statistics.mean(tau for *_, tau in known)
    console.print(f"Kendall's tau of {what}: mean {mean:.2f} over {len(known)} models ({told})")


if __name__ == "__main__":
    main()
