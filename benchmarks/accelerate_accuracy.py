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
from placewright.importers.torch.sources import load_hf
from placewright.whatif.judging.judge import Given, judge

LLAMA = "hf:llama?num_hidden_layers=8&hidden_size=2048&intermediate_size=5504"
LLAMA += "&num_attention_heads=16&num_key_value_heads=16&vocab_size=32000&dtype=bfloat16"
MODELS = {
    "Llama, 4 x 512": f"{LLAMA}&batch=4&sequence=512",
    "Llama, 1 x 16": f"{LLAMA}&batch=1&sequence=16",
    "GPT-2, 8 x 256": "hf:gpt2?n_layer=12&batch=8&sequence=256",
    "BERT, 16 x 128": "hf:bert?batch=16",
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
    text, costs = MODELS[name], CostOptions(profiles=folder / "profiles.sqlite")
    source = Source(text)
    graph = Imported(source.graph, source=text)
    with ProfileStore(folder / "profiles.sqlite") as store:
        profile(text, cluster, store, exported=source)
    model, inputs = _model(text)
    whole = _Dispatched(model, {"": 0}, inputs)
    expected = whole.outputs()
    held = sum(each.nbytes for each in _held(model))
    for share in SHARES:
        room = share * held * ROOM
        limited = _with_gpu_memory(cluster, room)
        found = plan_for(graph, limited, "accelerate", costs=costs, free_seconds=0.0).plan
        maps, predicted = {"plan": device_map(found)}, {"plan": found.value}
        own = _own_map(model, room)
        if 0 in own.values():
            path = folder / "map.json"
            path.write_text(json.dumps(own))
            judged = judge(graph, cluster, Given(placement=str(path)), costs=costs)
            maps["Accelerate's own"], predicted["Accelerate's own"] = own, judged.plan.value
        runs = {each: _Dispatched(model, maps[each], inputs) for each in maps}
        medians = [{each: run.median(repeats) for each, run in runs.items()} for _ in range(2)]
        for each, run in runs.items():
            times = [found[each] for found in medians]
            measured = statistics.mean(times)
            yield Row(
                name,
                share,
                each,
                sum(device == "cpu" for device in maps[each].values()),
                predicted[each],
                measured,
                predicted[each] / measured - 1,
                abs(times[0] - times[1]) / measured,
                float((run.outputs() - expected).abs().max()),
            )


def _with_gpu_memory(cluster: Cluster, size: float) -> Cluster:
    gpu, *others = cluster.devices
    return replace(cluster, devices=(replace(gpu, memory=size), *others))


def _model(text: str) -> tuple[Any, Mapping[str, Any]]:
    """The model with random weights on the CPU, and its inputs on the GPU."""
    import torch

    model, _, examples = load_hf(text.partition(":")[2])
    model = model.to_empty(device="cpu").eval()
    model.tie_weights()
    torch.manual_seed(0)
    with torch.no_grad():
        for tensor in _held(model):
            if tensor.is_floating_point():
                tensor.normal_(0.0, 0.02)
            else:
                tensor.zero_()
    _restore_buffers(model)
    vocabulary = model.config.vocab_size
    inputs = {
        key: torch.randint(0, vocabulary, value.shape, device="cuda")
        if "input_ids" in key
        else torch.ones(value.shape, dtype=value.dtype, device="cuda")
        for key, value in examples.items()
        if hasattr(value, "shape")
    }
    return model, inputs


def _restore_buffers(model: Any) -> None:
    """Numbers of positions and rotary frequencies are no weights: make them as the model does."""
    import torch

    fresh = type(model)(copy.deepcopy(model.config))
    made = dict(fresh.named_buffers())
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(made[name])


def _held(model: Any) -> list[Any]:
    return [*model.parameters(), *model.buffers()]


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
