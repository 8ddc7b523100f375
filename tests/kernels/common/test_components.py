"""Strongly connected components, neighbours and nets against searches through lists of edges."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placewright.kernels.common.components import adjacency, strong_components
from placewright.kernels.throughput.stage_loads import adjacent_nets
from tests.naive import components as naive_components


@st.composite
def edge_lists(draw, most=8):
    """How many nodes there are, and edges between any two of them, circles and repeats included."""
    count = draw(st.integers(1, most))
    node = st.integers(0, count - 1)
    return count, draw(st.lists(st.tuples(node, node), max_size=2 * most))


def ends_of(edges):
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


@given(edge_lists())
def test_nodes_are_what_can_be_reached_from_one_another_in_a_topological_order(drawn):
    count, edges = drawn
    node, count_found = strong_components(count, *ends_of(edges))
    found = {frozenset(np.flatnonzero(node == each).tolist()) for each in range(count_found)}
    assert found == naive_components.strong_components(count, edges)
    assert all(node[source] <= node[target] for source, target in edges)


@given(edge_lists())
def test_neighbours_come_in_the_order_of_the_edges(drawn):
    count, edges = drawn
    offsets, targets = adjacency(count, *ends_of(edges))
    found = [targets[offsets[node] : offsets[node + 1]].tolist() for node in range(count)]
    assert found == naive_components.neighbours(count, edges)


@given(st.data(), st.integers(1, 6), st.integers(0, 6))
def test_nets_of_a_node_are_those_it_produces_and_reads(data, count, nets):
    node = st.integers(0, count - 1)
    producers = data.draw(st.lists(node, min_size=nets, max_size=nets))
    readers = [sorted(data.draw(st.sets(node)) - {producer}) for producer in producers]
    ways = [data.draw(st.tuples(*[st.integers(1, 3)] * len(each))) for each in readers]
    starts, found, found_ways = adjacent_nets(
        count,
        np.array(producers, dtype=np.int64),
        np.cumsum([0, *map(len, readers)]),
        np.array([each for nodes in readers for each in nodes], dtype=np.int64),
        np.array([each for row in ways for each in row], dtype=np.int64),
    )
    for each in range(count):
        here = slice(starts[each], starts[each + 1])
        pairs = list(zip(found[here].tolist(), found_ways[here].tolist(), strict=True))
        assert len(set(pairs)) == len(pairs)
        assert set(pairs) == naive_components.nets_of(each, producers, readers, ways)
