"""Small ONNX models to measure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.importers.test_onnx import FLOAT, INT64, graph_of, integers, model_of, node, weight


def layers(count: int) -> Any:
    """Equal layers, each with weights of its own."""
    nodes, weights = [], []
    for number in range(count):
        nodes += [
            node("MatMul", f"h{number} w{number}", f"m{number}"),
            node("Add", f"m{number} b{number}", f"a{number}"),
            node("Relu", f"a{number}", f"h{number + 1}"),
        ]
        weights += [weight(f"w{number}", 128, 128), weight(f"b{number}", 128)]
    inputs, outputs = (("h0", FLOAT, ["rows", 128]),), ((f"h{count}", FLOAT, None),)
    return model_of(nodes, inputs, outputs, weights)


def words() -> Any:
    """A table of 7000 rows, whose values are not kept, and shapes that the model computes."""
    nodes = [
        node("Unsqueeze", "ids zero", "i"),
        node("Gather", "table i", "g"),
        node("Shape", "g", "shape"),
        node("Gather", "shape last", "size"),
        node("Concat", "minus size", "flat", axis=0),
        node("Reshape", "g flat", "r"),
        node("Softmax", "r", "s"),
        node("Slice", "s zero three zero", "y"),
    ]
    weights = [weight("table", 7000, 4), integers("zero", 0), integers("last", 2, 3)]
    weights += [integers("minus", -1), integers("three", 3)]
    weights[2] = integers("last", 3)
    return model_of(nodes, (("ids", INT64, [2, 5]),), (("y", FLOAT, None),), weights)


def normalised() -> Any:
    """An operator that ONNX Runtime has no kernel of on a CPU, and makes others of."""
    nodes = [node("Relu", "x", "h"), node("GroupNormalization", "h s b", "y", num_groups=2)]
    weights = [weight("s", 8), weight("b", 8)]
    outputs = (("y", FLOAT, [2, 8, 4]),)
    return model_of(nodes, (("x", FLOAT, [2, 8, 4]),), outputs, weights, opset=21)


def looped() -> Any:
    """A Loop of three rounds, and a Relu."""
    body = graph_of(
        [node("Identity", "go", "goes"), node("Neg", "h", "out")],
        inputs=(("round", INT64, []), ("go", 9, []), ("h", FLOAT, [2, 8])),
        outputs=(("goes", 9, []), ("out", FLOAT, [2, 8])),
        name="body",
    )
    nodes = [node("Loop", "three _ x", "l", body=body), node("Relu", "l", "y")]
    model = model_of(nodes, weights=[_scalar("three", 3)])
    model.graph.value_info.add(name="l").type.CopyFrom(model.graph.input[0].type)
    return model


def sparse() -> Any:
    """A sparse weight, and text that is an output."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    made = model_of([node("MatMul", "x w", "h"), node("Relu", "h", "y")])
    places = integers("places", 1, 9, 30)
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(weight("w", 3), places, [8, 5]))
    labels = numpy_helper.from_array(np.array(["cat", "dog"], dtype=object), "labels")
    made.graph.initializer.append(labels)
    made.graph.output.add(name="labels").type.tensor_type.elem_type = TensorProto.STRING
    return made


def of(nodes: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    return model_of(nodes, *args, **kwargs)


def saved(model: Any, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def _scalar(name: str, value: int) -> Any:
    import numpy as np
    from onnx import numpy_helper

    return numpy_helper.from_array(np.asarray(value, dtype=np.int64), name)
