"""Shapes of ONNX Runtime's own operators, which ONNX's shape inference does not know.

Optimised models are full of operators of the domain ``com.microsoft``. For shape inference, and
for nothing else, each is replaced by standard operators whose outputs have the same shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from placewright.importers.onnx.files import subgraphs

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

_FLOAT, _UINT8, _INT32, _INT64 = 1, 2, 6, 7
_Rule = Callable[["NodeProto", "GraphProto"], "list[NodeProto]"]


def replace_contrib_ops(graph: GraphProto) -> None:
    """Put the stand-ins into `graph` and its subgraphs; ops without one stay as they are."""
    nodes = []
    for node in graph.node:
        for subgraph in subgraphs(node):
            replace_contrib_ops(subgraph)
        nodes.extend(_stand_ins(node, graph) or [node])
    replaced = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(replaced)


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """The attributes of `node` as Python values; text as `str`."""
    from onnx.helper import get_attribute_value

    found = {each.name: get_attribute_value(each) for each in node.attribute}
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for name, value in found.items()
    }


def _stand_ins(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
    """Standard nodes that give the outputs of `node` their shapes; none if no rule fits."""
    rule = _RULES.get(node.op_type)
    if rule is None or not _present(node.input, 0) or not _present(node.output, 0):
        return []
    if node.domain != "com.microsoft" and node.op_type not in _UNDECLARED:
        return []
    try:
        return rule(node, graph)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        return []  # its attributes do not fit: the shape stays unknown, and is named where needed


def _node(op_type: str, inputs: list[str], output: str, **attributes: Any) -> NodeProto:
    from onnx.helper import make_node

    return make_node(op_type, inputs, [output], **attributes)


def _present(names: Any, index: int) -> bool:
    return len(names) > index and bool(names[index])


def _like_input(*outputs: int) -> _Rule:
    """The given outputs are shaped as the first input."""

    def rule(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
        return [
            _node("Identity", [node.input[0]], node.output[output])
            for output in outputs
            if _present(node.output, output)
        ]

    return rule


def _as(op_type: str, inputs: tuple[int, ...], keep: tuple[str, ...] = ()) -> _Rule:
    """A standard operator of the given inputs, with the attributes named in `keep`."""

    def rule(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
        attributes = {k: v for k, v in attributes_of(node).items() if k in keep}
        names = [node.input[index] for index in inputs if _present(node.input, index)]
        return [_node(op_type, names, node.output[0], **attributes)]

    return rule


def _as_float(rule: _Rule) -> _Rule:
    """`rule` for whole numbers, of which the operator makes floats."""

    def floats(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
        nodes = rule(node, graph)
        if not nodes:
            return []
        whole = f"{node.output[0]} (whole numbers)"
        nodes[-1].output[0] = whole
        return [*nodes, _node("Cast", [whole], node.output[0], to=_FLOAT)]

    return floats


def _channels_first(rule: _Rule) -> _Rule:
    """`rule` unless the channels are the last axis, as ONNX Runtime lays them out for CPUs."""

    def first(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
        return [] if attributes_of(node).get("channels_last") else rule(node, graph)

    return first


def _concat(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
    """Of a scale and a zero point, then each tensor with its own."""
    return [_node("Concat", list(node.input[2::3]), node.output[0], **attributes_of(node))]


def _quantised_gemm(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
    rule = _as("Gemm", (0, 3), ("transA", "transB"))
    return (rule if _present(node.input, 7) else _as_float(rule))(node, graph)


def _quantised_lstm(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
    from onnx.helper import make_node

    kept = {k: v for k, v in attributes_of(node).items() if k in ("direction", "hidden_size")}
    return [make_node("LSTM", list(node.input[:3]), list(node.output), **kept)]


def _embedding(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
    """Rows of the third input for the first; the second output is a number for each sample."""
    outputs = [name for name in (*node.output[:1], *node.output[2:3]) if name]
    nodes = [_node("Gather", [node.input[2], node.input[0]], name) for name in outputs]
    if _present(node.output, 1):
        longest = f"{node.output[1]} (place)"
        nodes.append(_node("ArgMax", [node.input[0]], longest, axis=1, keepdims=0))
        nodes.append(_node("Cast", [longest], node.output[1], to=_INT32))
    return nodes


def _quantised_embedding(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
    """As `_embedding`, of floats."""
    first, *others = _embedding(node, graph)
    return [*_as_float(lambda *_: [first])(node, graph), *others]


def _gathered_blocks(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
    """Rows of a table whose numbers are packed along the last axis, as floats."""
    stored = {each.name: each for each in graph.initializer}
    table, scales = stored.get(node.input[0]), stored.get(node.input[2])
    if table is None or scales is None or not table.dims:
        return []
    attributes = attributes_of(node)
    packed = 8 // attributes.get("bits", 4) if table.data_type == _UINT8 else 1
    dims = [*table.dims[:-1], table.dims[-1] * packed]
    rows = f"{node.output[0]} (shape of its table)"
    graph.initializer.add(name=rows, data_type=scales.data_type, dims=dims)
    axis = attributes.get("gather_axis", 0)
    return [_node("Gather", [rows, node.input[1]], node.output[0], axis=axis)]


def _fused_matmul(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
    attributes = attributes_of(node)
    if attributes.get("transBatchA") or attributes.get("transBatchB"):
        return []
    nodes, operands = [], list(node.input[:2])
    for index, name in enumerate(("transA", "transB")):
        if attributes.get(name):
            swapped = f"{node.output[0]} ({name})"
            nodes += _swap_last_axes(operands[index], swapped, graph)
            operands[index] = swapped
    return [*nodes, _node("MatMul", operands, node.output[0])]


def _swap_last_axes(source: str, result: str, graph: GraphProto) -> list[NodeProto]:
    """Nodes that make zeros shaped as `source` with its last two axes swapped, of any rank."""
    from onnx.helper import make_tensor

    for name, values in (("first", [0]), ("last", [-2]), ("swap", [-1, -2])):
        graph.initializer.append(make_tensor(f"{result} {name}", _INT64, [len(values)], values))
    leading = [f"{result} shape", f"{result} first", f"{result} last"]
    return [
        _node("Shape", [source], f"{result} shape"),
        _node("Slice", leading, f"{result} leading"),
        _node("Gather", [f"{result} shape", f"{result} swap"], f"{result} swapped"),
        _node("Concat", [f"{result} leading", f"{result} swapped"], f"{result} all", axis=0),
        _node("ConstantOfShape", [f"{result} all"], result),
    ]


def _projection(node: NodeProto, graph: GraphProto, width: int) -> NodeProto:
    """The first input with its last axis `width` long: times a weight without values."""
    weight = f"{node.output[0]} (shape of its weight)"
    graph.initializer.add(name=weight, data_type=_FLOAT, dims=[1, width])
    equation = "...i,jk->...k"
    return _node("Einsum", [node.input[0], weight], node.output[0], equation=equation)


def _matmul_nbits(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
    width = attributes_of(node).get("N")
    return [_projection(node, graph, width)] if isinstance(width, int) else []


def _packed_attention(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
    """Attention of Q, K and V projected by one weight [in, 3·hidden]."""
    sizes = attributes_of(node).get("qkv_hidden_sizes")
    weights = [each for each in graph.initializer if each.name in node.input[1:2]]
    if sizes:
        return [_projection(node, graph, sizes[2])]
    if weights and len(weights[0].dims) == 2:
        return [_projection(node, graph, weights[0].dims[1] // 3)]
    return []


def _attention(node: NodeProto, graph: GraphProto) -> list[NodeProto]:
    """Attention of a separate query: the output is shaped as the query."""
    return _like_input(0)(node, graph) if _present(node.input, 1) else []


# Operators that ONNX Runtime writes into the standard domain although ONNX does not have them.
_UNDECLARED = ("SimplifiedLayerNormalization",)

_POOLING = ("auto_pad", "ceil_mode", "kernel_shape", "pads", "strides")

_RULES: Mapping[str, _Rule] = {
    "Attention": _packed_attention,
    "BiasAdd": _like_input(0),
    "BiasGelu": _like_input(0),
    "BiasSoftmax": _like_input(0),
    "DequantizeLinear": _as("DequantizeLinear", (0, 1, 2), ("axis", "block_size")),
    "DynamicQuantizeLSTM": _quantised_lstm,
    "DynamicQuantizeMatMul": _fused_matmul,
    "EmbedLayerNormalization": _embedding,
    "FastGelu": _like_input(0),
    "FusedConv": _as(
        "Conv", (0, 1, 2), ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    ),
    "FusedGemm": _as("Gemm", (0, 1, 2), ("transA", "transB")),
    "FusedMatMul": _fused_matmul,
    "GatherBlockQuantized": _gathered_blocks,
    "Gelu": _like_input(0),
    "GroupNorm": _like_input(0),
    "GroupQueryAttention": _attention,
    "MatMulBnb4": _matmul_nbits,
    "MatMulIntegerToFloat": _as_float(_as("MatMul", (0, 1))),
    "MatMulNBits": _matmul_nbits,
    "MultiHeadAttention": _attention,
    "QAttention": _as_float(_packed_attention),
    "QEmbedLayerNormalization": _quantised_embedding,
    "QGemm": _quantised_gemm,
    "QLinearAdd": _as("Add", (0, 3)),
    "QLinearAveragePool": _channels_first(_as("AveragePool", (0,), _POOLING)),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _channels_first(_as("GlobalAveragePool", (0,))),
    "QLinearLeakyRelu": _like_input(0),
    "QLinearMul": _as("Mul", (0, 3)),
    "QLinearSigmoid": _like_input(0),
    "QLinearSoftmax": _like_input(0),
    "QLinearWhere": _as("Where", (0, 1, 4)),
    "QuantizeLinear": _as("QuantizeLinear", (0, 1, 2), ("axis", "block_size")),
    "QuickGelu": _like_input(0),
    "RotaryEmbedding": _like_input(0),
    "SimplifiedLayerNormalization": _like_input(0),
    "SkipGroupNorm": _like_input(0, 1),
    "SkipLayerNormalization": _like_input(0, 3),
    "SkipSimplifiedLayerNormalization": _like_input(0, 3),
}
