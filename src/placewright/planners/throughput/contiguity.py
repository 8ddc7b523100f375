"""Contiguity of a split: whether its devices can be put in a row (see `analysis.contracted`)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from placewright.graph import Ints
from placewright.problem import Problem

if TYPE_CHECKING:
    from rustworkx import PyDiGraph


def in_a_row(problem: Problem, device: Ints) -> bool:
    """Whether all forward data can go up a row of the devices, and all backward data one way.

    >>> in_a_row(problem, np.array([0, 1, 0]))     # of a → b → c      # doctest: +SKIP
    False
    """
    return any(_acyclic(problem, device, turned) for turned in (True, False))


def _acyclic(problem: Problem, device: Ints, turned: bool) -> bool:
    import rustworkx as rx

    return bool(rx.is_directed_acyclic_graph(_between(problem, device, turned)))


def circle_in(problem: Problem, device: Ints) -> list[Ints]:
    """The edges between each two devices of the shortest circle that data goes in.

    Backward data taken to go down the row, as in most training; none if there is no circle so.
    """
    import rustworkx as rx

    digraph = _between(problem, device, turned=True)
    circles = []
    for one, two in digraph.edge_list():
        back = rx.dijkstra_shortest_paths(digraph, two, one, default_weight=1.0)
        if one in back:
            circles.append([one, *back[one]])
    shortest = min(circles, key=len, default=[])
    return [digraph.get_edge_data(one, two) for one, two in pairwise(shortest)]


def _between(problem: Problem, device: Ints, turned: bool) -> PyDiGraph[int, Ints]:
    """Devices, and edges of the graph between two of them, backward ones `turned` or not."""
    import rustworkx as rx

    backward = problem.is_backward[problem.edge_producer]
    source, target = device[problem.edge_producer], device[problem.consumers]
    ordered = (backward == problem.is_backward[problem.consumers]) & (source != target)
    if turned:
        source, target = np.where(backward, target, source), np.where(backward, source, target)
    digraph: PyDiGraph[int, Ints] = rx.PyDiGraph()
    digraph.add_nodes_from(range(problem.device_count))
    pairs = np.unique(np.stack([source[ordered], target[ordered]], axis=1), axis=0)
    for one, two in pairs.tolist():
        edges = np.flatnonzero(ordered & (source == one) & (target == two)).astype(np.int32)
        digraph.add_edge(one, two, edges)
    return digraph
