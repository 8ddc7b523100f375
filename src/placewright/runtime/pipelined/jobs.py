"""What a rank of a pipeline is given and gives back, as files (see `ranks/files.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from placewright.importers.torch.programs import Executable
from placewright.runtime.pipelined.boundaries import Crossing, Crossings
from placewright.runtime.pipelined.cutting import Chain, VirtualStage
from placewright.runtime.ranks.files import compact, job_file, load, outputs_file, save
from placewright.runtime.stages.code import Call, Code, Named, Ref
from placewright.runtime.weights import HeldWeights
from placewright.runtime.weights import hand_over as weights_to

_READABLE: list[Any] = [VirtualStage, Crossing, Code, Call, Ref, Named]


@dataclass(frozen=True)
class Job:
    """One rank's stages, what its stages receive and send, and the values that they need.

    `weights` is the document of `weights.from_document`, `inputs` are those of these stages only,
    `trained` the weights with gradients.
    """

    stages: list[VirtualStage]
    received: list[Crossings]
    sent: list[Crossings]
    weights: Mapping[str, Any]
    inputs: dict[str, Any]
    trained: list[str]


@dataclass(frozen=True)
class Answer:
    """What a rank computed.

    `results` are the program's outputs by ``(micro-batch, position)``, `gradients` the averages
    over all micro-batches by weight, `checked_losses` the losses that belong to them by
    micro-batch, and `losses` its share of the average loss of each training step: rank by rank,
    only what the rank has.
    """

    results: dict[tuple[int, int], Any] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    checked_losses: dict[int, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)


def hand_over(
    folder: Path,
    executable: Executable,
    chain: Chain,
    crossings: Sequence[Crossings],
    stack: ExitStack,
) -> list[tuple[int, ...]]:
    """Write the job of every rank; the file descriptors it must inherit, open until `stack` ends.

    These hold its weights, and those of no other rank.
    """
    before, groups = [(), *crossings], chain.groups
    placeholders = executable.weights.items()
    weights = HeldWeights({name: executable.values[where] for where, name in placeholders})
    descriptors = []
    for rank in range(groups.count):
        own = [chain.stages[index] for index in groups.stages(rank)]
        names = {name for stage in own for name in stage.weights.values()}
        handed = stack.enter_context(weights_to(weights, names))
        job = Job(
            own,
            received=[before[stage.index] for stage in own],
            sent=[crossings[stage.index] for stage in own],
            weights=handed.document,
            inputs=_inputs(executable, own),
            trained=[name for name in executable.gradients if name in names],
        )
        save(vars(job), job_file(folder, rank))
        descriptors.append(handed.descriptors)
    return descriptors


def job_of(folder: Path, rank: int) -> Job:
    return Job(**load(job_file(folder, rank), _READABLE))


def give_back(folder: Path, rank: int, answer: Answer) -> None:
    save(vars(answer), outputs_file(folder, rank))


def answer_of(folder: Path, rank: int) -> Answer:
    return Answer(**load(outputs_file(folder, rank), _READABLE))


def _inputs(executable: Executable, stages: Sequence[VirtualStage]) -> dict[str, Any]:
    names = {name for stage in stages for name in stage.inputs}
    return {name: compact(executable.values[name]) for name in sorted(names)}
