"""Plans for Accelerate on this machine's GPU: predicted beside measured latency.

    python benchmarks/accelerate_accuracy.py [--only MODEL ...] [--repeats 15] [--json FILE]

Each model has random weights, and the GPU room for a share of them: the rest waits with the CPU,
from which Accelerate brings it at every call. Costs are measured (profiles of every op, links as
threads move tensors). For each share the plan of ``plan --for accelerate`` and the map that
Accelerate makes by itself (`infer_auto_device_map`) are judged, given to `dispatch_model`, and run
in turns, twice. `measured` is the mean of the two medians, `noise` how far they lie apart. What
comes out is compared with the model that is on the GPU as a whole. It needs a GPU for CUDA.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cost_accuracy import GPU_LLAMA, GPU_MODELS
from rich.console import Console
from rich.table import Table
from running import gpu_and_cpu

from placewright.cluster import Cluster
from placewright.costs.profiles.profiling import profile
from placewright.costs.profiles.store import ProfileStore
from placewright.costs.roofline import CostOptions
from placewright.exporters.accelerate import device_map
from placewright.exporters.planning import plan_for
from placewright.importers import Imported
from placewright.importers.torch.once import Source
from placewright.importers.torch.sources import hf_kind, load_hf
from placewright.whatif.judging.judge import Given, judge

MODELS = {
    "Llama, 4 x 512": GPU_MODELS["Llama, prefill"],
    "Llama, 1 x 16": f"{GPU_LLAMA}&batch=1&sequence=16",
    "GPT-2, 8 x 256": GPU_MODELS["GPT-2"],
    "BERT, 16 x 128": GPU_MODELS["BERT"],
}
SHARES = (1.0, 0.75, 0.5, 0.3)
ROOM = 1.15  # times the share of the weights: what is computed needs memory too
WARM_UPS = 3


@dataclass(frozen=True)
class Row:
    """Seconds; the largest difference of any output; modules of the map that wait."""

    model: str
    share: float
    map: str
    waiting: int
    predicted: float
    measured: float
    error: float
    noise: float
    difference: float


def main() -> None:
    arguments = _arguments()
    cluster = gpu_and_cpu()
    print("; ".join(f"{each}" for each in cluster.links), file=sys.stderr)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only or MODELS:
            for row in _rows(name, cluster, Path(folder), arguments.repeats):
                rows.append(row)
                print(
                    f"{name}, {row.share:.0%}, {row.map}: {row.measured * 1e3:.2f} ms, "
                    f"predicted {row.error:+.1%}",
                    file=sys.stderr,
                )
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    _print(rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(MODELS))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _rows(name: str, cluster: Cluster, folder: Path, repeats: int) -> Iterator[Row]:
    text, profiles = MODELS[name], folder / "profiles.sqlite"
    source = Source(text)
    with ProfileStore(profiles) as store:
        profile(text, cluster, store, exported=source)
    graph, costs = Imported(source.graph, source=text), CostOptions(profiles=profiles)
    model, inputs = _model(text)
    expected = _Dispatched(model, {"": 0}, inputs).outputs()
    for share in SHARES:
        room = ROOM * share * model.get_memory_footprint()
        limited = _with_gpu_memory(cluster, room)
        plan = plan_for(graph, limited, "accelerate", costs=costs, free_seconds=0.0).plan
        maps, predicted = {"plan": device_map(plan)}, {"plan": plan.value}
        own = _own_map(model, room)
        if 0 in own.values():
            path = folder / "map.json"
            path.write_text(json.dumps(own))
            judged = judge(graph, cluster, Given(placement=str(path)), costs=costs)
            maps["Accelerate's own"], predicted["Accelerate's own"] = own, judged.plan.value
        runs = {each: _Dispatched(model, maps[each], inputs) for each in maps}
        rounds = [{each: run.median(repeats) for each, run in runs.items()} for _ in range(2)]
        for each, run in runs.items():
            first, second = (seconds[each] for seconds in rounds)
            measured = (first + second) / 2
            yield Row(
                name,
                share,
                each,
                sum(device == "cpu" for device in maps[each].values()),
                predicted[each],
                measured,
                predicted[each] / measured - 1,
                abs(first - second) / measured,
                float((run.outputs() - expected).abs().max()),
            )


def _with_gpu_memory(cluster: Cluster, size: float) -> Cluster:
    gpu, *others = cluster.devices
    return replace(cluster, devices=(replace(gpu, memory=size), *others))


def _model(text: str) -> tuple[Any, Mapping[str, Any]]:
    """The model with random weights on the CPU, and its inputs on the GPU."""
    import torch
    import transformers

    config = text.partition(":")[2]
    shapes, _, examples = load_hf(config)
    torch.manual_seed(0)
    factory = getattr(transformers, f"AutoModelFor{hf_kind(config)}")
    model = factory.from_config(shapes.config).eval()
    size = examples["input_ids"].shape
    tokens = torch.randint(0, model.config.vocab_size, size, device="cuda")
    return model, {"input_ids": tokens}


def _own_map(model: Any, size: float) -> dict[str, Any]:
    """Empty where Accelerate fails; without the GPU where all computes on the CPU."""
    from accelerate import infer_auto_device_map

    room = {0: int(size), "cpu": 1 << 40}
    classes = list(model._no_split_modules or ())
    try:
        return dict(infer_auto_device_map(model, max_memory=room, no_split_module_classes=classes))
    except IndexError:  # in Accelerate 1.15, where weights are tied across what it splits
        return {}


class _Dispatched:
    """A copy of the model as Accelerate runs it with a map."""

    def __init__(self, model: Any, mapped: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
        from accelerate import dispatch_model

        self._inputs = inputs
        self._model = dispatch_model(copy.deepcopy(model), dict(mapped), main_device=0)
        if set(mapped.values()) == {0}:  # no hooks then: it is only moved
            self._model = self._model.to("cuda")

    def outputs(self) -> Any:
        import torch

        with torch.no_grad():
            return self._model(**self._inputs).logits.float()

    def median(self, repeats: int) -> float:
        import torch

        seconds = []
        with torch.no_grad():
            for number in range(WARM_UPS + repeats):
                torch.cuda.synchronize()
                started = time.perf_counter()
                self._model(**self._inputs)
                torch.cuda.synchronize()
                if number >= WARM_UPS:
                    seconds.append(time.perf_counter() - started)
        return statistics.median(seconds)


def _print(rows: list[Row]) -> None:
    table = Table(title="plans for Accelerate: predicted, measured", title_justify="left")
    for column in ("model", "on the GPU", "map"):
        table.add_column(column)
    for column in ("waiting", "predicted", "measured", "error", "noise", "difference"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.model,
            f"{row.share:.0%}",
            row.map,
            str(row.waiting),
            f"{row.predicted * 1e3:.2f} ms",
            f"{row.measured * 1e3:.2f} ms",
            f"{row.error:+.1%}",
            f"{row.noise:.1%}",
            f"{row.difference:.1e}",
        )
    Console(width=130).print(table)
    errors = [abs(row.error) for row in rows]
    Console().print(f"median error {statistics.median(errors):.1%}, worst {max(errors):.1%}")


if __name__ == "__main__":
    main()
