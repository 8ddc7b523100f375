"""Measuring the calls of a program on the CPU: in context, or each by itself.

In context (DiviML §V profiles so, node by node): the whole program runs with a clock after every
call, so each finds the caches as its neighbours leave them, and pays for releasing what it is the
last to read. What the clock itself takes is measured and taken off. The program that runs is the
generated code of its FX graph, as fast as hand-written eager code.

In isolation: a call by itself on tensors of its own, for programs that do not fit in memory. What
it reads of weights comes from memory (copies of them take turns, more than a cache holds), what
it reads of other calls from the caches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from placewright.costs.profiles.program import (
    MOST,
    WARM_UPS,
    Context,
    Heard,
    Samples,
    copies_of,
    samples_of,
    share_done,
)
from placewright.costs.profiles.values import made_up
from placewright.errors import ExecutionError, reason
from placewright.importers.torch.costs import is_view, size_of
from placewright.importers.torch.programs import Executable
from placewright.importers.torch.signature import signature

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

CallArguments = tuple[Any, Any]
"""Positional and keyword arguments."""


def measure_in_context(
    executable: Executable,
    heard: Heard,
    *,
    seed: int = 0,
    steps: int | None = None,
    before: Mapping[str, Callable[[], None]] | None = None,
) -> Context:
    """Every call of the program, on its own values or on made-up ones.

    So many `steps` (passes) are counted; where none are given, those of `share_done`. What is to
    happen `before` a call, by the name of its node, is not timed. ExecutionError names a call that
    fails.
    """
    import torch

    ticks: list[int] = []
    clock = time.perf_counter_ns

    def tick() -> None:
        ticks.append(clock())

    signatures = {node.name: signature(node) for node in executable.calls}
    timed, names = _with_clock(executable, tick, before or {})
    inputs = input_values(executable, seed)
    calls: dict[str, list[float]] = {name: [] for name in names if name in signatures}
    samples: Samples = {signatures[name]: [] for name in calls}
    passes: list[float] = []
    overhead = _overhead(tick, ticks)
    started = time.perf_counter()
    with torch.no_grad():
        for done in range(-WARM_UPS, steps or MOST):
            ticks.clear()
            _run(timed, inputs, ticks, [signatures.get(name, name) for name in names])
            if done < 0:
                started = time.perf_counter()
                continue
            total = 0.0
            for name, (start, end) in zip(names, pairwise(ticks), strict=True):
                seconds = max((end - start) * 1e-9 - overhead, 0.0)
                total += seconds
                if name in calls:
                    calls[name].append(seconds)
                    samples[signatures[name]].append(seconds)
            passes.append(total)
            elapsed = time.perf_counter() - started
            share = share_done(done + 1, elapsed) if steps is None else (done + 1) / steps
            heard(done + 1, share, samples)
            if share == 1.0:
                break
    return Context(samples, tuple(passes), calls)


def measure_alone(executable: Executable, node: Node, *, seed: int = 0) -> list[float]:
    """Seconds of one call by itself, on tensors of its own. ExecutionError if it fails."""
    import torch

    sets = _argument_sets(executable, node, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        return _repeat(node, sets)


def bytes_in_context(executable: Executable) -> float:
    """The most bytes that a run in context holds: weights, inputs, and what is alive at once."""
    nodes = list(executable.module.graph.nodes)
    size = {node: 0.0 if is_view(node) else size_of(node.meta.get("val")) for node in nodes}
    held = sum(size[node] for node in nodes if node.op == "placeholder")
    last = {source: node for node in nodes for source in node.all_input_nodes}
    dying: dict[Node, list[Node]] = {}
    for source, node in last.items():
        if source.op == "call_function":
            dying.setdefault(node, []).append(source)
    alive = most = 0.0
    for node in nodes:
        if node.op == "call_function":
            alive += size[node]
            most = max(most, alive)
        alive -= sum(size[source] for source in dying.get(node, ()))
    return held + most


# -- in context --------------------------------------------------------------------------------


def _with_clock(
    executable: Executable, tick: Callable[[], None], before: Mapping[str, Callable[[], None]]
) -> tuple[GraphModule, list[str]]:
    """The program with a tick before its first call and after each, and what each tick ends.

    The name of a node per tick but the first; "" for what happens `before` a call.
    """
    import torch

    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    result: Any = graph.graph_copy(executable.module.graph, copies)
    original = {copy: node.name for node, copy in copies.items()}
    names = []
    calls = [node for node in graph.nodes if node.op == "call_function"]
    for position, node in enumerate(calls):
        if position == 0:
            with graph.inserting_before(node):
                graph.call_function(tick)
        if happens := before.get(original[node]):
            with graph.inserting_before(node):
                graph.call_function(happens)
                graph.call_function(tick)
            names.append("")
        with graph.inserting_after(node):
            graph.call_function(tick)
        names.append(original[node])
    graph.output(result)
    return torch.fx.GraphModule(executable.module, graph), names


def input_values(executable: Executable, seed: int = 0) -> list[Any]:
    """The program's inputs in their order: what is known, and made-up values for the rest."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    inputs = []
    for node in executable.module.graph.find_nodes(op="placeholder"):
        known = node.name in executable.values
        value = executable.values[node.name] if known else made_up(node, generator)
        inputs.append(value.detach() if isinstance(value, torch.Tensor) else value)
    return inputs


def _run(
    timed: GraphModule, inputs: Sequence[Any], ticks: Sequence[int], names: Sequence[str]
) -> None:
    try:
        timed(*inputs)
    except Exception as error:
        failed = names[len(ticks) - 1] if 0 < len(ticks) <= len(names) else "the program"
        raise ExecutionError(
            f"{failed} cannot be run here ({type(error).__name__}: {reason(error)})"
        ) from error


def _overhead(tick: Callable[[], None], ticks: list[int]) -> float:
    """Seconds between two ticks with nothing between them."""
    import torch

    graph = torch.fx.Graph()
    for _ in range(1000):
        graph.call_function(tick)
    graph.output(None)
    empty = torch.fx.GraphModule(torch.nn.Module(), graph)
    for _ in range(WARM_UPS):
        ticks.clear()
        empty()
    found = statistics.median(after - before for before, after in pairwise(ticks))
    return float(found) * 1e-9


# -- in isolation ------------------------------------------------------------------------------


def _argument_sets(
    executable: Executable, node: Node, generator: torch.Generator
) -> list[CallArguments]:
    """Arguments of the call, for each copy of what it reads (see `argument_copies`)."""
    import torch

    sources = [each for each in node.all_input_nodes if each.op != "get_attr"]
    sets: list[CallArguments] = []
    for copy in argument_copies(executable, sources, generator):
        values = dict(zip(sources, copy, strict=True))

        def value(each: Node, values: Mapping[Node, Any] = values) -> Any:
            if each.op == "get_attr":
                return getattr(executable.module, str(each.target))
            return values[each]

        sets.append((torch.fx.map_arg(node.args, value), torch.fx.map_arg(node.kwargs, value)))
    return sets


def argument_copies(
    executable: Executable, sources: Sequence[Node], generator: torch.Generator
) -> list[list[Any]]:
    """Values of `sources`, with as many copies of the weights as keep them out of the caches."""
    weights = {each for each in sources if _is_weight(each, executable.weights)}
    amount = sum(size_of(each.meta.get("val")) for each in weights)
    shared = {each: made_up(each, generator) for each in sources if each not in weights}
    return [
        [made_up(each, generator) if each in weights else shared[each] for each in sources]
        for _ in range(copies_of(amount))
    ]


def _is_weight(node: Node, weights: Container[str]) -> bool:
    while is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node.name in weights


def _repeat(node: Node, sets: Sequence[CallArguments]) -> list[float]:
    function: Any = node.target

    def run(number: int) -> None:
        args, kwargs = sets[number % len(sets)]
        function(*args, **kwargs)

    try:
        return samples_of(run)
    except Exception as error:
        raise ExecutionError(
            f"{signature(node)} cannot be run here ({type(error).__name__}: {reason(error)})"
        ) from error
