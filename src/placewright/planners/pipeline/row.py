"""Whether a split is contiguous: whether its devices can be put in a row (see `pieces`)."""

from __future__ import annotations

import numpy as np

from placewright.graph import Ints
from placewright.problem import Problem


def in_a_row(problem: Problem, device: Ints) -> bool:
    """Whether all forward data can go up a row of the devices, and all backward data one way.

    >>> in_a_row(problem, np.array([0, 1, 0]))     # of a → b → c      # doctest: +SKIP
    False
    """
    return any(_acyclic(problem, device, turned) for turned in (True, False))


def _acyclic(problem: Problem, device: Ints, turned: bool) -> bool:
    import rustworkx as rx

    backward = problem.is_backward[problem.edge_producer]
    source, target = device[problem.edge_producer], device[problem.consumers]
    ordered = (backward == problem.is_backward[problem.consumers]) & (source != target)
    if turned:
        source, target = np.where(backward, target, source), np.where(backward, source, target)
    pairs = np.unique(np.stack([source[ordered], target[ordered]], axis=1), axis=0)
    digraph = rx.PyDiGraph()
    digraph.add_nodes_from(range(problem.device_count))
    digraph.add_edges_from_no_data([(int(a), int(b)) for a, b in pairs])
    return bool(rx.is_directed_acyclic_graph(digraph))
