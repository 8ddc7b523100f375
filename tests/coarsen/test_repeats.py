"""Equal blocks in a row: found where they are, and nowhere else."""

from itertools import pairwise

import pytest
from hypothesis import given

from placewright.coarsen.repeats import FEWEST_BLOCKS, REACH, find_repeats
from placewright.graph import GraphBuilder
from placewright.planning import make_problem
from tests.strategies import problems, problems_of_blocks


def kind(problem, op):
    offsets, tensors = problem.op_outputs
    return (
        problem.op_types[op],
        problem.op_memory[op],
        tuple(problem.op_time[op] < float("inf")),
        problem.op_pinned[op],
        problem.is_backward[op],
        sorted(problem.tensor_bytes[tensors[offsets[op] : offsets[op + 1]]].tolist()),
    )


def near_edges(problem, position, op, reach):
    """(how far back, bytes) of the edges into an op that are shorter than `reach`."""
    offsets, edges = problem.op_inputs
    found = []
    for edge in edges[offsets[op] : offsets[op + 1]].tolist():
        back = position[op] - position[problem.edge_producer[edge]]
        if back < reach:
            found.append((back, problem.tensor_bytes[problem.edge_tensor[edge]]))
    return sorted(found)


def check(problem):
    """All that is found is what it is said to be, by comparing op with op."""
    order, repeats = find_repeats(problem)
    position = {op: at for at, op in enumerate(order.tolist())}
    for edge, producer in enumerate(problem.edge_producer.tolist()):
        assert position[producer] < position[int(problem.consumers[edge])]
    end = 0
    for each in repeats:
        assert each.start >= end and each.count >= FEWEST_BLOCKS
        end = each.end
        for at in range(each.start, each.end - each.length):
            op, later = int(order[at]), int(order[at + each.length])
            assert kind(problem, op) == kind(problem, later)
            reach = REACH * each.length
            assert near_edges(problem, position, op, reach) == near_edges(
                problem, position, later, reach
            )
    assert end <= problem.op_count
    return repeats


@given(drawn=problems_of_blocks())
def test_blocks_in_a_row_are_found(drawn):
    problem, place = drawn
    length, count = place.max() + 1, int((place == 0).sum())
    repeats = check(problem)
    # The first blocks, as far as an edge may reach, and the last read and are read otherwise.
    inner = count - REACH - 1
    if inner >= FEWEST_BLOCKS and reaches_through(problem, place):
        assert sum(each.length * each.count for each in repeats) >= length * inner


def reaches_through(problem, place):
    """Whether every block depends on the one before."""
    reached = set()
    for op in range(problem.op_count):
        producers = problem.edge_producer[problem.consumers == op].tolist()
        if place[op] < 0 or reached & set(producers):
            reached.add(op)
    last = [op for op, at in enumerate(place.tolist()) if at == place.max()]
    return set(last) <= reached


@given(problem=problems())
def test_what_is_found_in_any_graph_is_there(problem):
    check(problem)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("zoo:gpt2?layers=6", [6]),
        ("zoo:gpt3-330m", [24]),
        ("zoo:t5-base", [12, 12]),
        ("zoo:llama-7b", [32]),
        ("zoo:inception-v3", []),
    ],
)
def test_layers_of_models(source, expected):
    """One block less where the first or the last layer differs from the others."""
    problem = make_problem(source, "2x3090")[0]
    counts = [each.count for each in check(problem)]
    assert len(counts) == len(expected)
    assert all(
        layers - 2 <= count <= layers for count, layers in zip(counts, expected, strict=True)
    )


def test_the_heads_of_one_layer_are_no_blocks_in_a_row():
    builder = GraphBuilder("heads")
    source = builder.add_op("source", "op")
    whole = builder.add_tensor(source, 1.0)
    ends = []
    for head in range(8):
        ops = [builder.add_op(f"head{head}.{k}", f"kind{k}") for k in range(5)]
        builder.connect(whole, ops[0])
        for one, two in pairwise(ops):
            builder.connect(builder.add_tensor(one, 1.0), two)
        ends.append(builder.add_tensor(ops[-1], 1.0))
    join = builder.add_op("join", "op")
    for tensor in ends:
        builder.connect(tensor, join)
    assert find_repeats(make_problem(builder.build(), "2x3090")[0])[1] == []
