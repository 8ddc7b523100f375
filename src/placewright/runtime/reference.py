"""Running in this process, uncut: the outputs and the time that a run is compared with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from placewright.errors import ExecutionError
from placewright.runtime.ranks.state import Optimizer, State
from placewright.runtime.stages.cutting import Stage
from placewright.runtime.values import Values
from placewright.system.allocator import keep_freed_memory

if TYPE_CHECKING:
    from torch.fx import Graph, GraphModule, Node

    from placewright.importers.torch.programs import Executable


@dataclass(frozen=True)
class Reference:
    """The results of each call in one process, and the median seconds of a call.

    None for the seconds where weights were loaded as they were needed.
    """

    results: list[list[Any]]
    seconds: float | None = None


def run_single(
    program: Executable, values: Values, calls: int = 1, optimizer: Optimizer | None = None
) -> list[list[Any]]:
    """The program's results in each of so many calls, without any of this package's cutting.

    Between calls weights get their new values, and with an `optimizer` parameters a step of it.
    """
    return time_single(program, values, calls, torch.get_num_threads(), optimizer).results


def time_single(
    program: Executable,
    values: Values,
    calls: int,
    threads: int,
    optimizer: Optimizer | None = None,
) -> Reference:
    """As `run_single`, with the median seconds of all calls but the first, which warms up."""
    keep_freed_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    state = State(values.weights.load(set(program.weights.values())), optimizer)
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


def run_streamed(program: Executable, values: Values) -> Reference:
    """One call for a model larger than memory: a weight is there from its first use to its last."""
    environment: dict[Node, Any] = {}
    dying = _last_uses(program.module.graph)
    with torch.no_grad():
        for node in program.module.graph.nodes:
            if node.op != "call_function":
                continue
            for source in node.all_input_nodes:
                if source not in environment:
                    environment[source] = _fetched(program, values, source)
            args = torch.fx.map_arg(node.args, environment.__getitem__)
            kwargs = torch.fx.map_arg(node.kwargs, environment.__getitem__)
            environment[node] = node.target(*args, **kwargs)
            for source in dying.get(node, ()):
                environment.pop(source, None)
    flat = torch.fx.map_arg(program.outputs, environment.__getitem__)
    return Reference([[flat[position] for position in program.results]])


def _fetched(program: Executable, values: Values, node: Node) -> Any:
    if node.op == "get_attr":
        return getattr(program.module, str(node.target))
    if node.name in program.weights:
        name = program.weights[node.name]
        return values.weights.load([name])[name]
    return values.inputs[node.name]


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """Call → the values that no later node needs."""
    last = {source: node for node in graph.nodes for source in node.all_input_nodes}
    found: dict[Node, list[Node]] = {}
    for source, node in last.items():
        found.setdefault(node, []).append(source)
    return found


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
