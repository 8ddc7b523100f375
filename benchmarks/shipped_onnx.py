"""How true costs of ONNX files are that ship in Python packages, beside ONNX Runtime itself.

    pip download --no-deps rapidocr-onnxruntime silero-vad magika -d wheels
    python benchmarks/shipped_onnx.py wheels/*.whl [--cores 1] [--repeats 40] [--json]

The files of `FILES` are taken out of the wheels: detection, recognition and turning of text in
images, voices in sound, types of files. Each is imported, its nodes are profiled (`placewright
profile`, into a new store), and the plan on a device of so many cores predicts the latency.
`as written` is how long ONNX Runtime takes for the file with its own weights and made-up inputs,
every node as the file has it, as plans run; `error` compares this. `optimised` is the same with
all optimisations of ONNX Runtime, which fuse nodes. Both are medians of runs in turns before
profiling and after; `noise` is how far the halves of the first lie apart, taken in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from this_cpu import this_cpu

from placewright.cluster import Cluster, CpuRun, Device
from placewright.costs.profiles.onnx.models import whole
from placewright.costs.profiles.onnx.values import made_up
from placewright.costs.profiles.profiling import profile
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.roofline import CostOptions
from placewright.importers.onnx.dimensions import read_sizes
from placewright.importers.onnx.reading import read_model
from placewright.planning import plan
from placewright.system.pinning import pinned

FILES = {
    "ch_PP-OCRv4_det_infer.onnx": "p2o.DynamicDimension.1=640&p2o.DynamicDimension.2=640",
    "ch_PP-OCRv4_rec_infer.onnx": "p2o.DynamicDimension.1=320&?=48",
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": "x.0=6&?=192",
    "silero_vad_16k_op15.onnx": "sequence=512",
    "model.onnx": "",  # of magika
}
WARM_UPS = 5


@dataclass(frozen=True)
class Row:
    """Seconds; `error` and `noise` as shares of what was measured as written."""

    file: str
    ops: int
    predicted: float
    as_written: float
    optimised: float
    error: float
    noise: float


def main() -> None:
    arguments = _arguments()
    device = this_cpu(arguments.cores)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for path in _unpacked(arguments.wheels, Path(folder)):
            rows.append(_row(path, device, arguments.repeats))
            print(f"{rows[-1].file}: {rows[-1].error:+.1%}", file=sys.stderr)
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _print(rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _unpacked(wheels: Sequence[Path], folder: Path) -> Iterator[Path]:
    """The known files of the wheels, by their names alone."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                name = member.rpartition("/")[2]
                if name in FILES:
                    (folder / name).write_bytes(archive.read(member))
                    yield folder / name


def _row(path: Path, device: Device, repeats: int) -> Row:
    source = f"{path}?{FILES[path.name]}" if FILES[path.name] else str(path)
    cluster = Cluster("one", (device,))
    before = _measured(path, device, repeats)
    with ProfileStore(path.parent / f"{path.name}.sqlite") as store:
        profile(source, cluster, store)
        costs = CostOptions(profiles=store.path)
        found = plan(source, cluster, planner="single-device", costs=costs)
    after = _measured(path, device, repeats)
    written, optimised = ([*a, *b] for a, b in zip(before, after, strict=True))
    measured = statistics.median(written)
    halves = [statistics.median(written[start::2]) for start in (0, 1)]
    return Row(
        path.name,
        found.problem.op_count,
        found.value,
        measured,
        statistics.median(optimised),
        found.value / measured - 1,
        abs(halves[0] - halves[1]) / measured,
    )


def _measured(path: Path, device: Device, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of the runs as written, and of those optimised, made in turns."""
    assert isinstance(device.run, CpuRun)
    inputs = _inputs(path)
    with pinned(device.run.cores):
        sessions = [
            _bound(path, len(device.run.cores), optimised, inputs) for optimised in (False, True)
        ]
        for run in sessions:
            for _ in range(WARM_UPS):
                run()
        seconds: tuple[list[float], list[float]] = ([], [])
        for _ in range(repeats):
            for run, each in zip(sessions, seconds, strict=True):
                run()  # so that the next finds its own caches
                started = time.perf_counter()
                run()
                each.append(time.perf_counter() - started)
    return seconds


def _inputs(path: Path) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    runnable = whole(read_model(path, dimensions=read_sizes(FILES[path.name], path)))
    return {name: made_up(blank, generator) for name, blank in runnable.inputs.items()}


def _bound(
    path: Path, threads: int, optimised: bool, inputs: Mapping[str, Any]
) -> Callable[[], None]:
    """The file, ready to run on inputs that stay where they are."""
    import onnxruntime as ort

    levels = ort.GraphOptimizationLevel
    options = ort.SessionOptions()
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    )
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_cpu_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    return lambda: session.run_with_iobinding(binding)


def _print(rows: list[Row]) -> None:
    table = Table(title="ONNX files of packages: predicted against measured", title_justify="left")
    table.add_column("file")
    for column in ("ops", "predicted", "as written", "error", "noise", "optimised"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.file,
            str(row.ops),
            f"{row.predicted * 1e3:.2f} ms",
            f"{row.as_written * 1e3:.2f} ms",
            f"{row.error:+.1%}",
            f"{row.noise:.1%}",
            f"{row.optimised * 1e3:.2f} ms",
        )
    console = Console(width=120)
    console.print(table)
    errors = [abs(row.error) for row in rows]
    console.print(f"median error {statistics.median(errors):.1%}, worst {max(errors):.1%}")


if __name__ == "__main__":
    main()
