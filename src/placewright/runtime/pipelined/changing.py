"""Whether what a program computes depends on a buffer that it changes."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
from torch.fx import Node

from placewright.importers.torch.programs import Executable

_BATCH_NORM = "_native_batch_norm_legit_functional"
_STATISTICS = (3, 4)  # positions of the running ones, among its arguments and its outputs
_TRAINING = 5


def matters(executable: Executable, name: str) -> bool:
    """Whether a result of the program depends on the value of weight `name` before the run.

    Running statistics of a batch normalisation that trains do not matter: they are written, and
    read for their own new values only. Gradients depend on what the loss depends on.
    """
    graph = executable.module.graph
    placeholders = {place for place, weight in executable.weights.items() if weight == name}
    waiting = [node for node in graph.find_nodes(op="placeholder") if node.name in placeholders]
    reached = set(waiting)
    while waiting:
        for reader in _depending(waiting.pop()):
            if reader not in reached:
                reached.add(reader)
                waiting.append(reader)
    outputs = executable.outputs
    return any(outputs[position] in reached for position in executable.results)


def _depending(node: Node) -> Iterator[Node]:
    """The calls whose output depends on that of `node`."""
    for reader in node.users:
        if _keeps_apart(reader, node):
            for part in reader.users:
                if part.target is operator.getitem and part.args[1] in _STATISTICS:
                    yield part
        else:
            yield reader


def _keeps_apart(reader: Node, node: Node) -> bool:
    """Whether `reader` normalises by the batch, and `node` is one of its running statistics."""
    if not isinstance(reader.target, torch._ops.OpOverload):
        return False
    if reader.target.overloadpacket.__name__ != _BATCH_NORM or not reader.args[_TRAINING]:
        return False
    places = [place for place, each in enumerate(reader.args) if each is node]
    return all(place in _STATISTICS for place in places)
