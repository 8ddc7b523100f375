"""Layers: contract what the model itself calls one (Tarnawski et al. 2020, §6.2)."""

from __future__ import annotations

import numpy as np

from placewright.analysis.capacity import Capacity
from placewright.coarsen.contraction import acyclic_groups
from placewright.graph import Flags, Ints, frozen
from placewright.problem import Problem

NO_LAYER = -1


def layer_groups(problem: Problem) -> Ints:
    """`[op]` group: the ops of one layer (module) and pass together, then every cycle that makes.

    An op without a module belongs to the layer of its only neighbours. A layer that data leaves
    for another layer and comes back to is parted there: a model's last layer may hold the lookup
    of an embedding that it shares with the first, and would else tie all layers together; ops
    that are colocated across such parts stay alone. So do ops of no layer, and those of a group
    that no device could take (as pinned, with all that is colocated with it): the contraction is
    a DAG still, for what is within a group was one.
    """
    layer = _enclosed_too(problem, _layers(problem))
    visit = visits(problem, layer)
    alone = (layer == NO_LAYER) | _shared(problem, layer, visit)
    key = np.where(alone, NO_LAYER, layer * (int(visit.max()) + 1) + visit)
    group = acyclic_groups(problem, key.astype(np.int32))
    members: list[list[int]] = [[] for _ in range(int(group.max()) + 1)]
    for op, each in enumerate(group.tolist()):
        members[each].append(op)
    capacity = Capacity(problem)
    whole = np.array([capacity.together(ops) for ops in members])
    own = len(members) + np.arange(problem.op_count)
    return frozen(np.unique(np.where(whole[group], group, own), return_inverse=True)[1], np.int32)


def _layers(problem: Problem) -> Ints:
    """`[op]` number of its module and pass."""
    number = {module: index for index, module in enumerate(dict.fromkeys(problem.op_modules))}
    module = np.array([number[each] for each in problem.op_modules])
    named = np.array([bool(each) for each in problem.op_modules])
    return np.where(named, 2 * module + problem.is_backward, NO_LAYER).astype(np.int32)


def _enclosed_too(problem: Problem, layer: Ints) -> Ints:
    """Ops of no layer that read one layer, and are read by it and no other, are its own.

    Ops of no layer and of the other pass do not count.
    """
    feeders: list[set[int]] = [set() for _ in range(problem.op_count)]
    readers: list[set[int]] = [set() for _ in range(problem.op_count)]
    same_pass = problem.is_backward[problem.edge_producer] == problem.is_backward[problem.consumers]
    for edge in np.flatnonzero(same_pass):
        producer, consumer = problem.edge_producer[edge], problem.consumers[edge]
        feeders[consumer].add(int(layer[producer]))
        readers[producer].add(int(layer[consumer]))
    found = layer.copy()
    for op in np.flatnonzero(layer == NO_LAYER):
        around = feeders[op] - {NO_LAYER}
        if len(around) == 1 and readers[op] - {NO_LAYER} == around:
            found[op] = next(iter(around))
    return found


def visits(problem: Problem, layer: Ints) -> Ints:
    """`[op]` how often some path to the op has left its layer for others and come back."""
    visit = np.zeros(problem.op_count, dtype=np.int32)
    # [op] layer → the latest visit among the ops before it, of layers that paths to it have left.
    left: list[dict[int, int]] = [{} for _ in range(problem.op_count)]
    inputs, edges = problem.op_inputs
    for op in problem.topological_order.tolist():
        own, seen = int(layer[op]), left[op]
        for edge in edges[inputs[op] : inputs[op + 1]].tolist():
            producer = int(problem.edge_producer[edge])
            before = int(layer[producer])
            for each, number in left[producer].items():
                seen[each] = max(seen.get(each, 0), number)
            if before == own:
                visit[op] = max(visit[op], visit[producer])
            elif before != NO_LAYER:
                seen[before] = max(seen.get(before, 0), int(visit[producer]))
        if own != NO_LAYER and own in seen:
            visit[op] = max(visit[op], seen[own] + 1)
    return _with_readers(problem, layer, visit)


def _with_readers(problem: Problem, layer: Ints, visit: Ints) -> Ints:
    """What only later visits of its layer and pass read (their weights, say) is part of these."""
    outputs, tensors = problem.op_outputs
    for op in problem.topological_order[::-1].tolist():
        readers = [
            reader
            for tensor in tensors[outputs[op] : outputs[op + 1]]
            for reader in problem.consumers[
                problem.consumer_offsets[tensor] : problem.consumer_offsets[tensor + 1]
            ].tolist()
            if problem.is_backward[reader] == problem.is_backward[op]
        ]
        if readers and all(layer[reader] == layer[op] for reader in readers):
            visit[op] = min(visit[reader] for reader in readers)
    return visit


def _shared(problem: Problem, layer: Ints, visit: Ints) -> Flags:
    """`[op]` whether its layer's part of its unit is of several visits (weights they share)."""
    module = np.where(layer == NO_LAYER, NO_LAYER, layer // 2) + 1
    unit_part = problem.op_unit.astype(np.int64) * (int(module.max()) + 1) + module
    parts, part = np.unique(unit_part, return_inverse=True)
    visits = np.unique(np.stack([part, layer, visit], axis=1), axis=0)
    passes = np.unique(visits[:, :2], axis=0)
    mixed = np.bincount(visits[:, 0], minlength=len(parts)) > np.bincount(
        passes[:, 0], minlength=len(parts)
    )
    return np.asarray(mixed[part])
