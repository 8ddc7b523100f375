"""How true costs are: latency of whole models as measured, beside what their profiles add up to.

    python benchmarks/cost_accuracy.py [--gpu] [--only MODEL ...] [--profiles FILE] [--repeats 15]
        [--no-check] [--json]

Every model has random weights and runs on the CPU of this machine: as two devices of a core each,
of which one is used, and as one device of two cores; with ``--gpu`` on its first GPU, larger
models at that. Its ops are profiled (`placewright profile`, into a new store unless `--profiles`
names one), the plan on that device alone predicts the latency, and the program runs as a whole,
before profiling and after; `measured` is the mean of the two medians. `datasheet` is the error of
the same prediction without profiles. Only what ran while the machine was steady counts
(`costs.profiles.steady`), in profiles as in whole runs; `steady` says how many whole runs that
were, of how many. Of every two
runs that count one goes to each half of a measurement, and `noise` is how far the halves lie apart:
taken at the same time they hide what changes in between, which is in `drift`, how far the
measurement before profiling lies from the one after. An error below both says nothing. The second
table leaves each model out, in turn, of what predictions are made from (`placewright profiles
check`), and each device.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from placewright.cluster import Cluster, CpuRun, CudaRun, Device
from placewright.costs.detect import detect
from placewright.costs.prediction.check import Check, check
from placewright.costs.profiles.measure import input_values
from placewright.costs.profiles.profiling import place_of, profile
from placewright.costs.profiles.program import WARM_UPS, at_least
from placewright.costs.profiles.reference import torch_watch
from placewright.costs.profiles.steady import Passes
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.roofline import CostOptions
from placewright.errors import ClusterError
from placewright.importers.torch.once import Source
from placewright.importers.torch.programs import Executable
from placewright.importers.torch.retarget import on_device
from placewright.planning import plan
from placewright.system.allocator import keep_freed_memory

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
GPT2 = "hf:gpt2?n_layer=12"
GPU_LLAMA = "hf:llama?num_hidden_layers=8&hidden_size=2048&intermediate_size=5504"
GPU_LLAMA += "&num_attention_heads=16&num_key_value_heads=16&vocab_size=32000&dtype=bfloat16"
GPU_MODELS = {
    "BERT": "hf:bert?batch=16",
    "BERT, one sequence": "hf:bert",
    "GPT-2": f"{GPT2}&batch=8&sequence=256",
    "ViT": "hf:vit?batch=32",
    "ResNet-50": "hf:resnet?batch=32",
    "T5": "hf:t5?batch=16",
    "Llama, prefill": f"{GPU_LLAMA}&batch=4&sequence=512",
    "Llama, decode": f"{GPU_LLAMA}&phase=decode&batch=8&context=512",
    "U-Net": "torch:cost_models:unet",
}
LONG, GPU_LONG = 0.05, 0.002  # seconds: what takes less is not judged, on a CPU and on a GPU


@dataclass(frozen=True)
class Row:
    """Seconds; the errors, `noise` and `drift` as shares of what was measured; whole runs."""

    model: str
    device: str
    ops: int
    new: int
    profiling: float
    predicted: float
    measured: float
    error: float
    datasheet: float
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
    models = GPU_MODELS if arguments.gpu else MODELS
    unknown = set(arguments.only or ()) - models.keys()
    if unknown:
        raise SystemExit(f"no model is called {', '.join(sorted(unknown))}; {', '.join(models)}")
    devices = [_gpu()] if arguments.gpu else _cpus()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.profiles or Path(folder) / "profiles.sqlite"
        with ProfileStore(path) as store:
            for name, device in itertools.product(arguments.only or models, devices):
                rows.append(_row(name, models[name], device, store, arguments.repeats))
                row = rows[-1]
                print(
                    f"{row.model} on {row.device}: {row.measured * 1e3:.2f} ms, predicted "
                    f"{row.error:+.1%}, by the datasheet {row.datasheet:+.0%}",
                    file=sys.stderr,
                )
            checks = [] if arguments.no_check or len(rows) < 2 else check(store)
    if arguments.json:
        found = {"measured": rows, "left_out": checks}
        print(json.dumps({k: [asdict(row) for row in v] for k, v in found.items()}, indent=2))
    else:
        _print(rows, GPU_LONG if arguments.gpu else LONG)
        if checks:
            _print_checks(checks, models)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--profiles", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--no-check", action="store_true", help="without the second table")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _row(name: str, text: str, device: Device, store: ProfileStore, repeats: int) -> Row:
    source = Source(text)
    cluster = Cluster(device.name, (device,))
    whole = _Whole(source.executable, device)
    before = whole.latency(repeats)
    [done] = profile(text, cluster, store, exported=source)
    after = whole.latency(repeats)
    predicted, datasheet = (
        plan(source.graph, cluster, planner="single-device", costs=costs).value
        for costs in (CostOptions(profiles=each, kernels="program") for each in (store.path, None))
    )
    measured = (before.median + after.median) / 2
    return Row(
        name,
        device.name,
        len(source.executable.calls),
        done.measured,
        done.seconds,
        predicted,
        measured,
        predicted / measured - 1,
        datasheet / measured - 1,
        (before.noise + after.noise) / 2,
        abs(before.median - after.median) / measured,
        before.runs + after.runs,
        before.steady + after.steady,
    )


def _cpus() -> list[Device]:
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


def _gpu() -> Device:
    for device in detect().devices:
        if isinstance(device.run, CudaRun):
            return device
    raise ClusterError("this machine has no GPU that computes for PyTorch")


class _Whole:
    """A program as a whole on a device, with its inputs there."""

    def __init__(self, executable: Executable, device: Device) -> None:
        self._place = place_of(device)
        with self._place.entered():
            queues, there = self._place.queues, self._place.device
            self._program = on_device(executable, there) if queues else executable
            self._inputs = input_values(executable, device=there)

    def latency(self, repeats: int) -> Latency:
        """It runs so many times while the machine is steady."""
        import torch

        keep_freed_memory()
        seconds = []
        with self._place.entered(), torch.no_grad():
            for _ in range(WARM_UPS):
                self._program.module(*self._inputs)
            passes = Passes(torch_watch(self._place), at_least(repeats))
            while passes.share < 1.0:
                started = self._place.now()
                self._program.module(*self._inputs)
                seconds.append(self._place.now() - started)
                passes.passed()
        return Latency([seconds[n] for n in passes.counted], passes.ran, len(passes.steady))


def _print(rows: list[Row], long: float) -> None:
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
        "datasheet",
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
            f"{row.datasheet:+.0%}",
            f"{row.noise:.1%}",
            f"{row.drift:.1%}",
            f"{row.steady} of {row.runs}",
        )
    console = Console(width=130)
    console.print(table)
    errors = [abs(row.error) for row in rows if row.measured >= long]
    if errors:
        console.print(
            f"of {len(errors)} that take {long * 1e3:.0f} ms or more: "
            f"median error {statistics.median(errors):.1%}, worst {max(errors):.1%}"
        )


def _print_checks(checks: list[Check], models: Mapping[str, str]) -> None:
    names = {source: name for name, source in models.items()}
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
    console = Console(width=130)
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
