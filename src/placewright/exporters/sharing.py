"""Weights that several pieces share: each piece has its own copy, but for those of one stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from placewright.analysis.shared_weights import units_across
from placewright.coarsen.blocks import Blocks
from placewright.errors import OptionError
from placewright.exporters.stretches import within
from placewright.graph import Flags, Floats, Ints
from placewright.problem import Problem

NO_RETURN = -1
ELSEWHERE = -1


@dataclass(frozen=True)
class Shared:
    """Weights of so many `bytes` that `ops` of `pieces`, in rising order, have each for itself.

    ``ops[holder]`` has the weights themselves, the others copies; `ELSEWHERE` where the weights are
    on no device of the cluster.
    """

    ops: tuple[int, ...]
    pieces: tuple[int, ...]
    holder: int
    bytes: float


class UnknownCopiesError(OptionError):
    """Stages share weights, and it is not known what copies of these exchange in training."""


def exchanging(problem: Problem, apart: Problem) -> Problem:
    """A problem of training with the tensors that copies of weights exchange, as `apart` has them.

    Its ops that share weights are together still, so these tensors go nowhere yet.
    """
    return replace(
        problem,
        tensor_producer=apart.tensor_producer,
        tensor_bytes=apart.tensor_bytes,
        consumer_offsets=apart.consumer_offsets,
        consumers=apart.consumers,
    )


def with_copies(
    problem: Problem, op_piece: Ints, blocks: Blocks, engine: str, copied: Floats
) -> tuple[Problem, tuple[Shared, ...]]:
    """Weights that several pieces share held by each; OptionError for layers that are shared.

    In training ``copied[op]`` is what an op with a copy holds of it: weights, gradients and the
    optimizer's state, but nothing of what else its holder keeps (`Problem.op_copied`).
    """
    colocation, memory = problem.colocation.copy(), problem.op_memory.copy()
    following, shared = int(colocation.max()) + 1, []
    for unit in units_across(problem, op_piece):
        _check_may_part(problem, unit, blocks, engine, copied)
        holder, size = _held(problem, unit, copied)
        pieces, ops = np.unique(op_piece[unit]), []
        for piece in pieces:
            members = unit[op_piece[unit] == piece]
            colocation[members] = following
            following += 1
            ops.append(holder if piece == op_piece[holder] else int(members[0]))
            if ops[-1] != holder:
                memory[ops[-1]] += size
        shared.append(Shared(tuple(ops), tuple(pieces.tolist()), ops.index(holder), size))
    return replace(problem, colocation=colocation, op_memory=memory), tuple(shared)


def _held(problem: Problem, unit: Ints, copied: Floats) -> tuple[int, float]:
    """The op of a unit that has the weights, and the bytes of a copy."""
    if not problem.is_backward.any():
        holder = int(unit[np.argmax(problem.op_memory[unit])])
        return holder, float(problem.op_memory[holder])
    return int(unit[np.argmax(problem.op_sync_bytes[unit])]), float(copied[unit].max())


def _check_may_part(
    problem: Problem, unit: Ints, blocks: Blocks, engine: str, copied: Floats
) -> None:
    if problem.is_backward.any() and not (copied.size and copied[unit].any()):
        raise UnknownCopiesError(
            f"{engine}: ops '{problem.op_names[unit[0]]}' and '{problem.op_names[unit[-1]]}' "
            "share weights across stages, and the source does not say what copies of these would "
            "exchange in training; plan without --training, or untie them"
        )
    if blocks.repeated[blocks.op_block[unit]].sum() > 1:
        raise OptionError(
            f"{engine}: ops of several layers read the same weights, "
            f"'{problem.op_names[unit[0]]}' and '{problem.op_names[unit[-1]]}' among them, so it "
            "cannot part the layers; untie these (and where a loss reads weights, leave that to "
            "the optimizer, as its weight decay)"
        )


def outside(shared: Sequence[Shared], op_is_outside: Flags) -> tuple[Shared, ...]:
    """Without ops whose weights are counted on no device of the cluster."""
    found = []
    for each in shared:
        kept = [k for k, op in enumerate(each.ops) if not op_is_outside[op]]
        holder = kept.index(each.holder) if each.holder in kept else ELSEWHERE
        ops, pieces = tuple(each.ops[k] for k in kept), tuple(each.pieces[k] for k in kept)
        found.append(Shared(ops, pieces, holder, each.bytes))
    return tuple(found)


def spared(shared: Sequence[Shared], count: int) -> Floats:
    """`[i, j]` bytes that pieces i … j need not hold twice when they are one stage."""
    pairs = [(*pair, each.bytes) for each in shared for pair in pairwise(each.pieces)]
    if not pairs:
        return np.zeros((count, count))
    first, last, size = zip(*pairs, strict=True)
    return within(np.array(first), np.array(last), np.array(size), count)


def without_spare(
    problem: Problem, shared: Sequence[Shared], piece_device: Ints
) -> tuple[Problem, tuple[str, ...]]:
    """`problem` with weights once per device, and the ops that have a copy of their own."""
    memory, copied = problem.op_memory.copy(), []
    for each in shared:
        device = [int(piece_device[piece]) for piece in each.pieces]
        for one in dict.fromkeys(device):
            here = [k for k in range(len(device)) if device[k] == one]
            keeps = each.holder if each.holder in here else here[0]
            for k in here:
                memory[each.ops[k]] -= each.bytes if k != keeps else 0.0
            if keeps != each.holder:
                copied.append(problem.op_names[each.ops[keeps]])
    return replace(problem, op_memory=np.maximum(memory, 0.0)), tuple(copied)


def returning(problem: Problem, op_piece: Ints) -> tuple[int, int]:
    """From which piece on the row is back at its first device, and what that holds at first."""
    ends = [np.unique(op_piece[unit]) for unit in units_across(problem, op_piece)]
    if not ends:
        return NO_RETURN, 0
    returns = min(int(pieces[1]) for pieces in ends)
    held = max(int(pieces[pieces < returns].max(initial=0)) for pieces in ends)
    return returns, held
