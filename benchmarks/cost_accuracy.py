"""How true costs are: latency of whole models as measured, beside what their profiles add up to.

    python benchmarks/cost_accuracy.py [--only MODEL ...] [--profiles FILE] [--repeats 15] [--json]

Every model has random weights and runs on the CPU of this machine: as two devices of a core each,
of which one is used, and as one device of two cores. Its ops are profiled (`placewright profile`,
into a new store unless `--profiles` names one), the plan on that device alone predicts the
latency, and the program runs as a whole, before profiling and after; `measured` is the mean of the
two medians. Only what ran while the machine was steady counts (`costs.profiles.steady`), in
profiles as in whole runs; `steady` says how many whole runs that were, of how many. Of every two
runs that count one goes to each half of a measurement, and `noise` is how far the halves lie apart:
taken at the same time they hide what changes in between, which is in `drift`, how far the
measurement before profiling lies from the one after. An error below both says nothing. The second
table leaves each model out, in turn, of what predictions are made from (`placewright profiles
check`), and each device.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from placewright.cluster import Cluster, CpuRun, Device
from placewright.costs.detect import detect
from placewright.costs.prediction.check import Check, check
from placewright.costs.profiles.measure import input_values
from placewright.costs.profiles.profiling import profile
from placewright.costs.profiles.program import WARM_UPS, at_least
from placewright.costs.profiles.reference import torch_watch
from placewright.costs.profiles.steady import Passes
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.roofline import CostOptions
from placewright.errors import ClusterError
from placewright.importers.torch.programs import Executable, load_executable
from placewright.planning import plan
from placewright.system.allocator import keep_freed_memory
from placewright.system.pinning import pinned

LAYERS = "num_hidden_layers=4"
MODELS = {
    "BERT": f"hf:bert?{LAYERS}",
    "GPT-2": "hf:gpt2?n_layer=4",
    "ViT": f"hf:vit?{LAYERS}",
    "ResNet-50": "hf:resnet",
    "T5": "hf:t5?num_layers=4",
    "Llama": f"hf:llama?{LAYERS}&hidden_size=512&intermediate_size=1376&num_attention_heads=8"
    "&num_key_value_heads=8&vocab_size=8000",
    "Mixtral": f"hf:mixtral?{LAYERS}&hidden_size=512&intermediate_size=1024&num_attention_heads=8"
    "&num_key_value_heads=4&num_local_experts=4&vocab_size=8000",
    "U-Net": "torch:cost_models:unet",
}
LONG = 0.05  # seconds: what takes less is not judged


@dataclass(frozen=True)
class Row:
    """Seconds; `error`, `noise` and `drift` as shares of what was measured; whole runs."""

    model: str
    device: str
    ops: int
    new: int
    profiling: float
    predicted: float
    measured: float
    error: float
    noise: float
    drift: float
    runs: int
    steady: int


@dataclass(frozen=True)
class Latency:
    """Seconds of the whole runs that count; how many there were, and how many of them steady."""

    seconds: list[float]
    runs: int
    steady: int

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def noise(self) -> float:
        """Between the halves, as a share."""
        halves = [statistics.median(self.seconds[start::2]) for start in (0, 1)]
        return abs(halves[0] - halves[1]) / self.median


def main() -> None:
    arguments = _arguments()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.profiles or Path(folder) / "profiles.sqlite"
        with ProfileStore(path) as store:
            for name in arguments.only or MODELS:
                for row in _rows(name, store, arguments.repeats):
                    rows.append(row)
                    print(f"{row.model} on {row.device}: {row.error:+.1%}", file=sys.stderr)
            checks = check(store) if len(rows) > 1 else []
    if arguments.json:
        found = {"measured": rows, "left_out": checks}
        print(json.dumps({k: [asdict(row) for row in v] for k, v in found.items()}, indent=2))
    else:
        _print(rows)
        _print_checks(checks)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=sorted(MODELS))
    parser.add_argument("--profiles", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _rows(name: str, store: ProfileStore, repeats: int) -> Iterator[Row]:
    executable = load_executable(MODELS[name])
    for device in _devices():
        cluster = Cluster(device.name, (device,))
        before = _latency(executable, device, repeats)
        [done] = profile(MODELS[name], cluster, store)
        after = _latency(executable, device, repeats)
        costs = CostOptions(profiles=store.path)
        predicted = plan(MODELS[name], cluster, planner="single-device", costs=costs).value
        measured = (before.median + after.median) / 2
        yield Row(
            name,
            device.name,
            len(executable.calls),
            done.measured,
            done.seconds,
            predicted,
            measured,
            predicted / measured - 1,
            (before.noise + after.noise) / 2,
            abs(before.median - after.median) / measured,
            before.runs + after.runs,
            before.steady + after.steady,
        )


def _devices() -> list[Device]:
    """One core of this machine, and two of them where it has as many."""
    whole = detect().devices
    cpus = [device for device in whole if isinstance(device.run, CpuRun)]
    if not cpus:
        raise ClusterError("this machine names no cores to pin a process to")
    cores = cpus[0].run.cores  # type: ignore[union-attr]
    two = len(cores) > 1
    one = detect(split_cpu=len(cores)).devices if two else whole
    single = next(device for device in one if isinstance(device.run, CpuRun))
    return [single, cpus[0]] if two else [single]


def _latency(executable: Executable, device: Device, repeats: int) -> Latency:
    """The program as a whole on the device, so many times while the machine is steady."""
    import torch

    assert isinstance(device.run, CpuRun)
    keep_freed_memory()
    inputs = input_values(executable)
    seconds = []
    with pinned(device.run.cores), torch.no_grad():
        for _ in range(WARM_UPS):
            executable.module(*inputs)
        passes = Passes(torch_watch(), at_least(repeats))
        while passes.share < 1.0:
            started = time.perf_counter()
            executable.module(*inputs)
            seconds.append(time.perf_counter() - started)
            passes.passed()
    return Latency([seconds[n] for n in passes.counted], passes.ran, len(passes.steady))


def _print(rows: list[Row]) -> None:
    table = Table(title="measured costs: predicted against measured latency", title_justify="left")
    for column in ("model", "device"):
        table.add_column(column)
    for column in (
        "ops",
        "new",
        "profiled in",
        "predicted",
        "measured",
        "error",
        "noise",
        "drift",
        "steady",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.model,
            row.device,
            str(row.ops),
            str(row.new),
            f"{row.profiling:.1f} s",
            f"{row.predicted * 1e3:.2f} ms",
            f"{row.measured * 1e3:.2f} ms",
            f"{row.error:+.1%}",
            f"{row.noise:.1%}",
            f"{row.drift:.1%}",
            f"{row.steady} of {row.runs}",
        )
    console = Console(width=120)
    console.print(table)
    errors = [abs(row.error) for row in rows if row.measured >= LONG]
    if errors:
        console.print(
            f"of {len(errors)} that take {LONG * 1e3:.0f} ms or more: "
            f"median error {statistics.median(errors):.1%}, worst {max(errors):.1%}"
        )


def _print_checks(checks: list[Check]) -> None:
    names = {source: name for name, source in MODELS.items()}
    table = Table(title="predictions: what is left out, from the rest", title_justify="left")
    for column in ("left out", "device"):
        table.add_column(column)
    for column in ("ops", "median op error", "predicted", "measured", "error"):
        table.add_column(column, justify="right")
    for each in checks:
        whole = each.end_to_end is not None
        table.add_row(
            names.get(each.name, each.left_out),
            each.device,
            str(each.ops),
            f"{each.median:.1%}",
            f"{each.predicted * 1e3:.2f} ms" if each.predicted else "",
            f"{each.measured * 1e3:.2f} ms" if each.measured else "",
            f"{each.end_to_end:+.1%}" if whole else "",
        )
    console = Console(width=120)
    console.print(table)
    models = [each for each in checks if each.left_out == "model"]
    wholes = [abs(each.end_to_end) for each in models if each.end_to_end is not None]
    if wholes:
        console.print(
            f"a model left out: median op error {statistics.median(e.median for e in models):.1%}, "
            f"end to end {statistics.median(wholes):.1%} median, {max(wholes):.1%} worst"
        )


if __name__ == "__main__":
    main()
