"""Nodes of an ONNX model as ops: what their names mean, what they read, what they cost."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.errors import GraphError
from placewright.importers.costs import Cost
from placewright.importers.onnx.contrib import attributes_of
from placewright.importers.onnx.costs import Call, cost_of, is_free
from placewright.importers.onnx.dimensions import keys
from placewright.importers.onnx.files import TensorType, has_known_size, subgraphs
from placewright.importers.onnx.folding import Values, stored_values
from placewright.importers.onnx.loops import rounds
from placewright.importers.onnx.shapes import Inferred, types_of

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto

_LARGEST_SHAPE_VALUE = 1024  # elements; a small integer tensor made of shapes is itself a shape
_COPIED_TABLES = {  # inputs that are angles of positions, the same in every layer
    ("", "RotaryEmbedding"): (1, 2),
    ("com.microsoft", "RotaryEmbedding"): (2, 3),
    ("com.microsoft", "GroupQueryAttention"): (7, 8),
}


def label(node: NodeProto) -> str:
    """How messages call a node: by name, else by what it produces."""
    if node.name:
        return f"op '{node.name}' ({node.op_type or 'no type'})"
    return f"the {node.op_type or 'op'} that produces '{next(iter(node.output), '')}'"


# -- scopes: what names mean ---------------------------------------------------------------------


@dataclass(frozen=True)
class Constant:
    """A tensor stored in the model; `key` tells it from those of other scopes."""

    key: str
    type: TensorType | None

    @property
    def bytes(self) -> float:
        return self.type.bytes if self.type else 0.0

    @property
    def is_weight(self) -> bool:
        return self.type is not None and self.type.dtype is not None

    @property
    def is_copied(self) -> bool:
        """Whether every device that needs it had better have a copy."""
        return not self.is_weight or sum(dim > 1 for dim in self.type.shape) < 2  # type: ignore[union-attr]


@dataclass(frozen=True)
class Scope:
    """The names visible in a graph: those of the graphs around it shine through.

    `inferred` is the graph as shape inference left it, where the types are.
    """

    inferred: GraphProto
    types: ChainMap[str, TensorType | None]
    constants: ChainMap[str, Constant]
    producers: ChainMap[str, NodeProto]

    @classmethod
    def of(cls, graph: GraphProto, inferred: GraphProto, outer: Scope | None, key: str) -> Scope:
        types = types_of(inferred)
        constants = {
            tensor.name: Constant(key + tensor.name, _stored(tensor.data_type, tensor.dims))
            for tensor in graph.initializer
        }
        for sparse in graph.sparse_initializer:  # which engines make dense
            name = sparse.values.name
            constants[name] = Constant(key + name, _stored(sparse.values.data_type, sparse.dims))
        producers = {name: node for node in graph.node for name in node.output if name}
        for node in graph.node:
            _add_constant(node, types, constants, key)
        return cls(
            inferred,
            outer.types.new_child(types) if outer else ChainMap(types),
            outer.constants.new_child(constants) if outer else ChainMap(constants),
            outer.producers.new_child(producers) if outer else ChainMap(producers),
        )

    def inner(self, node: NodeProto, attribute: AttributeProto) -> Scope:
        """The scope of a subgraph of `node`."""
        twins = (each for each in self.inferred.node if list(each.output) == list(node.output))
        twin = next(twins)
        inferred = next(each.g for each in twin.attribute if each.name == attribute.name)
        return Scope.of(attribute.g, inferred, self, scope_key(node, attribute.name))


def scope_key(node: NodeProto, attribute: str) -> str:
    """What the keys of constants begin with in a subgraph of `node`."""
    return f"{node.output[0]}.{attribute}."


def _stored(element: int, shape: object) -> TensorType | None:
    return TensorType(element, tuple(shape)) if has_known_size(element) else None  # type: ignore[arg-type]


def _add_constant(
    node: NodeProto,
    types: Mapping[str, TensorType | None],
    constants: dict[str, Constant],
    key: str,
) -> None:
    """Note the output of a Constant, or of an Identity of a constant (another name for it)."""
    if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
        name = node.output[0]
        constants[name] = Constant(key + name, types.get(name))
    elif node.op_type == "Identity" and set(node.input) & constants.keys():
        constants[node.output[0]] = constants[node.input[0]]


# -- ops -----------------------------------------------------------------------------------------


@dataclass
class Op:
    """A node on its way to becoming an op of the graph."""

    node: NodeProto
    cost: Cost
    reads: list[str] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    copied: set[str] = field(default_factory=set)


class Reader:
    """Costs and inputs of the nodes of a model."""

    def __init__(self, inferred: Inferred, path: str | Path, contradiction: str = "") -> None:
        self.inferred = inferred
        self.path = path
        self._contradiction = contradiction
        self.branchings: list[str] = []
        self.loops: list[str] = []
        self._shape_values: set[str] = set()

    def op(self, node: NodeProto, scope: Scope) -> Op:
        names = dict.fromkeys([*(name for name in node.input if name), *captured(node)])
        op = Op(node, Cost())
        for name in names:
            if name in scope.constants:
                op.constants[scope.constants[name].key] = scope.constants[name]
            else:
                op.reads.append(name)
        for index in _COPIED_TABLES.get((node.domain, node.op_type), ()):
            if index < len(node.input) and node.input[index] in scope.constants:
                op.copied.add(scope.constants[node.input[index]].key)
        cost = self._cost(node, scope, op.constants)
        op.cost = replace(cost, dtype=self._dtype(node, scope))
        return op

    def _cost(self, node: NodeProto, scope: Scope, constants: dict[str, Constant]) -> Cost:
        if any(True for _ in subgraphs(node)):
            return self._nested_cost(node, scope, constants)
        call = self._call(node, scope)
        if self._computes_shapes(node, call, scope) or is_free(call):
            return Cost()
        if node.output[0] and call.outputs[0] is None:
            raise self._unknown(node.output[0], scope)
        try:
            return cost_of(call)
        except (ValueError, IndexError, KeyError, TypeError) as error:
            raise GraphError(
                f"{self.path}: {label(node)}: its inputs, outputs and attributes do not fit the "
                f"operator ({error}); check the model with onnx.checker.check_model"
            ) from None

    def _call(self, node: NodeProto, scope: Scope) -> Call:
        operator = node.op_type
        if node.domain not in ("", "ai.onnx"):
            operator = f"{node.domain}.{operator}"
        names = list(node.input)
        return Call(
            operator,
            attributes_of(node),
            tuple(self.type_of(name, scope) if name else None for name in names),
            tuple(scope.types.get(name) if name else None for name in node.output),
            frozenset(number for number, name in enumerate(names) if name in names[:number]),
        )

    def type_of(self, name: str, scope: Scope) -> TensorType | None:
        """The type of a tensor that an op reads; GraphError where its shape is not known."""
        if name in scope.constants:
            return scope.constants[name].type
        found = scope.types.get(name)
        if found is None:
            raise self._unknown(name, scope)
        return found

    def _unknown(self, name: str, scope: Scope) -> GraphError:
        what = _unknown(name, scope, self.inferred.symbols, self.path, self._contradiction)
        return GraphError(f"{self.path}: {what}")

    def _computes_shapes(self, node: NodeProto, call: Call, scope: Scope) -> bool:
        """Whether an op only reckons with shapes: engines do that on the host, in no time."""
        own = [name for name in node.input if name and name not in scope.constants]
        small = call.largest_output <= _LARGEST_SHAPE_VALUE and all(call.outputs[:1])
        found = call.operator in ("Shape", "Size") or (
            bool(own) and small and self._shape_values.issuperset(own)
        )
        if found:
            self._shape_values.update(name for name in node.output if name)
        return found

    def _nested_cost(self, node: NodeProto, scope: Scope, constants: dict[str, Constant]) -> Cost:
        bodies = {}
        for attribute in node.attribute:
            if attribute.HasField("g"):
                inner = scope.inner(node, attribute)
                total = Cost()
                for each in attribute.g.node:
                    found = self._body_op(each, inner)
                    total += found.cost
                    constants.update(found.constants)
                bodies[attribute.name] = total
        if node.op_type == "Scan":
            return next(iter(bodies.values())).times(self._scan_length(node, scope))
        if node.op_type == "If":
            self.branchings.append(node.name or node.output[0])
        if node.op_type == "Loop":
            known = rounds(node, self._values | stored_values(scope.inferred))
            if known is not None:
                return next(iter(bodies.values())).times(known)
            self.loops.append(node.name or node.output[0])
        total = Cost()
        for cost in bodies.values():
            total = total.at_least(cost)
        return total

    @cached_property
    def _values(self) -> Values:
        """What is known of the values of the model's own tensors."""
        return stored_values(self.inferred.graph)

    def _body_op(self, node: NodeProto, scope: Scope) -> Op:
        """A node of a subgraph; constants are no ops there either."""
        if node.output and node.output[0] in scope.constants:
            return Op(node, Cost())
        return self.op(node, scope)

    def _scan_length(self, node: NodeProto, scope: Scope) -> int:
        attributes = attributes_of(node)
        count = attributes.get("num_scan_inputs", 0)
        axes = attributes.get("scan_input_axes") or [0]
        scanned = self.type_of(node.input[-count], scope) if 0 < count <= len(node.input) else None
        if scanned is None or not -len(scanned.shape) <= axes[0] < len(scanned.shape):
            raise GraphError(
                f"{self.path}: {label(node)}: num_scan_inputs and scan_input_axes do not fit "
                "its inputs; check the model with onnx.checker.check_model"
            )
        return int(scanned.shape[axes[0]])

    def _dtype(self, node: NodeProto, scope: Scope) -> str:
        """The dtype an op computes in: of its outputs, or of its inputs if these only count."""
        for name in (*node.output, *node.input):
            found = scope.types.get(name) if name else None
            if found is not None and found.dtype is not None:
                return found.dtype
        return "fp32"


def captured(node: NodeProto) -> Iterator[str]:
    """Names that the subgraphs of `node` take from the graphs around them."""
    for subgraph in subgraphs(node):
        own = {value.name for value in subgraph.input}
        own |= {tensor.name for tensor in subgraph.initializer}
        own |= {tensor.values.name for tensor in subgraph.sparse_initializer}
        own |= {name for inner in subgraph.node for name in inner.output}
        for inner in subgraph.node:
            for name in (*inner.input, *captured(inner)):
                if name and name not in own:
                    yield name
        for value in subgraph.output:
            if value.name not in own:
                yield value.name


def _unknown(
    name: str,
    scope: Scope,
    symbols: Mapping[tuple[str, int], str],
    path: str | Path,
    contradiction: str,
) -> str:
    """What is not known of a tensor, and what to give."""
    maker = f", made by {label(scope.producers[name])}," if name in scope.producers else ""
    graph = scope.inferred
    proto = next(
        (v.type for v in (*graph.input, *graph.value_info, *graph.output) if v.name == name), None
    )
    if proto is not None and proto.WhichOneof("value") not in (None, "tensor_type"):
        return f"'{name}'{maker} is no tensor but a sequence, map or optional; export without these"
    if proto is not None and proto.tensor_type.elem_type == 8:
        return f"tensor '{name}'{maker} holds text, which has no size; take it out of the model"
    if proto is not None and proto.tensor_type.HasField("shape"):
        sizes = [dim.dim_value for dim in proto.tensor_type.shape.dim]
        if min(sizes, default=0) < 0:
            return f"tensor '{name}'{maker} would have the shape {sizes}; give larger sizes"
        for axis, dim in enumerate(proto.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                key = keys(symbols.get((name, axis), ""), [(name, axis)])[0]
                return (
                    f"dimension {axis} of tensor '{name}'{maker} is not known; "
                    f"give it, as in '{path}?{key}=SIZE'"
                )
    if name in {value.name for value in graph.input}:
        return f"input '{name}' does not say how many dimensions it has; export the model so"
    advice = "write it into the model's value_info"
    if contradiction:
        advice = (
            f"shapes do not fit together ({contradiction}); check the sizes given, and the model "
            "with onnx.checker.check_model(..., full_check=True)"
        )
    if name in scope.producers and _is_laid_out(scope.producers[name]):
        advice = (
            "ONNX Runtime has laid the model out for one kind of CPU: save it with at most "
            "ORT_ENABLE_EXTENDED"
        )
    return f"the shape of tensor '{name}'{maker} is not known and cannot be inferred; {advice}"


def _is_laid_out(node: NodeProto) -> bool:
    """Whether ONNX Runtime wrote an operator for tensors with blocks of channels, or these last."""
    is_last = node.op_type.startswith("Nhwc") or attributes_of(node).get("channels_last")
    is_contrib = node.domain == "com.microsoft"
    return node.domain == "com.microsoft.nchwc" or (is_contrib and bool(is_last))
