"""Computing the small values that shapes depend on, where ONNX's own inference gives up.

Exporters compute shapes inside the model (Shape → Gather → Range → Expand …). Shape inference
follows only some operators; once all dimensions are known the rest are constants, and this module
works them out with ONNX's reference implementation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from placewright.importers.onnx.contrib import attributes_of
from placewright.importers.onnx.files import LARGEST_VALUE, TensorType, subgraphs

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

Values = dict[str, "np.ndarray[Any, Any]"]

_FOLDABLE = {
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape", "CumSum", "Div",
    "Equal", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND",
    "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod",
    "Mul", "Neg", "NonZero", "Not", "Or", "Pow", "Range", "Reciprocal", "ReduceMax",
    "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round", "ScatterElements",
    "ScatterND", "Sign", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tile", "Transpose",
    "Trilu", "Unsqueeze", "Where", "Xor",
}  # fmt: skip

# An operator that could make more elements than this of its small inputs is not tried.
_MOST_WORK = 2**20


def fold(
    model: ModelProto, type_of: Callable[[str], TensorType | None], taken: dict[str, str]
) -> bool:
    """Replace the nodes of `model` that are known values by constants; whether there were any.

    `type_of` gives the type of a tensor where it is known. A branch whose condition is known
    takes the place of the other; `taken` notes, by the first output of the If, which one.
    """
    values = _initial_values(model.graph)
    progress = False
    for node in model.graph.node:
        for subgraph in subgraphs(node):
            progress |= _bring_in(subgraph, values)
        if node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type == "Constant":
            values.update(_constant(node))
        elif node.op_type == "If":
            progress |= _settle(node, values, taken)
        else:
            found = _evaluate(node, values, type_of, model)
            if found and all(value.size <= LARGEST_VALUE for value in found.values()):
                values.update(found)
                progress |= _become_constant(node, found)
    return progress


def stored_values(graph: GraphProto) -> Values:
    """The values of constants of `graph` by name, as far as they have been kept."""
    values = _initial_values(graph)
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            values.update(_constant(node))
    return values


def _initial_values(graph: GraphProto) -> Values:
    values: Values = {}
    for tensor in graph.initializer:
        value = _array(tensor)
        if value is not None:
            values[tensor.name] = value
    return values


def _bring_in(graph: GraphProto, values: Values) -> bool:
    """Copy integers that a subgraph takes from outside into it: inference does not look there."""
    from onnx import numpy_helper

    own = {name for node in graph.node for name in node.output}
    own |= {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
    brought = False
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name in own or name not in values or values[name].dtype.kind != "i":
                continue
            copy = f"{name} (copy)"
            if copy not in own:
                graph.initializer.append(numpy_helper.from_array(values[name], copy))
                own.add(copy)
            node.input[index] = copy
            brought = True
    return brought


def _constant(node: NodeProto) -> Values:
    attribute = node.attribute[0] if node.attribute else None
    if attribute is None or not node.output:
        return {}
    if attribute.name == "value":
        value = _array(attribute.t)
        return {} if value is None else {node.output[0]: value}
    if attribute.name in ("value_int", "value_ints"):
        plain = attributes_of(node)[attribute.name]
        return {node.output[0]: np.asarray(plain, dtype=np.int64)}
    if attribute.name in ("value_float", "value_floats"):
        plain = attributes_of(node)[attribute.name]
        return {node.output[0]: np.asarray(plain, dtype=np.float32)}
    return {}


def _array(tensor: Any) -> np.ndarray[Any, Any] | None:
    """The value of a stored tensor; None for weights and others whose values were let go."""
    from onnx import numpy_helper

    if math.prod(tensor.dims) > LARGEST_VALUE or tensor.data_type == tensor.STRING:
        return None
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError):
        return None


def _evaluate(
    node: NodeProto,
    values: Values,
    type_of: Callable[[str], TensorType | None],
    model: ModelProto,
) -> Values:
    """The outputs of `node` if they are known values, else nothing."""
    if node.op_type in ("Shape", "Size"):
        found = type_of(node.input[0])
        if found is None:
            return {}
        if node.op_type == "Size":
            return {node.output[0]: np.asarray(found.elements, dtype=np.int64)}
        attributes = attributes_of(node)
        part = found.shape[attributes.get("start", 0) : attributes.get("end", None)]
        return {node.output[0]: np.asarray(part, dtype=np.int64)}
    inputs = [name for name in node.input if name]
    if node.op_type not in _FOLDABLE or not all(name in values for name in inputs):
        return {}
    if _most_elements(node.op_type, [values[name] for name in inputs]) > _MOST_WORK:
        return {}
    return _run(node, {name: values[name] for name in inputs}, model)


def _most_elements(op_type: str, inputs: list[np.ndarray[Any, Any]]) -> float:
    """A bound on how large the output of an operator can become."""
    if op_type == "ConstantOfShape":
        return float(np.prod(inputs[0], dtype=np.float64))
    if op_type in ("Expand", "Tile") and len(inputs) == 2:
        return float(np.prod(inputs[1], dtype=np.float64)) * max(1, inputs[0].size)
    if op_type == "Range" and len(inputs) == 3:
        start, limit, delta = (float(value.reshape(-1)[0]) for value in inputs)
        return (limit - start) / delta if delta else math.inf
    if op_type.startswith("Gather"):
        return math.prod(value.size for value in inputs)
    try:
        return math.prod(np.broadcast_shapes(*(value.shape for value in inputs)))
    except ValueError:  # not element by element: no larger than what goes in
        return sum(value.size for value in inputs)


def _run(node: NodeProto, inputs: Values, model: ModelProto) -> Values:
    """The outputs of `node` by ONNX's reference; nothing where it cannot tell."""
    from onnx import ValueInfoProto, helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    outputs = [name for name in node.output if name]
    graph = helper.make_graph(
        [node],
        "value",
        [],
        [ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in inputs.items()],
    )
    single = helper.make_model(graph, opset_imports=list(model.opset_import))
    try:
        results = ReferenceEvaluator(single).run(None, {})
    except Exception:  # of any type: the shape stays unknown, and is named when it is needed
        return {}
    return {name: np.asarray(value) for name, value in zip(outputs, results, strict=True)}


def _become_constant(node: NodeProto, found: Values) -> bool:
    from onnx import helper, numpy_helper

    if len(found) != 1:
        return False  # a Split of a shape: its parts are known, the node can stay
    ((name, value),) = found.items()
    constant = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))
    node.CopyFrom(constant)
    return True


def _settle(node: NodeProto, values: Values, taken: dict[str, str]) -> bool:
    condition = values.get(node.input[0])
    if condition is None or node.output[0] in ("", *taken) or condition.size != 1:
        return False
    kept = "then_branch" if condition.reshape(-1)[0] else "else_branch"
    branches = {attribute.name: attribute for attribute in node.attribute}
    if kept not in branches or len(branches) != 2:
        return False
    for name, attribute in branches.items():
        if name != kept:
            attribute.g.CopyFrom(branches[kept].g)
    taken[node.output[0]] = kept
    return True
