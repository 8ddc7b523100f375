"""Times made consistent with precedence."""

from __future__ import annotations

from placewright.kernels.compiled import kernel


@kernel
def lift(order, input_offsets, inputs, edge_producer, op_time, edge_time):
    """Raise times, in place, until no edge is before its producer and no op before an input.

    `order` is topological; the inputs of an op are ``inputs[input_offsets[op]:...]``, edges.
    """
    for op in order:
        for edge in inputs[input_offsets[op] : input_offsets[op + 1]]:
            edge_time[edge] = max(edge_time[edge], op_time[edge_producer[edge]])
            op_time[op] = max(op_time[op], edge_time[edge])
