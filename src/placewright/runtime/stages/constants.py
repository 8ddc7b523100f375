"""Tensors that a program keeps inside its graph, taken out of it as weights."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.fx import GraphModule, Node

from placewright.importers.torch.programs import Executable


def without_constants(executable: Executable) -> Executable:
    """The same program with a placeholder for each tensor constant (``torch.tensor(0.5)``).

    A stage then gets it as it gets its weights. Names of calls stay.
    """
    if not _constants(executable.module):
        return executable
    module = copied(executable.module)
    values, weights = dict(executable.values), dict(executable.weights)
    first = next(iter(module.graph.nodes))
    for node, value in _constants(module):
        with module.graph.inserting_before(first):
            placeholder = module.graph.placeholder(f"constant_{node.name}")
        placeholder.meta = dict(node.meta)
        node.replace_all_uses_with(placeholder)
        module.graph.erase_node(node)
        values[placeholder.name], weights[placeholder.name] = value, str(node.target)
    module.recompile()
    return replace(executable, module=module, values=values, weights=weights)


def copied(module: GraphModule) -> GraphModule:
    """The same attributes with a graph of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch to itself, about copying pytrees
        return GraphModule(module, copy.deepcopy(module.graph))


def _constants(module: GraphModule) -> list[tuple[Node, Tensor]]:
    """Not the graphs that higher-order ops call, which are attributes too."""
    found: list[tuple[Node, Any]] = [
        (node, getattr(module, str(node.target), None))
        for node in module.graph.find_nodes(op="get_attr")
    ]
    return [(node, value) for node, value in found if isinstance(value, Tensor)]
