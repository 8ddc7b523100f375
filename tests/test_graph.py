"""A graph is checked when it is made, and survives its file."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.errors import FormatError, GraphError
from placewright.formats import schema as formats
from placewright.graph import (
    DTYPES,
    CopyTensor,
    Graph,
    GraphBuilder,
    frozen,
    merged,
    topological_order,
)
from tests.strategies import graphs


def diamond() -> GraphBuilder:
    """a → b, c → d; the tensor of a has two consumers."""
    builder = GraphBuilder("diamond")
    a = builder.add_op("a", "input", flops=1.0)
    shared = builder.add_tensor(a, 8.0, "shared")
    b = builder.add_op("b", "relu", [shared], parameter_bytes=2.0)
    c = builder.add_op("c", "relu", [shared], state_bytes=3.0)
    tensors = [builder.add_tensor(b, 4.0), builder.add_tensor(c, 2.0)]
    builder.add_op("d", "add", tensors, bytes_read=6.0, bytes_written=1.0, dtype="bf16")
    return builder


def chain(*names: str) -> Graph:
    builder = GraphBuilder("chain")
    for name in names:
        builder.add_op(name, "op", [builder.add_tensor(builder.op_count - 1, 1.0)]
                       if builder.op_count else [])  # fmt: skip
    return builder.build()


def parts(graph: Graph, **changes: object) -> dict[str, object]:
    """The fields of `graph`, some changed, to make another."""
    return {field.name: getattr(graph, field.name) for field in fields(Graph)} | changes


def assert_equal(one: Graph, two: Graph) -> None:
    for field in fields(Graph):
        a, b = getattr(one, field.name), getattr(two, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b, err_msg=field.name)
        elif field.name == "times":
            assert a.keys() == b.keys()
            for kind in a:
                np.testing.assert_array_equal(a[kind], b[kind])
        else:
            assert a == b, field.name


# -- the builder ---------------------------------------------------------------------------------


def test_the_builder_numbers_ops_and_tensors_in_order():
    graph = diamond().build()
    assert graph.op_names == ("a", "b", "c", "d")
    assert graph.op_types == ("input", "relu", "relu", "add")
    assert graph.op_dtypes == ("fp32", "fp32", "fp32", "bf16")
    assert graph.tensor_names == ("shared", "", "")
    assert graph.tensor_producer.tolist() == [0, 1, 2]
    assert [graph.consumers_of(t).tolist() for t in range(3)] == [[1, 2], [3], [3]]
    assert graph.op_index == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert [edge.tolist() for edge in graph.edges] == [[0, 0, 1, 2], [1, 2, 3, 3]]


def test_the_builder_keeps_every_figure():
    graph = diamond().build()
    assert graph.op_flops.tolist() == [1, 0, 0, 0]
    assert graph.op_bytes_read.tolist() == [0, 0, 0, 6]
    assert graph.op_bytes_written.tolist() == [0, 0, 0, 1]
    assert graph.op_parameter_bytes.tolist() == [0, 2, 0, 0]
    assert graph.op_state_bytes.tolist() == [0, 0, 3, 0]
    assert graph.tensor_bytes.tolist() == [8, 4, 2]


def test_an_op_that_reads_a_tensor_twice_is_one_consumer():
    builder = GraphBuilder("square")
    a = builder.add_op("a", "input")
    tensor = builder.add_tensor(a, 1.0)
    builder.add_op("b", "mul", [tensor, tensor])
    assert builder.build().consumers.tolist() == [1]


def test_ops_may_be_numbered_against_the_direction_of_their_edges():
    builder = GraphBuilder("backwards")
    late = builder.add_op("late", "op")
    early = builder.add_op("early", "op")
    builder.connect(builder.add_tensor(early, 1.0), late)
    assert builder.build().topological_order.tolist() == [early, late]


def test_ops_colocated_by_name_share_a_group():
    builder = diamond()
    builder.colocate(0, "first")
    builder.colocate(3, "second")
    builder.colocate(1, "first")
    assert builder.build().colocation.tolist() == [0, 0, -1, 1]


def test_twins_make_a_graph_one_of_training():
    builder = GraphBuilder("training")
    forward = builder.add_op("f", "op")
    backward = builder.add_op("b", "op", backward=True)
    assert not diamond().build().is_training
    builder.set_twin(backward, forward)
    graph = builder.build()
    assert graph.is_training
    assert graph.forward_twin.tolist() == [-1, 0]


def test_times_and_attributes_of_the_builder_reach_the_graph():
    builder = diamond()
    builder.times["GPU"] = [1.0, 2.0, 3.0, math.inf]
    builder.attributes["layers"] = 2
    graph = builder.build()
    assert graph.times["GPU"].tolist() == [1, 2, 3, math.inf]
    assert graph.attributes == {"layers": 2}


# -- what is derived -----------------------------------------------------------------------------


def test_depth_counts_the_ops_on_the_longest_path():
    assert diamond().build().depth == 3
    assert chain(*"abcdef").depth == 6
    assert chain("a").depth == 1


@given(graphs(max_ops=10))
def test_depth_is_that_of_the_obvious_recursion(graph):
    producer, consumer = graph.edges

    def depth(op: int) -> int:
        return 1 + max((depth(int(c)) for c in consumer[producer == op]), default=0)

    assert graph.depth == max(depth(op) for op in range(graph.op_count))


@given(graphs())
def test_the_order_is_topological_and_has_each_op_once(graph):
    order = graph.topological_order
    assert sorted(order.tolist()) == list(range(graph.op_count))
    position = np.argsort(order)
    producer, consumer = graph.edges
    assert (position[producer] < position[consumer]).all()


def test_ops_numbered_in_topological_order_keep_their_numbers():
    assert diamond().build().topological_order.tolist() == [0, 1, 2, 3]


def test_a_graph_cannot_be_changed_by_accident():
    graph = diamond().build()
    for column in ("op_flops", "tensor_bytes", "consumers", "topological_order"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(graph, column)[0] = 9
    with pytest.raises(TypeError):
        graph.attributes["x"] = 1  # type: ignore[index]


def test_changing_the_arrays_a_graph_was_made_from_does_not_change_it():
    flops = np.ones(4)
    graph = Graph(**parts(diamond().build(), op_flops=flops))
    flops[0] = 9
    assert graph.op_flops.tolist() == [1, 1, 1, 1]


def test_frozen_copies_only_what_could_be_changed_from_outside():
    array = frozen([1, 2], np.float64)
    assert frozen(array, np.float64) is array
    assert not np.shares_memory(frozen(np.ones(3)[:2], np.float64), array)


# -- what is refused -----------------------------------------------------------------------------

IMPOSSIBLE = [
    ({"op_flops": [1, -1, 0, 0]}, "op_flops of 'b' is -1.0; it must be finite and ≥ 0"),
    ({"op_bytes_read": [0, 0, math.nan, 0]}, "op_bytes_read of 'c' is nan"),
    ({"op_parameter_bytes": [0, 0, 0, math.inf]}, "op_parameter_bytes of 'd' is inf"),
    ({"op_state_bytes": [-1, 0, 0, 0]}, "op_state_bytes of 'a' is -1.0"),
    ({"tensor_bytes": [-8, 1, 1]}, "tensor_bytes of 'shared' is -8.0"),
    ({"tensor_bytes": [8, -1, 1]}, "tensor_bytes of 'number 1' is -1.0"),
    ({"op_flops": [1, 2]}, "op_flops has 2 entries for 4 ops"),
    ({"op_flops": [[1], [2, 3]]}, "op_flops: "),
    ({"op_flops": ["many"] * 4}, "op_flops: "),
    ({"colocation": [2**40] * 4}, "colocation: "),
    ({"op_types": ("x",)}, "op_types has 1 entries for 4 ops"),
    ({"tensor_bytes": [1.0]}, "tensor columns differ in length"),
    ({"tensor_names": ("x",)}, "tensor columns differ in length"),
    ({"op_names": ("a", "b", "a", "d")}, "two ops are named 'a'; names must be unique"),
    ({"op_dtypes": ("fp32", "fp99", "fp32", "fp32")}, "dtype 'fp99' is unknown; use one of fp64"),
    ({"tensor_producer": [0, 1, 4]}, "tensor_producer names op 4, but ops go from 0 to 3"),
    ({"consumers": [1, 2, 3, -1]}, "consumers names op -1"),
    ({"consumers": [1, 1, 3, 3]}, "a tensor lists the same consumer twice"),
    ({"consumer_offsets": [0, 2, 3]}, "consumer_offsets do not fit the consumers"),
    ({"consumer_offsets": [0, 3, 2, 4]}, "consumer_offsets do not fit the consumers"),
    ({"consumer_offsets": [0, 2, 3, 5]}, "consumer_offsets do not fit the consumers"),
    ({"forward_twin": [-1, -1, -1, 4]}, "twin of 'd' is op 4, but ops go from 0 to 3"),
    ({"forward_twin": [-1, -1, -1, 0]}, "'d' has twin 'a'; a twin joins a backward op to a"),
    ({"forward_twin": [-1, -1, 3, -1], "is_backward": [0, 0, 1, 1]}, "'c' has twin 'd'"),
    ({"times": {"GPU": [1.0]}}, "times['GPU'] has 1 entries for 4 ops"),
    ({"times": {"GPU": [1, 2, math.nan, 1]}}, "the time of op 'c' on GPU is nan"),
    ({"times": {"GPU": [1, 2, -3, 1]}}, "the time of op 'c' on GPU is -3.0"),
    ({"copy_tensors": (CopyTensor(0, 1.0, (-1,)),)}, "copy_tensors names op -1, but ops go from 0"),
    ({"copy_tensors": (CopyTensor(0, 1.0, (2, 4)),)}, "copy_tensors names op 4, but ops go from"),
    ({"consumers": [1, 2, 3, 0]}, "the graph has a cycle, a → c → a; a model must be a DAG"),
]


@pytest.mark.parametrize("kind", ["a\\b", "a\nb", "both ' and \""])
def test_a_kind_of_device_may_have_any_name(kind):
    assert Graph(**parts(chain("a"), times={kind: [2.0]})).times[kind][0] == 2.0
    with pytest.raises(GraphError, match="has 2 entries for 1 ops"):
        Graph(**parts(chain("a"), times={kind: [2.0, 1.0]}))


@pytest.mark.parametrize(("changes", "message"), IMPOSSIBLE, ids=[m for _, m in IMPOSSIBLE])
def test_an_impossible_graph_is_refused(changes, message):
    with pytest.raises(GraphError) as caught:
        Graph(**parts(diamond().build(), **changes))
    assert str(caught.value).startswith("graph 'diamond': ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_graph_without_ops_is_refused():
    with pytest.raises(GraphError, match="graph 'none' has no ops"):
        GraphBuilder("none").build()


def test_an_unsupported_op_is_a_time_of_infinity_and_no_error():
    assert Graph(**parts(chain("a"), times={"GPU": [math.inf]})).times["GPU"][0] == math.inf


@given(st.integers(1, 12), st.integers(0, 5))
def test_a_cycle_is_named_as_a_walk_along_edges(length, extra):
    """The message lists ops in the order of their edges and ends where it began."""
    names = [f"n{i}" for i in range(length)]
    producer = np.array([*range(length), *([0] * extra)], dtype=np.int32)
    consumer = np.array(
        [*((i + 1) % length for i in range(length)), *range(length, length + extra)],
        dtype=np.int32,
    )
    names += [f"after{i}" for i in range(extra)]
    with pytest.raises(GraphError, match="the graph has a cycle, ") as caught:
        topological_order(length + extra, producer, consumer, names)
    walk = str(caught.value).removeprefix("the graph has a cycle, ").partition(";")[0].split(" → ")
    assert walk[0] == walk[-1]
    if length <= 5:
        assert len(walk) == length + 1
        steps = [int(name[1:]) for name in walk]
        assert all((a + 1) % length == b for a, b in pairwise(steps))
    else:
        assert walk[3] == f"… {length + 1 - 5} more …"


def test_a_cycle_of_unnamed_ops_is_named_by_number():
    with pytest.raises(GraphError, match="cycle, 0 → 1 → 0"):
        topological_order(2, np.array([0, 1]), np.array([1, 0]))


# -- files ---------------------------------------------------------------------------------------


@given(graphs())
def test_a_graph_reads_back_equal_from_its_document(graph):
    document = json.loads(json.dumps(graph.to_document(), allow_nan=False))
    assert_equal(Graph.from_document(document), graph)


@pytest.mark.parametrize("name", ["graph.json", "graph.yaml"])
def test_a_graph_reads_back_equal_from_its_file(tmp_path, name):
    builder = diamond()
    builder.times["GPU"] = [1.0, 0.1, 1e-300, math.inf]
    builder.attributes["layers"] = 2
    builder.colocate(1, "g")
    builder.add_op("ß\n", "op", module="deep.er", backward=True, twin=0)
    builder.times["GPU"] += [0.0]
    graph = builder.build()
    graph.save(tmp_path / name)  # YAML is a superset of JSON
    assert_equal(Graph.load(tmp_path / name), graph)


def test_saving_a_loaded_graph_writes_the_same_bytes(tmp_path):
    diamond().build().save(tmp_path / "one.json")
    Graph.load(tmp_path / "one.json").save(tmp_path / "two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


def test_columns_that_say_nothing_are_left_out_of_the_file():
    assert chain("a", "b").to_document() == {
        "format": "placewright.graph/1",
        "name": "chain",
        "ops": {"name": ["a", "b"], "type": ["op", "op"]},
        "tensors": {"producer": [0], "bytes": [1.0], "consumers": [[1]]},
    }


def test_only_names_are_needed_of_ops():
    graph = Graph.from_document(
        {
            "format": "placewright.graph/1",
            "name": "bare",
            "ops": {"name": ["a"]},
            "tensors": {"producer": [], "bytes": [], "consumers": []},
        }
    )
    assert (graph.op_types, graph.op_modules, graph.op_dtypes) == (("op",), ("",), ("fp32",))
    assert graph.op_flops.tolist() == [0]
    assert (graph.colocation.tolist(), graph.forward_twin.tolist()) == ([-1], [-1])


def test_a_fault_in_a_file_names_the_file_once():
    document = diamond().build().to_document()
    for ops, error in (({"name": ["a", "a", "c", "d"]}, GraphError), ({"name": 3}, FormatError)):
        with pytest.raises(error) as caught:
            Graph.from_document({**document, "ops": {**document["ops"], **ops}}, "bad.json")
        assert str(caught.value).count("bad.json") == 1


def test_a_short_column_in_a_file_names_the_file_and_the_column():
    document = diamond().build().to_document()
    document["ops"]["flops"] = [1.0]
    with pytest.raises(GraphError, match=r"^bad.json: flops has 1 entries, expected 4$"):
        Graph.from_document(document, "bad.json")


def test_the_file_format_knows_the_dtypes_of_graphs():
    assert get_args(formats.Dtype) == DTYPES


@given(st.lists(st.lists(st.sampled_from("abcdefghijkl"), max_size=3), max_size=14))
def test_sets_that_overlap_are_one_group_however_long_the_chain_of_them(sets):
    of_several = [each for each in sets if len(set(each)) > 1]
    joined = {op: {op} for each in of_several for op in each}
    for _ in range(len(joined)):
        for each in of_several:
            union = set().union(*(joined[op] for op in each))
            joined |= dict.fromkeys(union, union)
    found = merged(sets)
    assert set(found) == set(joined)
    for op, others in joined.items():
        assert {other for other in found if found[other] == found[op]} == others


@pytest.mark.parametrize("value", [object(), {1}, float("nan"), b"x", {(1, 2): 3}, np.int64(3)])
def test_an_attribute_that_no_file_can_hold_is_told_when_the_graph_is_saved(tmp_path, value):
    builder = GraphBuilder("g")
    builder.add_op("a", "op")
    builder.attributes["fact"] = value
    path = tmp_path / "g.json"
    with pytest.raises(GraphError, match=r"graph 'g': its attribute 'fact' is .*; give text, numb"):
        builder.build().save(path)
    assert not path.exists()


@pytest.mark.parametrize("attributes", [None, [1]])
def test_attributes_that_are_no_mapping_are_refused(attributes):
    builder = GraphBuilder("g")
    builder.add_op("a", "op")
    with pytest.raises(GraphError, match=r"graph 'g': attributes is .*; give a mapping"):
        replace(builder.build(), attributes=attributes)


@pytest.mark.parametrize("tensor", [-1, 1, "t", None, 0.0])
def test_a_tensor_that_was_not_added_cannot_be_read(tensor):
    builder = GraphBuilder("few")
    builder.add_tensor(builder.add_op("a", "op"), 1.0)
    with pytest.raises(GraphError, match=r"graph 'few': there is no tensor .*; give a number"):
        builder.add_op("b", "op", [tensor])


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ({"name": 3}, "graph 'g': op_names has 3; give text"),
        ({"type": None}, "graph 'g': op_types has None; give text"),
        ({"module": 3}, "graph 'g': op_modules has 3; give text"),
        ({"colocate": [1]}, "graph 'g': the group [1] is no text; give its name"),
        ({"inputs": 3}, "graph 'g': inputs of 'a' is 3; give tensors' numbers"),
        ({"flops": "many"}, "graph 'g': op_flops: could not convert string to float"),
    ],
)
def test_what_is_no_text_and_no_number_is_refused_of_an_op(op, message):
    builder = GraphBuilder("g")
    with pytest.raises(GraphError) as caught:
        builder.add_op(**{"name": "a", "type": "matmul", **op})
        builder.build()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("tensor", "times", "message"),
    [
        ((0, "x"), {}, "graph 'g': tensor_bytes: could not convert string to float"),
        (("a", 1.0), {}, "graph 'g': tensor_producer: invalid literal for int()"),
        ((0, 1.0, 3), {}, "graph 'g': tensor_names has 3; give text"),
        ((0, 1.0), {"T4": "x"}, "graph 'g': times['T4']: could not convert string to float"),
        ((0, 1.0), {3: [1.0]}, "graph 'g': times has 3; give text"),
    ],
)
def test_what_is_no_text_and_no_number_is_refused_of_tensors_and_times(tensor, times, message):
    builder = GraphBuilder("g")
    builder.add_op("a", "matmul")
    builder.add_tensor(*tensor)
    builder.times.update(times)
    with pytest.raises(GraphError) as caught:
        builder.build()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda graph: graph.add_tensor(0.9, 1.0), "tensor_producer has 0.9; give whole numbers"),
        (lambda graph: graph.connect(0, 0.5), "consumers has 0.5; give whole numbers"),
        (lambda graph: graph.add_op("c", "x", backward="no"), "is_backward has 'no'; give True"),
        (lambda graph: graph.add_op("c", "x", backward=True, twin=0.5), "forward_twin has 0.5;"),
        (lambda graph: graph.colocate(-1, "both"), "there is no op -1; give a number that add_op"),
        (lambda graph: graph.colocate(2, "both"), "there is no op 2; give a number that add_op"),
        (lambda graph: graph.set_twin(-1, 0), "there is no op -1; give a number that add_op gave"),
        (lambda graph: graph.set_twin(1.0, 0), "there is no op 1.0; give a number that add_op"),
        (
            lambda graph: graph.times.update({"T4": [[1.0], [2.0]]}),
            "times['T4'] has shape (2, 1); give a number for each",
        ),
    ],
)
def test_what_would_be_taken_for_another_op_or_flag_is_refused(spoil, message):
    builder = GraphBuilder("g")
    tensor = builder.add_tensor(builder.add_op("a", "x"), 1.0)
    builder.add_op("b", "x", [tensor])
    with pytest.raises(GraphError) as caught:
        spoil(builder)
        builder.build()
    assert str(caught.value).startswith(f"graph 'g': {message}")


def test_numbers_of_numpy_are_numbers(tmp_path):
    builder = GraphBuilder("g")
    tensor = builder.add_tensor(np.int64(builder.add_op("a", "x", flops=np.float32(2))), np.int8(3))
    builder.connect(np.int16(tensor), np.uint32(builder.add_op("b", "x", backward=np.True_)))
    builder.set_twin(np.int64(1), np.int64(0))
    builder.input_samples = np.int64(4)
    graph = builder.build()
    graph.save(tmp_path / "g.json")
    assert Graph.load(tmp_path / "g.json").to_document() == graph.to_document()
    assert (graph.op_flops[0], graph.edges[1].tolist(), graph.input_samples) == (2.0, [1], 4)
