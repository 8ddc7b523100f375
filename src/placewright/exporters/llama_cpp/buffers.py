"""The compute buffer of a device of llama.cpp: room for the intermediate results of one batch.

Tensors take the place of those that are read no more, so the buffer holds the most that is alive at
once: here, of any layer, in single precision, and the mask of fused attention.
"""

from __future__ import annotations

import numpy as np

from placewright.graph import ITEM_BYTES, Floats, Graph, Ints

BATCH_TOKENS = 512
_NUMBER_BYTES, _MASK_BYTES = 4.0, 2.0
_IN_PLACE = ("add", "mul", "sigmoid", "gelu", "silu", "rope", "rmsnorm", "layernorm")
"""Types of ops that write over an input that nobody else reads, of the same size."""


def compute_buffer(graph: Graph, rows: int, sequences: int) -> float:
    """Bytes of the buffer of any device, for `rows` tokens of KV cache of each of `sequences`.

    0 for a graph of no GGUF file: its ops are not those of llama.cpp.
    """
    if "architecture" not in graph.attributes:
        return 0.0
    batch = min(BATCH_TOKENS, rows * sequences)
    numbers = _most_alive(graph, _numbers_per_token(graph, sequences))
    return batch * (numbers * _NUMBER_BYTES + rows * _MASK_BYTES)


def _numbers_per_token(graph: Graph, sequences: int) -> Floats:
    """`[tensor]` its numbers for each token; 0 where it is a view, or kept as KV cache."""
    tokens = sequences * (
        1 if graph.attributes["phase"] == "decode" else graph.attributes["context"]
    )
    item = np.array([ITEM_BYTES[dtype] for dtype in graph.op_dtypes])[graph.tensor_producer]
    computed = np.array([kind not in ("view", "cache") for kind in graph.op_types])
    found: Floats = graph.tensor_bytes / item / tokens * computed[graph.tensor_producer]
    return found


def _most_alive(graph: Graph, numbers: Floats) -> float:
    """The most numbers that are alive at once while layers run one by one."""
    last = _last_reader(graph)
    made, read = _by_op(graph)
    alive = most = 0.0
    for op in range(graph.op_count):
        ends = [tensor for tensor in read[op] if last[tensor] == op]
        new = float(sum(numbers[tensor] for tensor in made[op]))
        over = graph.op_types[op] in _IN_PLACE and any(numbers[each] == new for each in ends)
        if graph.op_modules[op]:
            most = max(most, alive + (0.0 if over else new))
        alive += new - float(sum(numbers[tensor] for tensor in ends))
    return most


def _by_op(graph: Graph) -> tuple[list[list[int]], list[list[int]]]:
    """`[op]` the tensors it makes, and those it reads."""
    made: list[list[int]] = [[] for _ in range(graph.op_count)]
    read: list[list[int]] = [[] for _ in range(graph.op_count)]
    for tensor, producer in enumerate(graph.tensor_producer.tolist()):
        made[producer].append(tensor)
        for reader in graph.consumers_of(tensor).tolist():
            read[reader].append(tensor)
    return made, read


def _last_reader(graph: Graph) -> Ints:
    """`[tensor]` the last op that reads it, or the views of it; -1 where none does."""
    found = np.full(graph.tensor_count, -1, dtype=np.int32)
    made, read = _by_op(graph)
    for op in range(graph.op_count - 1, -1, -1):
        later = max((int(found[tensor]) for tensor in made[op]), default=-1)
        until = max(op, later) if graph.op_types[op] == "view" else op
        for tensor in read[op]:
            found[tensor] = max(found[tensor], until)
    return found
