"""Running in this process, uncut: the outputs and the time that a run is compared with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from placewright.errors import ExecutionError
from placewright.runtime.stages import Stage
from placewright.runtime.state import Optimizer, State
from placewright.runtime.values import Values

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from placewright.importers.torch.programs import Executable


@dataclass(frozen=True)
class Reference:
    """The results of each call in one process, and the median seconds of a call."""

    results: list[list[Any]]
    seconds: float


def run_single(
    program: Executable, values: Values, calls: int = 1, optimizer: Optimizer | None = None
) -> list[list[Any]]:
    """The program's results in each of so many calls, without any of this package's cutting.

    Between calls weights get their new values, and with an `optimizer` parameters a step of it.
    """
    state = State(values.weights, optimizer)
    whole = _plain(program)
    return [_call(program, whole, values, state) for _ in range(calls)]


def time_single(
    program: Executable,
    values: Values,
    calls: int,
    threads: int,
    optimizer: Optimizer | None = None,
) -> Reference:
    """As `run_single`, with the median seconds of all calls but the first, which warms up."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    state = State(values.weights, optimizer)
    whole = _plain(program)
    results, seconds = [], []
    try:
        for _ in range(calls):
            started = time.perf_counter()
            results.append(_call(program, whole, values, state))
            seconds.append(time.perf_counter() - started)
    finally:
        torch.set_num_threads(before)
    return Reference(results, statistics.median(seconds[1:] or seconds))


def _plain(program: Executable) -> GraphModule:
    """The program called with the values of its placeholders, whatever it was called with."""
    graph = torch.fx.Graph()
    result: Any = graph.graph_copy(program.module.graph, {})
    graph.output(result)
    return torch.fx.GraphModule(program.module, graph)


def _call(program: Executable, whole: GraphModule, values: Values, state: State) -> list[Any]:
    nodes = program.module.graph.find_nodes(op="placeholder")
    inputs = [
        state.weights[program.weights[node.name]]
        if node.name in program.weights
        else values.inputs[node.name]
        for node in nodes
    ]
    with torch.no_grad():
        outputs = whole(*inputs)
    flat = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    state.update(
        {name: flat[position] for name, position in program.updates.items()},
        {name: flat[position] for name, position in program.gradients.items()},
    )
    return [flat[position] for position in program.results]


def gather(stages: Sequence[Stage], results: Sequence[Sequence[Any]]) -> list[Any]:
    """The stages' own results in the order of the program's."""
    by_position = {
        position: value
        for stage, values in zip(stages, results, strict=True)
        for position, value in zip(stage.outputs, values, strict=True)
    }
    return [by_position[position] for position in sorted(by_position)]


def max_abs_difference(expected: Sequence[Any], found: Sequence[Any]) -> float:
    """The largest distance between two lists of outputs; equal NaNs and infinities are equal.

    ExecutionError where the outputs differ in number, kind, dtype or shape.
    """
    if len(expected) != len(found):
        raise ExecutionError(f"the run gave {len(found)} outputs instead of {len(expected)}")
    return max(
        (
            _distance(a, b, position)
            for position, (a, b) in enumerate(zip(expected, found, strict=True))
        ),
        default=0.0,
    )


def _distance(expected: Any, found: Any, position: int) -> float:
    if not isinstance(expected, torch.Tensor) or not isinstance(found, torch.Tensor):
        if type(expected) is type(found) and expected == found:
            return 0.0
        raise ExecutionError(f"output {position} is {found!r} instead of {expected!r}")
    if (expected.shape, expected.dtype) != (found.shape, found.dtype):
        raise ExecutionError(
            f"output {position} is {tuple(found.shape)} of {found.dtype} instead of "
            f"{tuple(expected.shape)} of {expected.dtype}"
        )
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = expected.detach().to(wide), found.detach().to(wide)
    different = ~((a == b) | (a.isnan() & b.isnan()))
    if not different.any():
        return 0.0
    distance = (a - b).abs()[different]
    return float("inf") if distance.isnan().any() else float(distance.max())
