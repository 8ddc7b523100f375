"""How often a Loop of an ONNX model runs, where its file says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placewright.importers.onnx.files import subgraphs
from placewright.importers.onnx.folding import Values, stored_values

if TYPE_CHECKING:
    import numpy as np
    from onnx import GraphProto, NodeProto

_PASSING_ON = ("Identity", "Cast")


def rounds(loop: NodeProto, values: Values) -> int | None:
    """The rounds of `loop`, given the known `values` around it; None where data decides.

    They are as many as its count, if its condition begins true and is never made false.
    """
    count, condition = values.get(loop.input[0]), loop.input[1]
    begins = condition == "" or _is_true(values.get(condition))
    if count is None or count.size != 1 or not begins:
        return None
    goes_on = all(_goes_on(body, values) for body in subgraphs(loop))
    return max(int(count.reshape(-1)[0]), 0) if goes_on else None


def _goes_on(body: GraphProto, values: Values) -> bool:
    """Whether the condition that a round makes is the one it began with, or true."""
    if len(body.input) < 2 or not body.output:
        return False
    maker = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while name in maker and maker[name].op_type in _PASSING_ON:
        name = maker[name].input[0]
    return name == body.input[1].name or _is_true({**values, **stored_values(body)}.get(name))


def _is_true(value: np.ndarray[Any, Any] | None) -> bool:
    return value is not None and value.size == 1 and bool(value.reshape(-1)[0])
