"""An ONNX model as it is read: checked, its functions and known branches in place, its types known.

`read_model` is what importing (`model`) and measuring share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.errors import FormatError, GraphError, OptionError
from placewright.importers.costs import uncounted_remark
from placewright.importers.onnx.branches import take_branches
from placewright.importers.onnx.dimensions import (
    Dimension,
    assumptions,
    check_batch,
    check_size,
    choose_sizes,
    listed,
)
from placewright.importers.onnx.files import load_model, parse_model, subgraphs
from placewright.importers.onnx.ops import Op, Reader, Scope, label
from placewright.importers.onnx.ordering import put_in_order
from placewright.importers.onnx.shapes import Inferred, contradiction, infer_types, real_inputs
from placewright.importers.onnx.signature import Signatures
from placewright.units import printable

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto
    from onnx.defs import OpSchema

_OWN = "ai.onnx"  # the long name of the domain of ONNX's own operators


@dataclass(frozen=True)
class OnnxModel:
    """A model with what is known of it.

    `nodes` has the number of each op's node in the model's graph, by the op's name; constants
    are no ops. Of weights the types are there, not the values (`with_values` brings them).
    `assumed` says which dimensions were given a size by nobody, `taken` which branches have been
    put in place of their Ifs (see `take_branches`), in turn, `contradiction` what does not fit
    together in what the file says of shapes ("" if all does).
    """

    path: Path
    model: ModelProto
    scope: Scope
    dimensions: tuple[Dimension, ...]
    nodes: Mapping[str, int]
    ops: Mapping[str, Op]
    reader: Reader
    assumed: str | None
    taken: tuple[Mapping[str, str], ...] = ()
    contradiction: str = ""

    @cached_property
    def signatures(self) -> dict[str, str]:
        """What each op does, by its name (see `signature`)."""
        of = Signatures.of_model(self.model, self.scope).of
        return {name: of(op.node) for name, op in self.ops.items()}

    @property
    def remarks(self) -> Iterator[str]:
        """What had to be assumed."""
        if self.assumed:
            yield self.assumed
        if self.reader.branchings:
            yield (
                f"which branch runs is not known of {listed(self.reader.branchings)} (If): the "
                "larger cost of the two is taken"
            )
        if self.reader.loops:
            yield (
                f"how often it runs is not known of {listed(self.reader.loops)} (Loop): the body "
                "is counted once"
            )
        if self.uncounted:
            yield uncounted_remark(self.uncounted)
        if self.contradiction:
            yield (
                f"what the file says of shapes contradicts itself ({self.contradiction}); it may "
                "not run; check it with onnx.checker.check_model(..., full_check=True)"
            )
        elif misfit := _misfit(self.model.graph, self.scope):
            yield (
                f"{misfit}: it may not run with these sizes; if its exporter has fixed some, give "
                "the sizes that it was exported with"
            )
        if gone := _gone(self.model):
            yield (
                f"opset {_version(self.model)}, which the file asks for, has no {listed(gone)} any "
                "more: runtimes refuse it; export it with the opset that its nodes are of"
            )

    @property
    def uncounted(self) -> frozenset[str]:
        """The operators whose FLOPs are not known."""
        return frozenset[str]().union(*(op.cost.uncounted for op in self.ops.values()))


def read_model(
    path: str | Path,
    *,
    batch: int | None = None,
    dimensions: Mapping[str, int] | None = None,
    content: bytes | None = None,
) -> OnnxModel:
    """The model in `path`, with arguments and errors of `model.read_onnx`."""
    with printable_errors():
        return _read(path, batch, dict(dimensions or {}), content)


def with_values(found: OnnxModel) -> ModelProto:
    """``found.model`` with the values of its weights, read from its file again.

    What lies in other files stays there. No two nodes share a name, which ONNX Runtime refuses.
    FormatError where the file is not what it was.
    """
    with printable_errors():
        model = _prepared(parse_model(found.path), found.path)
        for taken in found.taken:
            take_branches(model.graph, taken, found.path)
        if _wiring(model.graph) != _wiring(found.model.graph):
            raise FormatError(f"{found.path}: the file has changed meanwhile; plan it again")
    _part_names(model.graph)
    return model


def _part_names(graph: GraphProto) -> None:
    """Give each node that has a name one of its own, in the graphs within too."""
    for node, name in zip(graph.node, _op_names(graph), strict=True):
        if node.name:
            node.name = name
        for subgraph in subgraphs(node):
            _part_names(subgraph)


def _wiring(graph: GraphProto) -> list[tuple[str, list[str], list[str]]]:
    return [(node.op_type, list(node.input), list(node.output)) for node in graph.node]


@contextmanager
def printable_errors(assumed: str | None = None) -> Iterator[None]:
    """Errors in one printable line, for names may hold anything; with what had been assumed."""
    try:
        yield
    except (FormatError, GraphError, OptionError) as error:
        is_told = assumed is not None and isinstance(error, GraphError)
        text = f"{error} ({assumed})" if is_told else str(error)
        if text == str(error) and text.isprintable():
            raise
        raise type(error)(text if text.isprintable() else " ".join(text.split())) from None


def _read(
    path: str | Path, batch: int | None, given: Mapping[str, int], content: bytes | None
) -> OnnxModel:
    for name, size in given.items():
        check_size(size, f"dimension '{name}'", path)
    model = _prepared(load_model(path, content), path)
    _check_nodes(model, path)
    _check_names(model.graph, set(), path)
    inputs = real_inputs(model.graph)
    if batch is not None:
        check_batch(inputs, check_size(batch, "batch", path), path)
    dimensions = choose_sizes(inputs, batch, given)
    assumed = assumptions(dimensions, path)
    with printable_errors(assumed):
        inferred, taken = _infer(model, dimensions, given, path)
        scope = Scope.of(model.graph, inferred.graph, None, "")
        contradicting = contradiction(model, dimensions)
        reader = Reader(inferred, path, contradicting)
        nodes = {
            name: number
            for number, name in enumerate(_op_names(model.graph))
            if not _is_constant(model.graph.node[number], scope)
        }
        ops = {name: reader.op(model.graph.node[n], scope) for name, n in nodes.items()}
    return OnnxModel(
        Path(path),
        model,
        scope,
        dimensions,
        nodes,
        ops,
        reader,
        assumed,
        tuple(taken),
        contradicting,
    )


def _misfit(graph: GraphProto, scope: Scope) -> str:
    """The first Reshape to another number of elements; "" if there is none."""
    for node in graph.node:
        if node.op_type == "Reshape" and _is_standard(node):
            found, made = (scope.types.get(name) for name in (node.input[0], node.output[0]))
            if found and made and found.elements != made.elements:
                return f"{label(node)} makes {made.elements} elements of {found.elements}"
    return ""


def _gone(model: ModelProto) -> list[str]:
    """Operators of nodes that the model's version of ONNX's operators has no more."""
    from onnx import defs

    version = _version(model)
    used = {node.op_type for node in _all_nodes(model.graph.node) if _is_standard(node)}
    known = (name for name in sorted(used) if defs.has(name))
    return [name for name in known if _schema(name, version).deprecated]


def _is_constant(node: NodeProto, scope: Scope) -> bool:
    return bool(node.output) and node.output[0] in scope.constants


def _op_names(graph: GraphProto) -> list[str]:
    """Unique names in one printable line: the nodes' own, else ``<op_type>_<number>``."""
    taken: set[str] = set()
    names = []
    for number, node in enumerate(graph.node):
        name = printable(node.name or f"{node.op_type}_{number}")
        while name in taken:
            name = f"{name}#{number}"
        taken.add(name)
        names.append(name)
    return names


def _infer(
    model: ModelProto,
    dimensions: Sequence[Dimension],
    given: Mapping[str, int],
    path: str | Path,
) -> tuple[Inferred, list[Mapping[str, str]]]:
    """The types of `model`, where branches that are known to run take the place of their Ifs.

    The second result says which, in turn.
    """
    inferred = infer_types(model, dimensions, given, path)
    taken: list[Mapping[str, str]] = []
    while inferred.taken:
        taken.append(inferred.taken)
        take_branches(model.graph, inferred.taken, path)
        _check_names(model.graph, set(), path)
        inferred = infer_types(model, dimensions, given, path)
    return inferred, taken


# -- checks ----------------------------------------------------------------------------------------


def _prepared(model: ModelProto, path: str | Path) -> ModelProto:
    """`model` without functions of its own, its nodes in order, ONNX's own domain as ""."""
    _shorten_domain(model)
    model = _inline(model, path)
    put_in_order(model.graph)
    return model


def _shorten_domain(model: ModelProto) -> None:
    """Write the domain of ONNX's own operators as "", which is all that its inference knows."""
    for owner in (model, *model.functions):
        for entry in owner.opset_import:
            if entry.domain == _OWN:
                entry.domain = ""
    for nodes in (model.graph.node, *(each.node for each in model.functions)):
        for node in _all_nodes(nodes):
            if node.domain == _OWN:
                node.domain = ""


def _inline(model: ModelProto, path: str | Path) -> ModelProto:
    """`model` with the functions it defines put in place of their calls."""
    if not model.functions:
        return model
    from onnx import inliner

    _check_functions(model, path)
    try:
        inlined = inliner.inline_local_functions(model)
    except Exception as error:  # several of onnx's own, RuntimeError, ValueError
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise GraphError(
            f"{path}: the functions of the model cannot be inlined ({reason}); export it "
            "without local functions"
        ) from None
    left = {(function.domain, function.name): function for function in inlined.functions}
    for node in _all_nodes(inlined.graph.node):
        if function := left.get((node.domain, node.op_type)):
            raise GraphError(
                f"{path}: function '{function.name}' is of other versions of operators than the "
                "model, and cannot be put in place of its calls; export both with one opset"
            )
    return inlined


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
    """Refuse nodes with fewer inputs or outputs than their operator has, or other attributes."""
    from onnx import defs

    version = _version(model)
    for node in _all_nodes(model.graph.node):
        if not node.op_type:
            raise GraphError(f"{path}: {label(node)} has no op_type; export the model again")
        if outside := next((each for each in node.attribute if each.ref_attr_name), None):
            raise GraphError(
                f"{path}: {label(node)}: attribute '{outside.name}' refers to one of a function, "
                "and the node is in none; export the model again"
            )
        least = (0, 1)
        if _is_standard(node) and defs.has(node.op_type):
            schema = _schema(node.op_type, version)
            _check_attributes(node, schema, path)
            least = (schema.min_input, max(1, schema.min_output))
        for what, names, count in zip(
            ("inputs", "outputs"), (node.input, node.output), least, strict=True
        ):
            if len(names) < count:
                raise GraphError(
                    f"{path}: {label(node)} has {len(names)} {what}, {node.op_type} needs "
                    f"{count}; export the model again"
                )


def _check_attributes(node: NodeProto, schema: OpSchema, path: str | Path) -> None:
    """Refuse attributes of another type than the operator's."""
    for attribute in node.attribute:
        known = schema.attributes.get(attribute.name)
        found = attribute.AttributeType.Name(attribute.type)
        wanted = found if known is None else str(known.type).rpartition(".")[2]
        if found not in ("UNDEFINED", wanted):
            raise GraphError(
                f"{path}: {label(node)}: attribute '{attribute.name}' is of type {found}, and "
                f"{node.op_type} takes {wanted}; export the model again"
            )


def _version(model: ModelProto) -> int:
    """Of ONNX's own operators."""
    return int({entry.domain: entry.version for entry in model.opset_import}[""])


def _is_standard(node: NodeProto) -> bool:
    return node.domain == ""


def _schema(operator: str, version: int) -> OpSchema:
    """What ONNX says of an operator of its own, in that version or else the newest."""
    from onnx import defs

    try:
        return defs.get_schema(operator, version, "")
    except defs.SchemaError:
        return defs.get_schema(operator)


def _check_names(graph: GraphProto, outer: set[str], path: str | Path) -> None:
    """Refuse a graph where a tensor is read before it is produced, or is there twice."""
    stored = [tensor.name for tensor in graph.initializer]
    stored += [tensor.values.name for tensor in graph.sparse_initializer]
    for name, count in Counter(stored).items():
        if count > 1:
            raise GraphError(
                f"{path}: {count} initializers are called '{name}'; give each tensor its own name"
            )
    known = outer | {value.name for value in graph.input} | set(stored)
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
            f"which {label(later[name])} produces only afterwards, and they wait for each other; "
            "a model must be a DAG"
        )
    return "which is no input, initializer or output of a node; export the model again"
