"""The type of every tensor of an ONNX model, with its dynamic dimensions given sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.errors import GraphError, reason
from placewright.importers.onnx.contrib import replace_contrib_ops
from placewright.importers.onnx.dimensions import Dimension, dynamic_axes, place, unknown
from placewright.importers.onnx.files import (
    TensorType,
    has_known_size,
    set_type,
    stored_type,
    subgraphs,
)
from placewright.importers.onnx.folding import fold, stored_values
from placewright.importers.onnx.loops import rounds

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TypeProto, ValueInfoProto


_ABSURD = 2**100  # elements: no shape of a real tensor, and more than a float can count


@dataclass(frozen=True)
class Inferred:
    """What shape inference found.

    `graph` has the names of the model's tensors, typed (its nodes may differ from the model's);
    `symbols` the names that the file gives to dimensions, by tensor and axis; `taken` which
    branch of an If runs, by its first output, where the condition is known.
    """

    graph: GraphProto
    symbols: Mapping[tuple[str, int], str]
    taken: Mapping[str, str]


def infer_types(
    model: ModelProto,
    dimensions: Sequence[Dimension],
    given: Mapping[str, int],
    path: str | Path,
) -> Inferred:
    """Types of all tensors of `model`, as far as they can be known (`model` is left as it was).

    `dimensions` are the dynamic ones of the inputs with their sizes. A dimension of another
    tensor that cannot be inferred takes the size that `given` has for its name, or for its place
    (``"hits.1"``: axis 1 of the tensor hits). Raises OptionError for a size that fits none.
    """
    skeleton = _for_inference(model)
    _fix_inputs(skeleton.graph, dimensions)
    symbols = dict(_clear_symbols(skeleton.graph))
    sizes = {each.name: each.size for each in dimensions} | dict(given)
    taken: dict[str, str] = {}
    used: set[str] = {each.name for each in dimensions}
    while True:
        graph = _infer(skeleton, path)
        types = types_of(graph)
        if _seed_loops(skeleton.graph, types) or _end_loops(skeleton.graph, graph, types):
            continue
        if _is_complete(graph, types) and not _is_open(skeleton.graph, taken):
            break
        filled = _fill(graph, skeleton, sizes, symbols)
        used |= filled
        if not (filled or fold(skeleton, types.get, taken)):
            break
    for name in given:
        if name not in used:
            inner = used - {each.name for each in dimensions}
            raise unknown(name, dimensions, [*sorted(inner), *_open(graph, symbols)], path)
    return Inferred(graph, symbols, taken)


def types_of(graph: GraphProto) -> dict[str, TensorType | None]:
    """The types of the tensors of `graph` (subgraphs apart); None where not fully known."""
    types: dict[str, TensorType | None] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        types[value.name] = tensor_type(value.type)
    for tensor in graph.initializer:
        if has_known_size(tensor.data_type):
            types[tensor.name] = stored_type(tensor)
    return types


def tensor_type(proto: TypeProto) -> TensorType | None:
    tensor = proto.tensor_type
    if not has_known_size(tensor.elem_type) or not tensor.HasField("shape"):
        return None
    if any(not dim.HasField("dim_value") or dim.dim_value < 0 for dim in tensor.shape.dim):
        return None
    found = TensorType(tensor.elem_type, tuple(dim.dim_value for dim in tensor.shape.dim))
    return found if found.elements < _ABSURD else None


def lasting_shapes(model: ModelProto, path: str | Path) -> dict[str, tuple[int | None, ...]]:
    """The shapes of tensors with the sizes that they have whatever the dynamic dimensions are.

    Others are None. What the file says of tensors that nodes make is not believed.
    """
    skeleton = _for_inference(model)
    del skeleton.graph.value_info[:]
    for value in skeleton.graph.output:
        value.ClearField("type")
    graph = _infer(skeleton, path)
    return {
        value.name: tuple(
            dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None
            for dim in value.type.tensor_type.shape.dim
        )
        for value in (*graph.value_info, *graph.output, *graph.input)
        if value.type.tensor_type.HasField("shape")
    }


def contradiction(model: ModelProto, dimensions: Sequence[Dimension]) -> str:
    """What of the types that `model` gives does not fit those inferred; "" if all does.

    Inference elsewhere takes what a file says over what follows from its inputs, as runtimes do.
    """
    from onnx import shape_inference

    checked = _for_inference(model)
    _fix_inputs(checked.graph, dimensions)
    for value in (*checked.graph.value_info, *checked.graph.output):
        for _, dim in dynamic_axes(value):
            if dim.dim_value < 0:  # as some write a dimension that is open
                dim.Clear()
    try:
        shape_inference.infer_shapes(checked, strict_mode=True, data_prop=True)
    except Exception as error:  # several of onnx's own, RuntimeError, ValueError
        return reason(error).removeprefix("[ShapeInferenceError] Inference error(s): ")
    return ""


def _for_inference(model: ModelProto) -> ModelProto:
    """A copy with what ONNX's inference of shapes passes over put in words that it knows."""
    copy = type(model)()
    copy.CopyFrom(model)
    make_dense(copy.graph)
    replace_contrib_ops(copy.graph)
    return copy


def make_dense(graph: GraphProto) -> None:
    """Put dense weights without values in place of sparse ones, which inference passes over."""
    for sparse in graph.sparse_initializer:
        values = sparse.values
        graph.initializer.add(name=values.name, data_type=values.data_type, dims=sparse.dims)
    graph.ClearField("sparse_initializer")
    for node in graph.node:
        for subgraph in subgraphs(node):
            make_dense(subgraph)


def _infer(model: ModelProto, path: str | Path) -> GraphProto:
    from onnx import shape_inference

    try:
        return shape_inference.infer_shapes(model, strict_mode=False, data_prop=True).graph
    except Exception as error:  # several of onnx's own, RuntimeError, ValueError
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise GraphError(
            f"{path}: shapes cannot be inferred ({reason}); check the model with "
            "onnx.checker.check_model"
        ) from None


def _is_complete(graph: GraphProto, types: Mapping[str, TensorType | None]) -> bool:
    return all(
        all(types.get(name) is not None for name in node.output if name)
        and all(_is_complete(subgraph, types_of(subgraph)) for subgraph in subgraphs(node))
        for node in graph.node
    )


def _is_open(graph: GraphProto, taken: Mapping[str, str]) -> bool:
    """Whether an If may still turn out to be settled, or the rounds of a Loop to be known."""
    loops = [node for node in graph.node if node.op_type == "Loop"]
    values = stored_values(graph) if loops else {}
    return any(rounds(node, values) is None for node in loops) or any(
        node.op_type == "If" and node.output[0] not in taken for node in graph.node
    )


def _seed_loops(graph: GraphProto, types: Mapping[str, TensorType | None]) -> bool:
    """Let the body of each Loop begin with the shapes of the first round, where they are open.

    Inference leaves them open because a later round may have others.
    """
    seeded = False
    for node in graph.node:
        for body in subgraphs(node) if node.op_type == "Loop" else ():
            for name, value in zip(node.input[2:], body.input[2:], strict=False):
                found = types.get(name)
                if found is not None and tensor_type(value.type) is None:
                    set_type(value, found)
                    seeded = True
    return seeded


def _end_loops(
    graph: GraphProto, inferred: GraphProto, types: Mapping[str, TensorType | None]
) -> bool:
    """Give what a Loop makes, where it is open, the shape that its rounds say; whether any was.

    What it carries from round to round has the shape that a round keeps, what it collects that of
    a round so many times, where they are known. Into `graph`; the bodies of `inferred` know shapes.
    """
    found = False
    for node in inferred.node:
        for body in subgraphs(node) if node.op_type == "Loop" else ():
            known = types_of(body)
            carried = len(body.input) - 2
            made = zip(node.output, body.output[1:], strict=False)
            for number, (name, value) in enumerate(made):
                type = known.get(value.name)
                if not name or types.get(name) is not None or type is None:
                    continue
                if number >= carried:
                    count = rounds(node, stored_values(graph))
                    type = None if count is None else TensorType(type.element, (count, *type.shape))
                elif known.get(body.input[2 + number].name) != type:
                    type = None
                if type is not None and type.elements < _ABSURD:
                    _declare(graph, name, type)
                    found = True
    return found


def _declare(graph: GraphProto, name: str, type: TensorType) -> None:
    """Note the type of a tensor, in the place of what is noted of it."""
    values = {value.name: value for value in (*graph.output, *graph.value_info)}
    value = values.get(name)
    if value is None:
        value = graph.value_info.add(name=name)
    set_type(value, type)


# -- dynamic dimensions --------------------------------------------------------------------------


def real_inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """The inputs a run must give: not the initializers, which old files list as inputs too."""
    stored = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in stored]


def _fix_inputs(graph: GraphProto, dimensions: Sequence[Dimension]) -> None:
    """Give the dynamic dimensions of the inputs their sizes, also where these are outputs."""
    inputs = {value.name: value for value in graph.input}
    for each in dimensions:
        for name, axis in each.places:
            inputs[name].type.tensor_type.shape.dim[axis].dim_value = each.size
    for value in graph.output:
        if value.name in inputs:
            value.type.CopyFrom(inputs[value.name].type)


def _clear_symbols(graph: GraphProto) -> Iterator[tuple[tuple[str, int], str]]:
    """Take the names off all other dimensions, so that inference decides them; yield them."""
    values = [*graph.value_info, *graph.output]
    for value in values:
        for axis, dim in dynamic_axes(value):
            if dim.dim_param:
                yield (value.name, axis), dim.dim_param
            dim.Clear()
    for node in graph.node:
        for subgraph in subgraphs(node):
            for value in subgraph.input:
                for _, dim in dynamic_axes(value):
                    dim.Clear()
            yield from _clear_symbols(subgraph)


def _fill(
    graph: GraphProto,
    skeleton: ModelProto,
    values: Mapping[str, int],
    symbols: Mapping[tuple[str, int], str],
) -> set[str]:
    """Give dimensions that inference left open the sizes known for their names or places.

    Returns the names and places that were of use.
    """
    used: set[str] = set()
    declared = {value.name: value for value in skeleton.graph.output}
    declared |= {value.name: value for value in skeleton.graph.value_info}
    for value in (*graph.value_info, *graph.output):
        sizes: dict[int, int] = {}
        for axis, _ in dynamic_axes(value):
            keys = (place(value.name, axis), symbols.get((value.name, axis)))
            known = next((key for key in keys if key in values), None)
            if known is not None:
                sizes[axis] = values[known]
                used.add(known)
        if sizes:
            if value.name not in declared:
                declared[value.name] = skeleton.graph.value_info.add()
            target = declared[value.name]
            target.CopyFrom(value)
            for axis, dim in list(dynamic_axes(target)):
                dim.Clear()
                if axis in sizes:
                    dim.dim_value = sizes[axis]
    return used


def _open(graph: GraphProto, symbols: Mapping[tuple[str, int], str]) -> Iterator[str]:
    """The dimensions that inference left open, by name or place, each once."""
    yield from dict.fromkeys(
        symbols.get((value.name, axis), place(value.name, axis))
        for value in (*graph.value_info, *graph.output)
        for axis, _ in dynamic_axes(value)
    )
