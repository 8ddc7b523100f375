"""Activation recomputation: a block's forward ops run again in the backward pass.

Training keeps what its forward ops make until the backward ops have read it. With recomputation of
blocks (activation checkpointing) only what goes into a block is kept. Once the gradient of what it
made has come, its forward ops run again, and its backward ops read what these make.

The problem has ops for that: ``NAME_recompute`` for each forward op ``NAME`` of a block, as long
as that (a view takes no time), marked backward, with that as its twin and no memory of its own.
Bounds, planners and the judge take them as any other. A block is on one device.

Under memory ``resident``, which counts what is kept, each device leaves room for what one block
makes again: as much as the largest, for blocks run one after another. Under ``peak`` these are
tensors with a life of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from placewright.analysis.subproblem import op_columns
from placewright.coarsen.granularity import together
from placewright.errors import InfeasibleError, InputError, OptionError
from placewright.graph import Flags, Floats, Ints, Wide
from placewright.problem import Problem
from placewright.stash import (
    NOTHING,
    RECOMPUTE,
    memory_behind,
    recomputed_ops,
    stashed_bytes,
    stashed_tensors,
)
from placewright.units import format_bytes

ADVICE = "only blocks are recomputed; leave out --recompute"
NONE = -1


def recomputed_blocks(problem: Problem) -> dict[str, int]:
    """The block of each forward op that runs again, by the op's name; empty where none does."""
    again = recomputed_ops(problem).nonzero()[0].tolist()
    if not again:
        return {}
    from placewright.coarsen.blocks import find_blocks

    block = find_blocks(problem).op_block.tolist()
    twin = problem.forward_twin.tolist()
    return {problem.op_names[twin[op]]: block[op] for op in again}


def names_recomputed(problem: Problem) -> list[str]:
    """The names of the blocks that run again."""
    again = recomputed_ops(problem)
    if not again.any():
        return []
    from placewright.coarsen.blocks import find_blocks

    blocks = find_blocks(problem)
    return [blocks.names[each] for each in np.unique(blocks.op_block[again]).tolist()]


def called_ops(problem: Problem) -> list[str]:
    """`[op]` the name of the op whose call it is: its own, or that of the op that it runs again."""
    names, twins = problem.op_names, problem.forward_twin.tolist()
    again = recomputed_ops(problem).tolist()
    return [names[twins[op]] if again[op] else name for op, name in enumerate(names)]


def check_blocks_whole(problem: Problem, device: Ints, path: str) -> None:
    """InputError where a placement, of `path`, has a recomputed block on several devices.

    ``device[op]``; of batches ``device[op, input]``, each of which has its own place.
    """
    if device.ndim > 1:
        return
    for unit in np.unique(problem.op_unit[recomputed_ops(problem)]).tolist():
        ops = np.flatnonzero(problem.op_unit == unit)
        apart = ops[device[ops] != device[ops[0]]]
        if len(apart):
            one, other = (
                f"'{problem.op_names[op]}' on {problem.device_names[device[op]]}"
                for op in (ops[0], apart[0])
            )
            raise InputError(
                f"{path}: has {one} and {other}, and a block that is recomputed is on one device; "
                "give a plan by blocks (--granularity block), or leave out --recompute"
            )


def made_again(problem: Problem) -> Wide:
    """The tensors that hold what ops make again and backward ops read."""
    again = recomputed_ops(problem)
    read = again[problem.edge_producer] & ~again[problem.consumers]
    is_view = again & (problem.op_time == 0).all(axis=1)
    behind = np.unique(memory_behind(problem, is_view)[problem.edge_tensor[read]])
    behind = behind[behind != NOTHING]
    found: Wide = behind[again[problem.tensor_producer[behind]]]
    return found


def bytes_made_again(problem: Problem, group: Ints) -> Floats:
    """`[block]` bytes of what is made again for the backward ops of each block.

    ``group[op]`` is the block of each op that is recomputed.
    """
    tensors = made_again(problem)
    block = group[problem.tensor_producer[tensors]]
    made = np.bincount(block, problem.tensor_bytes[tensors], int(group.max()) + 1)
    return made.astype(np.float64)


def largest_made_again(problem: Problem, group: Ints) -> float:
    """The most of `bytes_made_again`."""
    return float(bytes_made_again(problem, group).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class Recomputable:
    """Blocks of a problem of training that could run again: `names`, and ``block[op]``, or `NONE`.

    ``op_time[op, device]`` seconds to run it again. ``saved[op]`` bytes of what it makes that are
    not kept if its block runs again, and no other does; ``needed[op]`` bytes more that are kept if
    all others do.
    """

    names: tuple[str, ...]
    block: Wide
    op_time: Floats
    saved: Floats
    needed: Floats


def recomputable(problem: Problem, is_view: Flags) -> Recomputable:
    """The blocks of which less is kept if they run again; ``is_view[op]`` as in `stash`.

    OptionError where there are no blocks, or none keeps anything of its own.
    """
    from placewright.coarsen.blocks import find_blocks  # a heavy import, and few recompute

    blocks = find_blocks(problem, ADVICE)
    repeated = np.where(blocks.repeated, np.arange(blocks.count), NONE)
    inside = _within_modules(problem, repeated[blocks.op_block], blocks.names)
    behind, kept = memory_behind(problem, is_view), stashed_tensors(problem, is_view)
    inner = _read_within(problem, inside, kept, behind)
    block = _worthwhile(problem, inside, inner, kept, behind)
    if (block == NONE).all():
        raise OptionError(
            f"{problem.name}: no block keeps activations that it could make again; leave out "
            "--recompute"
        )
    inner = inner[block[problem.tensor_producer[inner]] != NONE]
    enters = np.setdiff1d(behind[problem.edge_tensor[_enters(problem, block)]], [NOTHING, *kept])
    runs = ((block != NONE) & ~problem.is_backward & ~is_view)[:, None]
    return Recomputable(
        blocks.names,
        block,
        np.where(runs, problem.op_time, 0.0),
        _bytes_of(problem, inner),
        _bytes_of(problem, enters),
    )


def _bytes_of(problem: Problem, tensors: Wide) -> Floats:
    """`[op]` bytes of those of the tensors that it makes."""
    makes, size = problem.tensor_producer[tensors], problem.tensor_bytes[tensors]
    return np.bincount(makes, size, problem.op_count).astype(np.float64)


def recomputing(problem: Problem, is_view: Flags, only: Collection[str] | None = None) -> Problem:
    """`problem`, of training, with its blocks recomputed where less is kept then.

    Of these `only` the blocks of these names, if given. The problem's memory is that of ops that
    count what they stash (`costs.roofline.op_memory`). OptionError as from `recomputable`.
    """
    able = recomputable(problem, is_view)
    block = able.block
    if only is not None:
        chosen = np.isin(able.names, list(only))
        block = np.where((block != NONE) & chosen[block], block, NONE)
    if (block == NONE).all():
        return problem
    changed = _Changed(problem, block, is_view)
    made = replace(
        problem,
        **(op_columns(problem, changed.origin.astype(np.int32)) | changed.columns),
        **changed.edges,
    )
    made = _with_stashes(problem, made, changed)
    return together(made, changed.groups)


def _within_modules(problem: Problem, block: Wide, names: Sequence[str]) -> Wide:
    """`[op]` its block, `NONE` of forward ops beside the block's module, which engines run once.

    Of blocks that no paths name, all ops.
    """
    found = block.copy()
    modules = problem.op_modules
    for number in np.unique(block[block != NONE]).tolist():
        ops = np.flatnonzero((block == number) & ~problem.is_backward)
        own = f"{names[number]}."
        beside = [not f"{modules[op]}.".startswith(own) for op in ops.tolist()]
        if not all(beside):
            found[ops[beside]] = NONE
    return found


def _worthwhile(problem: Problem, block: Wide, inner: Wide, kept: Wide, behind: Wide) -> Wide:
    """`[op]` its block, `NONE` where to recompute it would keep as much as before.

    `inner` of the tensors that are `kept` are those of `_read_within`.
    """
    count = int(block.max(initial=NONE)) + 1
    saved, needed = np.zeros(count), np.zeros(count)
    np.add.at(saved, block[problem.tensor_producer[inner]], problem.tensor_bytes[inner])
    enters = _enters(problem, block)
    into = np.stack([block[problem.consumers[enters]], behind[problem.edge_tensor[enters]]])
    pairs = np.unique(into[:, (into[1] != NOTHING) & ~np.isin(into[1], kept)], axis=1)
    np.add.at(needed, pairs[0], problem.tensor_bytes[pairs[1]])
    is_less = np.append(saved > needed, False)  # that of `NONE` is the last
    return np.where(is_less[block], block, NONE)


def _read_within(problem: Problem, block: Wide, kept: Wide, behind: Wide) -> Wide:
    """Those of the `kept` tensors that backward ops of their maker's block alone read."""
    backward = problem.is_backward[problem.consumers] & ~problem.is_backward[problem.edge_producer]
    tensor = behind[problem.edge_tensor]
    home = block[problem.tensor_producer[tensor]]
    own = (home == block[problem.consumers]) & (home != NONE)
    elsewhere = np.unique(tensor[backward & ~own])
    return np.setdiff1d(kept, elsewhere)


def _enters(problem: Problem, block: Wide) -> Flags:
    """`[edge]` whether a forward op of a block reads what a forward op elsewhere made."""
    makes, reads = problem.edge_producer, problem.consumers
    forward = ~problem.is_backward[makes] & ~problem.is_backward[reads]
    found: Flags = forward & (block[reads] != NONE) & (block[makes] != block[reads])
    return found


@contextmanager
def advised(problem: Problem, again: Callable[[], Problem]) -> Iterator[None]:
    """An InfeasibleError of planning `problem` tells how much less it keeps as `again` makes it."""
    try:
        yield
    except InfeasibleError as error:
        if not problem.is_backward.any() or recomputed_ops(problem).any():
            raise
        raise type(error)(f"{error}{_advice(problem, again)}") from None


def _advice(problem: Problem, again: Callable[[], Problem]) -> str:
    before = float(problem.op_memory.sum())
    try:
        kept = float(again().op_memory.sum())
    except OptionError:
        return ""
    options = problem.options
    one_pipeline = options.micro_batches is not None and options.data_parallel == 1
    how = "needed" if one_pipeline else "block"
    if problem.options.memory == "peak":
        return f"; --recompute {how} keeps fewer activations"
    if kept >= before:
        return ""
    least = "" if how == "block" else "as little as "
    return (
        f"; --recompute {how} keeps {least}{format_bytes(kept)} instead of {format_bytes(before)}"
    )


@dataclass(frozen=True, eq=False)
class _Changed:
    """The problem with blocks recomputed, in parts; ``block[op]`` of `problem`, or `NONE`."""

    problem: Problem
    block: Wide
    is_view: Flags

    @cached_property
    def origin(self) -> Wide:
        """`[op]` the op of `problem` that it is, or runs again.

        What runs again comes before its block's first backward op.
        """
        block, backward = self.block, self.problem.is_backward
        ops = np.arange(len(block))
        again = np.flatnonzero((block != NONE) & ~backward)
        first = np.full(int(block.max()) + 1, len(block))
        inside = np.flatnonzero((block != NONE) & backward)
        np.minimum.at(first, block[inside], inside)
        place = np.concatenate([ops * 2 + 1, first[block[again]] * 2])
        origin: Wide = np.concatenate([ops, again])[np.argsort(place, kind="stable")]
        return origin

    @cached_property
    def is_again(self) -> Flags:
        """`[op]` whether it is the second of its origin, as in `origin`."""
        _, first = np.unique(self.origin, return_index=True)
        found = np.ones(len(self.origin), dtype=np.bool_)
        found[first] = False
        return found

    @cached_property
    def number(self) -> Wide:
        """`[op of problem]` its number now."""
        found = np.full(self.problem.op_count, NONE)
        found[self.origin[~self.is_again]] = np.flatnonzero(~self.is_again)
        return found

    @cached_property
    def second(self) -> Wide:
        """`[op of problem]` the number of what runs it again; `NONE` of others."""
        found = np.full(self.problem.op_count, NONE)
        found[self.origin[self.is_again]] = np.flatnonzero(self.is_again)
        return found

    @property
    def groups(self) -> Ints:
        """`[op]` its block, `NONE` for none."""
        return self.block[self.origin].astype(np.int32)

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of ops in which those that run again differ from their origin."""
        names, again = self.problem.op_names, self.is_again
        twin = self.problem.forward_twin[self.origin]
        twin = np.where(twin >= 0, self.number[twin], NONE)
        columns = {
            "op_names": tuple(
                names[op] + RECOMPUTE if second else names[op]
                for op, second in zip(self.origin.tolist(), again.tolist(), strict=True)
            ),
            "op_time": np.where(
                (again & self.is_view[self.origin])[:, None], 0.0, self.problem.op_time[self.origin]
            ),
            "is_backward": self.problem.is_backward[self.origin] | again,
            "forward_twin": np.where(again, self.number[self.origin], twin),
            "op_memory": np.where(again, 0.0, self.problem.op_memory[self.origin]),
            "op_sync_bytes": np.where(again, 0.0, self.problem.op_sync_bytes[self.origin]),
        }
        for name in ("op_cache", "op_copied", "op_stash"):
            values = getattr(self.problem, name)
            if values.size:
                columns[name] = np.where(again, 0.0, values[self.origin])
        return columns

    @property
    def edges(self) -> dict[str, Any]:
        """Tensors and their consumers: of what is made again, those that read it."""
        old, block = self.problem, self.block
        makes, reads, tensor = old.edge_producer, old.consumers, old.edge_tensor
        forward_made, read_forward = ~old.is_backward[makes], ~old.is_backward[reads]
        own = forward_made & (block[makes] == block[reads]) & (block[reads] != NONE)
        moved = own & ~read_forward
        again = np.unique(tensor[own])
        copy = np.full(old.tensor_count, NONE)
        copy[again] = old.tensor_count + np.arange(len(again))
        enters = _enters(old, block)
        waiting = self._waiting()
        pairs = [
            (tensor[~moved], self.number[reads[~moved]]),
            (copy[tensor[moved]], self.number[reads[moved]]),
            (copy[tensor[own & read_forward]], self.second[reads[own & read_forward]]),
            (tensor[enters], self.second[reads[enters]]),
            waiting,
        ]
        tensors = np.concatenate([pair[0] for pair in pairs])
        consumers = np.concatenate([pair[1] for pair in pairs])
        order = np.argsort(tensors, kind="stable")
        counts = np.bincount(tensors, minlength=old.tensor_count + len(again))
        return {
            "tensor_producer": np.concatenate(
                [self.number[old.tensor_producer], self.second[old.tensor_producer[again]]]
            ),
            "tensor_bytes": np.concatenate([old.tensor_bytes, old.tensor_bytes[again]]),
            "consumer_offsets": np.concatenate([[0], np.cumsum(counts)]),
            "consumers": consumers[order],
        }

    def _waiting(self) -> tuple[Wide, Wide]:
        """Gradients that come into a block, and the first ops that run again, which wait for them.

        An engine begins to recompute a block once the gradient of what it made is there.
        """
        old, block = self.problem, self.block
        makes, reads = old.edge_producer, old.consumers
        backward = old.is_backward[makes] & old.is_backward[reads]
        comes = backward & (block[reads] != NONE) & (block[makes] != block[reads])
        into = np.unique(np.stack([block[reads[comes]], old.edge_tensor[comes]]), axis=1)
        within = (block[makes] == block[reads]) & ~old.is_backward[makes]
        is_first = (block != NONE) & ~old.is_backward
        is_first[reads[within]] = False
        firsts = np.flatnonzero(is_first)
        which, op = np.nonzero(into[0][:, None] == block[firsts][None, :])
        return into[1][which], self.second[firsts[op]]


def _with_stashes(old: Problem, made: Problem, changed: _Changed) -> Problem:
    """`made` with the memory of what it stashes; devices have room for a block's activations."""
    if old.options.memory == "peak":
        return made
    before = np.zeros(made.op_count)
    before[changed.number] = stashed_bytes(old, changed.is_view)
    after = stashed_bytes(made, changed.is_view[changed.origin])
    memory = np.maximum(made.op_memory - before, 0.0) + after
    room = np.maximum(made.device_memory - largest_made_again(made, changed.groups), 0.0)
    stash = after if made.op_stash.size else made.op_stash
    return replace(made, op_memory=memory, op_stash=stash, device_memory=room)
