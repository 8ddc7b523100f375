"""An If of an ONNX model whose condition is known, replaced by the branch that runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.errors import GraphError
from placewright.importers.onnx.files import subgraphs

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, ValueInfoProto


def take_branches(graph: GraphProto, taken: Mapping[str, str], path: str | Path) -> None:
    """Put the branches `taken`, by the first output of their If, in place of these Ifs."""
    names = set(_names(graph))
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == "If" and node.output[0] in taken:
            nodes += _in_place(graph, node, taken[node.output[0]], names, path)
        else:
            nodes.append(node)
    replaced = type(graph)()
    replaced.node.extend(nodes)
    graph.ClearField("node")
    graph.node.extend(replaced.node)


def _in_place(
    graph: GraphProto, node: NodeProto, kept: str, names: set[str], path: str | Path
) -> list[NodeProto]:
    """The nodes of a branch, with names of their own; its weights and types go to `graph`."""
    branch = next(each.g for each in node.attribute if each.name == kept)
    if len(branch.output) != len(node.output):
        raise GraphError(
            f"{path}: the If that produces '{node.output[0]}' has {len(node.output)} outputs, its "
            f"{kept} {len(branch.output)}; check the model with onnx.checker.check_model"
        )
    made = {name for each in branch.node for name in each.output if name}
    renamed: dict[str, str] = {}
    passed_on: list[tuple[str, ValueInfoProto]] = []
    for outer, value in zip(node.output, branch.output, strict=True):
        if value.name in made and value.name not in renamed:
            renamed[value.name] = outer or _fresh(value.name, names)
        elif outer:
            passed_on.append((outer, value))
    for name in _own(branch):
        if name not in renamed:
            renamed[name] = _fresh(f"{node.output[0]}.{name}", names)
    _bring_values(graph, branch, made, renamed)
    for each in branch.node:
        _rename(each, renamed)
    return [*branch.node, *(_identity(value.name, outer, renamed) for outer, value in passed_on)]


def _bring_values(
    graph: GraphProto, branch: GraphProto, made: set[str], renamed: Mapping[str, str]
) -> None:
    """Store the weights of `branch` in `graph`, and the types of what its nodes make."""
    for tensor in branch.initializer:
        tensor.name = renamed[tensor.name]
    for sparse in branch.sparse_initializer:
        sparse.values.name = renamed[sparse.values.name]
    graph.initializer.extend(branch.initializer)
    graph.sparse_initializer.extend(branch.sparse_initializer)
    declared = {value.name for value in (*graph.value_info, *graph.output)}
    for value in (*branch.value_info, *branch.output):
        if value.name in made and renamed[value.name] not in declared:
            declared.add(renamed[value.name])
            graph.value_info.add(name=renamed[value.name]).type.CopyFrom(value.type)


def _identity(name: str, output: str, renamed: Mapping[str, str]) -> NodeProto:
    from onnx import helper

    return helper.make_node("Identity", [renamed.get(name, name)], [output])


def _rename(node: NodeProto, renamed: Mapping[str, str]) -> None:
    for names in (node.input, node.output):
        for index, name in enumerate(names):
            names[index] = renamed.get(name, name)
    for subgraph in subgraphs(node):
        own = {*_own(subgraph), *(value.name for value in subgraph.input)}
        seen = {name: new for name, new in renamed.items() if name not in own}
        for inner in subgraph.node:
            _rename(inner, seen)
        for value in subgraph.output:
            value.name = seen.get(value.name, value.name)


def _own(graph: GraphProto) -> Iterator[str]:
    """The tensors that a graph stores or its nodes produce."""
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    yield from (name for node in graph.node for name in node.output if name)


def _names(graph: GraphProto) -> Iterator[str]:
    """Every name in a graph and in those within."""
    yield from (value.name for value in graph.input)
    yield from _own(graph)
    for node in graph.node:
        yield from node.input
        for subgraph in subgraphs(node):
            yield from _names(subgraph)


def _fresh(name: str, names: set[str]) -> str:
    while name in names:
        name += "'"
    names.add(name)
    return name
