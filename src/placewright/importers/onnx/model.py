"""ONNX models as graphs, without torch: `read_onnx`.

Every node becomes an op, except constants. FLOPs and bytes come from the types of its tensors
(`placewright.importers.onnx.costs`); the values of weights are never read.

- Views (Reshape, Identity, …) and the small integer ops that compute shapes cost nothing.
- An If whose condition is known gives way to the ops of the branch that runs. Any other, Loop and
  Scan are one op each, with the cost of what they hold: of an If, the larger of its branches; of a
  Loop, its body as often as it runs, or **once** where the file does not say; of a Scan, its body
  once per element of its input.
- A weight that several ops read is counted at the first, and they are colocated. Constants that
  devices can well have a copy of each do not colocate: vectors and scalars (exporters merge equal
  ones), and integer or boolean tables such as masks.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.errors import GraphError, PlacewrightWarning
from placewright.graph import Graph, GraphBuilder, merged
from placewright.importers.onnx.files import is_onnx
from placewright.importers.onnx.ops import Op
from placewright.importers.onnx.reading import OnnxModel, printable_errors, read_model
from placewright.importers.onnx.shapes import real_inputs
from placewright.importers.onnx.signature import library
from placewright.units import printable

if TYPE_CHECKING:
    from onnx import NodeProto

__all__ = ["is_onnx", "read_onnx"]


def read_onnx(
    path: str | Path,
    *,
    batch: int | None = None,
    dimensions: Mapping[str, int] | None = None,
    content: bytes | None = None,
) -> Graph:
    """The graph of the ONNX model in `path`.

    Dynamic dimensions of the inputs get the size that `dimensions` has for their name
    (``{"sequence": 128}``) or place (``{"tokens.1": 128}``, axis 1 of the input tokens); else
    `batch` if they are the batch, that is, stand on axis 0 of an input (if some names on axis 0
    speak of a batch, only these); else 1. The sizes taken are in
    ``graph.attributes["dimensions"]``; operators without a FLOP formula, of which only the bytes
    are counted, in ``graph.attributes["uncounted"]``. `content` is what the file holds, where it
    has been read already.

    What had to be assumed about the model is told by PlacewrightWarning: dimensions without a
    size, an If whose branch is not known, how often a Loop runs, operators whose FLOPs are not
    known, shapes that contradict each other.

    Raises FormatError for a file that is no whole ONNX model or whose external data is missing,
    too short or outside its directory; GraphError for a model that is no DAG or whose shapes
    cannot be known; OptionError for a dimension that does not exist; MissingExtraError without
    the extra ``onnx``.

    >>> graph = read_onnx("resnet50.onnx", batch=8)  # doctest: +SKIP
    >>> graph.attributes["dimensions"]  # doctest: +SKIP
    {'batch_size': 8}
    """
    found = read_model(path, batch=batch, dimensions=dimensions, content=content)
    with printable_errors(found.assumed):
        graph = _build(found)
    for remark in found.remarks:
        warnings.warn(printable(f"{path}: {remark}"), PlacewrightWarning, stacklevel=2)
    return graph


# -- the graph -----------------------------------------------------------------------------------


def _build(found: OnnxModel) -> Graph:
    ops = found.ops
    builder = GraphBuilder(found.path.stem)  # exporters call every graph "main_graph" or the like
    parameters = _parameters(ops)
    groups = _colocation(ops)
    for name, op in ops.items():
        builder.add_op(
            name,
            op.node.op_type,
            flops=op.cost.flops,
            bytes_read=op.cost.bytes_read,
            bytes_written=op.cost.bytes_written,
            parameter_bytes=parameters[name],
            module=_module(op.node),
            dtype=op.cost.dtype,
            colocate=groups.get(name),
            signature=found.signatures[name],
        )
    _connect(builder, found)
    builder.say_copies(_copies(ops, parameters), {})
    builder.attributes.update(_facts(found))
    try:
        return builder.build()
    except GraphError as error:
        raise GraphError(f"{found.path}: {error}") from None


def _module(node: NodeProto) -> str:
    """The module an op came from: ``/layer1/conv/Conv`` is in ``layer1.conv``.

    TorchScript's exporter repeats the path so far (``/layer1/layer1.0/conv1/Conv``); the
    torch.export one keeps the modules' paths as metadata of the node.
    """
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.name_scopes":
            try:
                scopes = ast.literal_eval(entry.value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            if isinstance(scopes, list) and len(scopes) > 1:
                return str(scopes[-2])
    path: list[str] = []
    for part in node.name.strip("/").split("/")[:-1]:
        if path and part.startswith(path[-1] + "."):
            path.pop()
        path.append(part)
    return ".".join(path)


def _parameters(ops: Mapping[str, Op]) -> dict[str, float]:
    """Bytes of constants per op: a weight that is not copied is counted where it is first read."""
    counted: set[str] = set()
    parameters = dict.fromkeys(ops, 0.0)
    for name, op in ops.items():
        for key, constant in op.constants.items():
            if constant.is_copied or key in op.copied or key not in counted:
                parameters[name] += constant.bytes
                counted.add(key)
    return parameters


def _copies(ops: Mapping[str, Op], counted: Mapping[str, float]) -> dict[int, float]:
    """Bytes of the constants of ops that are counted at others."""
    needed = (sum(each.bytes for each in op.constants.values()) for op in ops.values())
    more = {
        number: bytes - counted[name]
        for number, (name, bytes) in enumerate(zip(ops, needed, strict=True))
    }
    return {number: bytes for number, bytes in more.items() if bytes > 0}


def _colocation(ops: Mapping[str, Op]) -> dict[str, str]:
    """The group of each op that shares a weight with another."""
    readers: dict[str, list[str]] = {}
    for name, op in ops.items():
        for key, constant in op.constants.items():
            if not (constant.is_copied or key in op.copied):
                readers.setdefault(key, []).append(name)
    return merged(readers.values())


def _connect(builder: GraphBuilder, found: OnnxModel) -> None:
    """The tensors that ops read or the model returns, with their consumers."""
    ops = list(found.ops.values())
    wanted = {name for op in ops for name in op.reads}
    wanted |= {value.name for value in found.model.graph.output}
    tensors: dict[str, int] = {}
    for number, op in enumerate(ops):
        for name in op.reads:
            if name in tensors:
                builder.connect(tensors[name], number)
        for name in op.node.output:
            if name in wanted:
                type = found.reader.type_of(name, found.scope)
                tensors[name] = builder.add_tensor(number, type.bytes if type else 0.0, name)


def _facts(found: OnnxModel) -> dict[str, object]:
    model, ops = found.model, found.ops.values()
    constants = {key: constant for op in ops for key, constant in op.constants.items()}
    weights = [each for each in constants.values() if each.is_weight and each.type]
    facts: dict[str, object] = {
        "source": "ONNX",
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "opset": {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        "parameters": sum(each.type.elements for each in weights if each.type),
        "inputs": [value.name for value in real_inputs(model.graph)],
        "dimensions": {each.name: each.size for each in found.dimensions},
    }
    remarkable = {
        "framework": library(),
        "assumed_dimensions": [each.name for each in found.dimensions if each.assumed],
        "uncounted": sorted(found.uncounted),
        "larger_branch_counted": found.reader.branchings,
        "loops_counted_once": found.reader.loops,
    }
    return facts | {key: told for key, told in remarkable.items() if told}
