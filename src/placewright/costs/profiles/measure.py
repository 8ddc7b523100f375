"""Measuring the calls of a program on one device: in context, or each by itself.

In context (DiviML §V profiles so, node by node): the whole program runs with a clock after every
call, so each finds the caches as its neighbours leave them, and pays for releasing what it is the
last to read. Passes count that are steady (`steady`). What the clock itself takes is measured and
taken off. The program that runs is the generated code of its FX graph, as fast as hand-written
eager code.

In isolation: a call by itself on tensors of its own, for programs that do not fit in memory. What
it reads of weights comes from memory (copies of them take turns, more than a cache holds), what
it reads of other calls from the caches.

On a GPU the clock is one of events in its stream, which are read when a pass is over, and the
program is one for that device (`importers.torch.retarget`). An event takes time only where the GPU
waits for the next op to be given to it; so what the clock takes is what passes with it take longer
than passes without.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placewright.costs.profiles.program import (
    FEWEST,
    THIS_PROCESS,
    WARM_UPS,
    Context,
    Heard,
    Samples,
    at_least,
    copies_of,
    samples_at,
    share_done,
    steady_values,
)
from placewright.costs.profiles.reference import torch_watch
from placewright.costs.profiles.steady import Passes, Watch
from placewright.costs.profiles.values import made_up
from placewright.errors import ExecutionError, reason
from placewright.importers.torch.costs import is_view, size_of
from placewright.importers.torch.programs import Executable
from placewright.importers.torch.retarget import call_on, module_on, on_device
from placewright.importers.torch.signature import signature
from placewright.system.accelerators.places import CpuMoments, Place
from placewright.system.allocator import keep_freed_memory

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

TICKS = 1000  # of a program that does nothing else
PLAIN_PASSES = 7  # without a clock, and as many with it beside them, where ops are queued
CallArguments = tuple[Any, Any, Any]
"""What is called, and its positional and keyword arguments."""


def measure_in_context(
    executable: Executable,
    heard: Heard,
    *,
    seed: int = 0,
    steps: int | None = None,
    before: Mapping[str, Callable[[], None]] | None = None,
    watch: Watch | None = None,
    place: Place = THIS_PROCESS,
) -> Context:
    """Every call of the program, on its own values or on made-up ones, on the `place` entered.

    So many `steps` (passes) are counted; where none are given, those of `share_done`. Which passes
    are steady the `watch` says, that of the cores this runs on where none is given. What is to
    happen `before` a call, by the name of its node, is not timed. ExecutionError names a call that
    fails.
    """
    import torch

    watch = watch or torch_watch(place)
    timed = _Timed(executable, before or {}, input_values(executable, seed, place.device), place)
    rows: list[list[float]] = []

    def context(passes: Sequence[int]) -> Context:
        return timed.context([rows[number] for number in passes], overhead)

    with torch.no_grad():
        for _ in range(WARM_UPS):
            timed.run()
        overhead = timed.overhead() if place.queues else _overhead(watch)
        passes = Passes(watch, at_least(steps) if steps else share_done)
        while passes.share < 1.0:
            rows.append(timed.run())
            passes.passed()
            heard(passes.ran, passes.share, lambda: context(passes.counted).samples)
    return replace(context(passes.counted), ran=passes.ran, steady=len(passes.steady))


def measure_alone(
    executable: Executable,
    node: Node,
    *,
    seed: int = 0,
    watch: Watch | None = None,
    place: Place = THIS_PROCESS,
) -> list[float]:
    """Seconds of one call by itself, on tensors of its own. ExecutionError if it fails."""
    import torch

    keep_freed_memory()
    with torch.no_grad(), _failing(signature(node)):
        sets = _argument_sets(executable, node, torch.Generator().manual_seed(seed), place)
        return _repeat(sets, watch or torch_watch(place), place)


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


class _Timed:
    """A program with a clock before its first call and after each."""

    def __init__(
        self,
        executable: Executable,
        before: Mapping[str, Callable[[], None]],
        inputs: Sequence[Any],
        place: Place,
    ) -> None:
        self._place, self._moments, self._inputs = place, place.moments(), inputs
        self._signatures = {node.name: signature(node) for node in executable.calls}
        self._own = on_device(executable, place.device) if place.queues else executable
        self._program, self._names = _with_clock(self._own, self._moments.mark, before)

    def run(self) -> list[float]:
        """Seconds between the ticks of one pass; ExecutionError names a call that fails."""
        ticks, names = self._moments, self._names
        ticks.clear()
        self._place.keep_busy()
        try:
            self._program(*self._inputs)
            self._place.settle()
        except Exception as error:
            name = names[len(ticks) - 1] if 0 < len(ticks) <= len(names) else "the program"
            raise ExecutionError(
                f"{self._signatures.get(name, name)} cannot be run here "
                f"({type(error).__name__}: {reason(error)})"
            ) from error
        return ticks.intervals()

    def overhead(self) -> float:
        """Seconds that a tick takes: what passes without any are shorter by, over their number."""
        plain, _ = _with_clock(self._own, None, {})
        ends = self._place.moments()

        def without() -> float:
            ends.clear()
            self._place.keep_busy()
            ends.mark()
            plain(*self._inputs)
            ends.mark()
            self._place.settle()
            return sum(ends.intervals())

        pairs = [(sum(self.run()), without()) for _ in range(PLAIN_PASSES)]
        ticked, bare = (statistics.median(each) for each in zip(*pairs, strict=True))
        return float(max(ticked - bare, 0.0) / max(len(self._names), 1))

    def context(self, rows: Sequence[Sequence[float]], overhead: float) -> Context:
        """What these passes say of each call, without what the clock takes."""
        columns = [
            [max(row[place] - overhead, 0.0) for row in rows] for place in range(len(self._names))
        ]
        calls = {
            name: column
            for name, column in zip(self._names, columns, strict=True)
            if name in self._signatures
        }
        samples: Samples = {}
        for name, column in calls.items():
            samples.setdefault(self._signatures[name], []).extend(column)
        return Context(samples, tuple(map(sum, zip(*columns, strict=True))), calls)


def _with_clock(
    executable: Executable,
    tick: Callable[[], None] | None,
    before: Mapping[str, Callable[[], None]],
) -> tuple[GraphModule, list[str]]:
    """The program with a tick before its first call and after each, and what each tick ends.

    The name of a node per tick but the first; "" for what happens `before` a call. With no `tick`
    the program alone.
    """
    import torch

    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    result: Any = graph.graph_copy(executable.module.graph, copies)
    original = {copy: node.name for node, copy in copies.items()}
    names = []
    calls = [node for node in graph.nodes if node.op == "call_function"]
    for position, node in enumerate(calls if tick else ()):
        assert tick is not None
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


def input_values(
    executable: Executable, seed: int = 0, device: torch.device | None = None
) -> list[Any]:
    """The program's inputs in their order: what is known, and made-up values for the rest.

    On the CPU, or one after the other on `device`, so that no two are in both memories.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    inputs = []
    for node in executable.module.graph.find_nodes(op="placeholder"):
        known = node.name in executable.values
        value = executable.values[node.name] if known else made_up(node, generator)
        inputs.append(_there(value, device))
    return inputs


def _there(value: Any, device: torch.device | None) -> Any:
    """A value, or each of those in it, without autograd and on `device`."""
    import torch

    if isinstance(value, (list, tuple)):
        return type(value)(_there(each, device) for each in value)
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach() if device is None else value.detach().to(device)


def _overhead(watch: Watch) -> float:
    """Seconds between two ticks of the clock with nothing between them."""
    import torch

    keep_freed_memory()
    ticks = CpuMoments()
    graph = torch.fx.Graph()
    for _ in range(TICKS):
        graph.call_function(ticks.mark)
    graph.output(None)
    empty = torch.fx.GraphModule(torch.nn.Module(), graph)

    def once(number: int) -> float:
        ticks.clear()
        empty()
        return statistics.median(ticks.intervals())

    return statistics.median(steady_values(once, watch, fewest=FEWEST))


# -- in isolation ------------------------------------------------------------------------------


def _argument_sets(
    executable: Executable, node: Node, generator: torch.Generator, place: Place
) -> list[CallArguments]:
    """The call, for each copy of what it reads (see `argument_copies`)."""
    import torch

    sources = [each for each in node.all_input_nodes if each.op != "get_attr"]
    sets: list[CallArguments] = []
    for copy in argument_copies(executable, sources, generator, place.device):
        values = dict(zip(sources, copy, strict=True))

        def value(each: Node, values: Mapping[Node, Any] = values) -> Any:
            return _kept(executable, each, place) if each.op == "get_attr" else values[each]

        args, kwargs = torch.fx.map_arg(node.args, value), torch.fx.map_arg(node.kwargs, value)
        call = (node.target, args, kwargs)
        sets.append(call_on(*call, place.device) if place.queues else call)
    return sets


def _kept(executable: Executable, node: Node, place: Place) -> Any:
    """What a program keeps in its graph: a tensor, or a body that an op calls."""
    from torch.fx import GraphModule

    value = getattr(executable.module, str(node.target))
    if isinstance(value, GraphModule):
        return module_on(value, place.device) if place.queues else value
    return _there(value, place.device)


def argument_copies(
    executable: Executable,
    sources: Sequence[Node],
    generator: torch.Generator,
    device: torch.device | None = None,
) -> list[list[Any]]:
    """Values of `sources`, with as many copies of the weights as keep them out of the caches.

    On the CPU, or on `device`.
    """
    weights = {each for each in sources if _is_weight(each, executable.weights)}
    amount = sum(size_of(each.meta.get("val")) for each in weights)

    def made(each: Node) -> Any:
        return _there(made_up(each, generator), device)

    shared = {each: made(each) for each in sources if each not in weights}
    return [
        [made(each) if each in weights else shared[each] for each in sources]
        for _ in range(copies_of(amount))
    ]


def _is_weight(node: Node, weights: Container[str]) -> bool:
    while is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node.name in weights


def _repeat(sets: Sequence[CallArguments], watch: Watch, place: Place) -> list[float]:
    def run(number: int) -> None:
        function, args, kwargs = sets[number % len(sets)]
        function(*args, **kwargs)

    return samples_at(place, run, watch)


@contextmanager
def _failing(call: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise ExecutionError(
            f"{call} cannot be run here ({type(error).__name__}: {reason(error)})"
        ) from error
