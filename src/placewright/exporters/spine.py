"""The spine of a row of pieces: what makes one stage wait for another (see `row_costs`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placewright.analysis.devices import Classes
from placewright.graph import Floats, Ints, Wide
from placewright.problem import Problem


@dataclass(frozen=True, eq=False)
class Chain:
    """`spine[piece]` c(j); `leads` says whether each leads to the next.

    An op runs between c(``first[op]`` − 1) and c(``last[op]``), its own piece among them.
    """

    spine: list[int]
    leads: bool
    first: Wide
    last: Wide


def chain_of(problem: Problem, op_piece: Ints, count: int) -> Chain:
    """The chain of a problem's pieces; of no piece but its own where the spine does not lead."""
    place = op_piece.astype(np.int64)
    spine, leads = spine_of(problem, op_piece, count)
    if not leads:
        return Chain(spine, leads, place, place)
    before = ancestors_of_spine(problem, spine, op_piece)
    after = np.array([each.bit_length() for each in before])
    last = np.maximum(leads_to(problem, spine, op_piece, count), place)
    return Chain(spine, leads, np.minimum(after, place), last)


def spine_of(problem: Problem, op_piece: Ints, count: int) -> tuple[list[int], bool]:
    """`[piece]` the op c(j) for all but the last piece, and whether each leads to the next."""
    rank, spine = problem.topological_rank, [-1] * (count - 1)
    last_reader, first_reader = _reader_range(problem, op_piece)
    for op in np.argsort(rank, kind="stable").tolist():
        piece = int(op_piece[op])
        if piece < count - 1 and first_reader[op] > piece and last_reader[op] >= 0:
            spine[piece] = op
    if -1 in spine:
        return spine, False
    before = ancestors_of_spine(problem, spine, op_piece)
    leads = all(before[spine[j]] >> (j - 1) & 1 for j in range(1, count - 1))
    return spine, leads


def _reader_range(problem: Problem, op_piece: Ints) -> tuple[Ints, Ints]:
    """`[op]` the last and the first piece that reads a result of it; -1 and the largest if none."""
    last = np.full(problem.op_count, -1, dtype=np.int32)
    first = np.full(problem.op_count, np.iinfo(np.int32).max, dtype=np.int32)
    np.maximum.at(last, problem.edge_producer, op_piece[problem.consumers])
    np.minimum.at(first, problem.edge_producer, op_piece[problem.consumers])
    return last, first


def ancestors_of_spine(problem: Problem, spine: list[int], op_piece: Ints) -> list[int]:
    """`[op]` a bit for each j whose c(j) is an ancestor."""
    bit = {op: 1 << j for j, op in enumerate(spine)}
    found = [0] * problem.op_count
    offsets, edges = problem.op_inputs
    producers = problem.edge_producer
    for op in problem.topological_order.tolist():
        for source in producers[edges[offsets[op] : offsets[op + 1]]].tolist():
            found[op] |= found[source] | bit.get(source, 0)
    return found


def leads_to(problem: Problem, spine: list[int], op_piece: Ints, count: int) -> Wide:
    """`[op]` the least j from its piece on whose c(j) is the op or comes after it, or the last."""
    place = {op: j for j, op in enumerate(spine)}
    found = np.full(problem.op_count, count - 1, dtype=np.int64)
    offsets, edges = problem.op_inputs
    for op in problem.topological_order[::-1].tolist():
        found[op] = min(found[op], place.get(op, count - 1))
        sources = problem.edge_producer[edges[offsets[op] : offsets[op + 1]]]
        np.minimum.at(found, sources, found[op])
    return found


def handovers(problem: Problem, spine: list[int], classes: Classes) -> Floats:
    """`[class, class, piece]` the quickest transfer of c(piece) from one class to the other."""
    members = classes[1]
    size = np.array([_least_bytes(problem, op) for op in spine] + [0.0])
    found = np.full((len(members), len(members), len(size)), np.inf)
    for one, sources in enumerate(members):
        for two, targets in enumerate(members):
            for a in sources:
                for b in targets:
                    if a != b:
                        rate = problem.link_seconds_per_byte[a, b]
                        seconds = problem.link_latency[a, b] + size * rate
                        found[one, two] = np.minimum(found[one, two], seconds)
    return found


def _least_bytes(problem: Problem, op: int) -> float:
    """Of the tensors that others read of an op."""
    if op < 0:
        return 0.0
    offsets, tensors = problem.op_outputs
    made = tensors[offsets[op] : offsets[op + 1]]
    read = made[np.diff(problem.consumer_offsets)[made] > 0]
    return float(problem.tensor_bytes[read].min())
