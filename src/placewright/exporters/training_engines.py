"""Megatron-LM and DeepSpeed: the stages of a pipeline that trains.

Megatron-LM takes a layout: a letter per layer (``E`` embedding, ``t`` transformer layer, ``L``
loss, with norm and head), stages parted by ``|``. DeepSpeed's `PipelineModule` keeps the first
layer of each stage, and the number of layers, in `parts`; it has no argument for them, so a class
sets them. Where a plan has steps of micro-batches, both get their number: Megatron-LM as the ratio
of global batch to micro-batch, DeepSpeed as steps of gradient accumulation. Data-parallel pipelines
follow from the number of ranks: both number those of a stage one after another, if not told to
number those of a pipeline so, which keeps it on one host (`ranks`). Where it recomputes
blocks, Megatron-LM is told to recompute each layer, or so many of each stage, and DeepSpeed's class
which ones.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from placewright.errors import OptionError
from placewright.exporters.ranks import Ranks, environments, hosts_document, ranks_of, started
from placewright.exporters.serving_engines import layer_stages
from placewright.exporters.stages import BlockPlan, block_plan
from placewright.formats import files
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.units import parse_whole

CLASS = '''"""The stages of a plan for DeepSpeed; PlannedPipelineModule takes LAYERS."""

from deepspeed.pipe import PipelineModule
{imports}
LAYERS = {layers}
DEVICES = {devices}
PARTS = {parts}
{recomputed}{config}

class PlannedPipelineModule(PipelineModule):
    """Stage k has layers PARTS[k] up to PARTS[k + 1], on DEVICES[k]."""

{given}{recomputing}    def _partition_layers(self, method="uniform"):
        if len(self._layer_specs) != len(LAYERS):
            given = len(self._layer_specs)
            raise ValueError(f"the plan has {{len(LAYERS)}} layers, not {{given}}")
        stages = self._topo.get_dim("pipe")
        if stages != len(DEVICES):
            raise ValueError(f"the plan has {{len(DEVICES)}} stages, not {{stages}}")
        stage = self._topo.get_coord(self.global_rank).pipe
        self.parts = PARTS
        self._set_bounds(start=PARTS[stage], stop=PARTS[stage + 1])
'''

GIVEN = """    def __init__(self, layers, **given):
        super().__init__(layers, **{{{given}, **given}})

"""
TOPOLOGY = '"topology": ProcessTopology(axes=["data", "pipe"], dims=[{pipelines}, {stages}])'
"""By itself DeepSpeed has the axes the other way round."""

RECOMPUTING = """    def _is_checkpointable(self, funcs):
        first = next(k for k, each in enumerate(self.forward_funcs) if each is funcs[0])
        return self._local_start + first in RECOMPUTED

"""


def write_megatron(path: str | Path, plan: Plan, *, samples: str | None = None) -> list[str]:
    """Write `environment` and `arguments` of a training script; the command on each host.

    `samples` of a micro-batch are told where the plan's source does not say.
    """
    plan = _with_samples(plan, samples)
    found = layer_stages(plan, "megatron")
    ranks = ranks_of(found, "megatron")
    document = _megatron_settings(found, ranks)
    files.write_json(path, document)
    program = ["pretrain_gpt.py", *document["arguments"]]
    return started(ranks, environments(document), program, alone="")


def megatron_settings(plan: Plan) -> dict[str, Any]:
    """`environment` (or `hosts`, of several) and `arguments`; OptionError for what the layout
    cannot express."""
    found = layer_stages(plan, "megatron")
    return _megatron_settings(found, ranks_of(found, "megatron"))


def _megatron_settings(found: BlockPlan, ranks: Ranks) -> dict[str, Any]:
    stages = [f"t*{layers}" for layers in found.layers]
    stages[0] = f"E{stages[0]}"
    return {
        **hosts_document(ranks, "megatron"),
        "arguments": [
            *("--pipeline-model-parallel-size", str(len(stages))),
            *("--pipeline-model-parallel-layout", "|".join(stages) + "L"),
            *(["--use-tp-pp-dp-mapping"] if ranks.by_pipeline else []),
            *_batches(found.plan.problem),
            *_recomputing(found),
        ],
    }


def _recomputing(found: BlockPlan) -> list[str]:
    """The arguments that recompute all layers, or as many of each stage, its first.

    OptionError where the plan recomputes others.
    """
    recomputed = found.recomputed
    if not recomputed:
        return []
    layers = np.flatnonzero(found.blocks.repeated).tolist()
    method, number = "uniform", 1
    if recomputed != layers:
        method, number = "block", _first_of_each(found, layers, recomputed)
    return [
        *("--recompute-granularity", "full"),
        *("--recompute-method", method),
        *("--recompute-num-layers", str(number)),
    ]


def _first_of_each(found: BlockPlan, layers: list[int], recomputed: list[int]) -> int:
    """How many layers of each stage run again: its first, or all where it has fewer."""
    stages = [
        [layer in recomputed for layer in layers if stage.first <= layer <= stage.last]
        for stage in found.stages
    ]
    number = max(sum(each) for each in stages)
    if any(each != [k < number for k in range(len(each))] for each in stages):
        raise OptionError(
            f"megatron recomputes as many layers in each stage, the first, and the plan recomputes "
            f"{', '.join(str(sum(each)) for each in stages)}; plan with --for megatron --recompute "
            "needed"
        )
    return number


def _batches(problem: Problem) -> list[str]:
    """The arguments that make steps of as many micro-batches; OptionError for ones of no size."""
    count = problem.options.micro_batches
    if count is None:
        return []
    size = _samples(problem, "megatron")
    return ["--micro-batch-size", str(size), "--global-batch-size", str(count * size)]


def _with_samples(plan: Plan, samples: str | None) -> Plan:
    """The plan with so many samples in a micro-batch; OptionError where its source says another."""
    if samples is None:
        return plan
    given, known = parse_whole(samples) or 0, plan.problem.input_samples
    if given < 1 or known not in (None, given):
        whole = "a whole number above 0" if known is None else f"{known}, as the plan's source says"
        raise OptionError(f"-O samples={samples}: give {whole}")
    return replace(plan, problem=replace(plan.problem, input_samples=given))


def _samples(problem: Problem, engine: str) -> int:
    if problem.input_samples is None:
        raise OptionError(
            f"{engine} is told how many samples a micro-batch has, and the plan's source does not "
            "say; give -O samples=NUMBER, or plan without --micro-batches"
        )
    return problem.input_samples


def _config(problem: Problem) -> str:
    """The lines of DeepSpeed's configuration that make steps of as many micro-batches."""
    count = problem.options.pipeline_micro_batches
    if count is None:
        return ""
    settings = {
        "train_micro_batch_size_per_gpu": _samples(problem, "deepspeed"),
        "gradient_accumulation_steps": count,
    }
    return f"CONFIG = {json.dumps(settings)}  # of deepspeed.initialize(config=...), among others\n"


def write_deepspeed(path: str | Path, plan: Plan, *, samples: str | None = None) -> list[str]:
    """Write a module with a class that has the stages of the plan; how to use it.

    `samples` as in `write_megatron`.
    """
    plan = _with_samples(plan, samples)
    found = block_plan(plan, "deepspeed")
    found.check_in_a_row("deepspeed")
    found.check_on_gpus("deepspeed")
    parts = [stage.first for stage in found.stages] + [found.blocks.count]
    recomputed, ranks = found.recomputed, ranks_of(found, "deepspeed")
    given = ['"activation_checkpoint_interval": 1'] if recomputed else []
    if ranks.by_pipeline:
        pipelines, stages = plan.problem.options.data_parallel, len(found.stages)
        given.append(TOPOLOGY.format(pipelines=pipelines, stages=stages))
    text = CLASS.format(
        imports="from deepspeed.runtime.pipe import ProcessTopology\n" * ranks.by_pipeline,
        given=GIVEN.format(given=", ".join(given)) if given else "",
        layers=json.dumps(list(found.blocks.names), indent=4),
        devices=json.dumps([found.device_name(stage) for stage in found.stages]),
        parts=json.dumps(parts),
        recomputed=f"RECOMPUTED = {recomputed}  # layers that run again\n" if recomputed else "",
        recomputing=RECOMPUTING if recomputed else "",
        config=_config(plan.problem),
    )
    # Not by DeepSpeed's own launcher: it sorts the numbers of the visible GPUs.
    hosts = environments(hosts_document(ranks, "deepspeed"))
    lines = started(ranks, hosts, ["SCRIPT.py"], alone="--standalone")
    files.write_text(path, text)
    steps = "" if plan.problem.options.micro_batches is None else " and CONFIG"
    use = f"# with PlannedPipelineModule(layers, num_stages={len(found.stages)}){steps}"
    return [f"{line}  {use}" for line in lines]
