"""The model as blocks of modules of ops, and the tensors that cross devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from placewright.coarsen.blocks import Blocks, named_blocks
from placewright.graph import Whole, frozen
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.html.columns import column, names, table

STRETCH = 100  # ops of a block, where module paths name no blocks


def model_record(problem: Problem) -> dict[str, Any]:
    """Names, types, modules and blocks of the ops; plans of one model share it."""
    blocks = blocks_of(problem)
    return {
        "ops": names(problem.op_names),
        "types": table(problem.op_types),
        "modules": table(problem.op_modules),
        "blocks": names(blocks.names),
        "op_block": column(blocks.op_block),
        "rank": column(problem.topological_rank),
        "memory": column(problem.op_memory),
        "backward": column(problem.is_backward),
        "named": named_blocks(problem) is not None,
    }


def blocks_of(problem: Problem) -> Blocks:
    """The blocks that module paths name; else stretches of so many ops along the data."""
    found = named_blocks(problem)
    if found is not None:
        return found
    count = -(-problem.op_count // STRETCH)
    last = [min((k + 1) * STRETCH, problem.op_count) for k in range(count)]
    return Blocks(
        tuple(f"ops {k * STRETCH + 1}–{last[k]}" for k in range(count)),
        frozen(problem.topological_rank // STRETCH, np.int32),
        frozen(np.zeros(count), np.bool_),
    )


def placement_record(plan: Plan) -> dict[str, Any]:
    """``device[op · inputs + input]``; `inputs` is 1 but for batches. `subgraph[op]`, if any."""
    device, subgraph = plan.placement.device, plan.placement.subgraph
    return {
        "device": column(device),
        "inputs": device.shape[1] if device.ndim > 1 else 1,
        "subgraph": None if subgraph is None else column(subgraph),
    }


def crossings_record(plan: Plan) -> dict[str, Any]:
    """Columns of what goes from a device to another: the op that makes it, block that reads it.

    A row per tensor, pair of devices and reading block; `bytes` of all inputs of a batch, and 0 in
    the rows of later blocks that find the tensor on their device already.
    """
    problem = plan.problem
    rows = _crossing_edges(plan)
    keys, amount = np.unique(rows, axis=0, return_counts=True)
    tensor, source, target, block = keys.T
    size = problem.tensor_bytes[tensor] * amount
    way = (tensor * problem.device_count + source) * problem.device_count + target
    again = np.zeros(len(keys), dtype=np.bool_)
    again[1:] = way[1:] == way[:-1]  # rows are sorted, so that the first block comes first
    return {
        "op": column(problem.tensor_producer[tensor]),
        "source": column(source),
        "target": column(target),
        "block": column(block),
        "bytes": column(np.where(again, 0.0, size)),
    }


def _crossing_edges(plan: Plan) -> Whole:
    """Rows (tensor, source, target, reading block), one per input of a batch that crosses."""
    problem = plan.problem
    device = plan.placement.device.reshape(problem.op_count, -1)
    source, target = device[problem.edge_producer], device[problem.consumers]
    edge, which = np.nonzero(source != target)
    block = blocks_of(problem).op_block[problem.consumers]
    columns = (problem.edge_tensor[edge], source[edge, which], target[edge, which], block[edge])
    inputs = np.stack([*columns, which], axis=1).astype(np.int64)
    return np.unique(inputs, axis=0)[:, :4]  # readers of one block count once
