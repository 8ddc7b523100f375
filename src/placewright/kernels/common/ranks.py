"""Path lengths through the graph."""

from __future__ import annotations

import numpy as np

from placewright.graph import Floats, Ints
from placewright.kernels.common.arrays import Arrays
from placewright.kernels.compiled import kernel


def upward_ranks(op_weight: Floats, edge_weight: Floats, order: Ints, p: Arrays) -> Floats:
    """`rank[op]`: the longest path from the op's start to the end, ops and edges weighted.

    `order` is topological. Topcuoglu et al. 2002, eq. 8; the same as Celeritas' b-level.
    """
    rank = np.zeros(len(op_weight))
    _upward_ranks(op_weight, edge_weight, order, p, rank)
    return rank


@kernel
def _upward_ranks(op_weight, edge_weight, order, p, rank):
    for position in range(len(order) - 1, -1, -1):
        op = order[position]
        tail = 0.0
        for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
            tensor = p.outputs[k]
            for edge in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
                tail = max(tail, edge_weight[edge] + rank[p.consumers[edge]])
        rank[op] = op_weight[op] + tail
