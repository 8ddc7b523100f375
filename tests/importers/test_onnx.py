"""ONNX models come in with the work their operators do; bad models with one sentence."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright.errors import (
    FormatError,
    GraphError,
    InputError,
    MissingExtraError,
    OptionError,
    PlacewrightError,
    PlacewrightWarning,
)
from placewright.formats import files
from placewright.graph import Graph
from placewright.importers import load
from placewright.importers.onnx.branches import take_branches
from placewright.importers.onnx.costs import _FORMULAS, _FREE
from placewright.importers.onnx.model import is_onnx, read_onnx

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL

Value = tuple[str, int, Sequence[Any] | None]
Save = Callable[..., Path]


def weight(name: str, *shape: int, dtype: Any = np.float32) -> Any:
    return numpy_helper.from_array(np.zeros(shape, dtype=dtype), name)


def integers(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, dtype=np.int64), name)


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """A node whose inputs and outputs are words (``_`` is one left out)."""
    names = [["" if name == "_" else name for name in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op_type, *names, **attributes)


def graph_of(
    nodes: Sequence[Any],
    inputs: Sequence[Value] = (("x", FLOAT, [2, 8]),),
    outputs: Sequence[Value] = (("y", FLOAT, None),),
    weights: Sequence[Any] = (),
    name: str = "model",
) -> Any:
    return helper.make_graph(
        list(nodes),
        name,
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        list(weights),
    )


def model_of(*args: Any, functions: Sequence[Any] = (), opset: int = 18, **kwargs: Any) -> Any:
    others = ("com.microsoft", "com.microsoft.nchwc", "local", "other")
    domains = [("", opset), *((name, 1) for name in others)]
    return helper.make_model(
        graph_of(*args, **kwargs),
        opset_imports=[helper.make_opsetid(*each) for each in domains],
        functions=list(functions),
        producer_name="tests",
    )


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Graph]:
    """Reads the model made by `model_of` of the arguments, after a trip through a file."""

    def read_model(
        *args: Any,
        batch: int | None = None,
        dimensions: dict[str, int] | None = None,
        **kwargs: Any,
    ) -> Graph:
        path = tmp_path / "model.onnx"
        path.write_bytes(model_of(*args, **kwargs).SerializeToString())
        return read_onnx(path, batch=batch, dimensions=dimensions)

    return read_model


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """Writes the model made by `model_of` of the arguments to ``model.onnx``, or another name."""

    def save(*args: Any, file: str = "model.onnx", **kwargs: Any) -> Path:
        path = tmp_path / file
        path.write_bytes(model_of(*args, **kwargs).SerializeToString())
        return path

    return save


def edges(graph: Graph) -> set[tuple[str, str]]:
    producer, consumer = graph.edges
    return {(graph.op_names[a], graph.op_names[b]) for a, b in zip(producer, consumer, strict=True)}


def assert_refused(error: type[InputError], match: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=match) as caught:
        call()
    assert "model.onnx" in str(caught.value)
    assert "\n" not in str(caught.value)


# -- a residual network, by hand -----------------------------------------------------------------


def resnet() -> dict[str, Any]:
    nodes = [
        node("Conv", "image w0 b0", "c0", name="/stem/conv/Conv", strides=[2, 2], pads=[3] * 4),
        node("Relu", "c0", "r0", name="/stem/Relu"),
        node("MaxPool", "r0", "p0", name="/MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p0 w1", "c1", name="/layer1/layer1.0/conv1/Conv", pads=[1] * 4),
        node("BatchNormalization", "c1 s m mu var", "n1", name="/layer1/layer1.0/bn/BN"),
        node("Add", "n1 p0", "a1", name="/layer1/layer1.0/Add"),
        node("GlobalAveragePool", "a1", "g", name="/pool/GlobalAveragePool"),
        node("Flatten", "g", "f", name="/Flatten"),
        node("Gemm", "f wf bf", "y", name="/fc/Gemm", transB=1),
    ]
    weights = [
        weight("w0", 16, 3, 7, 7),
        weight("b0", 16),
        weight("w1", 16, 16, 3, 3),
        *(weight(name, 16) for name in ("s", "m", "mu", "var")),
        weight("wf", 10, 16),
        weight("bf", 10),
    ]
    image = ("image", FLOAT, ["batch", 3, 32, 32])
    return {
        "nodes": nodes,
        "inputs": [image],
        "outputs": [("y", FLOAT, ["batch", 10])],
        "weights": weights,
    }


def test_a_residual_network_does_the_work_counted_by_hand(read: Callable[..., Graph]) -> None:
    graph = read(**resnet(), batch=4)
    assert dict(zip(graph.op_names, graph.op_flops.tolist(), strict=True)) == {
        "/stem/conv/Conv": 2 * (4 * 16 * 16 * 16) * (3 * 7 * 7),
        "/stem/Relu": 4 * 16 * 16 * 16,
        "/MaxPool": (4 * 16 * 8 * 8) * 4,
        "/layer1/layer1.0/conv1/Conv": 2 * (4 * 16 * 8 * 8) * (16 * 3 * 3),
        "/layer1/layer1.0/bn/BN": 2 * (4 * 16 * 8 * 8),
        "/layer1/layer1.0/Add": 4 * 16 * 8 * 8,
        "/pool/GlobalAveragePool": 4 * 16 * 8 * 8,
        "/Flatten": 0,
        "/fc/Gemm": 2 * 4 * 10 * 16,
    }
    parameters = dict(zip(graph.op_names, graph.op_parameter_bytes.tolist(), strict=True))
    assert {name: size for name, size in parameters.items() if size} == {
        "/stem/conv/Conv": 4 * (16 * 3 * 7 * 7 + 16),
        "/layer1/layer1.0/conv1/Conv": 4 * 16 * 16 * 3 * 3,
        "/layer1/layer1.0/bn/BN": 4 * 4 * 16,
        "/fc/Gemm": 4 * (160 + 10),
    }
    assert graph.attributes["parameters"] == 16 * 147 + 16 + 16 * 144 + 64 + 170


def test_a_residual_network_moves_the_bytes_counted_by_hand(read: Callable[..., Graph]) -> None:
    graph = read(**resnet(), batch=4)
    stem, add, flatten = (
        graph.op_index[name] for name in ("/stem/conv/Conv", "/layer1/layer1.0/Add", "/Flatten")
    )
    assert graph.op_bytes_read[stem] == 4 * (4 * 3 * 32 * 32 + 16 * 147 + 16)
    assert graph.op_bytes_written[stem] == 4 * (4 * 16 * 16 * 16)
    assert graph.op_bytes_read[add] == 2 * 4 * (4 * 16 * 8 * 8)
    assert graph.op_bytes_read[flatten] == graph.op_bytes_written[flatten] == 0
    sizes = dict(zip(graph.tensor_names, graph.tensor_bytes.tolist(), strict=True))
    assert sizes["p0"] == 4 * (4 * 16 * 8 * 8)
    assert sizes["y"] == 4 * 40


def test_a_residual_network_keeps_its_wiring(read: Callable[..., Graph]) -> None:
    graph = read(**resnet())
    skip = {("/MaxPool", "/layer1/layer1.0/Add"), ("/MaxPool", "/layer1/layer1.0/conv1/Conv")}
    assert skip <= edges(graph)
    assert len(edges(graph)) == 9
    assert graph.op_types[0] == "Conv"


def test_modules_are_read_from_hierarchical_names(read: Callable[..., Graph]) -> None:
    graph = read(**resnet())
    modules = dict(zip(graph.op_names, graph.op_modules, strict=True))
    assert modules["/stem/conv/Conv"] == "stem.conv"
    assert modules["/layer1/layer1.0/conv1/Conv"] == "layer1.0.conv1"
    assert modules["/MaxPool"] == ""


def test_modules_are_read_from_the_metadata_of_newer_exporters(read: Callable[..., Graph]) -> None:
    relu = node("Relu", "x", "y", name="node_relu")
    entry = relu.metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.name_scopes", "['', 'layer1', 'layer1.act', 'relu']"
    assert read([relu]).op_modules == ("layer1.act",)


# -- dimensions ------------------------------------------------------------------------------------

SYMBOLIC: dict[str, Any] = {
    "nodes": [node("MatMul", "x w", "y")],
    "inputs": [("x", FLOAT, ["batch", "sequence", 8])],
    "weights": [weight("w", 8, 8)],
}


@pytest.mark.parametrize(
    ("options", "rows", "chosen"),
    [
        ({}, 1, {"batch": 1, "sequence": 1}),
        ({"batch": 5}, 5, {"batch": 5, "sequence": 1}),
        ({"batch": 5, "dimensions": {"sequence": 7}}, 35, {"batch": 5, "sequence": 7}),
        ({"dimensions": {"batch": 3, "x.1": 2}}, 6, {"batch": 3, "x.1": 2}),
    ],
)
def test_symbolic_dimensions_take_the_values_given_and_the_attributes_say_so(
    read: Callable[..., Graph], options: dict[str, Any], rows: int, chosen: dict[str, int]
) -> None:
    graph = read(**SYMBOLIC, **options)
    assert graph.op_flops.tolist() == [2 * rows * 8 * 8]
    assert graph.attributes["dimensions"] == chosen


def test_a_dimension_that_speaks_of_a_batch_is_the_batch_and_others_in_front_are_not(
    read: Callable[..., Graph],
) -> None:
    inputs = [("x", FLOAT, ["batch_size", 8]), ("p", FLOAT, ["positions", 8])]
    graph = read([node("MatMul", "x w", "y"), node("Relu", "p", "q")], inputs,
                 [("y", FLOAT, None), ("q", FLOAT, None)], [weight("w", 8, 8)],
                 batch=3)  # fmt: skip
    assert graph.attributes["dimensions"] == {"batch_size": 3, "positions": 1}


def test_a_dimension_without_a_name_is_called_by_its_place(read: Callable[..., Graph]) -> None:
    graph = read([node("Relu", "x", "y")], [("x", FLOAT, [None, None])], dimensions={"x.1": 9})
    assert graph.op_flops.tolist() == [9]
    assert graph.attributes["dimensions"] == {"x.0": 1, "x.1": 9}


def test_names_of_output_dimensions_do_not_stand_against_inference(
    read: Callable[..., Graph],
) -> None:
    graph = read([node("Relu", "x", "y")], outputs=[("y", FLOAT, ["Reluy_dim_0", 8])])
    assert graph.tensor_bytes.tolist() == [4 * 16]


def test_a_dimension_that_does_not_exist_is_refused(read: Callable[..., Graph]) -> None:
    assert_refused(
        OptionError,
        r"no dynamic dimension 'seq'; the file has batch \(of x\), sequence \(of x\)$",
        lambda: read(**SYMBOLIC, dimensions={"seq": 3}),
    )


@pytest.mark.parametrize(
    "options", [{"batch": 0}, {"dimensions": {"sequence": -1}}, {"batch": 1.5}]
)
def test_a_dimension_that_is_no_count_is_refused(
    read: Callable[..., Graph], options: dict[str, Any]
) -> None:
    assert_refused(OptionError, "whole number from 1", lambda: read(**SYMBOLIC, **options))


def test_a_batch_that_a_model_of_fixed_shapes_cannot_have_is_refused(
    read: Callable[..., Graph],
) -> None:
    assert_refused(
        OptionError, "batch 3 does not fit", lambda: read([node("Relu", "x", "y")], batch=3)
    )
    assert read([node("Relu", "x", "y")], batch=2).op_flops.tolist() == [16]


DETECTOR: dict[str, Any] = {
    "nodes": [node("Conv", "images w", "y", pads=[1] * 4)],
    "inputs": [("images", FLOAT, [None, 3, "height", "width"])],
    "weights": [weight("w", 8, 3, 3, 3)],
    "name": "main_graph",
}


@pytest.fixture
def no_warning() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_sizes_behind_the_file_scale_the_cost(saved: Callable[..., Path], no_warning: None) -> None:
    path = saved(**DETECTOR)

    def flops(query: str) -> float:
        return float(load(f"{path}?{query}").graph.op_flops.sum())

    small = flops("height=1&width=1&images.0=1")
    assert small == 2 * 8 * 3 * 9
    assert flops("height=640&width=640&images.0=1") == 640 * 640 * small
    assert flops("width=20&images.0=2&height=30") == 2 * 20 * 30 * small
    assert (
        load(f"{path}?height=2&width=3&images.0=1").source == f"{path}?height=2&width=3&images.0=1"
    )


def test_dimensions_that_nobody_gave_are_named_with_their_inputs_and_the_way_to_give_them(
    saved: Callable[..., Path],
) -> None:
    path = saved(**DETECTOR)
    with pytest.warns(PlacewrightWarning) as caught:
        graph = load(f"{path}?width=640").graph
    (warning,) = caught
    assert str(warning.message) == (
        f"{path}: dynamic dimensions taken as 1: images.0, height (of images); "
        f"give them, as in '{path}?images.0=SIZE&height=SIZE'"
    )
    assert graph.attributes["assumed_dimensions"] == ["images.0", "height"]
    assert graph.attributes["dimensions"] == {"images.0": 1, "height": 1, "width": 640}


def test_a_model_of_fixed_shapes_assumes_nothing(
    saved: Callable[..., Path], no_warning: None
) -> None:
    assert load(saved([node("Relu", "x", "y")])).graph.attributes["dimensions"] == {}


def test_of_many_dimensions_the_first_are_named_and_the_others_counted(
    saved: Callable[..., Path],
) -> None:
    shapes = [[f"d{number}", None] for number in range(20)]
    nodes = [node("Relu", f"x{number}", f"y{number}") for number in range(20)]
    path = saved(
        nodes,
        [(f"x{number}", FLOAT, shape) for number, shape in enumerate(shapes)],
        [(f"y{number}", FLOAT, None) for number in range(20)],
    )
    with pytest.warns(PlacewrightWarning, match=r"d0 \(of x0\), x0\.1, .* and 28 more; give"):
        load(path)


def test_an_input_is_named_once_and_of_many_inputs_the_first(saved: Callable[..., Path]) -> None:
    inputs = [(f"x{number}", FLOAT, ["n", "n"]) for number in range(5)]
    path = saved([node("Sum", "x0 x1 x2 x3 x4", "y")], inputs)
    with pytest.warns(PlacewrightWarning, match=r": n \(of x0, x1, x2 and 2 more\); give"):
        load(path)


def test_dimensions_whose_names_cannot_be_given_are_asked_for_by_their_places(
    saved: Callable[..., Path],
) -> None:
    inputs = [("x", FLOAT, ["a&b", "c=d", "it's"]), ("z", FLOAT, ["a&b", "c=d", "it's"])]
    path = saved([node("Add", "x z", "y")], inputs)
    with pytest.warns(PlacewrightWarning) as caught:
        load(path)
    query = "x.0=SIZE&z.0=SIZE&c=d=SIZE&x.2=SIZE&z.2=SIZE"
    assert str(caught[0].message).endswith(f"; give them, as in '{path}?{query}'")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = load(f"{path}?{query.replace('SIZE', '3')}").graph
    assert graph.op_flops.tolist() == [27]


def test_an_inner_dimension_whose_name_cannot_be_given_is_asked_for_by_its_place(
    read: Callable[..., Graph],
) -> None:
    found = [node("NonZero", "x", "y")], [("x", FLOAT, [2, 8])], [("y", INT64, [2, "n&m"])]
    with pytest.raises(GraphError, match=r"give it, as in '.*\?y\.1=SIZE'"):
        read(*found)
    assert read(*found, dimensions={"y.1": 5}).tensor_bytes.tolist() == [2 * 5 * 8]


def test_a_name_that_looks_like_a_place_is_a_name(
    saved: Callable[..., Path], no_warning: None
) -> None:
    path = saved([node("Relu", "x", "y")], [("x", FLOAT, ["x.1", "x.0"])])
    graph = load(f"{path}?x.0=5&x.1=3").graph
    assert graph.attributes["dimensions"] == {"x.1": 3, "x.0": 5}


@pytest.mark.parametrize(
    ("query", "match"),
    [
        ("heigth=640", r"no dynamic dimension 'heigth'; did you mean 'height'\? the file has "
         r"images\.0, height \(of images\), width \(of images\)$"),
        ("images.1=3", r"no dynamic dimension 'images\.1'"),
        ("y.0=3", r"no dynamic dimension 'y\.0'"),
        ("height=0", "dimension 'height' is 0; it must be a whole number from 1"),
        ("height=-1", "dimension 'height' is '-1'; it must be a whole number"),
        ("height=1.5", "dimension 'height' is '1.5'"),
        ("height=", "dimension 'height' is ''"),
        ("height=many", "dimension 'height' is 'many'"),
        ("height=²", "dimension 'height' is '²'"),
        ("height=2147483648", "dimension 'height' is 2147483648"),
        ("height=" + "9" * 5000, "dimension 'height' is '999"),
        ("height=2&height=3", "dimension 'height' is given twice"),
        ("height", "'height' gives no dimension a size; write NAME=SIZE"),
        ("=3", "'=3' gives no dimension a size"),
        ("height=2&", "'' gives no dimension a size"),
    ],
)  # fmt: skip
def test_sizes_that_cannot_be_are_refused(
    saved: Callable[..., Path], query: str, match: str
) -> None:
    path = saved(**DETECTOR)
    assert_refused(OptionError, match, lambda: load(f"{path}?{query}"))


def test_a_file_whose_name_holds_a_question_mark_is_opened(
    saved: Callable[..., Path], no_warning: None
) -> None:
    saved([node("Relu", "x", "y")], [("x", FLOAT, [2])], file="model.onnx")
    odd = saved([node("Relu", "x", "y")], [("x", FLOAT, [7])], file="model.onnx?n=2")
    assert load(odd).graph.op_flops.tolist() == [7]
    odder = saved([node("Relu", "x", "y")], [("x", FLOAT, ["n"])], file="what?.onnx")
    assert load(f"{odder}?n=9").graph.op_flops.tolist() == [9]


@pytest.mark.parametrize("tail", ["", "?n=2", f"?n={'9' * 300}"])
def test_a_file_that_is_not_there_is_named_without_the_sizes(tmp_path: Path, tail: str) -> None:
    with pytest.raises(FormatError, match=r"model\.onnx: no such file$"):
        load(f"{tmp_path / 'model.onnx'}{tail}")


def test_only_onnx_takes_sizes(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text('{"format": "placewright.graph/1"}')
    with pytest.raises(OptionError, match=r"graph\.json: only ONNX .* leave out '\?n=2'"):
        load(f"{tmp_path / 'graph.json'}?n=2")


def test_a_shape_that_fails_at_size_one_blames_the_dimensions_taken_so(
    saved: Callable[..., Path],
) -> None:
    model = {**DETECTOR, "nodes": [node("Conv", "images w", "z"), node("Relu", "z", "y")]}
    path = saved(**model)
    assert_refused(
        GraphError,
        r"tensor 'z'.* would have the shape \[1, \d, -\d, -\d\]; give larger sizes "
        r"\(dynamic dimensions taken as 1: images\.0, height",
        lambda: load(path),
    )
    assert load(f"{path}?height=9&width=9&images.0=1").graph.op_count == 2


def test_a_graph_is_called_by_its_file(saved: Callable[..., Path]) -> None:
    path = saved(**DETECTOR, file="detector.v2.onnx")
    with pytest.warns(PlacewrightWarning):
        assert load(path).graph.name == "detector.v2"


def test_a_shape_that_depends_on_data_is_named_with_what_to_give(
    read: Callable[..., Graph],
) -> None:
    model = {
        "nodes": [node("NonZero", "x", "hits"), node("Cast", "hits", "y", to=FLOAT)],
        "outputs": [("y", FLOAT, [2, "found"])],
    }
    assert_refused(
        GraphError,
        r"dimension 1 of tensor 'hits'.*NonZero.*give it, as in '.*model.onnx\?hits\.1=SIZE'$",
        lambda: read(**model),
    )
    assert read(**model, dimensions={"hits.1": 6}).tensor_bytes.tolist() == [96, 48]


def test_a_shape_that_nothing_tells_is_named(read: Callable[..., Graph]) -> None:
    nodes = [node("Mystery", "x", "m", domain="other", name="riddle"), node("Relu", "m", "y")]
    assert_refused(
        GraphError,
        r"shape of tensor 'm', made by op 'riddle' \(Mystery\).*value_info",
        lambda: read(nodes),
    )


def test_an_input_of_unknown_rank_is_named(read: Callable[..., Graph]) -> None:
    assert_refused(
        GraphError,
        "input 'x' does not say how many dimensions it has",
        lambda: read([node("Relu", "x", "y")], [("x", FLOAT, None)]),
    )


def test_an_inner_dimension_that_was_given_is_among_those_that_there_are(
    read: Callable[..., Graph],
) -> None:
    nodes = [node("NonZero", "x", "hits"), node("Cast", "hits", "y", to=FLOAT)]
    assert_refused(
        OptionError,
        r"no dynamic dimension 'hits\.2'; did you mean 'hits\.1'\? the file has hits\.1",
        lambda: read(nodes, dimensions={"hits.1": 6, "hits.2": 6}),
    )


def test_an_operator_without_a_formula_is_told_in_the_attributes(
    read: Callable[..., Graph],
) -> None:
    nodes = [node("Mystery", "x", "y", domain="other")]
    with pytest.warns(PlacewrightWarning, match=r"FLOPs of other\.Mystery are not known"):
        graph = read(nodes, outputs=[("y", FLOAT, [2, 4])])
    assert graph.attributes["uncounted"] == ["other.Mystery"]
    assert (graph.op_bytes_read[0], graph.op_bytes_written[0]) == (64, 32)


@pytest.mark.parametrize(
    ("made", "shape", "w"),
    [
        (node("MatMul", "a w", "y"), [2, 63], (64, 64)),
        (node("Gemm", "a w", "y", transB=1), [2, 63], (64, 64)),
        (node("Conv", "a w", "y", group=2), [1, 6, 8, 8], (4, 2, 3, 3)),
    ],
)
def test_a_product_of_matrices_that_do_not_fit_is_refused(
    read: Callable[..., Graph], made: Any, shape: list[int], w: tuple[int, ...]
) -> None:
    assert_refused(
        GraphError,
        r"do not fit the operator \(it sums over \d+ of one input and \d+ of the other\)",
        lambda: read([made], [("a", FLOAT, shape)], [("y", FLOAT, [2, 64])], [weight("w", *w)]),
    )


def test_shapes_that_contradict_each_other_are_told(read: Callable[..., Graph]) -> None:
    with pytest.warns(PlacewrightWarning, match=r"of shapes contradicts itself .*\(8\) vs \(9\)"):
        read([node("Relu", "x", "y")], outputs=[("y", FLOAT, [2, 9])])


def test_a_reshape_to_another_number_of_elements_is_told(read: Callable[..., Graph]) -> None:
    model = {
        "nodes": [node("Reshape", "x fixed", "y")],
        "inputs": [("x", FLOAT, ["batch", 8])],
        "weights": [integers("fixed", 4, 4)],
    }
    with pytest.warns(PlacewrightWarning, match=r"produces 'y' makes 16 elements of 24: it may"):
        read(**model, batch=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(**model, batch=2)


def test_an_operator_that_the_opset_of_the_model_has_no_more_is_told(
    read: Callable[..., Graph],
) -> None:
    nodes = [node("Upsample", "x scales", "y")]
    scales = [numpy_helper.from_array(np.array([1, 2], np.float32), "scales")]
    with pytest.warns(PlacewrightWarning, match="opset 10, which the file asks for, has no Upsamp"):
        assert read(nodes, weights=scales, opset=10).op_bytes_written.tolist() == [128]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(nodes, weights=scales, opset=9)


def test_an_input_that_is_an_output_too_may_have_no_type_there(read: Callable[..., Graph]) -> None:
    outputs = [("y", FLOAT, None), ("x", FLOAT, None)]
    assert read([node("Relu", "x", "y")], outputs=outputs).op_flops.tolist() == [16]


def test_an_output_with_a_dimension_of_minus_one_contradicts_nothing(
    read: Callable[..., Graph],
) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        read([node("Relu", "x", "y")], [("x", FLOAT, [-1, 8])], [("y", FLOAT, [-1, 8])])
    assert not any("contradicts" in str(each.message) for each in told)


def test_shapes_computed_inside_the_model_are_worked_out(read: Callable[..., Graph]) -> None:
    """Div, Range and a constant-folded Expand are beyond ONNX's own data propagation."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape one", "length", axis=0),
        node("Div", "length two", "half"),
        node("Range", "zero half step", "positions"),
        node("Shape", "positions", "count"),
        node("Expand", "c count", "y"),
    ]
    scalars = [("one", 1), ("zero", 0), ("step", 1), ("two", 2)]
    weights = [numpy_helper.from_array(np.array(v, dtype=np.int64), n) for n, v in scalars]
    graph = read(
        nodes,
        [("x", FLOAT, ["batch", "sequence"]), ("c", FLOAT, [1])],
        weights=weights,
        dimensions={"sequence": 4000},
    )
    assert graph.tensor_bytes[graph.tensor_names.index("y")] == 4 * 2000
    free = (graph.op_flops == 0) & (graph.op_bytes_read == 0)
    assert [graph.op_types[op] for op in np.flatnonzero(free)] == [
        "Shape", "Gather", "Div", "Shape",
    ]  # fmt: skip


# -- operators -------------------------------------------------------------------------------------

COSTS = [
    ("MatMul", "a w", [2, 3, 4, 8], [8, 5], {}, 2 * (2 * 3 * 4 * 5) * 8),
    ("Gemm", "a w", [8, 3], [8, 5], {"transA": 1}, 2 * 3 * 5 * 8),
    ("Conv", "a w", [1, 4, 10, 10], [6, 2, 3, 3], {"group": 2}, 2 * (6 * 8 * 8) * (2 * 9)),
    ("ConvTranspose", "a w", [1, 4, 5, 5], [4, 6, 2, 2], {"strides": [2, 2]}, 2 * 100 * 6 * 4),
    ("Einsum", "a w", [2, 3, 4], [4, 5], {"equation": "bij,jk->bik"}, 2 * 2 * 3 * 4 * 5),
    ("Einsum", "a w", [2, 7, 3, 4], [4, 5], {"equation": "...ij,jk"}, 2 * 14 * 3 * 4 * 5),
    ("Einsum", "a w", [6, 3], [6, 3], {"equation": "ij,ij->"}, 2 * 18),
    ("Add", "a w", [4, 1], [1, 6], {}, 24),
    ("Sum", "a w a", [4, 6], [4, 6], {}, 48),
    ("Softmax", "a", [4, 6], [1, 1], {}, 5 * 24),
    ("LayerNormalization", "a w", [4, 6], [6], {}, 8 * 24),
    ("ReduceMean", "a", [4, 6], [1, 1], {}, 24),
    ("AveragePool", "a", [1, 2, 6, 6], [1, 1], {"kernel_shape": [3, 3]}, 2 * 16 * 9),
    ("Transpose", "a", [4, 6], [1, 1], {}, 0),
    ("Gelu", "a", [4, 6], [1, 1], {}, 96),
]


@pytest.mark.parametrize(
    ("op_type", "inputs", "a", "w", "attributes", "flops"), COSTS, ids=[c[0] for c in COSTS]
)
def test_an_operator_costs_what_its_definition_says(
    read: Callable[..., Graph],
    op_type: str,
    inputs: str,
    a: list[int],
    w: list[int],
    attributes: dict[str, Any],
    flops: float,
) -> None:
    graph = read(
        [node(op_type, inputs, "y", **attributes)],
        [("a", FLOAT, a)],
        weights=[weight("w", *w)],
        opset=20,
    )
    assert graph.op_flops.tolist() == [flops]
    assert "uncounted" not in graph.attributes


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_recurrent_op_multiplies_at_every_step_and_both_ways(
    read: Callable[..., Graph], op_type: str, gates: int
) -> None:
    hidden, size, steps, batch = 6, 5, 7, 2
    graph = read(
        [node(op_type, "x w r", "y", hidden_size=hidden, direction="bidirectional")],
        [("x", FLOAT, [steps, batch, size])],
        weights=[weight("w", 2, gates * hidden, size), weight("r", 2, gates * hidden, hidden)],
    )
    per_step = 2 * batch * 2 * gates * hidden * (size + hidden)
    assert graph.op_flops.tolist() == [steps * per_step]


def test_attention_multiplies_scores_and_values(read: Callable[..., Graph]) -> None:
    heads, queries, keys, size = 4, 3, 9, 16
    graph = read(
        [node("Attention", "q k v", "y")],
        [(n, FLOAT, [2, heads, s, size]) for n, s in (("q", queries), ("k", keys), ("v", keys))],
        opset=23,
    )
    assert graph.op_flops.tolist() == [2 * (2 * 2 * heads * queries * keys * size)]


def test_an_input_that_an_op_names_twice_is_read_once(read: Callable[..., Graph]) -> None:
    assert read([node("Mul", "x x", "y")]).op_bytes_read.tolist() == [2 * 8 * 4]


def test_a_gather_reads_the_rows_it_takes_and_not_the_table(read: Callable[..., Graph]) -> None:
    graph = read([node("Gather", "table ids", "y")], [("ids", INT64, [5])],
                 weights=[weight("table", 1000, 8)])  # fmt: skip
    assert graph.op_bytes_read.tolist() == [5 * 8 * 4 + 5 * 8]
    assert graph.op_parameter_bytes.tolist() == [1000 * 8 * 4]


def test_views_cost_nothing_and_stay_in_the_graph(read: Callable[..., Graph]) -> None:
    nodes = [
        node("Reshape", "x shape", "a"),
        node("Unsqueeze", "a axes", "b"),
        node("Identity", "b", "c"),
        node("Relu", "c", "y"),
    ]
    graph = read(nodes, weights=[integers("shape", 4, 4), integers("axes", 0)])
    assert graph.op_types == ("Reshape", "Unsqueeze", "Identity", "Relu")
    assert (graph.op_flops + graph.op_bytes_read + graph.op_bytes_written).tolist()[:3] == [0] * 3
    assert len(edges(graph)) == 3


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(np.float16, "fp16"), (np.float64, "fp64"), (np.float32, "fp32")],
)
def test_an_op_has_the_dtype_it_computes_in(
    read: Callable[..., Graph], dtype: Any, name: str
) -> None:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = read(
        [node("MatMul", "x w", "m"), node("Greater", "m m", "y")],
        [("x", element, [2, 8])],
        [("y", BOOL, None)],
        [weight("w", 8, 8, dtype=dtype)],
    )
    assert graph.op_dtypes == (name, name)
    assert graph.tensor_bytes.tolist() == [16 * np.dtype(dtype).itemsize, 16]


def test_an_integer_product_has_the_dtype_of_its_inputs(read: Callable[..., Graph]) -> None:
    int8 = onnx.TensorProto.INT8
    graph = read(
        [node("MatMulInteger", "x w", "y")],
        [("x", int8, [2, 8])],
        [("y", onnx.TensorProto.INT32, None)],
        [weight("w", 8, 8, dtype=np.int8)],
    )
    assert graph.op_dtypes == ("int8",)
    assert graph.op_flops.tolist() == [2 * 2 * 8 * 8]


CONTRIB = [
    (node("FastGelu", "x", "y", domain="com.microsoft"), [], 4 * 48),
    (node("FusedMatMul", "x w", "y", domain="com.microsoft", transB=1), [5, 8], 2 * 6 * 5 * 8),
    (node("MatMulNBits", "x w s", "y", domain="com.microsoft", K=8, N=5), [5, 1], 2 * 6 * 5 * 8),
    (node("SkipLayerNormalization", "x x w", "y", domain="com.microsoft"), [8], 8 * 48),
    (
        node("Attention", "x w", "y", domain="com.microsoft", num_heads=2),
        [8, 24],
        2 * 6 * 8 * 24 + 2 * (2 * 2 * 3 * 3 * 8),
    ),
    (node("MultiHeadAttention", "x x x", "y", domain="com.microsoft", num_heads=2), [1],
     2 * (2 * 2 * 3 * 3 * 8)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("contrib", "w", "flops"), CONTRIB, ids=[each[0].op_type for each in CONTRIB]
)
def test_operators_of_onnx_runtime_have_shapes_and_costs(
    read: Callable[..., Graph], contrib: Any, w: list[int], flops: float
) -> None:
    graph = read(
        [contrib, node("Relu", "y", "z")],
        [("x", FLOAT, [2, 3, 8])],
        [("z", FLOAT, None)],
        [weight("w", *w), weight("s", 5)],
    )
    assert graph.op_flops[0] == flops
    assert "uncounted" not in graph.attributes


@pytest.mark.parametrize(
    ("operator", "packed", "heads"),
    [("GroupQueryAttention", [1, 3, 64], {"num_heads": 4, "kv_num_heads": 2}),
     ("MultiHeadAttention", [1, 3, 4, 3, 8], {"num_heads": 4})],
)  # fmt: skip
def test_keys_and_values_packed_into_the_query_are_no_queries(
    operator: str, packed: list[int], heads: dict[str, int], read: Callable[..., Graph]
) -> None:
    made = node(operator, "x", "y", domain="com.microsoft", **heads)
    graph = read([made], [("x", FLOAT, packed)], [("y", FLOAT, [1, 3, 32])])
    assert graph.op_flops.tolist() == [2 * 2 * 3 * 3 * 32]


UINT8, INT32 = onnx.TensorProto.UINT8, onnx.TensorProto.INT32
BYTE, ROW = ("x", UINT8, [6, 8]), weight("w", 8, 5, dtype=np.uint8)
PICTURE, TOKENS = ("x", UINT8, [2, 4, 8, 8]), ("x", INT32, [2, 3])
TABLES = [weight(name, rows, 8) for name, rows in (("w", 50), ("p", 16))]
QUANTISED = {  # x, weights; bytes of the output, FLOPs
    "QGemm": (node("QGemm", "x s z w s z _ s z", "y"), BYTE, [ROW], 30, 2 * 6 * 5 * 8),
    "QGemm of floats": (node("QGemm", "x s z w s z", "y"), BYTE, [ROW], 120, 2 * 6 * 5 * 8),
    "QLinearConcat": (node("QLinearConcat", "s z x s z x s z", "y", axis=1), BYTE, [], 96, 0),
    "QLinearWhere": (node("QLinearWhere", "c x s z x s z s z", "y"), BYTE, [], 48, 48),
    "QLinearAveragePool": (
        node("QLinearAveragePool", "x s z s z", "y", kernel_shape=[2, 2], strides=[2, 2]),
        PICTURE, [], 2 * 4 * 4 * 4, 2 * 4 * 4 * 4 * 4,
    ),
    "QLinearGlobalAveragePool": (
        node("QLinearGlobalAveragePool", "x s z s z", "y"), PICTURE, [], 8, 512
    ),
    "MatMulIntegerToFloat": (
        node("MatMulIntegerToFloat", "x w s s", "y"), BYTE, [ROW], 120, 2 * 6 * 5 * 8
    ),
    "MatMulBnb4": (
        node("MatMulBnb4", "x w s", "y", K=8, N=5), ("x", FLOAT, [6, 8]),
        [weight("w", 20, dtype=np.uint8)], 120, 2 * 6 * 5 * 8,
    ),
    "QAttention": (
        node("QAttention", "x w b s s", "y", num_heads=2), ("x", UINT8, [2, 3, 8]),
        [weight("w", 8, 24, dtype=np.uint8), weight("b", 24)], 4 * 48,
        2 * 6 * 8 * 24 + 2 * (2 * 2 * 3 * 3 * 8),
    ),
    "EmbedLayerNormalization": (
        node("EmbedLayerNormalization", "x _ w p _ g g", "y mask"), TOKENS,
        [*TABLES, weight("g", 8)], 4 * 48, 8 * 48,
    ),
    "GatherBlockQuantized": (
        node("GatherBlockQuantized", "w x t", "y", block_size=16, bits=4), TOKENS,
        [weight("w", 50, 16, dtype=np.uint8), weight("t", 50, 2)], 4 * 6 * 32, 6 * 32,
    ),
    "DynamicQuantizeLSTM": (
        node("DynamicQuantizeLSTM", "x w r b _ _ _ _ s z s z", "y last", hidden_size=4),
        ("x", FLOAT, [3, 2, 8]),
        [weight("w", 1, 8, 16, dtype=np.uint8), weight("r", 1, 4, 16, dtype=np.uint8),
         weight("b", 1, 32)], 4 * 3 * 2 * 4, 2 * 3 * 2 * (8 + 4) * 16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUANTISED)
def test_operators_that_onnx_runtime_quantises_with_have_shapes_and_costs(
    read: Callable[..., Graph], name: str
) -> None:
    made, x, weights, size, flops = QUANTISED[name]
    made.domain = "com.microsoft"
    scales = [weight("s", 1), weight("z", 1, dtype=np.uint8), weight("c", 1, dtype=bool)]
    outputs = [(each, 0, None) for each in made.output]
    graph = read([made], [x], outputs, [*weights, *scales])
    assert (graph.tensor_bytes[0], graph.op_flops[0]) == (size, flops)
    assert "uncounted" not in graph.attributes


@pytest.mark.parametrize(
    "made",
    [
        node("ReorderInput", "x", "y", domain="com.microsoft.nchwc"),
        node("QLinearGlobalAveragePool", "x s z s z", "y", domain="com.microsoft", channels_last=1),
    ],
    ids=lambda made: made.op_type,
)
def test_a_model_that_is_laid_out_for_one_cpu_is_refused_with_the_way_to_save_it(
    read: Callable[..., Graph], made: Any
) -> None:
    weights = [weight("s", 1), weight("z", 1, dtype=np.uint8)]
    assert_refused(
        GraphError,
        f"made by the {made.op_type} .*one kind of CPU: save it with at most ORT_ENABLE_EXTENDED",
        lambda: read([made], [PICTURE], [("y", UINT8, None)], weights),
    )


def test_every_operator_of_onnx_is_counted_or_known_not_to_be() -> None:
    known_not_to_be = {
        "CausalConvWithState", "Constant", "If", "ImageDecoder", "LinearAttention", "Loop",
        "NonMaxSuppression", "RegexFullMatch", "Scan", "SequenceMap", "StringConcat",
        "StringNormalizer", "StringSplit", "TfIdfVectorizer",
    }  # fmt: skip
    operators = {
        schema.name
        for schema in onnx.defs.get_all_schemas()
        if schema.domain == "" and not schema.deprecated
    }
    assert operators - _FORMULAS.keys() - _FREE <= known_not_to_be


# -- names, constants and weights --------------------------------------------------------------


def test_op_names_are_unique_whatever_the_nodes_are_called(read: Callable[..., Graph]) -> None:
    nodes = [
        node("Relu", "x", "a", name="same"),
        node("Relu", "a", "b", name="same"),
        node("Relu", "b", "c"),
        node("Relu", "c", "y", name="Relu_2"),
    ]
    assert read(nodes).op_names == ("same", "same#1", "Relu_2", "Relu_2#3")


def test_an_op_name_is_a_line_that_can_be_typed(read: Callable[..., Graph]) -> None:
    graph = read([node("Relu", "x", "a", name="one\ntwo"), node("Relu", "a", "y", name="\x1b[2J")])
    assert graph.op_names == (r"one\ntwo", r"\x1b[2J")


def test_constants_are_no_ops_and_count_as_parameters_of_their_reader(
    read: Callable[..., Graph],
) -> None:
    nodes = [
        node("Constant", "", "w", value=weight("", 8, 4)),
        node("Identity", "w", "alias"),
        node("MatMul", "x alias", "y"),
    ]
    graph = read(nodes)
    assert graph.op_types == ("MatMul",)
    assert graph.op_parameter_bytes.tolist() == [4 * 32]


def test_a_weight_that_two_ops_read_is_counted_once_and_keeps_them_together(
    read: Callable[..., Graph],
) -> None:
    nodes = [
        node("Gather", "w ids", "e", name="embed"),
        node("MatMul", "e v", "h", name="first"),
        node("MatMul", "h v", "i", name="second"),
        node("Gemm", "i w", "y", name="head", transB=1),
        node("Relu", "y", "z", name="last"),
    ]
    graph = read(nodes, [("ids", INT64, [3])], [("z", FLOAT, [3, 50])],
                 [weight("w", 50, 8), weight("v", 8, 8)])  # fmt: skip
    assert graph.op_parameter_bytes.tolist() == [1600, 256, 0, 0, 0]
    embed, first, second, head, last = graph.colocation.tolist()
    assert embed == head != first == second
    assert last == -1


def test_ops_that_share_weights_in_a_chain_are_one_group(read: Callable[..., Graph]) -> None:
    nodes = [
        node("Einsum", "x u v", "a", equation="bi,ij,jk->bk"),
        node("MatMul", "a v", "b"),
        node("MatMul", "b u", "y"),
    ]
    graph = read(nodes, weights=[weight("u", 8, 8), weight("v", 8, 8)])
    assert len(set(graph.colocation.tolist())) == 1
    assert graph.colocation[0] >= 0


def test_shared_vectors_and_masks_are_copied_and_keep_nothing_together(
    read: Callable[..., Graph],
) -> None:
    nodes = [
        node("Add", "x bias", "a"),
        node("Add", "a bias", "b"),
        node("Where", "mask a b", "c"),
        node("Where", "mask c b", "y"),
    ]
    graph = read(nodes, weights=[weight("bias", 1, 8), weight("mask", 2, 8, dtype=np.bool_)])
    assert graph.colocation.tolist() == [-1] * 4
    assert graph.op_parameter_bytes.tolist() == [32, 32, 16, 16]


def test_a_sparse_weight_counts_as_the_dense_one_that_engines_make_of_it(saved: Save) -> None:
    made = model_of([node("MatMul", "x w", "y")])
    made.graph.sparse_initializer.append(
        helper.make_sparse_tensor(weight("w", 3), integers("places", 1, 9, 30), [8, 5])
    )
    path = saved([node("Relu", "x", "y")])
    path.write_bytes(made.SerializeToString())
    graph = read_onnx(path)
    assert (graph.op_flops[0], graph.op_parameter_bytes[0]) == (2 * 2 * 8 * 5, 4 * 8 * 5)
    assert graph.tensor_bytes[0] == 4 * 2 * 5


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_the_domain_of_onnx_may_be_written_out(saved: Save, domain: str) -> None:
    path = saved([node("Relu", "x", "h", domain="ai.onnx"), node("Neg", "h", "y")])
    made = onnx.load(path)
    made.opset_import[0].domain = domain
    path.write_bytes(made.SerializeToString())
    assert read_onnx(path).op_flops.tolist() == [16, 16]


def test_initializers_listed_as_inputs_are_weights(read: Callable[..., Graph]) -> None:
    """As files before IR version 4 have it."""
    inputs = [("x", FLOAT, [2, 8]), ("w", FLOAT, [8, 8])]
    graph = read([node("MatMul", "x w", "y")], inputs, weights=[weight("w", 8, 8)])
    assert graph.op_parameter_bytes.tolist() == [256]
    assert graph.attributes["inputs"] == ["x"]


# -- subgraphs and functions ---------------------------------------------------------------------


def branches() -> list[Any]:
    heavy = graph_of([node("MatMul", "h w", "t"), node("MatMul", "t v", "u")], [],
                     [("u", FLOAT, [2, 8])], [weight("v", 8, 8)], name="heavy")  # fmt: skip
    light = graph_of([node("Relu", "h", "u")], [], [("u", FLOAT, [2, 8])], name="light")
    return [
        node("Relu", "x", "h", name="before"),
        node("If", "flag", "y", name="choose", then_branch=heavy, else_branch=light),
    ]


def test_an_if_costs_its_larger_branch_and_reads_what_the_branches_capture(
    read: Callable[..., Graph],
) -> None:
    inputs = [("x", FLOAT, [2, 8]), ("flag", BOOL, [])]
    with pytest.warns(PlacewrightWarning, match=r"not known of choose \(If\): the larger cost"):
        graph = read(branches(), inputs, weights=[weight("w", 8, 8)])
    assert graph.op_names == ("before", "choose")
    assert graph.op_flops.tolist() == [16, 2 * (2 * 2 * 8 * 8)]
    assert graph.op_parameter_bytes.tolist() == [0, 2 * 256]
    assert edges(graph) == {("before", "choose")}
    assert graph.attributes["larger_branch_counted"] == ["choose"]


def flag(value: bool) -> Any:
    return numpy_helper.from_array(np.array(value), "flag")


def test_an_if_of_a_constant_condition_gives_way_to_the_branch_that_runs(
    read: Callable[..., Graph], no_warning: None
) -> None:
    heavy = read(branches(), weights=[weight("w", 8, 8), flag(True)])
    assert heavy.op_types == ("Relu", "MatMul", "MatMul")
    assert heavy.op_flops.tolist() == [16, 256, 256]
    assert heavy.op_parameter_bytes.tolist() == [0, 256, 256]
    light = read(branches(), weights=[weight("w", 8, 8), flag(False)])
    assert light.op_types == ("Relu", "Relu")
    assert light.op_parameter_bytes.tolist() == [0, 0]
    assert edges(light) == {("before", "Relu_1")}


def test_an_if_whose_condition_hangs_on_a_dimension_gives_way_to_the_branch_that_runs(
    read: Callable[..., Graph],
) -> None:
    """Exporters write such an If where the rank of a result hangs on a dimension."""
    drop = graph_of([node("Squeeze", "x one", "s")], [], [("s", FLOAT, None)], name="drop")
    keep = graph_of([node("Exp", "x", "s")], [], [("s", FLOAT, None)], name="keep")
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape one", "size"),
        node("Equal", "size one", "single"),
        node("If", "single", "t", then_branch=drop, else_branch=keep),
        node("Relu", "t", "y"),
    ]
    model = {
        "nodes": nodes,
        "inputs": [("x", FLOAT, ["batch", "n", 8])],
        "weights": [integers("one", 1)],
    }
    squeezed = read(**model, dimensions={"batch": 1, "n": 1})
    assert squeezed.op_types[3:] == ("Squeeze", "Relu")
    assert squeezed.op_flops.tolist()[3:] == [0, 8]
    kept = read(**model, dimensions={"batch": 1, "n": 3})
    assert kept.op_types[3:] == ("Exp", "Relu")
    assert kept.op_flops.tolist()[3:] == [24, 24]


def nested_ifs() -> dict[str, Any]:
    """Two Ifs whose branches use the same names, return what they were given, and hold an If."""
    inner = node(
        "If", "no", "s",
        then_branch=graph_of([node("Exp", "t", "r")], [], [("r", FLOAT, None)]),
        else_branch=graph_of([node("Mul", "t v", "r")], [], [("r", FLOAT, None)]),
    )  # fmt: skip
    deep = graph_of(
        [node("Add", "h k", "t"), inner],
        [],
        [("s", FLOAT, None), ("h", FLOAT, None), ("k", FLOAT, None), ("s", FLOAT, None)],
        [numpy_helper.from_array(np.full((2, 8), 3, np.float32), "k"),
         numpy_helper.from_array(np.full((2, 8), 5, np.float32), "v")],
    )  # fmt: skip
    flat = graph_of([node("Neg", "h", "t")], [], [("t", FLOAT, None)] * 3 + [("h", FLOAT, None)])
    return {
        "nodes": [
            node("Abs", "x", "h"),
            node("If", "yes", "a b c d", then_branch=deep, else_branch=flat),
            node("If", "no", "e f g i", then_branch=deep, else_branch=flat),
            node("Sum", "a b c d e f g i", "y"),
        ],
        "weights": [
            numpy_helper.from_array(np.array(True), "yes"),
            numpy_helper.from_array(np.array(False), "no"),
        ],
    }


def test_the_branches_that_run_compute_what_their_ifs_did() -> None:
    from onnx.reference import ReferenceEvaluator

    model = model_of(**nested_ifs())
    x = np.random.default_rng(3).normal(size=(2, 8)).astype(np.float32)
    (before,) = ReferenceEvaluator(model).run(None, {"x": x})
    take_branches(model.graph, {"a": "then_branch", "e": "else_branch"}, "model.onnx")
    (inner,) = (each for each in model.graph.node if each.op_type == "If")
    take_branches(model.graph, {inner.output[0]: "else_branch"}, "model.onnx")
    assert not any(each.op_type == "If" for each in model.graph.node)
    (after,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(before, after)


def test_an_if_within_a_branch_that_runs_gives_way_too(
    read: Callable[..., Graph], no_warning: None
) -> None:
    graph = read(**nested_ifs())
    assert sorted(graph.op_types) == [
        "Abs", "Add", "Identity", "Identity", "Identity", "Identity", "Identity", "Mul", "Neg",
        "Sum",
    ]  # fmt: skip


def test_a_branch_of_other_outputs_than_its_if_is_refused(read: Callable[..., Graph]) -> None:
    first, choose = branches()
    choose.output.append("more")
    assert_refused(
        GraphError,
        r"If that produces 'y' has 2 outputs, its then_branch 1; check",
        lambda: read([first, choose], weights=[weight("w", 8, 8), flag(True)]),
    )


def test_a_loop_costs_its_body_once_and_says_so(read: Callable[..., Graph]) -> None:
    body = graph_of(
        [node("MatMul", "state w", "next"), node("Identity", "cond", "more")],
        [("i", INT64, []), ("cond", BOOL, []), ("state", FLOAT, None)],
        [("more", BOOL, []), ("next", FLOAT, None)],
        name="body",
    )
    nodes = [
        node("Relu", "x", "h", name="before"),
        node("Loop", "trips _ h", "y", name="repeat", body=body),
    ]
    inputs = [("x", FLOAT, [2, 8]), ("trips", INT64, [])]
    with pytest.warns(
        PlacewrightWarning, match=r"not known of repeat \(Loop\): the body is counted"
    ):
        graph = read(nodes, inputs, [("y", FLOAT, [2, 8])], [weight("w", 8, 8)])
    assert graph.op_flops.tolist() == [16, 2 * 2 * 8 * 8]
    assert graph.op_parameter_bytes.tolist() == [0, 256]
    assert graph.attributes["loops_counted_once"] == ["repeat"]


def loop_of(state: Sequence[int], nodes: Sequence[Any]) -> list[Any]:
    """A loop whose body makes `next` of `state`, and a product of what comes out."""
    body = graph_of(
        [*nodes, node("Identity", "cond", "more")],
        [("i", INT64, []), ("cond", BOOL, []), ("state", FLOAT, None)],
        [("more", BOOL, []), ("next", FLOAT, None)],
        name="body",
    )
    return [node("Loop", "trips _ x", "h", name="repeat", body=body), node("MatMul", "h v", "y")]


@pytest.mark.filterwarnings("ignore::placewright.errors.PlacewrightWarning")
def test_what_a_loop_keeps_the_shape_of_has_it_behind_the_loop(read: Callable[..., Graph]) -> None:
    inputs = [("x", FLOAT, [2, 8]), ("trips", INT64, [])]
    weights = [weight("w", 8, 8), weight("v", 8, 4)]
    nodes = loop_of([2, 8], [node("MatMul", "state w", "next")])
    graph = read(nodes, inputs, [("y", FLOAT, None)], weights)
    assert graph.op_flops.tolist() == [2 * 2 * 8 * 8, 2 * 2 * 8 * 4]
    growing = loop_of([2, 8], [node("Concat", "state state", "next", axis=0)])
    assert_refused(
        GraphError,
        r"shape of tensor 'h'",
        lambda: read(growing, inputs, [("y", FLOAT, None)], weights),
    )


def counted_loop(more: str, *others: Any) -> Any:
    """A loop that multiplies by `w` and collects, while `more` of its body is true."""
    return graph_of(
        [node("MatMul", "state w", "next"), node("Neg", "next", "row"), *others],
        [("i", INT64, []), ("cond", BOOL, []), ("state", FLOAT, None)],
        [(more, BOOL, []), ("next", FLOAT, None), ("row", FLOAT, None)],
        name="body",
    )


@pytest.mark.parametrize("condition", ["_", "true"])
@pytest.mark.parametrize(
    "body",
    [
        counted_loop("more", node("Identity", "cond", "more")),
        counted_loop("more", node("Constant", "", "one", value_int=1),
                     node("Cast", "one", "more", to=BOOL)),
    ],
    ids=["passed on", "constant"],
)  # fmt: skip
def test_a_loop_costs_its_body_as_often_as_a_size_says(
    read: Callable[..., Graph], condition: str, body: Any, no_warning: None
) -> None:
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "trips"),
        node("Loop", f"trips {condition} x", "last rows", body=body),
        node("Add", "rows last", "y"),
    ]
    true = numpy_helper.from_array(np.array(True), "true")
    weights = [weight("w", 8, 8), numpy_helper.from_array(np.array(0), "zero"), true]
    graph = read(nodes, [("x", FLOAT, [5, 8])], weights=weights)
    assert graph.op_flops[2:].tolist() == [5 * (2 * 5 * 8 * 8 + 5 * 8), 5 * 5 * 8]
    assert graph.op_parameter_bytes[2] >= 256
    assert "loops_counted_once" not in graph.attributes


@pytest.mark.filterwarnings("ignore::placewright.errors.PlacewrightWarning")
def test_a_loop_that_data_may_end_counts_once(read: Callable[..., Graph]) -> None:
    ends = [node("ReduceMax", "next", "m", keepdims=0), node("Cast", "m", "more", to=BOOL)]
    nodes = [node("Loop", "trips _ x", "y _", body=counted_loop("more", *ends))]
    weights = [weight("w", 8, 8), numpy_helper.from_array(np.array(3), "trips")]
    graph = read(nodes, [("x", FLOAT, [5, 8])], weights=weights)
    assert graph.op_flops[0] == 2 * 5 * 8 * 8 + 5 * 8 + 5 * 8
    assert graph.attributes["loops_counted_once"] == ["y"]


def test_a_scan_costs_its_body_for_every_element(read: Callable[..., Graph]) -> None:
    body = graph_of(
        [node("Add", "sum item", "total"), node("Identity", "total", "each")],
        [("sum", FLOAT, [8]), ("item", FLOAT, [8])],
        [("total", FLOAT, [8]), ("each", FLOAT, [8])],
        name="body",
    )
    graph = read(
        [node("Scan", "start items", "end y", body=body, num_scan_inputs=1)],
        [("start", FLOAT, [8]), ("items", FLOAT, [5, 8])],
    )
    assert graph.op_flops.tolist() == [5 * 8]


def test_nodes_that_are_not_in_order_are_put_in_order(read: Callable[..., Graph]) -> None:
    """Those that need not move stay; a branch reads what is listed behind its If."""
    then = graph_of([node("Mul", "t a", "u"), node("Neg", "a", "t")], [], [("u", FLOAT, None)])
    other = graph_of([node("Abs", "a", "u")], [], [("u", FLOAT, None)])
    nodes = [
        node("Exp", "x", "e"),
        node("Add", "b e", "y"),
        node("If", "flag", "b", then_branch=then, else_branch=other),
        node("Relu", "x", "a"),
    ]
    graph = read(nodes, inputs=[("x", FLOAT, [2, 8]), ("flag", BOOL, [])])
    assert graph.op_types == ("Exp", "Relu", "If", "Add")
    assert edges(graph) == {("Exp_0", "Add_3"), ("Relu_1", "If_2"), ("If_2", "Add_3")}


def test_local_functions_are_put_in_place_of_their_calls(read: Callable[..., Graph]) -> None:
    function = helper.make_function(
        "local", "Twice", ["a"], ["c"],
        [node("Relu", "a", "b"), node("Exp", "b", "c")], [helper.make_opsetid("", 18)],
    )  # fmt: skip
    nodes = [node("Twice", "x", "h", domain="local"), node("Twice", "h", "y", domain="local")]
    graph = read(nodes, functions=[function])
    assert graph.op_types == ("Relu", "Exp", "Relu", "Exp")
    assert len(edges(graph)) == 3


def test_a_function_of_another_opset_than_the_model_is_refused(read: Callable[..., Graph]) -> None:
    function = helper.make_function(
        "local", "Old", ["a"], ["b"], [node("ReduceMean", "a", "b", axes=[1])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [node("Old", "x", "y", domain="local")]
    assert_refused(
        GraphError,
        "function 'Old' is of other versions of operators than the model",
        lambda: read(nodes, functions=[function], opset=18),
    )


def test_a_function_that_calls_itself_is_refused(read: Callable[..., Graph]) -> None:
    function = helper.make_function(
        "local", "Endless", ["a"], ["b"], [node("Endless", "a", "b", domain="local")],
        [helper.make_opsetid("local", 1)],
    )  # fmt: skip
    nodes = [node("Endless", "x", "y", domain="local")]
    assert_refused(
        GraphError, "function 'Endless' calls itself", lambda: read(nodes, functions=[function])
    )


# -- external data ---------------------------------------------------------------------------------


def external(tmp_path: Path, location: str, **entries: Any) -> Path:
    """A model whose weight w [8, 8] lies in `location`."""
    model = model_of([node("MatMul", "x w", "y")], weights=[weight("w", 8, 8)])
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_weights_count_without_being_read(tmp_path: Path) -> None:
    path = external(tmp_path, "data/weights.bin", offset=64, length=256)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "weights.bin").write_bytes(bytes(320))
    graph = read_onnx(path)
    assert graph.op_parameter_bytes.tolist() == [256]
    assert graph.op_flops.tolist() == [2 * 2 * 8 * 8]


def test_missing_external_data_is_refused(tmp_path: Path) -> None:
    path = external(tmp_path, "weights.bin")
    assert_refused(FormatError, r"tensor 'w'.*weights\.bin does not exist", lambda: read_onnx(path))


@pytest.mark.parametrize(
    "location", ["../outside.bin", "data/../../outside.bin", "..\\outside.bin", "C:\\outside.bin"]
)
def test_external_data_outside_the_directory_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "outside.bin").write_bytes(bytes(256))
    inside = tmp_path / "inside"
    inside.mkdir()
    path = external(inside, location)
    assert_refused(FormatError, "leads out of the model's directory", lambda: read_onnx(path))


def test_external_data_by_an_absolute_path_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "weights.bin"
    target.write_bytes(bytes(256))
    path = external(tmp_path, str(target))
    assert_refused(FormatError, "leads out of the model's directory", lambda: read_onnx(path))


def test_external_data_through_a_link_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside.bin").write_bytes(bytes(256))
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "weights.bin").symlink_to(tmp_path / "outside.bin")
    path = external(inside, "weights.bin")
    assert_refused(FormatError, "is a link out of the model's directory", lambda: read_onnx(path))


def test_external_data_in_a_linked_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "weights.bin").write_bytes(bytes(256))
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "data").symlink_to(tmp_path / "elsewhere")
    path = external(inside, "data/weights.bin")
    assert_refused(FormatError, "is a link out of the model's directory", lambda: read_onnx(path))


def test_a_model_and_its_data_may_be_links_into_one_directory(tmp_path: Path) -> None:
    """As in the cache of a model hub."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    (blobs / "1234").write_bytes(bytes(256))
    external(blobs, "weights.bin").rename(blobs / "5678")
    (snapshot / "model.onnx").symlink_to(blobs / "5678")
    (snapshot / "weights.bin").symlink_to(blobs / "1234")
    assert read_onnx(snapshot / "model.onnx").op_parameter_bytes.tolist() == [256]


@pytest.mark.parametrize(
    ("size", "entries", "match"),
    [
        (255, {}, "needs bytes 0 to 256.*which has 255"),
        (256, {"offset": 8, "length": 256}, "needs bytes 8 to 264.*which has 256"),
        (256, {"length": 252}, "length 252 is less than the 256 bytes"),
        (256, {"offset": -8}, "offset is '-8'"),
        (256, {"length": "many"}, "length is 'many'"),
    ],
)
def test_external_data_that_is_too_short_is_refused(
    tmp_path: Path, size: int, entries: dict[str, Any], match: str
) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(size))
    path = external(tmp_path, "weights.bin", **entries)
    assert_refused(FormatError, match, lambda: read_onnx(path))


@pytest.mark.parametrize("location", ["", ".", "a\0b"])
def test_external_data_that_is_no_file_is_refused(tmp_path: Path, location: str) -> None:
    path = external(tmp_path, location)
    assert_refused(FormatError, "tensor 'w': external data", lambda: read_onnx(path))


def test_a_shape_kept_as_external_data_is_read(tmp_path: Path) -> None:
    model = model_of([node("Reshape", "x shape", "y")], weights=[integers("shape", 4, 4)])
    tensor = model.graph.initializer[0]
    (tmp_path / "shapes.bin").write_bytes(bytes(8) + tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "shapes.bin"), ("offset", "8")):
        tensor.external_data.add(key=key, value=value)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    assert read_onnx(path).tensor_bytes.tolist() == [64]


# -- files that are no whole model -----------------------------------------------------------------


def test_models_are_told_apart_from_other_files(tmp_path: Path) -> None:
    content = model_of([node("Relu", "x", "y")]).SerializeToString()
    (tmp_path / "a").write_bytes(content)
    assert is_onnx(content)
    assert is_onnx(tmp_path / "a")
    for other in (
        b"",
        b"{}",
        b"format: placewright.cluster/1\n",
        b"PK\x03\x04",
        b"\x80\x04.",
        b"\n",
    ):
        assert not is_onnx(other)
    assert not is_onnx(tmp_path / "absent")
    assert not is_onnx(tmp_path)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "the file is empty"),
        (b'{"format": "placewright.graph/1"}', "not an ONNX model"),
        (b"\x08\x08", "not an ONNX model"),
        (b"PK\x03\x04" * 100, "not an ONNX model"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: bytes, match: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert_refused(FormatError, match, lambda: read_onnx(path))


def test_a_model_cut_short_anywhere_is_refused_or_read(tmp_path: Path) -> None:
    model = model_of(**resnet())
    content = model.SerializeToString()
    path = tmp_path / "model.onnx"
    refused = 0
    for length in range(0, len(content), 149):
        path.write_bytes(content[:length])
        try:
            read_onnx(path)
        except PlacewrightError as error:
            refused += 1
            assert "model.onnx" in str(error)
    assert refused == len(range(0, len(content), 149))
    path.write_bytes(content[: len(content) // 2])
    assert_refused(FormatError, "cut short or damaged", lambda: read_onnx(path))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert_refused(FormatError, "no such file", lambda: read_onnx(tmp_path / "model.onnx"))


def referring() -> Any:
    """A node that takes an attribute of the function around it."""
    made = node("LeakyRelu", "x", "y")
    made.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    return made


MALFORMED: list[tuple[str, dict[str, Any], str]] = [
    ("unknown tensor", {"nodes": [node("Relu", "z", "y", name="r")]}, "op 'r'.*reads tensor 'z'"),
    (
        "cycle",
        {"nodes": [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Exp", "b", "y")]},
        "Add that produces 'a' reads tensor 'b'.*Relu.*only afterwards.*wait for each other.*DAG",
    ),
    ("own output", {"nodes": [node("Add", "x y", "y")]}, "reads tensor 'y'.*only afterwards"),
    ("made twice", {"nodes": [node("Relu", "x", "y"), node("Exp", "x", "y")]}, "exists already"),
    (
        "stored twice",
        {"nodes": [node("MatMul", "x w", "y")], "weights": [weight("w", 8, 8), weight("w", 8, 8)]},
        "2 initializers are called 'w'; give each tensor its own name",
    ),
    ("no output", {"nodes": [node("Relu", "x", "z")]}, "output 'y' is produced by no node"),
    ("too few inputs", {"nodes": [node("MatMul", "x", "y")]}, "has 1 inputs, MatMul needs 2"),
    ("no ops", {"nodes": [], "outputs": [("x", FLOAT, [2, 8])]}, "has no ops"),
    (
        "shapes at odds",
        {"nodes": [node("MatMul", "x w", "y")], "weights": [weight("w", 3, 3)]},
        "shape of tensor 'y', made by the MatMul .* fit together .*Incompatible.*; check the sizes",
    ),
    (
        "subgraph",
        {
            "nodes": [
                node(
                    "If",
                    "x",
                    "y",
                    then_branch=graph_of([node("Relu", "gone", "t")], [], [("t", FLOAT, None)]),
                    else_branch=graph_of([node("Relu", "x", "t")], [], [("t", FLOAT, None)]),
                )
            ]
        },
        "reads tensor 'gone'",
    ),
    (
        "sequence",
        {
            "nodes": [
                node("SplitToSequence", "x", "s"),
                node("ConcatFromSequence", "s", "y", axis=0),
            ]
        },
        "'s', made by the SplitToSequence.* is no tensor but a sequence",
    ),
    (
        "text",
        {
            "nodes": [node("Cast", "x", "y", to=onnx.TensorProto.STRING)],
            "outputs": [("y", onnx.TensorProto.STRING, None)],
        },
        "holds text",
    ),
    (
        "attribute of another type",
        {"nodes": [node("Transpose", "x", "y", perm="ab")]},
        "attribute 'perm' is of type STRING, and Transpose takes INTS",
    ),
    (
        "attribute of no function",
        {"nodes": [referring()]},
        "attribute 'alpha' refers to one of a function, and the node is in none",
    ),
    (
        "sizes of attention",
        {
            "nodes": [
                node("Attention", "x w", "y", domain="com.microsoft", qkv_hidden_sizes=[1]),
            ],
            "weights": [weight("w", 8, 24)],
        },
        r"the shape of tensor 'y', made by the Attention .* is not known",
    ),
    (
        "bits",
        {
            "nodes": [node("GatherBlockQuantized", "w i s", "y", domain="com.microsoft", bits=0)],
            "weights": [weight("w", 8, 4, dtype=np.uint8), weight("s", 8, 1), integers("i", 1)],
        },
        r"the shape of tensor 'y', made by the GatherBlockQuantized .* is not known",
    ),
]


@pytest.mark.parametrize(
    ("model", "match"), [case[1:] for case in MALFORMED], ids=[case[0] for case in MALFORMED]
)
def test_a_malformed_model_is_refused_with_one_sentence(
    read: Callable[..., Graph], model: dict[str, Any], match: str
) -> None:
    assert_refused(GraphError, match, lambda: read(**model))


def test_data_that_does_not_fit_its_shape_is_refused(read: Callable[..., Graph]) -> None:
    bad = weight("w", 8, 8)
    bad.raw_data = bad.raw_data[:-4]
    assert_refused(
        FormatError,
        "tensor 'w': raw_data holds 252 bytes.*need 256",
        lambda: read([node("MatMul", "x w", "y")], weights=[bad]),
    )


@pytest.mark.parametrize("dims", [[-1, 8], [2**40, 2**40]])
def test_an_impossible_shape_is_refused(read: Callable[..., Graph], dims: list[int]) -> None:
    bad = onnx.TensorProto(name="w", data_type=FLOAT, dims=dims)
    assert_refused(
        FormatError,
        "tensor 'w': dims",
        lambda: read([node("MatMul", "x w", "y")], weights=[bad]),
    )


def test_a_model_without_operator_version_is_refused(tmp_path: Path) -> None:
    model = model_of([node("Relu", "x", "y")])
    del model.opset_import[:]
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    assert_refused(FormatError, "opset_import", lambda: read_onnx(path))


def test_damaged_bytes_give_a_sentence_or_a_graph_and_nothing_else(tmp_path: Path) -> None:
    content = model_of(**resnet()).SerializeToString()
    head = content.index(b"\x2a")  # the nodes come before the weights
    random = np.random.default_rng(7)
    path = tmp_path / "model.onnx"
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(3):
            damaged[int(random.integers(0, max(head, 900)))] = int(random.integers(0, 256))
        path.write_bytes(bytes(damaged))
        try:
            assert isinstance(read_onnx(path), Graph)
        except PlacewrightError as error:
            assert "\n" not in str(error)


def test_without_onnx_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of([node("Relu", "x", "y")]).SerializeToString())
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"placewright\[onnx\]"):
        read_onnx(path)


def test_a_file_is_read_once(saved, monkeypatch):
    read_bytes, times = files.read_bytes, []
    monkeypatch.setattr(files, "read_bytes", lambda path: times.append(path) or read_bytes(path))
    load(saved([node("Relu", "x", "y")]))
    assert len(times) == 1
