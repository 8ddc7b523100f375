"""How fast ONNX Runtime is on the cores that this process is on now, as `reference` of torch."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from placewright.costs.profiles.onnx.models import Runnable
from placewright.costs.profiles.onnx.sessions import Session
from placewright.costs.profiles.reference import BYTES, SIDE, cores_now
from placewright.costs.profiles.steady import COMPUTING, COPYING, Reference, Watch

if TYPE_CHECKING:
    from onnx import NodeProto


def runtime_watch(threads: int) -> Watch:
    """The watch of this process for its cores, as they are now, and sessions of so many threads."""
    return _watch(cores_now(), threads)


@cache  # so that it knows all readings of the process
def _watch(cores: frozenset[int], threads: int) -> Watch:
    from onnx import helper

    product = _session(helper.make_node("MatMul", ["x", "x"], ["y"]), (SIDE, SIDE), threads)
    copy = _session(helper.make_node("Neg", ["x"], ["y"]), (BYTES // 4,), threads)
    return Watch(Reference((product.run, copy.run)), (COMPUTING, COPYING))


def _session(node: NodeProto, shape: tuple[int, ...], threads: int) -> Session:
    import onnxruntime
    from onnx import TensorProto, helper

    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", "y")]
    graph = helper.make_graph([node], "reference", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    given = onnxruntime.OrtValue.ortvalue_from_numpy(np.full(shape, 0.5, np.float32))
    return Session(Runnable(model, {}, {}, {}), threads, {}, {"x": given})
