"""The stages of a plan: which device has which blocks, in the order of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from placewright.coarsen.blocks import Blocks, find_blocks
from placewright.errors import OptionError
from placewright.exporters.engines import ENGINES
from placewright.graph import Floats, Ints
from placewright.outcome import Loads, Step
from placewright.plan import Plan
from placewright.stash import recomputed_ops

UNCOUNTED = "uncounted"
"""What a plan says of weights that are in memory which its cluster does not name."""


@dataclass(frozen=True)
class Stage:
    """Blocks `first` … `last` on a device, and the bytes that they keep there."""

    device: int
    first: int
    last: int
    memory: float


@dataclass(frozen=True, eq=False)
class BlockPlan:
    """A plan that splits no block: `device[block]`, and its stages."""

    plan: Plan
    blocks: Blocks
    device: Ints
    stages: tuple[Stage, ...]

    @property
    def layers(self) -> list[int]:
        """How many repeated blocks each stage has."""
        repeated = self.blocks.repeated
        return [int(repeated[each.first : each.last + 1].sum()) for each in self.stages]

    @cached_property
    def recomputed(self) -> list[int]:
        """The blocks of which some op runs again in the backward pass."""
        again = recomputed_ops(self.plan.problem)
        blocks: list[int] = np.unique(self.blocks.op_block[again]).tolist()
        return blocks

    def again_in(self, stage: Stage) -> list[int]:
        """Those of a stage."""
        return [block for block in self.recomputed if stage.first <= block <= stage.last]

    def names(self, stage: Stage) -> Sequence[str]:
        return self.blocks.names[stage.first : stage.last + 1]

    def devices(self, stage: Stage) -> tuple[int, ...]:
        """Its device in each data-parallel pipeline; of one pipeline its device."""
        placement = self.plan.placement
        return next((each for each in placement.replicas if stage.device in each), (stage.device,))

    def device_name(self, stage: Stage) -> str:
        return ", ".join(self.plan.problem.device_names[each] for each in self.devices(stage))

    def check_in_a_row(self, engine: str) -> None:
        """OptionError where a device has two stages with others between."""
        seen: set[int] = set()
        for stage in self.stages:
            if stage.device in seen:
                raise OptionError(
                    f"{engine} takes one stage per device, and the plan comes back to "
                    f"{self.device_name(stage)} for {self.blocks.names[stage.first]}; "
                    f"plan with --for {engine}"
                )
            seen.add(stage.device)

    def check_on_gpus(self, engine: str) -> None:
        """OptionError where a stage is on a CPU."""
        is_cpu = self.plan.problem.is_cpu
        for stage in self.stages:
            if is_cpu[stage.device]:
                instead = "for a cluster with GPUs" if is_cpu.all() else f"with --for {engine}"
                raise OptionError(
                    f"{engine} runs on GPUs, and the plan has {self.names(stage)[0]} on "
                    f"{self.device_name(stage)}; plan {instead}"
                )


def block_plan(plan: Plan, engine: str) -> BlockPlan:
    """The plan by blocks; OptionError where it splits one, has replicas or is for batches."""
    problem = plan.problem
    if engine != "llama-cpp" and (left := plan.planner_options.get(UNCOUNTED)):
        raise OptionError(
            f"the plan leaves the weights of {left} in host memory, as llama.cpp does; plan with "
            f"--for {engine}"
        )
    if problem.options.row.by_input:
        raise OptionError(f"{engine} takes one device per block, not one per input of a batch")
    _check_replicas(plan, engine)
    blocks = find_blocks(problem)
    costs = (problem.op_time > 0).any(axis=1) | (problem.op_memory > 0)
    device = np.zeros(blocks.count, dtype=np.int32)
    for block, name in enumerate(blocks.names):
        ops = np.flatnonzero(blocks.op_block == block)
        there = np.unique(plan.placement.device[ops[costs[ops]] if costs[ops].any() else ops])
        if len(there) > 1:
            raise OptionError(
                f"{engine} takes whole blocks, and the plan splits {name} over "
                f"{', '.join(problem.device_names[each] for each in there)}; "
                f"plan with --for {engine}"
            )
        device[block] = there[0]
    return BlockPlan(plan, blocks, device, _stages(plan, blocks, device))


def _check_replicas(plan: Plan, engine: str) -> None:
    """OptionError for replicas that are not those of data-parallel pipelines, or for no such."""
    if plan.problem.options.data_parallel == 1:
        if plan.placement.replicas:
            raise OptionError(
                f"{engine}: the plan has stages with replicas; plan without --replicate"
            )
    elif (limits := ENGINES[engine].limits) is None or not limits.data_parallel:
        raise OptionError(
            f"{engine} has one pipeline, and the plan {plan.problem.options.data_parallel}; plan "
            "without --data-parallel"
        )


def _stages(plan: Plan, blocks: Blocks, device: Ints) -> tuple[Stage, ...]:
    kept = np.bincount(blocks.op_block, plan.problem.op_memory, blocks.count)
    memory = kept + _in_flight(plan, blocks, device)
    cuts = [0, *(np.flatnonzero(np.diff(device)) + 1).tolist(), blocks.count]
    return tuple(
        Stage(int(device[first]), first, end - 1, float(memory[first:end].sum()))
        for first, end in pairwise(cuts)
    )


def _in_flight(plan: Plan, blocks: Blocks, device: Ints) -> Floats:
    """`[block]` bytes of the activations of micro-batches in flight beyond the first."""
    step, stash = step_of(plan), plan.problem.op_stash
    if step is None or not stash.size:
        return np.zeros(blocks.count)
    more = np.zeros(plan.problem.device_count)
    more[list(plan.placement.row)] = step.in_flight - 1
    return more[device] * np.bincount(blocks.op_block, stash, blocks.count)


def step_of(plan: Plan) -> Step | None:
    """The step of micro-batches, of a plan that has them."""
    return plan.outcome.step if isinstance(plan.outcome, Loads) else None


def stage_records(found: BlockPlan) -> list[dict[str, Any]]:
    """Per stage its device, first and last block, how many layers, and bytes.

    With micro-batches also how many are in flight at most, and the share of a step that it is idle;
    where blocks run again, how many of the stage.
    """
    row, step = list(found.plan.placement.row), step_of(found.plan)
    again = found.recomputed
    return [
        {
            **_where(found, stage),
            "first": found.blocks.names[stage.first],
            "last": found.blocks.names[stage.last],
            "layers": layers,
            "memory": stage.memory,
            **({} if step is None else _step_record(step, row.index(stage.device))),
            **({"recomputed": len(found.again_in(stage))} if again else {}),
        }
        for stage, layers in zip(found.stages, found.layers, strict=True)
    ]


def _where(found: BlockPlan, stage: Stage) -> dict[str, Any]:
    """Its device; with data-parallel pipelines all `devices` too."""
    names, devices = found.plan.problem.device_names, found.devices(stage)
    several = {"devices": [names[each] for each in devices]} if len(devices) > 1 else {}
    return {"device": names[stage.device], **several}


def _step_record(step: Step, stage: int) -> dict[str, Any]:
    return {"in_flight": int(step.in_flight[stage]), "bubble": float(step.idle[stage])}
