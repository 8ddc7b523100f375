"""A program that runs calls again, as a plan with recomputation has them.

The plan's problem says what reads what: a call that runs again reads what was made again within its
block, and backward calls read what was made again in place of what was made first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from placewright.coarsen.recompute import NONE, recomputed_blocks
from placewright.errors import InputError
from placewright.importers.torch.graph import fold
from placewright.importers.torch.programs import Executable
from placewright.problem import Problem
from placewright.runtime.stages.constants import copied
from placewright.runtime.stages.targets import call_of, check_runs_again
from placewright.stash import RECOMPUTE

Reads = set[tuple[str, str]]


def with_recomputed(executable: Executable, problem: Problem) -> Executable:
    """`executable` with the calls of `problem` that run again; itself if there are none.

    Calls keep their names, and those that run again have the names of the problem's ops. InputError
    where the program lacks a call that runs again; OptionError for one that draws at random, which
    would draw anew.
    """
    blocks = recomputed_blocks(problem)
    if not blocks:
        return executable
    module = copied(executable.module)
    _Doubled(module, blocks, _reads(problem)).add()
    return replace(executable, module=module)


def _reads(problem: Problem) -> Reads:
    """`(maker, reader)` of every edge."""
    names = problem.op_names
    pairs = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
    return {(names[maker], names[reader]) for maker, reader in pairs}


class _Doubled:
    """The calls that run again as they are added; ``block[op]`` is that of an op that does."""

    def __init__(self, module: GraphModule, block: Mapping[str, int], reads: Reads) -> None:
        self.graph = module.graph
        self.block, self.reads = block, reads
        self.owner = fold(module.graph)
        self.calls = [node for node in self.graph.nodes if node.op == "call_function"]
        self.copies: dict[Node, Node] = {}

    def add(self) -> None:
        present = {node.name for node in self.calls}
        if missing := sorted(self.block.keys() - present):
            raise InputError(f"the program has no op '{missing[0]}' to run again; plan it again")
        left = set(self.block.values())
        for node in self.calls:
            again = [each for each in node.all_input_nodes if self._is_made_again(each, node)]
            for block in {self._block(each) for each in again} & left:
                left.remove(block)
                self._copy(block, node)  # right before what reads them first
            for each in again:
                node.replace_input_with(each, self.copies[each])
        for block in sorted(left):  # what nothing reads runs again too, as engines have it
            self._copy(block, self.graph.output_node())

    def _block(self, node: Node) -> int:
        return self.block.get(self.owner.get(node.name) or "", NONE)

    def _is_made_again(self, source: Node, reader: Node) -> bool:
        """Whether a call of the backward pass reads what is made again, and not first."""
        maker, by = self.owner.get(source.name), self.owner[reader.name]
        return maker in self.block and by is not None and (f"{maker}{RECOMPUTE}", by) in self.reads

    def _copy(self, block: int, before: Node) -> None:
        """Run the calls of a block again, in their order, before another."""
        for node in self.calls:
            if self._block(node) != block:
                continue
            check_runs_again(call_of(node))
            op = self.owner[node.name]
            mapped = {each: self._source(each, op) for each in node.all_input_nodes}
            with self.graph.inserting_before(before):
                made = self.graph.create_node(
                    "call_function",
                    node.target,
                    map_arg(node.args, mapped.__getitem__),
                    map_arg(node.kwargs, mapped.__getitem__),
                    f"{node.name}{RECOMPUTE}",
                )
            made.meta = dict(node.meta)
            self.copies[node] = made

    def _source(self, node: Node, reader: str | None) -> Node:
        """What the call that runs op `reader` again reads in place of `node`."""
        maker = self.owner.get(node.name)
        again = maker == reader or (f"{maker}{RECOMPUTE}", f"{reader}{RECOMPUTE}") in self.reads
        return self.copies[node] if again else node
