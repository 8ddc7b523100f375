"""A program that runs calls again, as a plan with recomputation has them.

The plan's problem says what reads what: a call that runs again reads what was made again within its
block, and backward calls read what was made again in place of what was made first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from placewright.coarsen.recompute import SUFFIX, recomputed_ops
from placewright.errors import InputError, OptionError
from placewright.importers.torch.graph import fold
from placewright.importers.torch.programs import Executable
from placewright.problem import Problem
from placewright.runtime.stages.constants import copied
from placewright.runtime.stages.targets import call_draws, call_of

Reads = set[tuple[str, str]]


def with_recomputed(executable: Executable, problem: Problem) -> Executable:
    """`executable` with the calls of `problem` that run again; itself if there are none.

    Calls keep their names, and those that run again have the names of the problem's ops. InputError
    where the program lacks a call that runs again; OptionError for one that draws at random, which
    would draw anew.
    """
    again = {
        problem.op_names[op]: problem.op_names[problem.forward_twin[op]]
        for op in recomputed_ops(problem).nonzero()[0].tolist()
    }
    if not again:
        return executable
    module = copied(executable.module)
    _Doubled(module, {first: name for name, first in again.items()}, _reads(problem)).add()
    return replace(executable, module=module)


def _reads(problem: Problem) -> Reads:
    """`(maker, reader)` of every edge."""
    names = problem.op_names
    pairs = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
    return {(names[maker], names[reader]) for maker, reader in pairs}


class _Doubled:
    """The calls that run again as they are added; ``second[op]`` is the name of what runs it so."""

    def __init__(self, module: GraphModule, second: Mapping[str, str], reads: Reads) -> None:
        self.graph = module.graph
        self.second, self.reads = second, reads
        self.owner = fold(module.graph)
        self.copies: dict[Node, Node] = {}

    def add(self) -> None:
        calls = [node for node in self.graph.nodes if node.op == "call_function"]
        present = {node.name for node in calls}
        if missing := sorted(self.second.keys() - present):
            raise InputError(f"the program has no op '{missing[0]}' to run again; plan it again")
        behind = [node for node in calls if self._reads_again(node)]
        for node in behind:  # copies come right before what reads them first
            for source in node.all_input_nodes:
                if self._is_made_again(source, self.owner[node.name]):
                    self._copy(source, node)
        for node in behind:
            reader = self.owner[node.name]
            for source in node.all_input_nodes:
                if self._is_made_again(source, reader):
                    node.replace_input_with(source, self.copies[source])
        for op in self.second:  # what nothing reads runs again too, as engines have it
            self._copy(next(node for node in calls if node.name == op), None)

    def _reads_again(self, node: Node) -> bool:
        reader = self.owner[node.name]
        return any(self._is_made_again(source, reader) for source in node.all_input_nodes)

    def _is_made_again(self, source: Node, reader: str | None) -> bool:
        """Whether op `reader` reads what is made again, and not first."""
        maker = self.owner.get(source.name)
        again = self.second.get(maker or "")
        return again is not None and reader is not None and (again, reader) in self.reads

    def _copy(self, node: Node, before: Node | None) -> Node:
        """What makes `node`'s value again, with all that is made again for it."""
        if node in self.copies:
            return self.copies[node]
        op = self.owner[node.name]
        assert op is not None
        name = self.second[op]
        if call_draws(call_of(node)):
            raise OptionError(
                f"op '{node.name}' draws at random, and would draw anew when it runs again; plan "
                "without --recompute, or set its probability to 0"
            )

        def source(each: Node) -> Node:
            inside = self.owner.get(each.name) == op  # what belongs to a call, as its outputs do
            return self._copy(each, before) if inside or self._is_made_again(each, name) else each

        mapped = {each: source(each) for each in node.all_input_nodes}
        with self.graph.inserting_before(before or self.graph.output_node()):
            made = self.graph.create_node(
                "call_function",
                node.target,
                map_arg(node.args, mapped.__getitem__),
                map_arg(node.kwargs, mapped.__getitem__),
                name if node.name == op else f"{node.name}{SUFFIX}",
            )
        made.meta = dict(node.meta)
        self.copies[node] = made
        return made
