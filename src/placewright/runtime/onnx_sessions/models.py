"""Models of their own for sub-models: nodes, the constants they read, and nothing else.

Weights in the model's file are taken out of it once and lent to every session that reads them;
those in other files stay there, and each session maps what it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from placewright.importers.onnx.files import compacted, stored_type
from placewright.importers.onnx.ops import captured
from placewright.importers.onnx.reading import OnnxModel, with_values
from placewright.runtime.onnx_sessions.cutting import SubModel
from placewright.runtime.onnx_sessions.sessions import Session

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto
    from onnxruntime import OrtValue, RunOptions

_OLDEST = 4  # version of the file's format: before it, weights had to be inputs as well
_LEAST_LENT = 1024  # bytes; smaller weights are copied
_LENT = {1: "float32", 2: "uint8", 3: "int8", 10: "float16", 11: "float64"}
"""Element types of weights that are lent, as numpy has them; shapes are computed from others."""


class SubModels:
    """The models of sub-models, made of `whole`, which has the nodes of the model that was read."""

    def __init__(self, found: OnnxModel, whole: ModelProto) -> None:
        self._found = found
        self._whole = whole
        graph = whole.graph
        self._dense = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self._inputs = {value.name: value for value in graph.input}
        self._constant_nodes = {
            node.output[0]: node
            for node in graph.node
            if node.output and node.output[0] in found.scope.constants
        }

    def build(self, part: SubModel) -> ModelProto:
        """The model of a sub-model."""
        model = _bare(self._whole)
        graph = model.graph
        graph.name = "sub-model"
        nodes = [self._whole.graph.node[self._found.nodes[op]] for op in part.ops]
        made = {name for node in nodes for name in node.output}
        for constant in self._constants(nodes, [name for name in part.gives if name not in made]):
            self._add_constant(graph, constant)
        graph.node.extend(nodes)
        for name in part.reads:
            if name in self._inputs:
                graph.input.add().CopyFrom(self._inputs[name])
            else:
                graph.input.add(name=name).type.tensor_type.elem_type = self._element(name)
        for name in part.gives:
            graph.output.add(name=name)
        return model

    def _element(self, name: str) -> int:
        """ONNX's number for the type of the elements of a tensor that an op makes."""
        found = self._found.reader.type_of(name, self._found.scope)
        return found.element if found else 0

    def _constants(self, nodes: Iterable[NodeProto], returned: Iterable[str]) -> Iterator[str]:
        """The constants that `nodes` read, and those of `returned`; sources before their users."""
        read = [name for node in nodes for name in (*node.input, *captured(node))]
        seen: set[str] = set()
        for name in (*read, *returned):
            chain = []
            each: str | None = name
            while each is not None and each in self._found.scope.constants and each not in seen:
                seen.add(each)
                chain.append(each)
                node = self._constant_nodes.get(each)
                each = next(iter(node.input), None) if node is not None else None
            yield from reversed(chain)

    def _add_constant(self, graph: GraphProto, name: str) -> None:
        if name in self._constant_nodes:
            graph.node.add().CopyFrom(self._constant_nodes[name])
        elif name in self._sparse:
            graph.sparse_initializer.add().CopyFrom(self._sparse[name])
        else:
            graph.initializer.add().CopyFrom(self._dense[name])


class Parts:
    """Sessions of the sub-models of a model, which share its weights."""

    def __init__(self, found: OnnxModel) -> None:
        self._folder = found.path.parent
        whole, self._lent = _parted(with_values(found))
        self._models = SubModels(found, whole)

    def open(self, part: SubModel, threads: int, options: RunOptions) -> Session:
        """A session of a sub-model; whatever ONNX Runtime raises."""
        model, weights = self.build(part)
        return Session(
            model.SerializeToString(),
            threads,
            options,
            folder=self._folder,
            weights=weights,
        )

    def build(self, part: SubModel) -> tuple[ModelProto, dict[str, OrtValue]]:
        """The model of a sub-model, and the weights to lend it by name."""
        model = self._models.build(part)
        read = [tensor.name for tensor in model.graph.initializer]
        return model, {name: self._lent[name] for name in read if name in self._lent}


def _bare(whole: ModelProto) -> ModelProto:
    bare: ModelProto = type(whole)()
    bare.ir_version = max(whole.ir_version, _OLDEST)
    bare.opset_import.extend(whole.opset_import)
    return bare


def _parted(whole: ModelProto) -> tuple[ModelProto, dict[str, OrtValue]]:
    """A model without the weights that its file holds, and these."""
    lent = dict(_take_out(whole.graph.initializer))
    return compacted(whole), lent


def _take_out(tensors: Iterable[TensorProto]) -> Iterator[tuple[str, OrtValue]]:
    """The weights whose bytes the file holds; what is left of them says that they are lent."""
    import onnxruntime

    for tensor in tensors:
        dtype = _LENT.get(tensor.data_type)
        if dtype is None or not tensor.HasField("raw_data"):
            continue
        type = stored_type(tensor)
        if type.bytes < _LEAST_LENT:
            continue
        values = np.frombuffer(tensor.raw_data, np.dtype(dtype)).reshape(type.shape)
        tensor.ClearField("raw_data")
        tensor.data_location = tensor.EXTERNAL
        tensor.external_data.add(key="location", value="lent")
        yield tensor.name, onnxruntime.OrtValue.ortvalue_from_numpy(values)
