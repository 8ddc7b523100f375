"""ONNX Runtime as an instrument: sessions that run a model as it is written, and their clocks.

Optimisations are off, so that every node runs under its own name; threads are as many as the
device has cores. A run as a whole is timed node by node by ONNX Runtime's profiler, which counts
whole microseconds and takes several itself for every node. So the instruments are measured too:
on chains of nodes that do nothing, what a run takes besides its nodes (it is taken off a node that
runs alone) and what the profiler adds to a node; the latter also on the model itself, by runs
without a profiler in between.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from placewright.costs.profiles.onnx.models import MARK, Runnable
from placewright.costs.profiles.onnx.options import session_options
from placewright.costs.profiles.program import WARM_UPS, at_least, steady_values
from placewright.costs.profiles.steady import Passes, Watch
from placewright.graph import Floats, Wide

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession, OrtValue

MOST_EVENTS = 900_000  # the profiler stops at a million
_CHAIN = 200  # nodes
_RUNS = 50
_KERNEL = "_kernel_time"


class Session:
    """A model that is ready to run with values that stay; outputs keep their memory."""

    def __init__(
        self,
        runnable: Runnable,
        threads: int,
        weights: Mapping[str, OrtValue],
        inputs: Mapping[str, OrtValue],
        profile: Path | None = None,
    ) -> None:
        self._held = (weights, inputs)  # ONNX Runtime does not keep them
        self.session = _open(runnable.model, threads, weights, profile)
        self._binding = self.session.io_binding()
        for name, value in inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        names = dict.fromkeys(each.name for each in self.session.get_outputs())
        for name in names:
            self._binding.bind_output(name)
        self.run()
        for name, value in zip(names, self._binding.get_outputs(), strict=True):
            self._binding.bind_ortvalue_output(name, value)

    def run(self, number: int = 0) -> None:
        self.session.run_with_iobinding(self._binding)

    def timed(self) -> float:
        """Seconds of a run."""
        before = time.perf_counter()
        self.run()
        return time.perf_counter() - before


def _open(
    model: ModelProto, threads: int, weights: Mapping[str, OrtValue], profile: Path | None
) -> InferenceSession:
    import onnxruntime as ort

    options = session_options(threads, weights)
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


@dataclass(frozen=True)
class Clock:
    """Seconds that a run takes besides its nodes, and that the profiler adds to each node."""

    run: float
    profiler: float


def measure_clock(threads: int, watch: Watch) -> Clock:
    one, many = (_seconds(_chain(length), threads, watch) for length in (1, _CHAIN))
    node = max(many - one, 0.0) / (_CHAIN - 1)
    with tempfile.TemporaryDirectory() as folder:
        session = Session(_chain(_CHAIN), threads, {}, _scalar(), Path(folder) / "profile")
        for _ in range(WARM_UPS):
            session.run()
        passes = Passes(watch, at_least(_RUNS))
        while passes.share < 1.0:
            session.run()
            passes.passed()
        seen = np.array(list(kernel_times(session).values()))[:, 1 + WARM_UPS :]
    counted = evened(seen[:, passes.counted])
    return Clock(max(one - node, 0.0), float(np.median(counted)) - node)


def kernel_times(session: Session) -> dict[str, list[int]]:
    """`[node's name]` microseconds of every run, rounded down, as the profiler saw them.

    It is at its end then. A node that ONNX Runtime has replaced is not there, but those that it
    put in its place; nodes within others come together, under no name.
    """
    file = Path(session.session.end_profiling())
    found: dict[str, list[int]] = {}
    for event in json.loads(file.read_text("utf-8")):
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            found.setdefault(event["name"].removesuffix(_KERNEL), []).append(int(event["dur"]))
    return found


def profiler_seconds(guess: float, differences: Floats, events: float) -> float:
    """What the profiler adds to a node, of so many a run.

    `differences[run]` is what all nodes took under it (seconds) more than a run without it. That
    is weighed against a `guess` from other nodes by how far the runs of a large model vary.

    >>> profiler_seconds(3e-6, np.array([6e-4, 6e-4, 6e-4]), 100)
    6e-06
    """
    low, middle, high = np.percentile(differences / events, (25, 50, 75))
    error = (high - low) / 1.35 / np.sqrt(len(differences))  # 1.35: of normal deviates
    sure = guess**2 / (guess**2 + error**2) if guess else 1.0
    return float(max(sure * middle + (1 - sure) * guess, 0.0))


def evened(times: Wide) -> Floats:
    """Seconds of times in whole microseconds, rounded down.

    Equal ones are shared out evenly over the microsecond that they stand for, so that medians
    are not whole ones (the median of grouped data).

    >>> (1e6 * evened(np.array([3, 3, 7]))).round(2).tolist()
    [3.25, 3.75, 7.5]
    """
    _, groups, counts = np.unique(times, return_inverse=True, return_counts=True)
    groups = groups.reshape(-1)
    order = np.argsort(groups, kind="stable")
    place = np.empty(len(order))
    place[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    seconds: Floats = 1e-6 * (times + ((place + 0.5) / counts[groups]).reshape(times.shape))
    return seconds


def _chain(length: int) -> Runnable:
    """Nodes one after the other that do nothing, as far as there is such a thing."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Identity", [f"{number}"], [f"{number + 1}"], name=f"{MARK}{number}")
        for number in range(length)
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, []) for n in ("0", f"{length}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return Runnable(model, {}, {}, {})


def _scalar() -> dict[str, OrtValue]:
    import onnxruntime

    return {"0": onnxruntime.OrtValue.ortvalue_from_numpy(np.ones((), np.float32))}


def _seconds(chain: Runnable, threads: int, watch: Watch) -> float:
    """The median of some runs."""
    session = Session(chain, threads, {}, _scalar())
    return statistics.median(steady_values(lambda _: session.timed(), watch, fewest=_RUNS))
