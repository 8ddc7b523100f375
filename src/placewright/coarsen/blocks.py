"""Blocks of a model: its repeated units, and what precedes, follows and joins them.

Engines give whole blocks to devices: layers of a transformer, residual blocks, stages of a U-Net.
They are found from module paths (`module_paths`), or, where these name none and one asks for them
all the same, from repetition in the graph (`repeats`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placewright.analysis.ties import ordered_edges
from placewright.coarsen.module_paths import units_of_modules
from placewright.errors import OptionError
from placewright.graph import Flags, Ints, Wide, frozen
from placewright.problem import Problem, once_per_problem
from placewright.stash import held_bytes

NO_UNIT = -1
BUFFER_BYTES = 4096.0  # at most, of a unit that holds buffers and no weights

FOR_ENGINES = (
    "engines need module paths with numbered layers, such as model.layers.0 "
    "(export --to csv, dot and model-explorer take any plan)"
)
"""What to do for an engine about a model without blocks."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """`op_block[op]`: its block; blocks are numbered along the data, whole blocks apart.

    `names[block]` is the path of its module; `repeated[block]` whether it is a repeated unit, or
    what precedes, follows or joins these.
    """

    names: tuple[str, ...]
    op_block: Ints
    repeated: Flags

    @property
    def count(self) -> int:
        return len(self.names)


@once_per_problem
def named_blocks(problem: Problem) -> Blocks | None:
    """The blocks that module paths name; None where they name none.

    An op of no unit that keeps weights is a unit by itself; those that end the model (a head with
    tied weights, which are counted at the embedding) are one.

    >>> named_blocks(problem).names                         # doctest: +SKIP
    ('model.embed_tokens', 'model.layers.0', 'model.layers.1', 'model.norm', 'lm_head')
    """
    units = units_of_modules(problem)
    if units is None:
        return None
    by_op = [
        units.of[module] or (name if memory > BUFFER_BYTES else "")
        for module, name, memory in zip(
            problem.op_modules, problem.op_names, held_bytes(problem).tolist(), strict=True
        )
    ]
    tail = _tail(problem, by_op, units.numbered)
    if tail:
        name = problem.op_names[max(tail, key=lambda op: problem.op_time[op].min())]
        for op in tail:
            by_op[op] = name
    return _blocks(problem, by_op, units.numbered)


def find_blocks(problem: Problem, advice: str = FOR_ENGINES) -> Blocks:
    """The blocks by module paths, or by repetition; OptionError, with advice, where are none."""
    found = named_blocks(problem) or _repeated_blocks(problem)
    if found is None or not found.repeated.any():
        raise OptionError(
            f"{problem.name}: no blocks were found: its module paths number no units side by "
            f"side, and no stretch of its ops repeats; {advice}"
        )
    return found


def _repeated_blocks(problem: Problem) -> Blocks | None:
    """Blocks by repetition (`find_repeats`), and the stretches of ops between them."""
    from placewright.coarsen.repeats import find_repeats

    order, repeats = find_repeats(problem)
    if not repeats:
        return None
    by_op, numbered = ["stretch.0"] * problem.op_count, set()
    for row, each in enumerate(repeats):
        for position in range(each.start, each.end):
            unit = f"repeat{row}.{(position - each.start) // each.length}"
            by_op[order[position]] = unit
            numbered.add(unit)
        for position in range(each.end, problem.op_count):
            by_op[order[position]] = f"stretch.{row + 1}"
    return _blocks(problem, by_op, frozenset(numbered))


def _blocks(problem: Problem, by_op: list[str], numbered: frozenset[str]) -> Blocks:
    """Blocks of units, given each op's ("" for none); units in a circle become one block."""
    order = problem.topological_order.tolist()
    number = {name: k for k, name in enumerate(dict.fromkeys(by_op[op] for op in order)) if name}
    names = list(number)
    position = {name: k for k, name in enumerate(names)}
    unit = np.array([position.get(name, NO_UNIT) for name in by_op], dtype=np.int32)
    unit = _followed(problem, unit)
    beside = np.array([name not in numbered for name in names])
    for without in (_without_weights, _without_buffers):
        unit = _followed(problem, without(problem, unit, beside))
    part, chain = _chain(problem, unit, len(names))
    kept = [block for block in chain if (part[unit] == block).any()]
    renumbered = np.full(int(part.max()) + 1, NO_UNIT)
    renumbered[kept] = np.arange(len(kept))
    members = [np.flatnonzero(part == block).tolist() for block in kept]
    repeated = [any(names[each] in numbered for each in some) for some in members]
    first = [min(some, key=lambda each: (names[each] not in numbered, each)) for some in members]
    return Blocks(
        tuple(names[each] for each in first),
        frozen(renumbered[part[unit]], np.int32),
        frozen(repeated, np.bool_),
    )


def _followed(problem: Problem, unit: Ints) -> Ints:
    """Ops of no unit join the first unit that reads them, else the last that they read.

    So views, masks and positions are where they are needed first. A backward op joins its twin; one
    that has none and reads nothing, the last unit that reads it.
    """
    found = unit.copy()
    twins = np.flatnonzero((found == NO_UNIT) & (problem.forward_twin >= 0))
    order = problem.topological_order.tolist()
    for op in reversed(order):
        if found[op] == NO_UNIT and not problem.is_backward[op]:
            readers = [found[each] for each in _readers(problem, op) if found[each] != NO_UNIT]
            found[op] = min(readers, default=NO_UNIT)
    found[twins] = found[problem.forward_twin[twins]]
    offsets, edges = problem.op_inputs
    for op in order:
        if found[op] == NO_UNIT:
            sources = problem.edge_producer[edges[offsets[op] : offsets[op + 1]]]
            found[op] = max(found[sources].tolist(), default=NO_UNIT)
    for op in reversed(order):  # the gradient of a loss, which no op of a unit made
        if found[op] == NO_UNIT:
            readers = [found[each] for each in _readers(problem, op)]
            found[op] = max(readers, default=NO_UNIT)
    found[found == NO_UNIT] = 0
    return found


def _readers(problem: Problem, op: int) -> Iterator[int]:
    """The ops of its own pass that read a result of `op`."""
    outputs, tensors = problem.op_outputs
    for tensor in tensors[outputs[op] : outputs[op + 1]].tolist():
        first, end = problem.consumer_offsets[tensor : tensor + 2]
        for reader in problem.consumers[first:end].tolist():
            if problem.is_backward[reader] == problem.is_backward[op]:
                yield reader


def _tail(problem: Problem, by_op: list[str], numbered: frozenset[str]) -> list[int]:
    """The forward ops of no unit that no unit reads, nor through others.

    None if all are free, or if they take less than a unit they read that is not numbered: then they
    go on with that one.
    """
    leads = [bool(name) for name in by_op]
    for op in reversed(problem.topological_order.tolist()):
        leads[op] = leads[op] or any(leads[reader] for reader in _readers(problem, op))
    tail = np.flatnonzero(~np.array(leads) & ~problem.is_backward)
    if not (problem.op_time[tail] > 0).any():
        return []
    last = np.isin(problem.consumers, tail)
    read = {by_op[op] for op in problem.edge_producer[last].tolist()} - {"", *numbered}
    seconds = problem.op_time.min(axis=1)
    beside = [op for op, name in enumerate(by_op) if name in read]
    return tail.tolist() if seconds[tail].sum() >= seconds[beside].sum() else []


def _without_weights(problem: Problem, unit: Ints, beside: Flags) -> Ints:
    """Without units `beside` the rows that keep nothing and are read: pools, dropout."""
    keeps = np.bincount(unit, held_bytes(problem), len(beside)) > 0
    is_read = np.zeros(len(beside), dtype=np.bool_)
    is_read[ordered_edges(problem, unit, mirrored=True)[0]] = True
    return np.where((beside & ~keeps & is_read)[unit], NO_UNIT, unit).astype(np.int32)


def _without_buffers(problem: Problem, unit: Ints, beside: Flags) -> Ints:
    """Without units that read no other and keep no more than buffers: rotary positions, say."""
    count = len(beside)
    memory = np.bincount(unit, held_bytes(problem), count)
    source, target = ordered_edges(problem, unit, mirrored=True)
    reads, is_read = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    reads[target] = is_read[source] = True
    buffers = beside & ~reads & is_read & (memory <= BUFFER_BYTES)
    return np.where(buffers[unit], NO_UNIT, unit).astype(np.int32)


def _chain(problem: Problem, unit: Ints, count: int) -> tuple[Wide, list[int]]:
    """`[unit]` the number of its block, and the blocks in an order that data goes along."""
    import rustworkx as rx

    source, target = ordered_edges(problem, unit, mirrored=True)
    graph = rx.PyDiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from_no_data(list(set(zip(source.tolist(), target.tolist(), strict=True))))
    part = np.empty(count, dtype=np.int64)
    components = rx.strongly_connected_components(graph)
    for block, members in enumerate(components):
        part[members] = block
    joined = rx.PyDiGraph()
    joined.add_nodes_from(min(members) for members in components)
    ends = set(zip(part[source].tolist(), part[target].tolist(), strict=True))
    joined.add_edges_from_no_data([(one, two) for one, two in ends if one != two])
    first = rx.lexicographical_topological_sort(joined, key=lambda unit: f"{unit:09d}")
    return part, [int(part[unit]) for unit in first]
