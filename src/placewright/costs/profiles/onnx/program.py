"""An ONNX model, as profiling sees it: nodes by their signatures, run by ONNX Runtime."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placewright.costs.profiles.onnx.models import MARK, Runnable, known_values, single, whole
from placewright.costs.profiles.onnx.options import import_runtime
from placewright.costs.profiles.onnx.reference import runtime_watch
from placewright.costs.profiles.onnx.sessions import (
    MOST_EVENTS,
    Clock,
    Session,
    evened,
    kernel_times,
    measure_clock,
    profiler_seconds,
)
from placewright.costs.profiles.onnx.values import made_up, ort_value
from placewright.costs.profiles.program import (
    WARM_UPS,
    Context,
    Heard,
    Samples,
    samples_of,
    share_done,
)
from placewright.costs.profiles.reuse import median_before
from placewright.costs.profiles.steady import Passes
from placewright.errors import (
    ExecutionError,
    OptionError,
    PlacewrightError,
    PlacewrightWarning,
    reason,
)
from placewright.graph import Floats, Wide
from placewright.importers.costs import Cost
from placewright.importers.kinds import SourceFile
from placewright.importers.onnx.dimensions import read_sizes
from placewright.importers.onnx.reading import OnnxModel, read_model
from placewright.importers.onnx.signature import library
from placewright.system.accelerators.places import Place
from placewright.units import printable

if TYPE_CHECKING:
    from onnxruntime import OrtValue


def load_onnx(file: SourceFile) -> OnnxProgram:
    """The program of an ONNX file; errors of `importers.onnx.model.read_onnx`."""
    import_runtime("measuring")
    sizes = read_sizes(file.query, file.path)
    found = read_model(file.path, dimensions=sizes, content=file.content)
    if found.assumed:
        warnings.warn(printable(f"{file.path}: {found.assumed}"), PlacewrightWarning, stacklevel=2)
    name = f"{file.path}?{file.query}" if file.query else str(file.path)
    return OnnxProgram(found, name)


class OnnxProgram:
    """See `costs.profiles.program.Program`. Weights and inputs are made up."""

    def __init__(self, found: OnnxModel, name: str) -> None:
        self._found = found
        self._clocks: dict[int, Clock] = {}
        self.name = name
        self.library = library()

    @cached_property
    def calls(self) -> Mapping[str, int]:
        return Counter(self._found.signatures.values())

    @cached_property
    def _first(self) -> dict[str, str]:
        """An op that makes each call."""
        signatures = self._found.signatures
        return {signatures[op]: op for op in reversed(signatures)}

    @property
    def bytes_in_context(self) -> float:
        """Weights, packed by two sessions besides; inputs; what is alive at once, in each."""
        ops = list(self._found.ops.values())
        size = {name: t.bytes for name, t in self._found.scope.types.items() if t is not None}
        constants = {key: each.bytes for op in ops for key, each in op.constants.items()}
        made = {name for op in ops for name in op.node.output}
        inputs = {name for op in ops for name in op.reads} - made
        last = {name: number for number, op in enumerate(ops) for name in op.reads}
        alive = most = 0.0
        for number, op in enumerate(ops):
            alive += sum(size.get(name, 0.0) for name in op.node.output)
            most = max(most, alive)
            seen = {*op.reads, *op.node.output} & made
            alive -= sum(size.get(name, 0.0) for name in seen if last.get(name, number) == number)
        held = 3 * sum(constants.values()) + sum(size.get(name, 0.0) for name in inputs)
        return held + 2 * most

    def work(self, call: str) -> Cost:
        return self._found.ops[self._first[call]].cost

    @cached_property
    def bytes_before(self) -> Mapping[str, float]:
        found = self._found
        return median_before(
            found.signatures.values(), (found.ops[op].cost for op in found.signatures)
        )

    def in_context(self, place: Place, heard: Heard) -> Context:
        threads = _threads(place)
        watch = runtime_watch(threads)
        runnable = whole(self._found)
        guess = measure_clock(threads, watch).profiler  # as the machine is now
        most = max(MOST_EVENTS // max(len(runnable.model.graph.node), 1) - 3, 1)
        with tempfile.TemporaryDirectory() as folder, _explained(self.name):
            generator = np.random.default_rng(0)
            weights, inputs = _weights(runnable, generator), _inputs(runnable, generator)
            plain = Session(runnable, threads, weights, inputs)
            profiled = Session(runnable, threads, weights, inputs, Path(folder) / "profile")

            def run() -> float:
                plain.run()  # so that the next finds the caches as its own kind leaves them
                seconds = plain.timed()
                profiled.run()
                return seconds

            for _ in range(WARM_UPS):
                run()
            seconds: list[float] = []
            passes = Passes(watch, lambda count, spent: max(share_done(count, spent), count / most))
            while passes.share < 1.0 and passes.ran < most:
                seconds.append(run())
                passes.passed(close=passes.ran + 1 == most)
                heard(passes.ran, passes.share, dict)
            counted = passes.counted
            found = self._context(kernel_times(profiled), guess, np.array(seconds), counted)
            return replace(found, ran=passes.ran, steady=len(passes.steady))

    def _context(
        self, seen: Mapping[str, list[int]], guess: float, seconds: Floats, counted: Sequence[int]
    ) -> Context:
        """Samples of the passes that count, without the profiler's share; the last were passes."""
        count, passes = len(seconds), seconds[counted]
        own = {
            name: np.array(each[-count:])[counted]
            for name, each in seen.items()
            if name and len(each) > count
        }
        total = evened(np.array(list(own.values())).reshape(-1, len(passes))).sum(axis=0)
        events = len(own) + len(seen.get("", ())) / (count + 1 + WARM_UPS)
        excess = profiler_seconds(guess, total - passes, max(events, 1.0))
        times: dict[str, list[Wide]] = {}
        for op, number in self._found.nodes.items():
            if (each := own.get(f"{MARK}{number}")) is not None:
                times.setdefault(self._found.signatures[op], []).append(each)
        samples: Samples = {
            call: np.maximum(evened(np.array(each)) - excess, 0.0).reshape(-1).tolist()
            for call, each in times.items()
        }
        return Context(samples, tuple(passes.tolist()))

    def alone(self, call: str, place: Place) -> list[float]:
        threads = _threads(place)
        runnable = single(self._found, self._first[call], self._known)
        copies = len(runnable.model.graph.node)
        clock = self._clock(threads)
        generator = np.random.default_rng(0)
        with _explained(call):
            weights, inputs = _weights(runnable, generator), _inputs(runnable, generator)
            session = Session(runnable, threads, weights, inputs)
            samples = samples_of(session.run, runtime_watch(threads))
        return [max(seconds - clock.run, 0.0) / copies for seconds in samples]

    @cached_property
    def _known(self) -> dict[str, np.ndarray[Any, Any]]:
        return known_values(self._found)

    def _clock(self, threads: int) -> Clock:
        if threads not in self._clocks:
            self._clocks[threads] = measure_clock(threads, runtime_watch(threads))
        return self._clocks[threads]


def _threads(place: Place) -> int:
    """OptionError for a GPU."""
    if place.queues:
        raise OptionError(
            "ONNX models are measured on CPUs only; name these with --device, or measure the "
            "model as a program of torch"
        )
    return place.threads


def _weights(runnable: Runnable, generator: np.random.Generator) -> dict[str, OrtValue]:
    return {
        name: ort_value(blank, made_up(blank, generator))
        for name, blank in runnable.weights.items()
    }


def _inputs(runnable: Runnable, generator: np.random.Generator) -> dict[str, OrtValue]:
    """What is known of the inputs, and made-up values for the rest."""
    known = runnable.known
    return {
        name: ort_value(
            blank, np.array(known[name]) if name in known else made_up(blank, generator)
        )
        for name, blank in runnable.inputs.items()
    }


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Whatever ONNX Runtime raises, which comes as many types, as one error of ours."""
    try:
        yield
    except PlacewrightError:
        raise
    except Exception as error:
        raise ExecutionError(
            f"{what} cannot be run by ONNX Runtime ({type(error).__name__}: {reason(error)})"
        ) from error
