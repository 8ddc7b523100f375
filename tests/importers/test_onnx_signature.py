"""Nodes of ONNX models share a signature exactly when they do the same work."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from placewright.importers.onnx import signature
from placewright.importers.onnx.model import read_onnx

pytest.importorskip("onnx")

from tests.importers.test_onnx import (
    BOOL,
    FLOAT,
    graph_of,
    integers,
    model_of,
    node,
    weight,
)

Signatures = Callable[..., dict[str, str]]


@pytest.fixture
def signatures(tmp_path: Path) -> Signatures:
    """The signatures of a model's ops by name."""

    def of(*args: Any, **kwargs: Any) -> dict[str, str]:
        path = tmp_path / "model.onnx"
        path.write_bytes(model_of(*args, **kwargs).SerializeToString())
        graph = read_onnx(path)
        return dict(zip(graph.op_names, graph.op_signatures, strict=True))

    return of


def only(found: dict[str, str]) -> str:
    [text] = found.values()
    return text


def test_a_signature_tells_operator_inputs_attributes_and_outputs(signatures: Signatures):
    found = signatures([node("Gemm", "x w b", "y", transB=1)],
                       weights=[weight("w", 4, 8), weight("b", 4)])  # fmt: skip
    assert only(found) == (
        "Gemm(float32[2,8], const float32[4,8], const float32[4], transB=1, opset=13) -> "
        "float32[2,4]"
    )


def test_layers_share_their_signature_whatever_they_are_called(signatures: Signatures):
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a v", "b"), node("Relu", "b", "y")]
    found = signatures(nodes, weights=[weight("w", 8, 8), weight("v", 8, 8)])
    assert len(found) == 3 and len(set(found.values())) == 2


def test_constants_are_told_from_other_inputs(signatures: Signatures):
    inputs = (("x", FLOAT, [8, 8]), ("v", FLOAT, [8, 8]))
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a v", "y")]
    first, second = signatures(nodes, inputs, weights=[weight("w", 8, 8)]).values()
    assert first == second.replace("float32[8,8], opset", "const float32[8,8], opset")


def test_whole_numbers_that_say_what_is_done_are_in_and_weights_are_not(signatures: Signatures):
    def sliced(start: int) -> str:
        nodes = [node("Slice", "x start end axes", "y")]
        values = [integers("start", start), integers("end", start + 1), integers("axes", 1)]
        return only(signatures(nodes, weights=values))

    assert "const int64[1]{3}, const int64[1]{4}, const int64[1]{1}" in sliced(3)
    assert sliced(3) != sliced(4)
    many = only(signatures([node("Gather", "x i", "y")], weights=[integers("i", *[1, 0] * 50)]))
    assert "const int64[100]{100: " in many and len(many) < 140
    added = only(signatures([node("Add", "x w", "y")], weights=[weight("w", 8)]))
    assert "{" not in added


def test_an_exponent_is_work_and_the_scales_of_layers_are_not(signatures: Signatures):
    one = only(signatures([node("Pow", "x w", "y")], weights=[weight("w")]))
    assert "const float32[]{0}" in one
    assert "{" not in only(signatures([node("Mul", "x w", "y")], weights=[weight("w")]))


def test_models_of_several_opsets_share_what_did_not_change(signatures: Signatures):
    nodes = [node("Relu", "x", "y")]
    assert signatures(nodes, opset=17) == signatures(nodes, opset=18)
    assert only(signatures(nodes, opset=17)).startswith("Relu(float32[2,8], opset=14)")


def test_operators_of_other_domains_are_told_by_them(signatures: Signatures):
    found = signatures([node("Gelu", "x", "y", domain="com.microsoft")])
    assert only(found) == "com.microsoft.Gelu(float32[2,8], opset=1) -> float32[2,8]"


def test_inputs_left_out_are_told_where_others_follow(signatures: Signatures):
    nodes = [node("Clip", "x _ most", "y")]
    assert ", _, const float32[]" in only(signatures(nodes, weights=[weight("most")]))


def test_nodes_that_hold_a_graph_are_told_by_what_that_does(signatures: Signatures):
    def branch(name: str, op_type: str) -> Any:
        out = f"{name} out"
        inner = type(node("Relu", "x", "y"))(op_type=op_type, input=["x"], output=[out])
        return graph_of([inner], inputs=(), outputs=((out, FLOAT, None),), name=name)

    def choice(name: str, otherwise: str) -> Any:
        return node("If", "c", name, then_branch=branch(f"{name} a", "Relu"),
                    else_branch=branch(f"{name} b", otherwise))  # fmt: skip

    nodes = [choice("p", "Neg"), choice("q", "Neg"), choice("r", "Abs")]
    nodes += [node("Sum", "p q r", "y")]
    inputs = (("x", FLOAT, [2, 8]), ("c", BOOL, []))
    with pytest.warns(match="larger cost"):
        p, q, r, _ = signatures(nodes, inputs).values()
    assert p == q != r
    assert p.startswith("If(") and "bool[], float32[2,8], else_branch=<" in p


def test_the_library_is_that_which_is_installed(
    signatures: Signatures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def version(name: str) -> str:
        if name == "onnxruntime-gpu":
            return "1.2.3"
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", version)
    assert signature.library() == "onnxruntime 1.2.3"
    signatures([node("Relu", "x", "y")])
    assert read_onnx(tmp_path / "model.onnx").attributes["framework"] == "onnxruntime 1.2.3"
    monkeypatch.setattr(signature, "_PACKAGES", ())
    assert "framework" not in read_onnx(tmp_path / "model.onnx").attributes


def test_a_type_of_nobody_knows_what_is_a_question_mark():
    assert signature.type_text(None) == "?"
