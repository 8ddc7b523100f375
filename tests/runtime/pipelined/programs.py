"""Programs of the small models, ways to place them, and their stages run in this process."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from placewright.importers.torch.export import export_inference, graph_from_program
from placewright.importers.torch.programs import Executable, from_program, from_training
from placewright.importers.torch.training import export_training, graph_from_training
from placewright.runtime.pipelined.boundaries import crossings
from placewright.runtime.pipelined.cutting import Chain
from placewright.runtime.pipelined.executing import Own
from placewright.runtime.pipelined.module import StageModule, state_of
from placewright.runtime.pipelined.samples import sample
from placewright.runtime.stages.constants import without_constants
from tests.runtime.pipelined import models

Placement = dict[str, int]


@dataclass(frozen=True)
class Case:
    """A program, and its ops in order, each with the first op that must be on its device."""

    executable: Executable
    group: dict[str, str]


def source(factory: Callable[[], Any]) -> str:
    return f"torch:{factory.__module__}:{factory.__name__}"


@cache
def case_of(factory: Callable[[], Any], training: bool = False) -> Case:
    module, args, kwargs = factory()
    name = source(factory)
    if training:
        joint = export_training(module, args, kwargs)
        graph = graph_from_training(joint, name)
        executable = from_training(joint, name, (args, kwargs))
    else:
        program = export_inference(module, args, kwargs)
        graph = graph_from_program(program, name)
        executable = from_program(program, name, (args, kwargs))
    first: dict[int, str] = {}
    group = {}
    for op, name in enumerate(graph.op_names):
        number = int(graph.colocation[op])
        group[name] = first.setdefault(number, name) if number >= 0 else name
    return Case(without_constants(executable), group)


@cache
def case(name: str, training: bool = False) -> Case:
    return case_of((models.TRAINING if training else models.INFERENCE)[name], training)


def contiguous(made: Case, devices: int) -> Placement:
    """Equal shares along the program's order, but for ops that must be together."""
    forward = [
        node.name
        for node in made.executable.calls
        if node.meta.get("partitioner_tag") != "is_backward"
    ]
    share = {op: position * devices // len(forward) for position, op in enumerate(forward)}
    return _together(made, share)


def scattered(made: Case, devices: int, seed: int, pieces: int = 9) -> Placement:
    """Pieces of the program's order on devices drawn at random, and one op in twenty anywhere."""
    source = random.Random(seed)
    ops = list(made.group)
    drawn = [source.randrange(devices) for _ in range(pieces)]
    share = {op: drawn[position * pieces // len(ops)] for position, op in enumerate(ops)}
    for op in source.sample(ops, len(ops) // 20):
        share[op] = source.randrange(devices)
    return _together(made, share)


def _together(made: Case, share: Placement) -> Placement:
    return {op: share.get(first, 0) for op, first in made.group.items()}


def alone(chain: Chain) -> Own:
    """A thread for each rank, and no cores of its own."""
    count = len(chain.devices)
    return Own((1,) * count, ((),) * count)


def modules_of(made: Case, chain: Chain, micro_batches: int) -> list[StageModule]:
    """The stages as ranks have them, each rank with weights of its own."""
    executable = made.executable
    weights = {name: executable.values[where] for where, name in executable.weights.items()}
    trained = list(executable.gradients)
    states = [state_of(weights, trained) for _ in chain.devices]
    inputs = {name: executable.values.get(name) for name in executable.inputs}
    samples = [sample(inputs, number) for number in range(micro_batches)]
    sent = crossings(executable, chain.stages)
    received = [(), *sent]
    return [
        StageModule(stage, received[stage.index], sent[stage.index], states[stage.group], samples)
        for stage in chain.stages
    ]


def results_of(modules: list[StageModule], micro_batches: int) -> dict[tuple[int, int], Any]:
    """The program's outputs, the stages run one after the other."""
    for module in modules:
        module.results = {}
    with torch.no_grad():
        for number in range(micro_batches):
            sent: tuple[Any, ...] = ()
            for module in modules:
                sent = module(*sent, micro_batch=torch.tensor([number]))
    return {
        (number, position): value
        for module in modules
        for number, values in (module.results or {}).items()
        for position, value in zip(module.stage.results, values, strict=True)
    }


def trained(
    made: Case, modules: list[StageModule], micro_batches: int
) -> tuple[list[float], dict[str, Any]]:
    """Losses and averaged gradients: every stage forward, then each backward on its own."""
    losses = []
    for number in range(micro_batches):
        kept: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = []
        received: tuple[Any, ...] = ()
        for module in modules:
            module.step = 0
            sent = module(*received, micro_batch=torch.tensor([number]))
            kept.append((received, sent))
            received = tuple(each.detach().requires_grad_(each.requires_grad) for each in sent)
        losses.append(received[0].item())
        gradients: list[Any] = [torch.ones(())]
        for inputs, outputs in reversed(kept):
            pairs = zip(outputs, gradients, strict=True)
            own = [(value, gradient) for value, gradient in pairs if value.requires_grad]
            torch.autograd.backward(*zip(*own, strict=True)) if own else None
            gradients = [value.grad for value in inputs]
    found = {}
    for module in modules:
        for name in module.stage.weights.values():
            weight = module.state[name]
            if name in made.executable.gradients and weight.grad is not None:
                found[name] = weight.grad / micro_batches
    return losses, found
