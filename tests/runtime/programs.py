"""Programs of the tiny models, and random ways to cut them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from placewright.importers.torch.export import export_inference
from placewright.importers.torch.graph import fold
from placewright.importers.torch.programs import Executable, from_program
from placewright.runtime.execution import Assignment
from placewright.runtime.reference import run_single
from placewright.runtime.values import Values, values_of
from tests.runtime import models


@dataclass(frozen=True)
class Case:
    """A program with its inputs, its ops in order and its outputs in a single process."""

    program: Executable
    values: Values
    ops: tuple[str, ...]
    expected: list[Any]


def case_of(module: torch.nn.Module, args: Any = (), kwargs: Any = None) -> Case:
    program = from_program(
        export_inference(module, args, kwargs), type(module).__name__, (args, kwargs or {})
    )
    return case_of_program(program)


def case_of_program(program: Executable) -> Case:
    values = values_of(program)
    owners = fold(program.module.graph).values()
    ops = tuple(dict.fromkeys(op for op in owners if op is not None))
    return Case(program, values, ops, run_single(program, values)[0])


@cache
def family(name: str) -> Case:
    return case_of(*models.FAMILIES[name]())


def random_assignment(case: Case, ranks: int, seed: int) -> Assignment:
    """A random placement; every other one with a random topological order."""
    source = random.Random(seed)
    device_of = {op: source.randrange(ranks) for op in case.ops}
    return Assignment(device_of, random_order(case, source) if seed % 2 else None)


def random_order(case: Case, source: random.Random) -> list[str]:
    """Any topological order: ops are drawn among those whose inputs are there."""
    owner = fold(case.program.module.graph)
    needs: dict[str, set[str]] = {op: set() for op in case.ops}
    for node in case.program.module.graph.nodes:
        op = owner.get(node.name)
        if op is not None:
            found = {owner.get(each.name) for each in node.all_input_nodes}
            needs[op] |= {each for each in found if each is not None and each != op}
    left, order = list(case.ops), []
    while left:
        op = source.choice([op for op in left if needs[op] <= set(order)])
        left.remove(op)
        order.append(op)
    return order


def split(name: str, ranks: int = 2) -> dict[str, int]:
    """A placement of a chain model: the first op on rank 0, the others on the last rank."""
    ops = case_of(*getattr(models, name)()).ops
    return {op: min(position, ranks - 1) for position, op in enumerate(ops)}
