"""The problem that an engine's limits leave: a row of pieces that stages are made of.

A piece is what no stage boundary may part: a block, or a layer with what the engine keeps beside
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placewright.coarsen.blocks import Blocks, find_blocks
from placewright.coarsen.granularity import together
from placewright.errors import OptionError
from placewright.exporters.devices import main_cpu, main_host
from placewright.exporters.engines import Engine, limits_of
from placewright.graph import Flags, Ints, frozen
from placewright.problem import Problem

NO_RETURN = -1


@dataclass(frozen=True, eq=False)
class Pieces:
    """`problem` inside an engine's limits; `op_piece[op]` numbers its pieces along the data.

    Pieces from `returns` on are on the device of the first stage, which holds pieces up to `held`
    at least, for they share weights; `NO_RETURN` where none do. `copied`: units of blocks whose
    weights are held twice.
    """

    problem: Problem
    blocks: Blocks
    op_piece: Ints
    returns: int = NO_RETURN
    held: int = 0
    copied: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return int(self.op_piece.max()) + 1


def pieces_for(problem: Problem, engine: Engine) -> Pieces:
    """The pieces of a problem for an engine; OptionError where it cannot run the model at all."""
    limits, blocks = limits_of(engine), find_blocks(problem)
    if limits.cuts != "blocks":
        check_one_row(blocks, engine.name)
    piece = _piece_of_block(blocks, limits.cuts)
    op_piece = frozen(piece[blocks.op_block], np.int32)
    copied: tuple[str, ...] = ()
    returns, held = NO_RETURN, 0
    if limits.tied == "copied":
        problem, copied = _with_copies(problem, op_piece, blocks, engine.name)
    else:
        returns, held = _return(problem, op_piece)
    problem = _on_allowed_devices(problem, engine, blocks)
    problem = together(problem, op_piece)
    if limits.memory_share != 1.0:
        problem = problem.with_device_memory(problem.device_memory * limits.memory_share)
    return Pieces(problem, blocks, op_piece, returns, held, copied)


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


def _piece_of_block(blocks: Blocks, cuts: str) -> Ints:
    """`[block]` its piece."""
    if cuts == "blocks":
        return np.arange(blocks.count, dtype=np.int32)
    rows = np.flatnonzero(blocks.repeated)
    begins = np.zeros(blocks.count, dtype=np.int32)
    begins[rows[1:]] = 1
    if cuts == "slots":
        begins[rows[0]] = int(rows[0] > 0)
        if rows[-1] + 1 < blocks.count:
            begins[rows[-1] + 1] = 1
    return np.cumsum(begins).astype(np.int32)


def _units_across(problem: Problem, op_piece: Ints) -> list[Ints]:
    """The ops of each colocated unit that is in several pieces."""
    order = np.argsort(problem.op_unit, kind="stable")
    ends = np.flatnonzero(np.diff(problem.op_unit[order])) + 1
    units = np.split(order.astype(np.int32), ends)
    return [unit for unit in units if len(unit) > 1 and len(np.unique(op_piece[unit])) > 1]


def _with_copies(
    problem: Problem, op_piece: Ints, blocks: Blocks, engine: str
) -> tuple[Problem, tuple[str, ...]]:
    """Weights that several pieces share held by each; OptionError for layers that are shared."""
    colocation, memory = problem.colocation.copy(), problem.op_memory.copy()
    following, copied = int(colocation.max()) + 1, []
    for unit in _units_across(problem, op_piece):
        if problem.is_backward.any():
            raise OptionError(
                f"{engine}: ops '{problem.op_names[unit[0]]}' and '{problem.op_names[unit[-1]]}' "
                "share weights across stages, whose gradients it would exchange, which no plan "
                "counts yet; plan without --training, or untie them (tie_word_embeddings=false)"
            )
        if blocks.repeated[blocks.op_block[unit]].sum() > 1:
            raise OptionError(
                f"{engine}: layers share their weights ('{problem.op_names[unit[0]]}' and "
                f"'{problem.op_names[unit[-1]]}'), so it cannot part them"
            )
        holder = unit[np.argmax(problem.op_memory[unit])]
        for piece in np.unique(op_piece[unit]):
            members = unit[op_piece[unit] == piece]
            colocation[members] = following
            following += 1
            if piece != op_piece[holder]:
                memory[members[0]] += problem.op_memory[holder]
                copied.append(problem.op_names[members[0]])
    return replace(problem, colocation=colocation, op_memory=memory), tuple(copied)


def _return(problem: Problem, op_piece: Ints) -> tuple[int, int]:
    """From which piece on the row is back at its first device, and what that holds at first."""
    ends = [np.unique(op_piece[unit]) for unit in _units_across(problem, op_piece)]
    if not ends:
        return NO_RETURN, 0
    returns = min(int(pieces[1]) for pieces in ends)
    held = max(int(pieces[pieces < returns].max(initial=0)) for pieces in ends)
    return returns, held


def _on_allowed_devices(problem: Problem, engine: Engine, blocks: Blocks) -> Problem:
    """Devices that the engine does not use support nothing; the input of llama.cpp is on its CPU.

    That is one device; CPUs of other hosts are devices as GPUs are.
    """
    limits = limits_of(engine)
    cpus: Flags = problem.is_cpu
    time, memory = problem.op_time.copy(), problem.op_memory.copy()
    if not limits.cpu_computes and not cpus.all():
        time[:, cpus] = np.inf
    if limits.cuts == "slots":
        before = blocks.op_block < np.flatnonzero(blocks.repeated)[0]
        host = main_host(problem)
        cpu = main_cpu(problem, host)
        if cpu is None:
            memory[before] = 0.0  # in host memory, which the cluster does not name
        else:
            others = np.arange(problem.device_count) != cpu
            beside = [problem.device_host(each) == host for each in range(problem.device_count)]
            time[:, cpus & others & np.array(beside)] = np.inf
            time[np.ix_(before, others)] = np.inf
    return replace(problem, op_time=time, op_memory=memory)
