"""Models to measure: a whole one, and one of a single node of it.

Both have values where a shape may depend on them, and `Blank`s for all others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from placewright.costs.profiles.onnx.values import Blank, index_limits, is_plain, made_up
from placewright.costs.profiles.program import copies_of
from placewright.errors import ExecutionError
from placewright.importers.onnx.files import TensorType, set_type, subgraphs, tensors_of
from placewright.importers.onnx.folding import fold, stored_values
from placewright.importers.onnx.ops import captured
from placewright.importers.onnx.reading import OnnxModel
from placewright.importers.onnx.shapes import make_dense, real_inputs

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

MARK = "op "
"""What nodes are called in the model that runs, with their number; theirs may be anything."""
_REPEATS = 8  # of a node without weights: a run takes as long as several of them
_NEWEST = 10  # version of the file's format: later ones change nothing that is of use here
_HELD = ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data",
         "string_data")  # fmt: skip


@dataclass(frozen=True)
class Runnable:
    """A model, and what it needs to run: weights and inputs, as values or blank."""

    model: ModelProto
    weights: Mapping[str, Blank]
    inputs: Mapping[str, Blank]
    known: Mapping[str, np.ndarray[Any, Any]]


def whole(found: OnnxModel) -> Runnable:
    """The model itself, its nodes called by `MARK` and their numbers."""
    model = _without_nodes(found.model)
    graph, types = model.graph, found.scope.types
    graph.CopyFrom(found.model.graph)
    del graph.value_info[:]  # may name sizes otherwise than the inputs have them
    for number, node in enumerate(graph.node):
        node.name = f"{MARK}{number}"
        for subgraph in subgraphs(node):
            _take_names(subgraph)
    make_dense(graph)  # as ONNX Runtime does
    _drop_unread(graph)
    limits = index_limits(graph, types)
    weights = _blank_weights(graph, limits)
    _fill_others(model)
    inputs: dict[str, Blank] = {}
    for value in real_inputs(graph):
        type = types.get(value.name)
        if type is None:
            raise ExecutionError(
                f"{found.path}: input '{value.name}' is no tensor of a known shape, so that the "
                "model cannot be run with made-up values"
            )
        inputs[value.name] = Blank(type, limits.get(value.name))
        set_type(value, type)
    return Runnable(model, weights, inputs, {})


def known_values(found: OnnxModel) -> dict[str, np.ndarray[Any, Any]]:
    """The small values of a model that follow from its constants and shapes, by name."""
    model = _without_nodes(found.model)
    model.graph.CopyFrom(found.model.graph)
    while fold(model, found.scope.types.get, {}):
        pass
    return stored_values(model.graph)


def single(found: OnnxModel, op: str, known: Mapping[str, np.ndarray[Any, Any]]) -> Runnable:
    """A model of one node, several times over, each with weights of its own.

    Constants are constants there, all else that the node reads are inputs, which the copies share;
    what but the last makes is let go at once. `known` are values that an input must have.
    ExecutionError for a node that holds a graph.
    """
    from onnx import ValueInfoProto, numpy_helper

    node, types = found.ops[op].node, found.scope.types
    if any(True for _ in subgraphs(node)):
        raise ExecutionError(
            f"{found.signatures[op]} cannot be measured by itself, for it holds a graph and what "
            "that does depends on values; measure the model as a whole (--method context), or "
            "leave it to the model of costs (--missing predict)"
        )
    model = _without_nodes(found.model)
    graph = model.graph
    graph.name = "single"
    weights: dict[str, TensorType] = {}
    inputs: dict[str, Blank] = {}
    values: dict[str, np.ndarray[Any, Any]] = {}
    graph.node.add().CopyFrom(node)
    limits = index_limits(graph, types)
    for name in dict.fromkeys(name for name in node.input if name):
        constant = found.scope.constants.get(name)
        type = constant.type if constant is not None else types.get(name)
        if type is None:
            raise ExecutionError(f"{found.signatures[op]}: the type of '{name}' is not known")
        value = known.get(name if constant is None else constant.key)
        if constant is None:
            inputs[name] = Blank(type, limits.get(name))
            set_type(graph.input.add(name=name), type)
            if value is not None:
                values[name] = value
        elif value is not None:
            graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        else:
            weights[name] = type
    _repeat(graph, node, weights)
    limits = index_limits(graph, types)
    graph.output.extend(ValueInfoProto(name=name) for name in graph.node[-1].output if name)
    return Runnable(model, _blank_weights(graph, limits), inputs, values)


def _repeat(graph: GraphProto, node: NodeProto, weights: Mapping[str, TensorType]) -> None:
    """Make the nodes: so many that their weights come from memory."""
    del graph.node[:]
    amount = sum(type.bytes for type in weights.values())
    for number in range(copies_of(amount) if amount else _REPEATS):
        own = {name: f"{name} {number}" for name in weights}
        for name, type in weights.items():
            graph.initializer.add(name=own[name], data_type=type.element, dims=type.shape)
        copy = graph.node.add()
        copy.CopyFrom(node)
        copy.name = f"{MARK}{number}"
        copy.input[:] = [own.get(name, name) for name in node.input]
        copy.output[:] = [name and f"{name} {number}" for name in node.output]


def _without_nodes(model: ModelProto) -> ModelProto:
    """The same operators, in a version of the file's format that every runtime reads."""
    bare: ModelProto = type(model)()
    bare.ir_version = min(max(model.ir_version, 4), _NEWEST)
    bare.opset_import.extend(model.opset_import)
    return bare


def _take_names(graph: GraphProto) -> None:
    """So that no node within another is taken for one of the model."""
    for node in graph.node:
        node.name = ""
        for subgraph in subgraphs(node):
            _take_names(subgraph)


# -- weights -------------------------------------------------------------------------------------


def _is_empty(tensor: TensorProto) -> bool:
    """Whether values belong there and are not."""
    return math.prod(tensor.dims) > 0 and not any(len(getattr(tensor, each)) for each in _HELD)


def _drop_unread(graph: GraphProto) -> None:
    """Take away weights that nothing reads, which ONNX Runtime would not find again."""
    read = {name for node in graph.node for name in (*node.input, *captured(node))}
    read.update(value.name for value in graph.output)
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    if len(kept) < len(graph.initializer):
        copies = [type(tensor).FromString(tensor.SerializeToString()) for tensor in kept]
        del graph.initializer[:]
        graph.initializer.extend(copies)


def _blank_weights(graph: GraphProto, limits: Mapping[str, int]) -> dict[str, Blank]:
    """The weights of `graph` that a session is to be given; the others get values of their own."""
    weights = {}
    for tensor in graph.initializer:
        if not _is_empty(tensor):
            continue
        type = TensorType(tensor.data_type, tuple(tensor.dims))
        blank = Blank(type, limits.get(tensor.name))
        if is_plain(blank.type):
            weights[tensor.name] = blank
            tensor.data_location = tensor.EXTERNAL
            tensor.external_data.add(key="location", value="made up")
        else:
            tensor.raw_data = made_up(blank, np.random.default_rng(0)).tobytes()
    return weights


def _fill_others(model: ModelProto) -> None:
    """Values for tensors in attributes and in graphs within."""
    for tensor in tensors_of(model):
        if tensor.data_location != tensor.EXTERNAL and _is_empty(tensor):
            blank = Blank(TensorType(tensor.data_type, tuple(tensor.dims)))
            tensor.raw_data = made_up(blank, np.random.default_rng(0)).tobytes()
