"""Layers of which some weights are on the CPU: ``-ot`` keeps tensors there by their names.

The rest of such a layer, its KV cache among it, is on an accelerator. llama.cpp computes with a
weight where that is, and an op without weights where the weights before and behind it are: on the
CPU if both are there, else on the accelerator. So plans may have experts on the CPU, not attention.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from placewright.coarsen.blocks import Blocks, find_blocks
from placewright.errors import OptionError
from placewright.graph import Flags, Floats, Ints, Wide
from placewright.plan import Plan
from placewright.problem import Problem

WITH_THE_LAYER = ("cache", "attention", "rope")
"""Types of ops that are where the layer is, whatever tensors they have."""
_TENSOR = re.compile(r"blk\.([0-9]+)\.([a-z0-9_]+)")


@dataclass(frozen=True)
class Parted:
    """A plan with its parted layers whole on their accelerators, and the rules for the rest."""

    plan: Plan
    rules: tuple[str, ...] = ()


def without_parts(plan: Plan, cpu: int | None) -> Parted:
    """The plan with no layer parted between `cpu` and an accelerator; ``-ot`` rules for what was.

    OptionError for parts that llama.cpp cannot have on the CPU. Layers that are parted otherwise
    stay so.
    """
    problem, blocks = plan.problem, find_blocks(plan.problem)
    device = plan.placement.device.copy()
    if cpu is None or device.ndim > 1:
        return Parted(plan)
    parts: dict[str, list[str]] = {}
    for block in np.flatnonzero(blocks.repeated).tolist():
        ops = np.flatnonzero(blocks.op_block == block).astype(np.int64)
        other = _beside(problem, device[ops], ops, cpu)
        if other is not None:
            _check_ops(plan, ops, cpu, other)
            parts[blocks.names[block]] = _tensors(plan, blocks.names[block], ops, cpu)
            device[ops] = other
    if not parts:
        return Parted(plan)
    whole = replace(plan, placement=replace(plan.placement, device=device, sequence=None))
    return Parted(whole, tuple(_rules(parts, blocks)))


def _beside(problem: Problem, device: Ints, ops: Wide, cpu: int) -> int | None:
    """The one accelerator that has a block besides the CPU; None where there is none such."""
    there = np.unique(device[_costs(problem)[ops]])
    return int(there[there != cpu][0]) if len(there) == 2 and cpu in there else None


def _costs(problem: Problem) -> Flags:
    """`[op]` whether it takes time or memory."""
    found: Flags = (problem.op_time > 0).any(axis=1) | (problem.op_memory > 0)
    return found


def _check_ops(plan: Plan, ops: Wide, cpu: int, other: int) -> None:
    """OptionError where llama.cpp would compute an op of the block elsewhere than the plan."""
    problem, device = plan.problem, plan.placement.device
    held = problem.op_memory > 0
    for op in ops[(device[ops] == cpu) & _costs(problem)[ops]].tolist():
        if problem.op_types[op] in WITH_THE_LAYER or _cache(problem)[op] > 0:
            raise OptionError(
                f"llama.cpp has KV cache and attention where the layer is, and the plan has "
                f"{problem.op_names[op]} on {problem.device_names[cpu]} beside "
                f"{problem.device_names[other]}; plan with --for llama-cpp"
            )
    fixed = np.flatnonzero(held)
    on_cpu = device[fixed] == cpu
    for op in ops[_costs(problem)[ops] & ~held[ops]].tolist():
        place = int(np.searchsorted(fixed, op))
        expected = cpu if on_cpu[max(place - 1, 0) : place + 1].all() else other
        if device[op] != expected:
            raise OptionError(
                f"llama.cpp computes {problem.op_names[op]} on {problem.device_names[expected]}, "
                f"with the weights around it, and the plan on {problem.device_names[device[op]]}; "
                "move it there"
            )


def _cache(problem: Problem) -> Floats:
    return problem.op_cache if problem.op_cache.size else np.zeros(problem.op_count)


def _tensors(plan: Plan, block: str, ops: Wide, cpu: int) -> list[str]:
    """What the file calls the weights that are on the CPU, without their layer."""
    problem, found = plan.problem, []
    for op in ops[(plan.placement.device[ops] == cpu) & (problem.op_memory[ops] > 0)].tolist():
        match = _TENSOR.fullmatch(problem.op_names[op])
        if match is None or block != f"blk.{match[1]}":
            raise OptionError(
                f"llama.cpp names weights by the tensors of a GGUF file, and the plan has "
                f"{problem.op_names[op]} on {problem.device_names[cpu]}; plan the GGUF file itself"
            )
        found.append(match[2])
    return found


def _rules(parts: dict[str, list[str]], blocks: Blocks) -> list[str]:
    """A rule for each set of tensors, of the layers that have it on the CPU."""
    layers: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for block, tensors in parts.items():
        layers[tuple(tensors)].append(block.removeprefix("blk."))
    rules = []
    for names, numbers in layers.items():
        every = len(numbers) == int(blocks.repeated.sum())
        which = r"\d+" if every else "|".join(numbers)
        rules.append(rf"blk\.({which})\.({'|'.join(names)})\.=CPU")
    return rules
