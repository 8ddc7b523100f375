"""The problem that an engine's limits leave: a row of pieces that stages are made of.

A piece is what no stage boundary may part: a block, or a layer with what the engine keeps beside
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from placewright.analysis.offloading import fetched_bytes
from placewright.coarsen.blocks import Blocks, find_blocks
from placewright.coarsen.granularity import together
from placewright.errors import OptionError
from placewright.exporters.devices import (
    NOBODY,
    check_cuda,
    is_apple,
    is_called_cuda,
    main_cpu,
    main_host,
)
from placewright.exporters.engines import Engine, Limits, limits_of
from placewright.exporters.sharing import NO_RETURN, Shared, outside, returning, with_copies
from placewright.graph import Flags, Floats, Ints, frozen
from placewright.problem import Problem

MOST_STAGES = 1 << 30  # no limit


@dataclass(frozen=True, eq=False)
class Phase:
    """What is run `repeats` times, piece by piece; ``fetched[op]`` as in `Pieces`."""

    problem: Problem
    op_piece: Ints
    repeats: float = 1.0
    fetched: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, eq=False)
class Pieces:
    """`problem` inside an engine's limits; `op_piece[op]` numbers its pieces along the data.

    Pieces from `returns` on are on the device of the first stage, which holds pieces up to `held`
    at least, for they share weights; `NO_RETURN` where none do. `shared`: weights that pieces have
    copies of, each counted where it is. `cpu` can keep weights for the engine's GPUs
    (`offloading`), ``fetched[op]`` bytes; `NOBODY` where none can.

    A request of a language model runs phases `before` the problem, with the same pieces on the same
    devices, and then the problem, a step of decode, `repeats` times (see `requests`). Memory is
    that of the problem. A row has `most_stages` stages at most, and each a KV cache of `most_cache`
    bytes at most. ``uncounted[op]``: its weights are in memory that the cluster does not name.
    """

    problem: Problem
    blocks: Blocks
    op_piece: Ints
    returns: int = NO_RETURN
    held: int = 0
    shared: tuple[Shared, ...] = ()
    cpu: int = NOBODY
    fetched: Floats = field(default_factory=lambda: np.zeros(0))
    before: tuple[Phase, ...] = ()
    repeats: float = 1.0
    most_stages: int = MOST_STAGES
    most_cache: float = np.inf
    uncounted: Flags = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    @property
    def count(self) -> int:
        return int(self.op_piece.max()) + 1

    @property
    def phases(self) -> tuple[Phase, ...]:
        """All that is run: those `before`, and the problem itself last."""
        return (*self.before, Phase(self.problem, self.op_piece, self.repeats, self.fetched))

    def changed(self, change: Callable[[Phase], Problem]) -> Pieces:
        """The same with another problem for each phase."""
        *before, own = (replace(phase, problem=change(phase)) for phase in self.phases)
        return replace(self, problem=own.problem, before=tuple(before))


NO_COPIES = np.zeros(0)


def pieces_for(problem: Problem, engine: Engine, copied: Floats = NO_COPIES) -> Pieces:
    """The pieces of a problem for an engine; OptionError where it cannot run the model at all.

    `copied` is needed for training with weights that stages share, see `sharing.with_copies`.
    """
    limits, blocks = limits_of(engine), find_blocks(problem)
    if limits.cuts != "blocks":
        check_one_row(blocks, engine.name)
    piece = _piece_of_block(blocks, limits.cuts, main_cpu(problem, main_host(problem)))
    op_piece = frozen(piece[blocks.op_block], np.int32)
    shared: tuple[Shared, ...] = ()
    returns, held = NO_RETURN, 0
    cpu = _keeper(problem) if limits.offloads else NOBODY
    fetched = np.zeros(0) if cpu == NOBODY else fetched_bytes(problem)
    if limits.tied == "copied":
        copying, shared = with_copies(problem, op_piece, blocks, engine.name, copied)
        joined = _cut_by_both(op_piece, find_blocks(copying)) if limits.cuts == "blocks" else piece
        if joined[-1] != piece[-1]:
            op_piece = frozen(joined[blocks.op_block], np.int32)
            copying, shared = with_copies(problem, op_piece, blocks, engine.name, copied)
        problem = copying
    else:
        returns, held = returning(problem, op_piece)
    problem, uncounted = _on_allowed_devices(problem, engine, blocks)
    problem = together(problem, op_piece)
    if limits.memory_share != 1.0:
        problem = problem.with_device_memory(problem.device_memory * limits.memory_share)
    shared = outside(shared, uncounted)
    most = _most_stages(limits, blocks, piece)
    return Pieces(
        problem, blocks, op_piece, returns, held, shared, cpu, fetched, most_stages=most,
        uncounted=uncounted,
    )  # fmt: skip


def _most_stages(limits: Limits, blocks: Blocks, piece: Ints) -> int:
    """As many as devices, and one for an input that the CPU has by itself."""
    if not limits.most_devices:
        return MOST_STAGES
    return limits.most_devices + int(piece[np.flatnonzero(blocks.repeated)[0]])


def _keeper(problem: Problem) -> int:
    """The first CPU, if there are GPUs beside it that fetch from it; else `NOBODY`."""
    usable = np.isfinite(problem.op_time).any(axis=0)
    cpus: list[int] = np.flatnonzero(usable & problem.is_cpu).tolist()
    gpus: list[int] = np.flatnonzero(usable & ~problem.is_cpu).tolist()
    fetch = gpus and not any(is_apple(problem, each) for each in gpus)
    return cpus[0] if cpus and fetch else NOBODY


def check_one_row(blocks: Blocks, engine: str) -> None:
    """OptionError unless the repeated blocks are one row, numbered from 0."""
    names = [name for name, repeated in zip(blocks.names, blocks.repeated, strict=True) if repeated]
    rows = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    if len(rows) > 1:
        raise OptionError(
            f"{engine} numbers the layers of one row, and the model has {len(rows)} "
            f"({', '.join(rows)}); --for accelerate takes any blocks"
        )
    if names != [f"{rows[0]}.{number}" for number in range(len(names))]:
        raise OptionError(
            f"{engine} numbers layers from 0, and the model's blocks are {', '.join(names[:4])}, "
            "…; --for accelerate takes any blocks"
        )


def _piece_of_block(blocks: Blocks, cuts: str, cpu: int | None) -> Ints:
    """`[block]` its piece; an input of llama.cpp that no `cpu` has is with the first layer."""
    if cuts == "blocks":
        return np.arange(blocks.count, dtype=np.int32)
    rows = np.flatnonzero(blocks.repeated)
    begins = np.zeros(blocks.count, dtype=np.int32)
    begins[rows[1:]] = 1
    if cuts == "slots":
        begins[rows[0]] = int(rows[0] > 0 and cpu is not None)
        if rows[-1] + 1 < blocks.count:
            begins[rows[-1] + 1] = 1
    return np.cumsum(begins).astype(np.int32)


def _cut_by_both(op_piece: Ints, others: Blocks) -> Ints:
    """`[piece]` its number where a row is cut only if it can be between `others` as well.

    With a copy of its weights an embedding in the middle of a model is a block of its own, and the
    layer that it was with may have to follow others.
    """
    low = np.full(int(op_piece.max()) + 1, others.count)
    high = np.full_like(low, -1)
    np.minimum.at(low, op_piece, others.op_block)
    np.maximum.at(high, op_piece, others.op_block)
    before, after = np.maximum.accumulate(high), np.minimum.accumulate(low[::-1])[::-1]
    found: Ints = np.concatenate([[0], np.cumsum(before[:-1] < after[1:])]).astype(np.int32)
    return found


def _on_allowed_devices(problem: Problem, engine: Engine, blocks: Blocks) -> tuple[Problem, Flags]:
    """Devices that the engine does not use support nothing; the input of llama.cpp is on a CPU.

    CPUs of other hosts are devices as GPUs are. And `[op]` whether its weights are on no device of
    the cluster.
    """
    limits = limits_of(engine)
    cpus: Flags = problem.is_cpu
    time, memory = problem.op_time.copy(), problem.op_memory.copy()
    uncounted = np.zeros(problem.op_count, dtype=np.bool_)
    if not limits.cpu_computes and not cpus.all():
        time[:, cpus] = np.inf
    if limits.cuda:
        gpus = np.flatnonzero(~cpus).tolist()
        others = [each for each in gpus if not is_called_cuda(problem, each)]
        time[:, others] = np.inf
        if others and not np.isfinite(time).any():
            check_cuda(problem, others[0], engine.name)
    if limits.cuts == "slots":
        before = blocks.op_block < np.flatnonzero(blocks.repeated)[0]
        host = main_host(problem)
        cpu = main_cpu(problem, host)
        if cpu is None:
            uncounted = before  # in host memory, which the cluster does not name
        else:
            others = np.arange(problem.device_count) != cpu
            beside = [problem.device_host(each) == host for each in range(problem.device_count)]
            time[:, cpus & others & np.array(beside)] = np.inf
            time[np.ix_(before, others)] = np.inf
    memory[uncounted] = 0.0
    return replace(problem, op_time=time, op_memory=memory), uncounted
