"""The compute buffer of a device of llama.cpp: room for the intermediate results of one batch.

Tensors are placed one after the other, in single precision: over an input that is read no more
where the op can, else in the smallest hole that is large enough, else at the end. What comes from
other devices, and the mask of fused attention, is there once, or four times where batches overlap
on several devices. Measured buffers have two more tensors of the size that a layer hands on.
"""

from __future__ import annotations

import numpy as np

from placewright.graph import ITEM_BYTES, Floats, Graph, Ints

BATCH_TOKENS = 512
COPIES, MORE = 4, 2
_NUMBER_BYTES, _MASK_BYTES = 4.0, 2.0
_PLACES_BYTES = 24.0  # per token: its position, and its rows of the KV cache
_IN_PLACE = ("add", "mul", "sigmoid", "rope", "rmsnorm", "layernorm")
"""Types of ops that write over an input that nobody else reads, of the same size."""


def compute_buffer(graph: Graph, rows: int, sequences: int, copies: int = 1) -> float:
    """Bytes of the buffer of any device, for `rows` tokens of KV cache of each of `sequences`.

    0 for a graph of no GGUF file: its ops are not those of llama.cpp.
    """
    if "architecture" not in graph.attributes:
        return 0.0
    batch = min(BATCH_TOKENS, rows * sequences)
    numbers = _numbers_per_token(graph, sequences)
    end, coming = _end_of_places(graph, numbers), _most_coming(graph, numbers)
    numbers_of_all = end + (MORE + copies - 1) * coming
    inputs = rows * _MASK_BYTES + _PLACES_BYTES
    return batch * (numbers_of_all * _NUMBER_BYTES + copies * inputs)


def _most_coming(graph: Graph, numbers: Floats) -> float:
    """The most numbers of a tensor that one layer reads of another."""
    modules = np.array(graph.op_modules)
    producer, consumer = graph.edges
    between = (modules[producer] != modules[consumer]) & (modules[consumer] != "")
    return float(numbers[graph.edge_tensor[between]].max(initial=0.0))


def _numbers_per_token(graph: Graph, sequences: int) -> Floats:
    """`[tensor]` its numbers for each token; 0 where it is a view, or kept as KV cache."""
    tokens = sequences * (
        1 if graph.attributes["phase"] == "decode" else graph.attributes["context"]
    )
    item = np.array([ITEM_BYTES[dtype] for dtype in graph.op_dtypes])[graph.tensor_producer]
    computed = np.array([kind not in ("view", "cache") for kind in graph.op_types])
    found: Floats = graph.tensor_bytes / item / tokens * computed[graph.tensor_producer]
    return found


def _end_of_places(graph: Graph, numbers: Floats) -> float:
    """Where the last place ends, of all tensors of the layers; each is given back in time."""
    last, places = _last_reader(graph), _Places()
    made, read = _by_op(graph)
    for op in range(graph.op_count):
        ends = [tensor for tensor in read[op] if last[tensor] == op]
        for tensor in made[op]:
            over = [each for each in ends if numbers[each] == numbers[tensor]]
            if over and graph.op_types[op] in _IN_PLACE:
                places.pass_on(over[0], tensor)
            elif graph.op_modules[op] or graph.op_types[op] == "embedding":
                places.take(tensor, float(numbers[tensor]))
        for tensor in ends:
            places.give_back(tensor)
    return places.end


class _Places:
    """Places of tensors in a buffer that grows: `end` is where the last one was at most."""

    def __init__(self) -> None:
        self.end = 0.0
        self._of: dict[int, tuple[float, float]] = {}
        self._holes: list[tuple[float, float]] = [(0.0, float("inf"))]

    def take(self, tensor: int, size: float) -> None:
        """A place in the smallest hole that is large enough: the last has no end."""
        start, length = min((hole for hole in self._holes if hole[1] >= size), key=lambda h: h[1])
        self._holes.remove((start, length))
        if length > size:
            self._holes.append((start + size, length - size))
        self._of[tensor] = (start, size)
        self.end = max(self.end, start + size)

    def pass_on(self, tensor: int, other: int) -> None:
        """The place of one tensor is the other's."""
        if tensor in self._of:
            self._of[other] = self._of.pop(tensor)

    def give_back(self, tensor: int) -> None:
        """A hole where the tensor was, one with those beside it."""
        if tensor not in self._of:
            return
        start, size = self._of.pop(tensor)
        for hole in list(self._holes):
            if hole[0] + hole[1] == start or hole[0] == start + size:
                self._holes.remove(hole)
                start, size = min(start, hole[0]), size + hole[1]
        self._holes.append((start, size))


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
