"""What planners for invocation latency share: slots, atoms, and the way back to a placement."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from placewright.errors import InfeasibleError
from placewright.graph import Flags, Floats, Whole
from placewright.kernels.invocation.segments import Atoms
from placewright.problem import Problem

MOST_LOOSE = 200  # units taken apart on CPUs
MOST_SINGLE = 6  # atoms that are taken apart alone


class InvocationPlanner:
    """Shared by planners for objective ``invocation-latency`` that take every problem."""

    objective: ClassVar[str] = "invocation-latency"

    def supports(self, problem: Problem) -> str | None:
        return None


def atoms_of(problem: Problem, loose: Iterable[int] = ()) -> Atoms:
    """Units, and what contiguity ties together if each accelerator is invoked once per way.

    An accelerator that holds two ops holds all between them, so units on a cycle of units are
    one atom. In training the backward pass goes through the devices the other way, so its edges
    count reversed; or the same way, as some published graphs list them, if that leaves more
    atoms. Edges from one way to the other do not count (where that is not how the graph runs,
    an order of atoms may give no valid split). `loose` units are for CPUs only, where each of
    their ops is an atom.
    """
    op_node, count = _nodes(problem, loose)
    component, ends = max(
        (_components(problem, op_node, count, turned=turned) for turned in (True, False)),
        key=lambda found: int(found[0].max()),
    )
    on_cpu_only = np.isin(problem.op_unit, list(loose))
    return _atoms(problem, component[op_node], np.unique(component[ends], axis=0), on_cpu_only)


def loosenings(problem: Problem) -> list[list[int]]:
    """Units to take apart on CPUs so that atoms of several units fall to pieces.

    One list for all atoms, and if there are several of them, one for each of the largest. From
    each atom the unit that reaches farthest goes first, until no two units are tied.
    """
    reach = _reach(problem)
    first_atom = np.empty(problem.unit_count, dtype=np.int64)
    first_atom[problem.op_unit] = atoms_of(problem).of_op
    of_atom: dict[int, list[int]] = {}
    loose: list[int] = []
    while len(loose) < MOST_LOOSE:
        atom = atoms_of(problem, loose).of_op
        farthest: dict[int, int] = {}
        node = _nodes(problem, loose)[0]
        for number in np.flatnonzero(_distinct(atom, node) > 1).tolist():
            units = np.setdiff1d(problem.op_unit[atom == number], loose)
            farthest[number] = int(units[reach[units].argmax()])
        if not farthest:
            break
        for unit in farthest.values():
            loose.append(unit)
            of_atom.setdefault(int(first_atom[unit]), []).append(unit)
    largest = sorted(of_atom.values(), key=len, reverse=True)[:MOST_SINGLE]
    return [loose, *(largest if len(of_atom) > 1 else [])] if loose else []


def _reach(problem: Problem) -> Whole:
    """`[unit]` how far apart its ops are in topological order, at most, within one way."""
    rank = problem.topological_rank
    reach = np.zeros(problem.unit_count, dtype=np.int64)
    for way in (False, True):
        mine = np.flatnonzero(problem.is_backward == way)
        first = np.full(problem.unit_count, problem.op_count)
        last = np.full(problem.unit_count, -1)
        np.minimum.at(first, problem.op_unit[mine], rank[mine])
        np.maximum.at(last, problem.op_unit[mine], rank[mine])
        reach = np.maximum(reach, last - first)
    return reach


def _distinct(row: Whole, item: Whole) -> Whole:
    """`[row]` how many different items it has."""
    pairs = np.unique(np.stack([row, item], axis=1), axis=0)
    return np.bincount(pairs[:, 0])


def _nodes(problem: Problem, loose: Iterable[int]) -> tuple[Whole, int]:
    """`[op]` what is tied together at first: its unit, or itself."""
    apart = np.isin(problem.op_unit, list(loose))
    key = np.where(apart, problem.unit_count + np.arange(problem.op_count), problem.op_unit)
    keys, node = np.unique(key, return_inverse=True)
    return node.astype(np.int64), len(keys)


def _components(problem: Problem, node: Whole, count: int, *, turned: bool) -> tuple[Whole, Whole]:
    """`[node]` its strongly connected component, and the edges between nodes."""
    import rustworkx as rx

    producer, consumer = problem.edge_producer, problem.consumers
    back = problem.is_backward
    ends = np.stack([node[producer], node[consumer]], axis=1)
    if turned:
        both = back[producer] & back[consumer]
        ends[both] = ends[both][:, ::-1]
    ends = np.unique(ends[back[producer] == back[consumer]], axis=0)
    digraph = rx.PyDiGraph()
    digraph.add_nodes_from(range(count))
    digraph.add_edges_from_no_data([(a, b) for a, b in ends.tolist() if a != b])
    component = np.empty(count, dtype=np.int64)
    for number, members in enumerate(rx.strongly_connected_components(digraph)):
        component[members] = number
    return component, ends


def _atoms(problem: Problem, of_op: Whole, ends: Whole, on_cpu_only: Flags) -> Atoms:
    count = int(of_op.max()) + 1
    offsets, ops = csr(of_op, np.arange(problem.op_count), count)
    ends = ends[ends[:, 0] != ends[:, 1]]
    before_offsets, before = csr(ends[:, 1], ends[:, 0], count)
    after_offsets, after = csr(ends[:, 0], ends[:, 1], count)
    may_be = np.isfinite(problem.unit_time[problem.op_unit])
    may_be &= problem.is_cpu[None, :] | ~on_cpu_only[:, None]
    time = np.zeros((count, problem.device_count))
    np.add.at(time, of_op, np.where(may_be, problem.op_time, np.inf))
    memory = np.bincount(of_op, problem.op_memory, count).astype(np.float64)
    cpu, cpu_time = _best_cpu(problem, time, _tied_on_cpus(problem, of_op, on_cpu_only))
    return Atoms(
        offsets, ops, of_op, memory, time, cpu, cpu_time, before, before_offsets, after,
        after_offsets,
    )  # fmt: skip


def _tied_on_cpus(problem: Problem, of_op: Whole, on_cpu_only: Flags) -> Whole:
    """`[atom]` one of the atoms that must be on its CPU: a unit taken apart has ops in both.

    Or in both and a third one, and so on.
    """
    import rustworkx as rx

    count = int(of_op.max()) + 1
    graph = rx.PyGraph()
    graph.add_nodes_from(range(count + problem.unit_count))
    pairs = np.stack([of_op, count + problem.op_unit], axis=1)[on_cpu_only]
    graph.add_edges_from_no_data([(atom, unit) for atom, unit in pairs.tolist()])
    tie = np.arange(count)
    for members in rx.connected_components(graph):
        atoms = [node for node in members if node < count]
        if len(atoms) > 1:
            tie[atoms] = atoms[0]
    return tie


def _best_cpu(problem: Problem, time: Floats, tie: Whole) -> tuple[Whole, Floats]:
    """`[atom]` the CPU that is fastest for all it is tied to, and the atom's seconds there.

    -1 and inf if there is none. A CPU that cannot keep the whole model is left out here.
    """
    fitting = problem.is_cpu & (problem.device_memory >= problem.op_memory.sum())
    tied_time = np.zeros(time.shape)
    np.add.at(tied_time, tie, np.where(fitting[None, :], time, np.inf))
    cpu = tied_time.argmin(axis=1)[tie]
    possible = np.isfinite(tied_time.min(axis=1))[tie]
    seconds = np.where(possible, time[np.arange(len(time)), cpu], np.inf)
    return np.where(possible, cpu, -1).astype(np.int64), seconds


def csr(row: Whole, item: Whole, rows: int) -> tuple[Whole, Whole]:
    """`(offsets[row], items)`, items of a row in their given order."""
    order = np.argsort(row, kind="stable")
    offsets = np.searchsorted(row[order], np.arange(rows + 1)).astype(np.int64)
    return offsets, np.ascontiguousarray(item[order], dtype=np.int64)


def nothing_fits(planner: str) -> InfeasibleError:
    return InfeasibleError(
        f"planner '{planner}' found no split into contiguous subgraphs that fits the devices' "
        "memory and pins; give the devices more memory, pin fewer ops, allow more subgraphs, or "
        "try another planner"
    )
