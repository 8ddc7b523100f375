"""How true the costs of fused groups are: a compiled model's latency beside what its plan says.

    python benchmarks/fused_accuracy.py [--only MODEL ...] [--profiles FILE] [--repeats 15] [--json]

Every model has random weights and runs on one core of this machine. Its ops and the groups that
`--coarsen fusion` makes are measured (`placewright profile --compiled`). `ops` is what the plan on
that core says without the groups' times, `fused` with them; both are compared with the program
compiled as a whole by Inductor. `noise` is how far two such measurements lie apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from cost_accuracy import MODELS
from rich.console import Console
from rich.table import Table

from placewright.cluster import Cluster, CpuRun, Device
from placewright.costs.detect import detect
from placewright.costs.profiles.compiling import compiled
from placewright.costs.profiles.measure import input_values
from placewright.costs.profiles.profiling import profile
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.roofline import CostOptions
from placewright.importers.torch.programs import Executable, load_executable
from placewright.measuring.fused_groups import profile_groups
from placewright.planning import plan
from placewright.system.pinning import pinned

DEFAULT = ("BERT", "GPT-2", "ViT")


@dataclass(frozen=True)
class Row:
    """Seconds; errors and noise as shares of what was measured."""

    model: str
    groups: int
    profiling: float
    ops: float
    fused: float
    measured: float
    error_of_ops: float
    error_of_fused: float
    noise: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=sorted(MODELS), default=DEFAULT)
    parser.add_argument("--profiles", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.profiles or Path(folder) / "profiles.sqlite"
        with ProfileStore(path) as store:
            rows = [_row(name, store, arguments.repeats) for name in arguments.only]
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _print(rows)


def _row(name: str, store: ProfileStore, repeats: int) -> Row:
    source, device = MODELS[name], _core()
    cluster = Cluster(device.name, (device,))
    profile(source, cluster, store)
    [groups] = profile_groups(source, cluster, store)
    before, after = _latencies(load_executable(source), device, repeats)
    costs = CostOptions(profiles=store.path)
    ops = plan(source, cluster, planner="single-device", costs=costs).value
    fused = plan(source, cluster, planner="single-device", costs=costs, coarsening="fusion").value
    measured = (before + after) / 2
    return Row(
        name,
        groups.measured + groups.known,
        groups.seconds,
        ops,
        fused,
        measured,
        ops / measured - 1,
        fused / measured - 1,
        abs(before - after) / measured,
    )


def _core() -> Device:
    found = next(device for device in detect().devices if isinstance(device.run, CpuRun))
    assert isinstance(found.run, CpuRun)
    return detect(split_cpu=len(found.run.cores)).devices[-1]


def _latencies(executable: Executable, device: Device, repeats: int) -> tuple[float, float]:
    """Two medians of the compiled program's seconds on the device."""
    assert isinstance(device.run, CpuRun)
    inputs = input_values(executable)
    medians = []
    with pinned(device.run.cores), torch.no_grad():
        function = compiled(executable.module, inputs)
        for _ in range(2):
            seconds = []
            for done in range(-2, repeats):
                started = time.perf_counter()
                function(*inputs)
                if done >= 0:
                    seconds.append(time.perf_counter() - started)
            medians.append(statistics.median(seconds))
    return medians[0], medians[1]


def _print(rows: list[Row]) -> None:
    table = Table(title="compiled models: planned against measured latency", title_justify="left")
    table.add_column("model")
    for column in ("groups", "measured in", "ops", "fused", "compiled", "error", "fused", "noise"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.model,
            str(row.groups),
            f"{row.profiling:.1f} s",
            f"{row.ops * 1e3:.2f} ms",
            f"{row.fused * 1e3:.2f} ms",
            f"{row.measured * 1e3:.2f} ms",
            f"{row.error_of_ops:+.1%}",
            f"{row.error_of_fused:+.1%}",
            f"{row.noise:.1%}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
