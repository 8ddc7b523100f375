"""ONNX models as graphs, without torch: `read_onnx`.

Every node becomes an op, except constants. FLOPs and bytes come from the types of its tensors
(`placewright.importers.onnx.costs`); the values of weights are never read.

- Views (Reshape, Identity, …) and the small integer ops that compute shapes cost nothing.
- An If whose condition is known gives way to the ops of the branch that runs. Any other, Loop and
  Scan are one op each, with the cost of what they hold: of an If, the larger of its branches; of a
  Loop, its body **once**, for how often it runs is not in the file; of a Scan, its body once per
  element of its input.
- A weight that several ops read is counted at the first, and they are colocated. Constants that
  devices can well have a copy of each do not colocate: vectors and scalars (exporters merge equal
  ones), and integer or boolean tables such as masks.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.errors import FormatError, GraphError, OptionError, PlacewrightWarning
from placewright.graph import Graph, GraphBuilder, merged
from placewright.importers.onnx.branches import take_branches
from placewright.importers.onnx.dimensions import (
    Dimension,
    assumptions,
    check_batch,
    check_size,
    choose_sizes,
    listed,
)
from placewright.importers.onnx.files import is_onnx, load_model, subgraphs
from placewright.importers.onnx.ops import Op, Reader, Scope, label
from placewright.importers.onnx.shapes import Inferred, infer_types, real_inputs
from placewright.units import printable

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

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
    size, an If whose branch is not known, how often a Loop runs.

    Raises FormatError for a file that is no whole ONNX model or whose external data is missing,
    too short or outside its directory; GraphError for a model that is no DAG or whose shapes
    cannot be known; OptionError for a dimension that does not exist; MissingExtraError without
    the extra ``onnx``.

    >>> graph = read_onnx("resnet50.onnx", batch=8)  # doctest: +SKIP
    >>> graph.attributes["dimensions"]  # doctest: +SKIP
    {'batch_size': 8}
    """
    try:
        graph, remarks = _read(path, batch, dict(dimensions or {}), content)
    except (FormatError, GraphError, OptionError) as error:
        if str(error).isprintable():
            raise
        raise type(error)(" ".join(str(error).split())) from None  # names may hold anything
    for remark in remarks:
        warnings.warn(printable(f"{path}: {remark}"), PlacewrightWarning, stacklevel=2)
    return graph


def _read(
    path: str | Path, batch: int | None, given: Mapping[str, int], content: bytes | None
) -> tuple[Graph, list[str]]:
    """The graph, and what had to be assumed about it."""
    for name, size in given.items():
        check_size(size, f"dimension '{name}'", path)
    model = _inline(load_model(path, content), path)
    _check_nodes(model, path)
    _check_names(model.graph, set(), path)
    inputs = real_inputs(model.graph)
    if batch is not None:
        check_batch(inputs, check_size(batch, "batch", path), path)
    dimensions = choose_sizes(inputs, batch, given)
    assumed = assumptions(dimensions, path)
    try:
        inferred = _infer(model, dimensions, given, path)
        graph, reader = _build(model, inferred, dimensions, path)
    except GraphError as error:
        raise (GraphError(f"{error} ({assumed})") if assumed else error) from None
    return graph, [*([assumed] if assumed else []), *_assumed_of_subgraphs(reader)]


def _infer(
    model: ModelProto,
    dimensions: Sequence[Dimension],
    given: Mapping[str, int],
    path: str | Path,
) -> Inferred:
    """The types of `model`, where branches that are known to run take the place of their Ifs."""
    inferred = infer_types(model, dimensions, given, path)
    while inferred.taken:
        take_branches(model.graph, inferred.taken, path)
        _check_names(model.graph, set(), path)
        inferred = infer_types(model, dimensions, given, path)
    return inferred


def _assumed_of_subgraphs(reader: Reader) -> Iterator[str]:
    if reader.branchings:
        yield (
            f"which branch runs is not known of {listed(reader.branchings)} (If): the larger cost "
            "of the two is taken"
        )
    if reader.loops:
        yield (
            f"how often it runs is not known of {listed(reader.loops)} (Loop): the body is "
            "counted once"
        )


# -- the model as it is read ---------------------------------------------------------------------


def _inline(model: ModelProto, path: str | Path) -> ModelProto:
    """`model` with the functions it defines put in place of their calls."""
    if not model.functions:
        return model
    from onnx import inliner

    _check_functions(model, path)
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # several of onnx's own, RuntimeError, ValueError
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise GraphError(
            f"{path}: the functions of the model cannot be inlined ({reason}); export it "
            "without local functions"
        ) from None


def _check_functions(model: ModelProto, path: str | Path) -> None:
    """Refuse functions that call themselves, which could not be inlined in finite time."""
    calls = {
        (function.domain, function.name): {
            (node.domain, node.op_type) for node in _all_nodes(function.node)
        }
        for function in model.functions
    }
    try:
        TopologicalSorter(calls).prepare()
    except CycleError as error:
        _, name = error.args[1][0]
        raise GraphError(f"{path}: function '{name}' calls itself; a model must be a DAG") from None


def _all_nodes(nodes: object) -> Iterator[NodeProto]:
    for node in nodes:  # type: ignore[attr-defined]
        yield node
        for subgraph in subgraphs(node):
            yield from _all_nodes(subgraph.node)


def _check_nodes(model: ModelProto, path: str | Path) -> None:
    """Refuse nodes with fewer inputs or outputs than their operator has."""
    from onnx import defs

    versions = {entry.domain.removeprefix("ai.onnx"): entry.version for entry in model.opset_import}
    for node in _all_nodes(model.graph.node):
        if not node.op_type:
            raise GraphError(f"{path}: {label(node)} has no op_type; export the model again")
        least = (0, 1)
        if node.domain in ("", "ai.onnx") and defs.has(node.op_type):
            try:
                schema = defs.get_schema(node.op_type, versions[""], "")
            except defs.SchemaError:
                schema = defs.get_schema(node.op_type)
            least = (schema.min_input, max(1, schema.min_output))
        for what, names, count in zip(
            ("inputs", "outputs"), (node.input, node.output), least, strict=True
        ):
            if len(names) < count:
                raise GraphError(
                    f"{path}: {label(node)} has {len(names)} {what}, {node.op_type} needs "
                    f"{count}; export the model again"
                )


def _check_names(graph: GraphProto, outer: set[str], path: str | Path) -> None:
    """Refuse a graph where a tensor is read before it is produced, or is produced twice."""
    known = outer | {value.name for value in graph.input}
    known |= {tensor.name for tensor in graph.initializer}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    later = {name: node for node in graph.node for name in node.output if name}
    made: set[str] = set()
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                raise GraphError(
                    f"{path}: {label(node)} reads tensor '{name}', {_why(later, name)}"
                )
        for subgraph in subgraphs(node):
            _check_names(subgraph, known, path)
        for name in node.output:
            if name and (name in made or name in known):
                raise GraphError(
                    f"{path}: {label(node)} produces tensor '{name}', which exists already; "
                    "give each tensor its own name"
                )
            made.add(name)
            known.add(name)
    for value in graph.output:
        if value.name not in known:
            raise GraphError(
                f"{path}: the graph's output '{value.name}' is produced by no node; "
                "export the model again"
            )


def _why(later: Mapping[str, NodeProto], name: str) -> str:
    if name in later:
        return (
            f"which {label(later[name])} produces only afterwards; a model must be a DAG whose "
            "nodes are listed in order"
        )
    return "which is no input, initializer or output of a node; export the model again"


# -- the graph -----------------------------------------------------------------------------------


def _build(
    model: ModelProto, inferred: Inferred, dimensions: Sequence[Dimension], path: str | Path
) -> tuple[Graph, Reader]:
    scope = Scope.of(model.graph, inferred.graph, None, "")
    reader = Reader(inferred, path)
    names = _op_names(model.graph)
    ops = {
        names[number]: reader.op(node, scope)
        for number, node in enumerate(model.graph.node)
        if not (node.output and node.output[0] in scope.constants)
    }
    builder = GraphBuilder(Path(path).stem)  # exporters call every graph "main_graph" or the like
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
        )
    _connect(builder, model.graph, list(ops.values()), scope, reader)
    builder.attributes.update(_facts(model, dimensions, ops))
    if reader.branchings:
        builder.attributes["larger_branch_counted"] = reader.branchings
    if reader.loops:
        builder.attributes["loops_counted_once"] = reader.loops
    try:
        return builder.build(), reader
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None


def _op_names(graph: GraphProto) -> list[str]:
    """Unique names: the nodes' own, else ``<op_type>_<number>``."""
    taken: set[str] = set()
    names = []
    for number, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{number}"
        while name in taken:
            name = f"{name}#{number}"
        taken.add(name)
        names.append(name)
    return names


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


def _colocation(ops: Mapping[str, Op]) -> dict[str, str]:
    """The group of each op that shares a weight with another."""
    readers: dict[str, list[str]] = {}
    for name, op in ops.items():
        for key, constant in op.constants.items():
            if not (constant.is_copied or key in op.copied):
                readers.setdefault(key, []).append(name)
    return merged(readers.values())


def _connect(
    builder: GraphBuilder, graph: GraphProto, ops: list[Op], scope: Scope, reader: Reader
) -> None:
    """The tensors that ops read or the model returns, with their consumers."""
    wanted = {name for op in ops for name in op.reads} | {value.name for value in graph.output}
    tensors: dict[str, int] = {}
    for number, op in enumerate(ops):
        for name in op.reads:
            if name in tensors:
                builder.connect(tensors[name], number)
        for name in op.node.output:
            if name in wanted:
                found = reader.type_of(name, scope)
                tensors[name] = builder.add_tensor(number, found.bytes if found else 0.0, name)


def _facts(
    model: ModelProto, dimensions: Sequence[Dimension], ops: Mapping[str, Op]
) -> dict[str, object]:
    constants = {key: constant for op in ops.values() for key, constant in op.constants.items()}
    weights = [each for each in constants.values() if each.is_weight and each.type]
    opset = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    uncounted = sorted(frozenset[str]().union(*(op.cost.uncounted for op in ops.values())))
    facts: dict[str, object] = {
        "source": "ONNX",
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "opset": opset,
        "parameters": sum(each.type.elements for each in weights if each.type),
        "inputs": [value.name for value in real_inputs(model.graph)],
        "dimensions": {each.name: each.size for each in dimensions},
    }
    assumed = [each.name for each in dimensions if each.assumed]
    remarkable = {"assumed_dimensions": assumed, "uncounted": uncounted}
    return facts | {key: names for key, names in remarkable.items() if names}
