"""Small ONNX models of every kind that cutting must keep right."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def drawn(name: str, *shape: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return numpy_helper.from_array(values / np.float32(max(shape[0], 1) ** 0.5), name)


def numbers(name: str, *values: int, shape: Sequence[int] = (-1,)) -> Any:
    return numpy_helper.from_array(np.array(values, np.int64).reshape(tuple(shape)), name)


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """A node whose inputs and outputs are words (``_`` is one left out), named by its first."""
    names = [["" if name == "_" else name for name in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op_type, *names, name=f"{op_type} {names[1][0]}", **attributes)


def value(name: str, element: int = FLOAT, shape: Sequence[Any] | None = None) -> Any:
    return helper.make_tensor_value_info(name, element, shape)


def body(nodes: Sequence[Any], inputs: Sequence[Any] = (), outputs: Sequence[Any] = ()) -> Any:
    return helper.make_graph(list(nodes), "body", list(inputs), list(outputs))


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: str,
    weights: Sequence[Any] = (),
    functions: Sequence[Any] = (),
    opset: int = 18,
) -> Any:
    graph = helper.make_graph(
        list(nodes), "g", list(inputs), [ValueInfoProto(name=n) for n in outputs.split()],
        list(weights),
    )  # fmt: skip
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=domains, functions=list(functions), ir_version=10)


def convolutional() -> Any:
    """Two branches that join, and a classifier."""
    nodes = [
        node("Conv", "image w0 b0", "c0", pads=[1] * 4),
        node("Relu", "c0", "r0"),
        node("MaxPool", "r0", "p0", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p0 w1", "left", pads=[1] * 4),
        node("Conv", "p0 w2", "right"),
        node("Concat", "left right", "both", axis=1),
        node("GlobalAveragePool", "both", "g"),
        node("Flatten", "g", "f"),
        node("Gemm", "f wf bf", "y", transB=1),
    ]
    weights = [drawn("w0", 8, 3, 3, 3), drawn("b0", 8), drawn("w1", 8, 8, 3, 3)]
    weights += [drawn("w2", 4, 8, 1, 1), drawn("wf", 10, 12), drawn("bf", 10)]
    return model(nodes, [value("image", FLOAT, ["batch", 3, "height", 16])], "y", weights)


def tied() -> Any:
    """An embedding that is the classifier's weight as well, and is given another name besides."""
    nodes = [
        node("Identity", "table", "again"),
        node("Gather", "table ids", "h"),
        node("Gelu", "h", "k"),
        node("Transpose", "again", "back", perm=[1, 0]),
        node("MatMul", "k back", "y"),
        node("Add", "y shift", "z"),
        node("Mul", "k factor", "m"),
        node("Constant", "", "factor", value=drawn("", 16)),
        node("Mul", "y two", "w"),
        node("Constant", "", "two", value_float=2.0),
    ]
    nodes = [nodes[k] for k in (7, 9, 0, 1, 2, 3, 4, 5, 6, 8)]
    weights = [drawn("table", 50, 16), drawn("shift", 50)]
    return model(nodes, [value("ids", INT64, [2, 5])], "z m w y", weights, opset=20)


def branching() -> Any:
    """An If and a Loop whose bodies read inputs, weights and what other ops make."""
    then = body([node("MatMul", "h w", "t"), node("Add", "t x", "then")], [], [value("then")])
    other = body([node("Sub", "k h", "else")], [], [value("else")])
    rounds = body(
        [
            node("Identity", "go", "goes"),
            node("Add", "state h", "s"),
            node("Mul", "s half", "next"),
            node("ReduceSum", "next", "total", keepdims=0),
        ],
        [value("round", INT64, []), value("go", BOOL, []), value("state", FLOAT, [3, 8])],
        [value("goes", BOOL, []), value("next", FLOAT, [3, 8]), value("total", FLOAT, [])],
    )
    nodes = [
        node("Relu", "x", "h"),
        node("Sigmoid", "x", "k"),
        node("ReduceSum", "h", "sum", keepdims=0),
        node("Greater", "sum zero", "c"),
        node("If", "c", "chosen", then_branch=then, else_branch=other),
        node("Loop", "three _ k", "looped totals", body=rounds),
        node("Add", "chosen looped", "y"),
    ]
    weights = [drawn("w", 8, 8), numbers("three", 3, shape=()), drawn("half", 8)]
    weights.append(numpy_helper.from_array(np.zeros((), np.float32), "zero"))
    made = model(nodes, [value("x", FLOAT, [3, 8])], "y totals", weights)
    shapes = {"chosen": [3, 8], "looped": [3, 8], "totals": [3]}
    made.graph.value_info.extend(value(n, FLOAT, s) for n, s in shapes.items() if n != "totals")
    made.graph.output[1].CopyFrom(value("totals", FLOAT, [3]))
    return made


def settled() -> Any:
    """An If whose condition is known: the importer puts a branch in its place."""
    then = helper.make_graph(
        [node("MatMul", "h inner", "t"), node("Relu", "t", "then")],
        "then", [], [value("then")], [drawn("inner", 40, 40, seed=3)],
    )  # fmt: skip
    other = body([node("Neg", "h", "else")], [], [value("else")])
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape one", "width"),
        node("Equal", "width forty", "c"),
        node("Tanh", "x", "h"),
        node("If", "c", "chosen", then_branch=then, else_branch=other),
        node("Add", "chosen h", "y"),
    ]
    weights = [numbers("one", 1, shape=()), numbers("forty", 40, shape=())]
    return model(nodes, [value("x", FLOAT, ["rows", 40])], "y", weights)


def with_functions() -> Any:
    """A function that the model defines itself, called twice."""
    inside = [node("MatMul", "a b", "m"), node("Constant", "", "c", value=drawn("", 64, 8))]
    inside += [node("MatMul", "m c", "n"), node("Relu", "n", "out")]
    function = helper.make_function(
        "local", "Twice", ["a", "b"], ["out"], inside, [helper.make_opsetid("", 18)]
    )
    nodes = [
        node("Twice", "x w", "h", domain="local"),
        node("Neg", "h", "k"),
        node("Twice", "k w", "y", domain="local"),
    ]
    return model(nodes, [value("x", FLOAT, [2, 8])], "y", [drawn("w", 8, 64)], [function])


def scanned() -> Any:
    """A Scan that reads a tensor from outside."""
    step = body(
        [node("Add", "state each", "s"), node("Mul", "s h", "next"), node("Identity", "s", "out")],
        [value("state", FLOAT, [8]), value("each", FLOAT, [8])],
        [value("next", FLOAT, [8]), value("out", FLOAT, [8])],
    )
    nodes = [
        node("Cos", "first", "h"),
        node("Sin", "x", "k"),
        node("Scan", "h k", "last all", body=step, num_scan_inputs=1),
        node("Add", "last h", "y"),
    ]
    inputs = [value("x", FLOAT, [4, 8]), value("first", FLOAT, [8])]
    return model(nodes, inputs, "y all")


def optional() -> Any:
    """Inputs and outputs that are left out, and several outputs."""
    nodes = [
        node("Clip", "x _ top", "c"),
        node("TopK", "c count", "top3 where", axis=1),
        node("Split", "c", "a b", axis=1, num_outputs=2),
        node("LSTM", "steps wl rl _ _ _ state", "_ hidden cell", hidden_size=4),
        node("Resize", "c _ _ sizes", "large", mode="nearest"),
        node("Mul", "a b", "y"),
        node("Unsqueeze", "c zero", "steps"),
        node("Dropout", "y", "z"),
    ]
    nodes = [nodes[k] for k in (0, 1, 2, 6, 3, 4, 5, 7)]
    weights = [numpy_helper.from_array(np.array(0.5, np.float32), "top"), numbers("count", 3)]
    weights += [drawn("wl", 1, 16, 6), drawn("rl", 1, 16, 4), drawn("state", 1, 5, 4)]
    weights += [numbers("sizes", 5, 12), numbers("zero", 0)]
    return model(nodes, [value("x", FLOAT, [5, 6])], "where z hidden cell large", weights)


def passing() -> Any:
    """Inputs and weights that are outputs too, one input that nobody reads, and NaNs."""
    nodes = [
        node("Log", "x", "h"),
        node("Identity", "w", "also"),
        node("Add", "h w", "y"),
        node("Sqrt", "y", "z"),
    ]
    inputs = [value("x", FLOAT, [2, 40]), value("spare", FLOAT, [1]), value("ids", INT64, [3])]
    made = model(nodes, inputs, "y x z w also ids", [drawn("w", 40, 1)])
    del made.graph.initializer[:]
    made.graph.initializer.append(drawn("w", 2, 40))
    types = {"x": [2, 40], "w": [2, 40], "also": [2, 40], "ids": [3]}
    for each in made.graph.output:
        if each.name in types:
            element = INT64 if each.name == "ids" else FLOAT
            each.CopyFrom(value(each.name, element, types[each.name]))
    return made


def dynamic() -> Any:
    """A tensor whose size only its values say."""
    nodes = [
        node("NonZero", "x", "found"),
        node("Transpose", "found", "t", perm=[1, 0]),
        node("GatherND", "x t", "y"),
        node("Exp", "y", "z"),
    ]
    made = model(nodes, [value("x", FLOAT, [4, 6])], "z")
    made.graph.value_info.append(value("found", INT64, [2, "hits"]))
    return made


def unsorted() -> Any:
    """Nodes before those whose outputs they read, as ONNX Runtime takes them."""
    made = settled()
    nodes = [type(each).FromString(each.SerializeToString()) for each in made.graph.node]
    del made.graph.node[:]
    made.graph.node.extend(nodes[::-1])
    return made


def exported_block(path: Path) -> Path:
    """A block of a transformer, as torch exports it."""
    torch = pytest.importorskip("torch")
    width, heads = 16, 2

    class Block(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.up = torch.nn.Linear(width, 4 * width)
            self.down = torch.nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, tokens, _ = x.shape
            qkv = self.qkv(self.before(x)).reshape(batch, tokens, 3, heads, width // heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
            return x + self.down(torch.nn.functional.gelu(self.up(self.between(x))))

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Block().eval(),
            (torch.zeros(1, 5, width),),
            path,
            dynamo=False,
            input_names=["x"],
            dynamic_axes={"x": {1: "tokens"}},
        )
    return path


MODELS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        convolutional, tied, branching, settled, with_functions, scanned, optional, passing,
        dynamic, unsorted,
    )
}  # fmt: skip
SIZES = {"dynamic": "?hits=5", "convolutional": "?height=20&batch=2"}
