"""Which tensors a subgraph reads and writes, by the nodes that it holds.

A subgraph has the ops of one pass, and an accelerator one subgraph of each: what it holds is a set
of nodes. It reads a tensor that some op of it reads and none of it makes, and writes one that it
makes and some other op reads. So

- a tensor read in its own pass is read by each set with a reader and without the producer, and
  written by the producer's set if there are readers elsewhere;
- one read in the other pass is always written, and read again by each set with such a reader.

Tensors that are alike make one *net*.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from placewright.analysis.contracted import ContractedGraph
from placewright.graph import Flags, Floats, Wide
from placewright.kernels.invocation.ideal_steps import AGAIN, BACKWARD, FORWARD
from placewright.kernels.throughput.stage_loads import Nets, adjacent_nets
from placewright.problem import Problem


@dataclass(frozen=True, eq=False)
class Crossings:
    """Nets between nodes, and what each node pays in any set.

    `flow[net]`: forward, from a node to later ones; backward, to earlier ones; or read again, then
    all its members are readers. `written[net]` whether it counts as written where it crosses.
    ``always[node, column]``: inputs, their bytes, outputs and theirs.
    """

    nets: Nets
    flow: Wide
    written: Flags
    always: Floats


def crossings_of(problem: Problem, graph: ContractedGraph) -> Crossings:
    """Of all tensors that cost anything."""
    found: dict[tuple[int, int, bool, tuple[int, ...]], list[float]] = defaultdict(lambda: [0, 0])
    always = np.zeros((graph.node_count, 4))

    def add(flow: int, producer: int, written: bool, readers: list[int], size: float) -> None:
        total = found[flow, producer, written, tuple(sorted(readers))]
        total[0] += 1
        total[1] += size

    node, back = graph.op_node, problem.is_backward
    for tensor, (producer, size) in enumerate(
        zip(problem.tensor_producer.tolist(), problem.tensor_bytes.tolist(), strict=True)
    ):
        first, last = problem.consumer_offsets[tensor : tensor + 2]
        ops = problem.consumers[first:last]
        here, same = int(node[producer]), back[ops] == back[producer]
        beside = {*node[ops[same]].tolist()} - {here}
        again = {*node[ops[~same]].tolist()}
        if again:
            always[here, 2:] += 1, size
        if beside:
            add(BACKWARD if back[producer] else FORWARD, here, not again, [*beside], size)
        if len(again) == 1:
            always[again.pop(), :2] += 1, size
        elif again:
            first_reader, *others = sorted(again)
            add(AGAIN, first_reader, False, others, size)
    return _crossings(graph, found, always)


def _crossings(
    graph: ContractedGraph,
    found: dict[tuple[int, int, bool, tuple[int, ...]], list[float]],
    always: Floats,
) -> Crossings:
    keys, totals = list(found), np.array([*found.values()], dtype=np.float64).reshape(-1, 2)
    flow, producer = (np.array([key[k] for key in keys], dtype=np.int64) for k in (0, 1))
    sizes = [len(key[3]) for key in keys]
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
    readers = np.array([reader for key in keys for reader in key[3]], dtype=np.int64)
    ways = np.ones(len(readers), dtype=np.int64)
    adjacent = adjacent_nets(graph.node_count, producer, offsets, readers, ways)
    nets = Nets(
        producer, np.zeros(len(keys), dtype=np.int64), np.ascontiguousarray(totals[:, 0]),
        np.ascontiguousarray(totals[:, 1]), offsets, readers, ways, *adjacent,
    )  # fmt: skip
    return Crossings(nets, flow, np.array([key[2] for key in keys], dtype=np.bool_), always)


def all_local(crossings: Crossings, stretch: Wide, cut_nodes: Wide) -> bool:
    """Whether no net leads past a cut node; ``stretch[node]``, how many cut nodes lead to it."""
    nets, flow = crossings.nets, crossings.flow
    is_cut = np.isin(np.arange(len(stretch)), cut_nodes)
    net = np.repeat(np.arange(len(flow)), np.diff(nets.offsets))
    one, other = nets.producer[net], nets.readers
    near = np.choose(
        flow[net],
        (
            stretch[one] + is_cut[one] == stretch[other],
            stretch[other] + is_cut[other] == stretch[one],
            stretch[one] == stretch[other],
        ),
    )
    return bool(near.all())
