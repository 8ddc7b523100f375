"""Groups of nodes as nodes, numbered in a topological order."""

from __future__ import annotations

import numpy as np

from placewright.analysis.contracted import ContractedGraph
from placewright.graph import Wide
from placewright.kernels.common.components import strong_components


def contracted_in_order(graph: ContractedGraph, group: Wide) -> ContractedGraph:
    """One node of each group, ``group[node]`` from 0, and of groups in a circle.

    Groups in a circle share a stage wherever each group does, as do all groups between two that
    are one (Tarnawski et al. 2020, App. B).
    """
    ends = group[graph.edge_source], group[graph.edge_target]
    number, _ = strong_components(int(group.max()) + 1, *ends)
    return graph.contracted(np.asarray(number[group], dtype=np.int64))
