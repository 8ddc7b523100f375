"""The signature of a node: what two nodes share exactly when they do the same work.

A line of text: the operator with the version of its definition, its inputs and attributes, its
outputs; tensors by type and shape. Constants are told from other inputs, for ONNX Runtime packs
them in advance. Names, and values of weights, are left out, so that the layers of a model share
their signatures, and so do models; small whole numbers that say what is to be done (axes, starts,
shapes) are in. Measured times are kept by it (see `costs.profiles`).

``Gemm(float32[1,512], const float32[10,512], const float32[10], transB=1, opset=13) ->
float32[1,10]``
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from placewright.importers.onnx.contrib import attributes_of
from placewright.importers.onnx.files import TensorType
from placewright.importers.onnx.folding import stored_values
from placewright.importers.onnx.ops import Scope, captured, scope_key

if TYPE_CHECKING:
    import numpy as np
    from onnx import GraphProto, ModelProto, NodeProto

_PACKAGES = ("onnxruntime", "onnxruntime-gpu")
_LONGEST = 16  # numbers that are written out; of more, what they hash to
_NAMES = {1: "float32", 11: "float64"}  # the others have the names that ONNX gives them
_QUANTISED = ("Linear", "Integer", "NBits")  # whose whole numbers are weights


def library() -> str:
    """What runs the nodes here, such as ``onnxruntime 1.23.0``; empty where it is not installed."""
    for name in _PACKAGES:
        try:
            return f"onnxruntime {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return ""


def operator(node: NodeProto) -> str:
    """``Conv``, or ``com.microsoft.FusedConv`` for one of another domain than ONNX's own."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def type_text(found: TensorType | None) -> str:
    """``float32[1,3,224,224]``; a question mark for a type that nobody knows.

    >>> type_text(TensorType(7, (2,)))
    'int64[2]'
    """
    if found is None:
        return "?"
    from onnx import TensorProto

    name = _NAMES.get(found.element) or TensorProto.DataType.Name(found.element).lower()
    return f"{name}[{','.join(map(str, found.shape))}]"


class Signatures:
    """Signatures of the nodes of a graph: of a model, or of one within it.

    `versions` are those of the domains, `values` what is known of constants, by their keys.
    """

    def __init__(
        self,
        versions: Mapping[str, int],
        scope: Scope,
        values: Mapping[str, np.ndarray[Any, Any]],
    ) -> None:
        self._versions, self._scope, self._values = versions, scope, values

    @classmethod
    def of_model(cls, model: ModelProto, scope: Scope) -> Signatures:
        versions = {_domain(entry.domain): entry.version for entry in model.opset_import}
        return cls(versions, scope, stored_values(model.graph))

    def of(self, node: NodeProto) -> str:
        """The signature of a node of the graph."""
        names = [*node.input, *dict.fromkeys(captured(node))]
        while names and not names[-1]:
            names.pop()
        parts = [self._input(name, node) for name in names]
        parts += [
            f"{name}={self._attribute(value, node, name)}"
            for name, value in sorted(attributes_of(node).items())
        ]
        parts.append(f"opset={self._version(node)}")
        outputs = [type_text(self._scope.types.get(name)) if name else "_" for name in node.output]
        return f"{operator(node)}({', '.join(parts)}) -> {', '.join(outputs)}"

    def _version(self, node: NodeProto) -> int:
        """Of the operator's definition, which models of several opsets share."""
        from onnx import defs

        domain = _domain(node.domain)
        version = self._versions.get(domain, 1)
        try:
            return int(defs.get_schema(node.op_type, version, domain).since_version)
        except defs.SchemaError:  # ONNX Runtime's own
            return version

    def _input(self, name: str, node: NodeProto) -> str:
        if not name:
            return "_"
        constant = self._scope.constants.get(name)
        if constant is None:
            return type_text(self._scope.types.get(name))
        text = f"const {type_text(constant.type)}"
        value = self._values.get(constant.key)
        if value is None or not _says_what_to_do(node, value):
            return text
        return f"{text}{{{_numbers(value.reshape(-1).tolist())}}}"

    def _attribute(self, value: Any, node: NodeProto, name: str) -> str:
        from onnx import GraphProto, SparseTensorProto, TensorProto

        if isinstance(value, GraphProto):
            return f"<{self._body(value, node, name)}>"
        if isinstance(value, SparseTensorProto):
            return f"sparse {type_text(TensorType(value.values.data_type, tuple(value.dims)))}"
        if isinstance(value, TensorProto):
            return type_text(TensorType(value.data_type, tuple(value.dims)))
        if isinstance(value, (list, tuple)):
            return f"[{_numbers(value)}]"
        return _plain(value)

    def _body(self, graph: GraphProto, node: NodeProto, name: str) -> str:
        """What a graph within `node` does, by the signatures of its nodes."""
        scope = self._scope.inner(node, next(a for a in node.attribute if a.name == name))
        prefix = scope_key(node, name)
        own = {f"{prefix}{key}": value for key, value in stored_values(graph).items()}
        of = Signatures(self._versions, scope, {**self._values, **own}).of
        return _digest(of(each) for each in graph.node)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _says_what_to_do(node: NodeProto, value: np.ndarray[Any, Any]) -> bool:
    """Whether the work depends on the value: on axes, starts and shapes; on an exponent."""
    if node.op_type == "Pow":
        return value.size == 1
    is_quantised = any(word in node.op_type for word in _QUANTISED)
    return value.dtype == "int64" or (value.dtype == "int32" and not is_quantised)


def _numbers(values: Sequence[Any]) -> str:
    texts = [_plain(value) for value in values]
    return ",".join(texts) if len(texts) <= _LONGEST else f"{len(texts)}: {_digest(texts)}"


def _plain(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
