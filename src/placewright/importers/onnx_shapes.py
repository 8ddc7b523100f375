"""The type of every tensor of an ONNX model, with its symbolic dimensions given values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.errors import GraphError, OptionError
from placewright.importers.onnx_contrib import replace_contrib_ops
from placewright.importers.onnx_files import TensorType, has_known_size, stored_type, subgraphs
from placewright.importers.onnx_folding import fold

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TypeProto, ValueInfoProto


_ABSURD = 2**100  # elements: no shape of a real tensor, and more than a float can count


@dataclass(frozen=True)
class Inferred:
    """What shape inference found.

    `graph` has the names of the model's tensors, typed (its nodes may differ from the model's);
    `dimensions` the values that symbolic dimensions got; `symbols` the names that the file gives
    to dimensions, by tensor and axis; `taken` which branch of an If runs, by its first output,
    where the condition is known.
    """

    graph: GraphProto
    dimensions: Mapping[str, int]
    symbols: Mapping[tuple[str, int], str]
    taken: Mapping[str, str]


def infer_types(
    model: ModelProto, batch: int, given: Mapping[str, int], path: str | Path
) -> Inferred:
    """Types of all tensors of `model`, as far as they can be known (`model` is left as it was).

    Symbolic dimensions of the inputs take the value that `given` has for their name, or for
    their place (``"pixels[2]"``: axis 2 of the tensor pixels); else `batch` if they are the batch
    (`_batch_names`); else 1. Raises OptionError for a value that fits no dimension.
    """
    skeleton = type(model)()
    skeleton.CopyFrom(model)
    replace_contrib_ops(skeleton.graph)
    dimensions = _fix_inputs(skeleton.graph, batch, given, path)
    symbols = dict(_clear_symbols(skeleton.graph))
    taken: dict[str, str] = {}
    while True:
        graph = _infer(skeleton, path)
        types = types_of(graph)
        if _seed_loops(skeleton.graph, types):
            continue
        if _is_complete(graph, types):
            break
        if not (_fill(graph, skeleton, dimensions | dict(given), symbols)
                or fold(skeleton, types.get, taken)):  # fmt: skip
            break
    _check_given(given, graph, dimensions, symbols, path)
    return Inferred(graph, dimensions, symbols, taken)


def types_of(graph: GraphProto) -> dict[str, TensorType | None]:
    """The types of the tensors of `graph` (subgraphs apart); None where not fully known."""
    types: dict[str, TensorType | None] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        types[value.name] = tensor_type(value.type)
    for tensor in graph.initializer:
        if has_known_size(tensor.data_type):
            types[tensor.name] = stored_type(tensor)
    for sparse in graph.sparse_initializer:
        types[sparse.values.name] = TensorType(sparse.values.data_type, tuple(sparse.dims))
    return types


def tensor_type(proto: TypeProto) -> TensorType | None:
    tensor = proto.tensor_type
    if not has_known_size(tensor.elem_type) or not tensor.HasField("shape"):
        return None
    if any(not dim.HasField("dim_value") or dim.dim_value < 0 for dim in tensor.shape.dim):
        return None
    found = TensorType(tensor.elem_type, tuple(dim.dim_value for dim in tensor.shape.dim))
    return found if found.elements < _ABSURD else None


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
                    value.type.tensor_type.elem_type = found.element
                    value.type.tensor_type.ClearField("shape")
                    value.type.tensor_type.shape.SetInParent()
                    for size in found.shape:
                        value.type.tensor_type.shape.dim.add(dim_value=size)
                    seeded = True
    return seeded


# -- symbolic dimensions -------------------------------------------------------------------------


def real_inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """The inputs a run must give: not the initializers, which old files list as inputs too."""
    stored = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in stored]


def _symbolic(value: ValueInfoProto) -> Iterator[tuple[int, Any]]:
    """The axes of `value` without a number, as (axis, dimension)."""
    if value.type.tensor_type.HasField("shape"):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") or dim.dim_value < 0:
                yield axis, dim


def _batch_names(inputs: list[ValueInfoProto]) -> set[str]:
    """Names of the batch dimension: those on axis 0 of an input, or if some of these speak of
    a batch, only they."""
    leading = {
        dim.dim_param
        for value in inputs
        for axis, dim in _symbolic(value)
        if axis == 0 and dim.dim_param
    }
    return {name for name in leading if "batch" in name.lower()} or leading


def _fix_inputs(
    graph: GraphProto, batch: int, given: Mapping[str, int], path: str | Path
) -> dict[str, int]:
    """Give the symbolic dimensions of the inputs their values; these, by name or place."""
    inputs = real_inputs(graph)
    batch_names = _batch_names(inputs)
    if batch != 1:
        _check_batch(inputs, batch, path)
    values: dict[str, int] = {}
    for value in inputs:
        for axis, dim in _symbolic(value):
            place, name = f"{value.name}[{axis}]", dim.dim_param
            is_batch = name in batch_names if name else axis == 0
            size = given.get(place, given.get(name, batch if is_batch else 1))
            values[place if place in given else name or place] = size
            dim.dim_value = size
    return values


def _check_batch(inputs: list[ValueInfoProto], batch: int, path: str | Path) -> None:
    """Refuse a batch that the model, exported for a fixed one, cannot have."""
    shapes = [value.type.tensor_type.shape.dim for value in inputs]
    leading = [shape[0] for shape in shapes if len(shape)]
    if all(dim.HasField("dim_value") and dim.dim_value not in (-1, batch) for dim in leading):
        fixed = f"{leading[0].dim_value}" if leading else "no batch"
        raise OptionError(
            f"{path}: batch {batch} does not fit, the model's inputs are fixed to {fixed}; "
            "export it with a dynamic batch dimension"
        )


def _clear_symbols(graph: GraphProto) -> Iterator[tuple[tuple[str, int], str]]:
    """Take the names off all other dimensions, so that inference decides them; yield them."""
    values = [*graph.value_info, *graph.output]
    for value in values:
        for axis, dim in _symbolic(value):
            if dim.dim_param:
                yield (value.name, axis), dim.dim_param
            dim.Clear()
    for node in graph.node:
        for subgraph in subgraphs(node):
            for value in subgraph.input:
                for _, dim in _symbolic(value):
                    dim.Clear()
            yield from _clear_symbols(subgraph)


def _fill(
    graph: GraphProto,
    skeleton: ModelProto,
    values: Mapping[str, int],
    symbols: Mapping[tuple[str, int], str],
) -> bool:
    """Give dimensions that inference left open the values known for their names or places."""
    filled = False
    declared = {value.name: value for value in skeleton.graph.output}
    declared |= {value.name: value for value in skeleton.graph.value_info}
    for value in (*graph.value_info, *graph.output):
        sizes: dict[int, int] = {}
        for axis, _ in _symbolic(value):
            for key in (f"{value.name}[{axis}]", symbols.get((value.name, axis))):
                if key is not None and key in values:
                    sizes.setdefault(axis, values[key])
        if sizes:
            if value.name not in declared:
                declared[value.name] = skeleton.graph.value_info.add()
            target = declared[value.name]
            target.CopyFrom(value)
            for axis, dim in list(_symbolic(target)):
                dim.Clear()
                if axis in sizes:
                    dim.dim_value = sizes[axis]
            filled = True
    return filled


def _check_given(
    given: Mapping[str, int],
    graph: GraphProto,
    dimensions: Mapping[str, int],
    symbols: Mapping[tuple[str, int], str],
    path: str | Path,
) -> None:
    named = [*dict.fromkeys([*dimensions, *symbols.values()])]
    tensors = {value.name for value in (*graph.input, *graph.value_info, *graph.output)}
    for key in given:
        tensor, bracket, axis = key.rpartition("[")
        is_place = bracket and axis[:-1].isdigit() and axis.endswith("]") and tensor in tensors
        if key not in named and not is_place:
            known = f"the model has {', '.join(named)}" if named else "the model has none"
            raise OptionError(f"{path}: no symbolic dimension is named '{key}'; {known}")
