"""Graphs in files: ``placewright.graph/1``, one list per column."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placewright.errors import GraphError
from placewright.formats import files
from placewright.graph import CopyTensor, Graph

if TYPE_CHECKING:
    from placewright.formats.schema import CopyTensors

FORMAT = "placewright.graph/1"


def graph_document(graph: Graph) -> dict[str, Any]:
    """The graph as a ``placewright.graph/1`` object; columns that say nothing are left out."""
    ops: dict[str, Any] = {"name": list(graph.op_names), "type": list(graph.op_types)}
    if any(graph.op_modules):
        ops["module"] = list(graph.op_modules)
    if any(dtype != "fp32" for dtype in graph.op_dtypes):
        ops["dtype"] = list(graph.op_dtypes)
    if any(graph.op_signatures):
        ops["signature"] = list(graph.op_signatures)
    for column in ("flops", "bytes_read", "bytes_written", "parameter_bytes", "state_bytes"):
        values = getattr(graph, f"op_{column}")
        if values.any():
            ops[column] = values.tolist()
    if graph.is_training:
        ops["backward"] = graph.is_backward.tolist()
    if graph.op_copy_bytes.any():
        ops["copy_bytes"] = graph.op_copy_bytes.tolist()
        ops["copy_colocation"] = graph.copy_colocation.tolist()
    for column, values in (("twin", graph.forward_twin), ("colocation", graph.colocation)):
        if (values >= 0).any():
            ops[column] = values.tolist()
    document: dict[str, Any] = {"format": FORMAT, "name": graph.name, "ops": ops}
    tensors: dict[str, Any] = {
        "producer": graph.tensor_producer.tolist(),
        "bytes": graph.tensor_bytes.tolist(),
        "consumers": [graph.consumers_of(t).tolist() for t in range(graph.tensor_count)],
    }
    if any(graph.tensor_names):
        tensors["name"] = list(graph.tensor_names)
    document["tensors"] = tensors
    if graph.copy_tensors:
        producer, size, consumers = zip(*graph.copy_tensors, strict=True)
        document["copy_tensors"] = {
            "producer": list(producer),
            "bytes": list(size),
            "consumers": [list(each) for each in consumers],
        }
    if graph.times:
        document["times"] = {
            kind: [None if np.isinf(value) else value for value in values.tolist()]
            for kind, values in graph.times.items()
        }
    if graph.attributes:
        document["attributes"] = _written(graph)
    if graph.input_samples is not None:
        document["input_samples"] = graph.input_samples
    return document


def _written(graph: Graph) -> dict[str, Any]:
    """The attributes; GraphError for what JSON has no way to say."""
    for name, value in graph.attributes.items():
        try:
            files.json_text({name: value})
        except (TypeError, ValueError):
            raise GraphError(
                f"graph '{graph.name}': its attribute {name!r} is {value!r}, which a file cannot "
                "hold; give text, numbers, or lists and mappings of them"
            ) from None
    return dict(graph.attributes)


def _copy_tensors(given: CopyTensors | None) -> tuple[CopyTensor, ...]:
    if given is None:
        return ()
    columns = given.producer, given.bytes, given.consumers
    if len({len(each) for each in columns}) > 1:
        raise GraphError("the columns of copy_tensors differ in length")
    return tuple(
        CopyTensor(producer, size, tuple(consumers))
        for producer, size, consumers in zip(*columns, strict=True)
    )


def read_graph(document: Any, path: str | Path = "graph") -> Graph:
    """Read a ``placewright.graph/1`` object; FormatError or GraphError name the fault."""
    from placewright.formats.schema import GraphFile  # pydantic is slow to import

    files.check_format(document, FORMAT, path)
    content = files.validate(GraphFile, document, path)
    ops, tensors = content.ops, content.tensors
    n = len(ops.name)
    producer_count = len(tensors.producer)

    def column(name: str, default: Any, where: Any = ops, length: int = n) -> Any:
        values = getattr(where, name)
        if values is None:
            return [default] * length
        if len(values) != length:
            raise GraphError(f"{name} has {len(values)} entries, expected {length}")
        return values

    def numbers(name: str, default: Any) -> NDArray[Any]:
        return np.array(column(name, default))

    try:
        consumers = column("consumers", [], tensors, producer_count)
        offsets = np.zeros(producer_count + 1, dtype=np.int64)
        np.cumsum([len(each) for each in consumers], out=offsets[1:])
        return Graph(
            name=content.name,
            op_names=tuple(ops.name),
            op_types=tuple(column("type", "op")),
            op_modules=tuple(column("module", "")),
            op_dtypes=tuple(column("dtype", "fp32")),
            op_flops=numbers("flops", 0.0),
            op_bytes_read=numbers("bytes_read", 0.0),
            op_bytes_written=numbers("bytes_written", 0.0),
            op_parameter_bytes=numbers("parameter_bytes", 0.0),
            op_state_bytes=numbers("state_bytes", 0.0),
            is_backward=numbers("backward", False),
            forward_twin=numbers("twin", -1),
            colocation=numbers("colocation", -1),
            tensor_names=tuple(column("name", "", tensors, producer_count)),
            tensor_producer=np.array(tensors.producer, dtype=np.int32),
            tensor_bytes=np.array(column("bytes", 0.0, tensors, producer_count)),
            consumer_offsets=offsets,
            consumers=np.array([op for each in consumers for op in each], dtype=np.int32),
            times={
                kind: np.array([np.inf if v is None else v for v in values], dtype=np.float64)
                for kind, values in (content.times or {}).items()
            },
            attributes=content.attributes or {},
            input_samples=content.input_samples,
            op_signatures=tuple(column("signature", "")),
            op_copy_bytes=numbers("copy_bytes", 0.0),
            copy_colocation=(
                np.zeros(0, dtype=np.int32)
                if ops.copy_colocation is None
                else numbers("copy_colocation", -1)
            ),
            copy_tensors=_copy_tensors(content.copy_tensors),
        )
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None
