"""How true the Standard Evaluation is: Celeritas' Table 5 and Figure 5 for models on this machine.

    python benchmarks/standard_evaluation.py [--only MODEL ...] [--batch 32] [--batches 4,8,16]
        [--steps 5] [--cores 1] [--figure FILE.svg] [--json]

The deviation of an op is |estimated - actual| / actual (Celeritas §6.3), and what the table gives
is its mean over all ops of the program, each counted once and none by its length. Actual is the
median of the op's runs in steps of the large batch that nothing was learnt from. There are as many
of them as of the `--steps` that correct, in turns with these: the machine's speed drifts by a tenth
within minutes, which is no fault of an estimate. Estimated is what the store says of the op's
signature: `regressed` is from the small batches alone, `corrected` after the steps of the large
batch. `noise` is how far medians of every other of the steps held out deviate from those of the
rest; an estimate that is not further off is as good as a measurement.

Memory is bytes beyond the inputs, outputs and temporaries, without weights. An op that has none,
such as a view, is not counted; one that is estimated to have some and has none counts as a
deviation of 1. `of all` is the share of all time or bytes that is misjudged, `≤20/30%` the share of
ops whose memory deviates by 20 % or less, their time by 30 %, and the last columns are the CDF of
Figure 5, read at these shares of the ops.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from this_cpu import this_cpu

from placewright.cluster import Cluster, CpuRun, Device
from placewright.costs.profiles.entry import Measured
from placewright.costs.profiles.memory import measure_memory
from placewright.costs.profiles.store import ProfileStore
from placewright.importers.torch.costs import is_view, size_of
from placewright.importers.torch.programs import Executable, load_executable
from placewright.importers.torch.signature import signature
from placewright.measuring.standard_evaluation import Evaluation, standard_evaluation
from placewright.system.pinning import pinned

MODELS = {"ResNet-50": "hf:resnet", "BERT": "hf:bert?num_hidden_layers=4",
          "GPT-2": "hf:gpt2?n_layer=4"}  # fmt: skip
PAPER = {"memory": 0.0154, "time": 0.0799}  # Table 5, Inception_V3
QUANTILES = (0.5, 0.6, 0.8, 0.9, 0.95)
WITHIN = {"memory": 0.2, "time": 0.3}  # what Figure 5 is read at: 90 % and 80 % of the ops


@dataclass(frozen=True)
class Row:
    """Deviations as shares; `within` is the share of ops up to 20 % (memory) or 30 % (time)."""

    model: str
    batch: int
    batches: tuple[int, ...]
    what: str
    estimate: str
    ops: int
    mean: float
    of_all: float
    within: float
    quantiles: dict[float, float]
    load: float
    seconds: float
    deviations: list[float] = field(repr=False, default_factory=list)


@dataclass(frozen=True)
class Actual:
    """Of every op at the large batch: median seconds, and bytes beyond its inputs."""

    seconds: dict[str, float]
    bytes: dict[str, float]


def main() -> None:
    arguments = _arguments()
    rows = []
    for name in arguments.only:
        rows += _rows(name, arguments)
        print(f"{name}: done, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    if arguments.figure:
        _draw(rows, arguments.figure)
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _print(rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=sorted(MODELS), default=["ResNet-50", "BERT"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--batches", type=lambda text: tuple(map(int, text.split(","))), default=())
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _rows(name: str, arguments: argparse.Namespace) -> list[Row]:
    source = MODELS[name]
    source += f"{'&' if '?' in source else '?'}batch={arguments.batch}"
    executable, device = load_executable(source), this_cpu(arguments.cores)
    started, load = time.perf_counter(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, ProfileStore(f"{folder}/profiles") as store:
        cluster = Cluster(device.name, (device,))
        [done] = standard_evaluation(
            source, cluster, store, batches=arguments.batches, steps=arguments.steps, hold_out=True
        )
        kept = {key.signature: each for key, each in store.entries()}
    if done.left_out:
        sys.exit(f"{name}: the large batch was not run: {done.left_out}")
    load = max(load, os.getloadavg()[0])
    actual, even, odd = (
        _actual(executable, device, done, part)
        for part in (slice(None), slice(0, None, 2), slice(1, None, 2))
    )
    compared = {
        "regressed": (_estimated(executable, kept | dict(done.estimates)), actual),
        "corrected": (_estimated(executable, kept), actual),
        "noise": (even, odd),
    }
    return [
        _row(name, done, what, label, getattr(found, field), getattr(judge, field), load, started)
        for what, field in (("memory", "bytes"), ("time", "seconds"))
        for label, (found, judge) in compared.items()
    ]


def _actual(executable: Executable, device: Device, done: Evaluation, part: slice) -> Actual:
    """Of some of the steps held out; bytes are measured again."""
    assert isinstance(device.run, CpuRun)
    with pinned(device.run.cores):
        held = measure_memory(executable)
    return Actual({op: float(np.median(x[part])) for op, x in done.held_out.items()}, held)


def _estimated(executable: Executable, entries: Mapping[str, Measured]) -> Actual:
    found = Actual({}, {})
    for node in executable.calls:
        entry = entries[signature(node)]
        outputs = 0.0 if is_view(node) else size_of(node.meta.get("val"))
        found.seconds[node.name] = entry.seconds
        found.bytes[node.name] = outputs + entry.memory
    return found


def _row(
    name: str, done: Evaluation, what: str, label: str, estimated: Mapping[str, float],
    actual: Mapping[str, float], load: float, started: float,
) -> Row:  # fmt: skip
    pairs = [(estimated[op], actual[op]) for op in actual if estimated[op] or actual[op]]
    e, a = np.array(pairs).T
    with np.errstate(divide="ignore"):
        deviations: NDArray[np.float64] = np.where(a > 0, np.abs(e - a) / a, 1.0)
    return Row(
        name, done.batch, done.batches, what, label, len(pairs), float(deviations.mean()),
        float(np.abs(e - a).sum() / a.sum()), float((deviations <= WITHIN[what]).mean()),
        {each: float(np.quantile(deviations, each)) for each in QUANTILES},
        load, time.perf_counter() - started, np.sort(deviations).tolist(),
    )  # fmt: skip


def _draw(rows: list[Row], path: Path) -> None:
    """The share of ops up to each deviation, a panel for memory and one for time."""
    try:
        import matplotlib
    except ImportError:
        print(f"{path} is not drawn: install matplotlib", file=sys.stderr)
        return
    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True)
    for panel, what in zip(panels, ("memory", "time"), strict=True):
        for row in rows:
            if row.what == what and row.estimate != "noise":
                share = (np.arange(row.ops) + 1) / row.ops
                panel.step(row.deviations, share, label=f"{row.model}, {row.estimate}")
        panel.set(title=what, xlabel="relative deviation", xlim=(0, 1), ylim=(0, 1))
    panels[0].set_ylabel("share of ops")
    panels[0].legend()
    figure.savefig(path)


def _print(rows: list[Row]) -> None:
    table = Table(title="Standard Evaluation: deviations at the large batch", title_justify="left")
    for column in ("model", "batches", "what", "estimate"):
        table.add_column(column)
    quantiles = [f"{each:.0%}" for each in QUANTILES]  # of the ops: the CDF
    for column in ("ops", "mean", "paper", "of all", "≤20/30%", *quantiles):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.model,
            f"{','.join(map(str, row.batches))} → {row.batch}",
            row.what,
            row.estimate,
            str(row.ops),
            f"{row.mean:.2%}",
            f"{PAPER[row.what]:.2%}",
            f"{row.of_all:.1%}",
            f"{row.within:.0%}",
            *(f"{row.quantiles[each]:.1%}" for each in QUANTILES),
        )
    console = Console(width=130)
    console.print(table)
    for row in {row.model: row for row in rows}.values():
        console.print(
            f"{row.model}: took {row.seconds:.0f} s, load of the machine up to {row.load:.1f}"
        )


if __name__ == "__main__":
    main()
