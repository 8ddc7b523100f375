"""What an ONNX operator computes and moves: FLOPs, bytes read, bytes written.

A multiplication and an addition are two FLOPs; a bias fused into a convolution or product is not
counted. FLOPs follow the operator's definition, not a library's algorithm (no Winograd, no FFT).
Operators come by name: those of ONNX by ``Conv``, those of ONNX Runtime by
``com.microsoft.Attention``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placewright.importers.costs import Cost
from placewright.importers.onnx.files import TensorType

CONTRIB = "com.microsoft."


@dataclass(frozen=True)
class Call:
    """An operator with the types of what it reads and writes; None where left out or unknown.

    `again` are the numbers of inputs that are one of those before: ``Mul(x, x)`` reads x once.
    """

    operator: str
    attributes: Mapping[str, Any]
    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType | None, ...]
    again: frozenset[int] = frozenset()

    def input(self, index: int) -> TensorType:
        """The input that the operator cannot do without; ValueError where it is missing."""
        found = self.optional_input(index)
        if found is None:
            raise ValueError(f"input {index} is missing")
        return found

    def optional_input(self, index: int) -> TensorType | None:
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def output(self) -> TensorType:
        if not self.outputs or self.outputs[0] is None:
            raise ValueError("output 0 is missing")
        return self.outputs[0]

    @property
    def largest_output(self) -> int:
        return max((each.elements for each in self.outputs if each), default=0)


def cost_of(call: Call) -> Cost:
    """The cost of one call; ValueError, IndexError or KeyError where its types do not fit it.

    >>> matrix = TensorType(1, (64, 64))
    >>> cost = cost_of(Call("MatMul", {}, (matrix, matrix), (matrix,)))
    >>> (cost.flops, cost.bytes_read, cost.bytes_written)
    (524288.0, 32768.0, 16384.0)
    """
    if is_free(call):
        return Cost()
    read = _bytes_read(call)
    written = sum(each.bytes for each in call.outputs if each)
    formula = _FORMULAS.get(call.operator)
    if formula is None:
        return Cost(0.0, read, written, uncounted=frozenset([call.operator]))
    return Cost(float(formula(call)), read, written)


def is_free(call: Call) -> bool:
    """Whether an operator makes a view of its input, or looks at its shape only."""
    if call.operator == "Dropout":
        return call.optional_input(2) is None  # without training_mode it passes data on
    return call.operator in _FREE


_FREE = {
    "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size", "Optional",
    "OptionalGetElement", "OptionalHasElement", "SequenceAt", "SequenceConstruct",
    "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
}  # fmt: skip
_READS_WHAT_IT_WRITES = {"Slice", "Split"}
_EMBEDDINGS = {CONTRIB + "EmbedLayerNormalization", CONTRIB + "QEmbedLayerNormalization"}


def _bytes_read(call: Call) -> float:
    """All inputs, but only the rows that are picked from a table."""
    written = sum(each.bytes for each in call.outputs if each)
    if call.operator in _READS_WHAT_IT_WRITES:
        return written
    if call.operator in ("Gather", "GatherElements", "GatherND"):
        return written + call.input(1).bytes
    if call.operator == CONTRIB + "GatherBlockQuantized":
        bits: int = call.attributes.get("bits", 4)
        return call.output.elements * bits / 8 + call.input(1).bytes
    if call.operator in _EMBEDDINGS:
        table = call.input(2)
        return 3 * call.output.elements * table.bytes / max(table.elements, 1)
    return sum(
        each.bytes
        for number, each in enumerate(call.inputs)
        if each is not None and number not in call.again
    )


# -- formulas ------------------------------------------------------------------------------------


def _nothing(call: Call) -> float:
    return 0.0


def _per_output(flops: float) -> Callable[[Call], float]:
    return lambda call: flops * call.largest_output


def _per_input(flops: float) -> Callable[[Call], float]:
    return lambda call: flops * call.input(0).elements


def _variadic(call: Call) -> float:
    """Sum, Max, …: one FLOP for each input beyond the first."""
    return call.largest_output * max(1, len(call.inputs) - 1)


def _convolution(weight: int) -> Callable[[Call], float]:
    """Each output element: the channels of a group times the kernel. Weight [M, C/group, k…]."""

    def formula(call: Call) -> float:
        kernel = call.input(weight).shape
        if weight == 1 and call.operator == "Conv":
            _check_fit(call.input(0).shape[1], kernel[1] * call.attributes.get("group", 1))
        return 2 * call.output.elements * math.prod(kernel[1:])

    return formula


def _transposed_convolution(call: Call) -> float:
    """Each input element goes to M/group channels times the kernel. Weight [C, M/group, k…]."""
    return 2 * call.input(0).elements * math.prod(call.input(1).shape[1:])


def _matmul(call: Call) -> float:
    depth = call.input(0).shape[-2 if call.attributes.get("transA") else -1]
    if call.operator in ("MatMul", "MatMulInteger"):
        second = call.input(1).shape
        _check_fit(depth, second[-2] if len(second) > 1 else second[0])
    return 2 * call.output.elements * depth


def _gemm(weight: int) -> Callable[[Call], float]:
    """Product of the first input and that of number `weight`."""

    def formula(call: Call) -> float:
        depth = call.input(0).shape[0 if call.attributes.get("transA") else 1]
        _check_fit(depth, call.input(weight).shape[1 if call.attributes.get("transB") else 0])
        return 2 * call.output.elements * depth

    return formula


def _check_fit(one: int, other: int) -> None:
    """The dimensions that a product sums over must be equal; ValueError where they are not."""
    if one != other:
        raise ValueError(f"it sums over {one} of one input and {other} of the other")


def _recurrent(call: Call) -> float:
    """Both products of every step. X [sequence, batch, …] or batch first, W and R per gate."""
    steps = call.input(0).shape[0] * call.input(0).shape[1]
    return 2 * steps * (call.input(1).elements + call.input(2).elements)


def _pooling(call: Call) -> float:
    window: Sequence[int] = call.attributes["kernel_shape"]
    return call.output.elements * math.prod(window)


def _fourier(call: Call) -> float:
    """5 n log₂ n for a transform of n points (the usual count of an FFT)."""
    *_, points, parts = call.output.shape  # real and imaginary
    return 5 * call.output.elements / parts * math.log2(max(points, 2))


def _attention_products(query: TensorType, output: TensorType, keys: int) -> float:
    """Scores and weighted sum: every query feature and output feature once per key."""
    return 2.0 * keys * (query.elements + output.elements)


def _attention(past: int) -> Callable[[Call], float]:
    """Attention of a query over keys, [batch, heads, keys, size] or [batch, keys, features].

    Without keys they and the values are packed into the query, which is as large as the output.
    """

    def formula(call: Call) -> float:
        query, key, before = call.input(0), call.optional_input(1), call.optional_input(past)
        keys = _length(key if key is not None else query)
        keys += before.shape[2] if before else 0
        return _attention_products(query if key is not None else call.output, call.output, keys)

    return formula


def _length(tensor: TensorType) -> int:
    return tensor.shape[2 if len(tensor.shape) == 4 else 1]


def _packed_attention(past: int) -> Callable[[Call], float]:
    """Attention whose Q, K, V come of one product with a weight [in, width]; past [2, …, P, D]."""

    def formula(call: Call) -> float:
        source, weight, before = call.input(0), call.input(1), call.optional_input(past)
        tokens = math.prod(source.shape[:-1])
        keys = source.shape[1] + (before.shape[3] if before else 0)
        query = (weight.shape[1] - call.output.shape[-1]) // 2
        scores = 2.0 * keys * (tokens * query + call.output.elements)
        return 2.0 * tokens * weight.elements + scores

    return formula


def _einsum(call: Call) -> float:
    """Operands are contracted from left to right; labels no longer needed are summed at once."""
    operands = [each for each in call.inputs if each is not None]
    terms, result = _labels(call.attributes["equation"], [len(each.shape) for each in operands])
    sizes: Counter[str] = Counter()
    for term, operand in zip(terms, operands, strict=True):
        for label, size in zip(term, operand.shape, strict=True):
            sizes[label] = max(sizes[label], size)
    if len(operands) == 1:
        return operands[0].elements
    flops, kept = 0.0, set(terms[0])
    for number, term in enumerate(terms[1:], start=1):
        flops += 2.0 * math.prod(sizes[label] for label in kept | set(term))
        needed = set(result).union(*terms[number + 1 :])
        kept = (kept | set(term)) & needed
    return flops


def _labels(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """The labels of each operand and of the result; an ellipsis becomes labels of its own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    written = left.split(",")
    terms = []
    for term, rank in zip(written, ranks, strict=True):
        hidden = rank - len(term.replace("...", ""))
        dots = [f"…{number}" for number in range(hidden, 0, -1)]  # aligned at the last axis
        before, ellipsis, after = term.partition("...")
        terms.append([*before, *(dots if ellipsis else []), *after])
    every = [label for term in terms for label in term]
    if not arrow:
        return terms, [label for label in every if every.count(label) == 1 or label[0] == "…"]
    return terms, [*right.replace("...", ""), *(label for label in every if label[0] == "…")]


def _table() -> dict[str, Callable[[Call], float]]:
    groups: list[tuple[Callable[[Call], float], str]] = [
        (_nothing, _MOVING),
        (_per_output(1), _ELEMENTWISE),
        (_per_output(4), "Gelu FastGelu QuickGelu BiasGelu Mish Softsign Celu Swish SwiGLU"),
        (_variadic, "Sum Max Min Mean"),
        (_per_input(1), _REDUCING),
        (_per_input(2), "BatchNormalization"),
        (_per_input(3), "RotaryEmbedding LpNormalization DynamicQuantizeLinear"),
        (_per_input(5), "Softmax LogSoftmax Hardmax RMSNormalization BiasSoftmax LRN "
         "SimplifiedLayerNormalization SkipSimplifiedLayerNormalization "
         "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss QLinearSoftmax"),
        (_per_input(8), "LayerNormalization InstanceNormalization GroupNormalization GroupNorm "
         "MeanVarianceNormalization SkipLayerNormalization SkipGroupNorm"),
        (_per_output(8), "Resize GridSample RoiAlign AffineGrid EmbedLayerNormalization "
         "QEmbedLayerNormalization"),
        (_convolution(1), "Conv ConvInteger DeformConv FusedConv NhwcConv"),
        (_convolution(3), "QLinearConv"),
        (_transposed_convolution, "ConvTranspose"),
        (_gemm(1), "Gemm FusedGemm"),
        (_gemm(3), "QGemm"),
        (_matmul, "MatMul MatMulInteger QLinearMatMul FusedMatMul MatMulNBits "
         "DynamicQuantizeMatMul MatMulIntegerToFloat MatMulBnb4"),
        (_einsum, "Einsum"),
        (_recurrent, "LSTM GRU RNN DynamicQuantizeLSTM"),
        (_pooling, "MaxPool AveragePool LpPool QLinearAveragePool"),
        (_fourier, "DFT STFT"),
        (_attention(4), "Attention"),
        (_attention(6), "MultiHeadAttention"),
        (_attention(3), "GroupQueryAttention"),
    ]  # fmt: skip
    table = {name: formula for formula, names in groups for name in names.split()}
    contrib = {CONTRIB + name: formula for name, formula in table.items()}
    contrib[CONTRIB + "Attention"] = _packed_attention(4)
    contrib[CONTRIB + "QAttention"] = _packed_attention(8)
    return table | contrib


_MOVING = """
    Cast CastLike BitCast CenterCropPad Compress Concat ConcatFromSequence ConstantOfShape
    DepthToSpace Expand EyeLike Gather GatherElements GatherND MaxUnpool NonZero OneHot Pad Range
    ReverseSequence ScatterElements ScatterND Slice SpaceToDepth Split SplitToSequence
    TensorScatter Tile Transpose Trilu Unique Upsample Col2Im QLinearConcat Scatter
"""
_ELEMENTWISE = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh Bernoulli BiasAdd BitShift BitwiseAnd BitwiseNot
    BitwiseOr BitwiseXor Ceil Clip Cos Cosh CumProd CumSum DequantizeLinear Div Dropout Elu Equal
    Erf Exp Floor Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less
    LessOrEqual Log Mod Mul Multinomial Neg Not Or PRelu Pow QuantizeLinear RandomNormal
    RandomNormalLike RandomUniform RandomUniformLike Reciprocal Relu Round Selu Shrink Sigmoid Sign
    Sin Sinh Softplus Sqrt Sub Tan Tanh ThresholdedRelu Where Xor BlackmanWindow HammingWindow
    HannWindow MelWeightMatrix QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu QLinearWhere
    GatherBlockQuantized
"""
_REDUCING = """
    ArgMax ArgMin Det GlobalAveragePool GlobalLpPool GlobalMaxPool MaxRoiPool ReduceL1 ReduceL2
    ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare TopK QLinearGlobalAveragePool
"""
_FORMULAS = _table()
