"""Measuring a group of ops as the engine fuses it: compiled by Inductor, by itself.

The group is a program of its own: what it reads are its inputs, what others read of it its results.
It runs on tensors of its own as a single op does in isolation. What calling a compiled program
takes, which a whole program pays once, is measured and taken off.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from placewright.costs.profiles.measure import argument_copies
from placewright.costs.profiles.program import samples_of, steady_values
from placewright.costs.profiles.reference import torch_watch
from placewright.errors import ExecutionError, OptionError, reason
from placewright.importers.torch.graph import fold
from placewright.importers.torch.programs import Executable

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

COMPILERS = ("g++", "clang++")
CALLS = 500  # to tell what a call takes


def check_compiler() -> None:
    """OptionError where there is no C++ compiler for Inductor to call."""
    wanted = os.environ.get("CXX")
    names = (wanted,) if wanted else COMPILERS
    if not any(shutil.which(name) for name in names):
        raise OptionError(
            f"compiling for the CPU needs a C++ compiler, and there is no {' or '.join(names)}; "
            "install g++, name another in CXX, or leave --compiled out"
        )


class GroupClock:
    """Times groups of the ops of one program; what a call takes is measured once."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self._owner = fold(executable.module.graph)
        self._overhead = _call_seconds()

    def samples(self, ops: Iterable[str], *, seed: int = 0) -> list[float]:
        """Seconds of the ops, by name, compiled as one. ExecutionError if that fails."""
        import torch

        nodes, inputs, module = self._part(set(ops))
        sets = argument_copies(self._executable, inputs, torch.Generator().manual_seed(seed))
        name = "+".join(node.name for node in nodes)
        try:
            with torch.no_grad():
                function = compiled(module, sets[0])
                samples = samples_of(
                    lambda number: function(*sets[number % len(sets)]), torch_watch()
                )
        except Exception as error:
            raise ExecutionError(
                f"{name} cannot be compiled here ({type(error).__name__}: {reason(error)})"
            ) from error
        return [max(seconds - self._overhead, 0.0) for seconds in samples]

    def _part(self, ops: set[str]) -> tuple[list[Node], list[Node], GraphModule]:
        """The nodes of these ops, the values they read, and the program of them alone."""
        import torch

        whole = self._executable.module
        nodes = [
            node
            for node in whole.graph.nodes
            if node.op == "call_function" and self._owner.get(node.name) in ops
        ]
        mine = set(nodes)
        read = dict.fromkeys(each for node in nodes for each in node.all_input_nodes)
        inputs = [each for each in read if each not in mine and each.op != "get_attr"]
        graph = torch.fx.Graph()
        copies = {node: graph.placeholder(node.name) for node in inputs}
        for node in (*(each for each in read if each.op == "get_attr"), *nodes):
            copies[node] = graph.node_copy(node, lambda each: copies[each])
        left = [node for node in nodes if any(user not in mine for user in node.users)]
        graph.output(tuple(copies[node] for node in left))
        return nodes, inputs, torch.fx.GraphModule(whole, graph)


def compiled(module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """What Inductor makes of a program for this process's threads; call it with such inputs."""
    import torch._inductor

    # Kernels are for a number of threads, and a cached one may be for another.
    options = {"fx_graph_cache": False, "compile_threads": 1}
    made: Callable[..., Any] = torch._inductor.compile(module, list(inputs), options=options)
    return made


def _call_seconds() -> float:
    """The median time of a compiled program that does next to nothing."""
    import torch

    graph = torch.fx.Graph()
    value = graph.placeholder("value")
    graph.output((graph.call_function(torch.ops.aten.neg.default, (value,)),))
    one = torch.ones(1)
    with torch.no_grad():
        function = compiled(torch.fx.GraphModule(torch.nn.Module(), graph), [one])

        def call(number: int) -> float:
            started = time.perf_counter()
            function(one)
            return time.perf_counter() - started

        return statistics.median(steady_values(call, torch_watch(), fewest=CALLS))
