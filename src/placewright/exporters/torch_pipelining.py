"""torch.distributed.pipelining: a folder with the modules of each stage, and a script that runs it.

    stages.json    the model, its inputs, and the stages in order: device and modules
    run.py         `scripts/run_pipeline.py`, a rank per stage under torchrun

The script cuts the model before the first module of a stage (`SplitPoint.BEGINNING`), so a stage is
whole modules, in the order in which the model calls them, on a device of its own.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from placewright.cluster import CpuRun
from placewright.errors import OptionError
from placewright.exporters.devices import PCI_ORDER, check_cuda, gpu_index
from placewright.exporters.ranks import ranks_of, started
from placewright.exporters.stages import BlockPlan, Stage, block_plan
from placewright.formats import files
from placewright.formats.folders import new_folder
from placewright.plan import Plan

ENGINE = "torch-pipelining"


def write_pipeline(path: str | Path, plan: Plan) -> list[str]:
    """Write the folder; how to start the script."""
    document = pipeline_document(plan)
    with new_folder(path) as folder:
        files.write_text(folder / "stages.json", json.dumps(document, indent=1) + "\n")
        script = resources.files("placewright.exporters.scripts").joinpath("run_pipeline.py")
        files.write_text(folder / "run.py", script.read_text("utf-8"))
    ranks = ranks_of(block_plan(plan, ENGINE), ENGINE)
    on_gpus = document["stages"][0]["run"] != "cpu"
    environment = PCI_ORDER if on_gpus else {}
    program = [str(Path(path) / "run.py"), "--check"]
    return started(ranks, [environment] * len(ranks.hosts), program, alone="--standalone")


def pipeline_document(plan: Plan) -> dict[str, Any]:
    """What the script reads; OptionError for what it could not run."""
    _check_source(plan.source)
    found = block_plan(plan, ENGINE)
    found.check_in_a_row(ENGINE)
    _check_devices(found)
    training = bool(plan.problem.is_backward.any())
    model, described = _model(plan.source, training)
    options = plan.problem.options
    in_turn = training and options.schedule == "pipedream"
    steps = {} if options.micro_batches is None else {"micro_batches": options.micro_batches}
    return {
        "source": plan.source,
        "training": training,
        "schedule": "1f1b" if in_turn else "gpipe",
        **steps,
        "model": described,
        "stages": _stage_records(found, model),
    }


def _check_source(source: str) -> None:
    if not source.startswith(("hf:", "torch:")):
        raise OptionError(
            f"{ENGINE} takes plans of modules, and the plan is of {source or 'no source'}; plan "
            "hf:CONFIG or torch:PACKAGE.MODULE:FACTORY"
        )
    phase = dict(parse_qsl(source.partition("?")[2])).get("phase", "forward")
    if source.startswith("hf:") and phase != "forward":
        raise OptionError(
            f"{ENGINE} runs whole forward passes, which have no KV cache, and the plan is of "
            f"phase={phase}; plan without phase"
        )


def _check_devices(found: BlockPlan) -> None:
    problem, used = found.plan.problem, [stage.device for stage in found.stages]
    ranks_of(found, ENGINE)
    cpus = [device for device in used if problem.is_cpu[device]]
    if cpus and len(cpus) < len(used):
        raise OptionError(
            f"{ENGINE}: ranks talk by NCCL on GPUs or by gloo on CPUs, and the plan has both "
            f"({', '.join(problem.device_names[each] for each in used)}); plan for one of them"
        )
    for device in used:
        if not problem.is_cpu[device]:
            check_cuda(problem, device, ENGINE)


def _stage_records(found: BlockPlan, model: Any) -> list[dict[str, Any]]:
    """The stages; OptionError where one does not begin with a module."""
    known = dict(model.named_modules())
    homes = _homes(found, known)
    records = []
    for number, stage in enumerate(found.stages):
        first = found.blocks.names[stage.first]
        if number and first not in known:
            raise OptionError(
                f"{ENGINE} cuts before modules, and stage {number} of the plan begins with "
                f"'{first}', which is none; plan with --granularity block"
            )
        records.append(
            {
                "device": found.device_name(stage),
                "run": _run(found, stage),
                "cores": _cores(found, stage),
                "begins_at": first,
                "modules": [name for name, home in homes.items() if home == number],
                **_recomputed(found, stage, known),
            }
        )
    return records


def _recomputed(found: BlockPlan, stage: Stage, known: dict[str, Any]) -> dict[str, list[str]]:
    """The modules that the stage runs again; OptionError where a block is no module."""
    blocks = found.again_in(stage)
    names = [found.blocks.names[each] for each in blocks]
    if unknown := next((name for name in names if name not in known), None):
        raise OptionError(
            f"{ENGINE} recomputes modules, and '{unknown}' is none; plan without --recompute"
        )
    return {"recompute": names} if names else {}


def _homes(found: BlockPlan, known: dict[str, Any]) -> dict[str, int]:
    """Module → stage: the blocks, and whatever else keeps tensors and has ops of its own."""
    problem = found.plan.problem
    stage_of = [k for k, stage in enumerate(found.stages) for _ in found.names(stage)]
    blocks = zip(found.blocks.names, stage_of, strict=True)
    homes = {name: stage for name, stage in blocks if name in known}
    for module, block in zip(problem.op_modules, found.blocks.op_block.tolist(), strict=True):
        inside = any(module == name or module.startswith(f"{name}.") for name in homes)
        keeps = module in known and next(known[module].parameters(recurse=False), None) is not None
        if keeps and not inside:
            homes[module] = stage_of[block]
    return homes


def _run(found: BlockPlan, stage: Stage) -> str:
    """The device as torch calls it."""
    problem = found.plan.problem
    return "cpu" if problem.is_cpu[stage.device] else f"cuda:{gpu_index(problem, stage.device)}"


def _cores(found: BlockPlan, stage: Stage) -> list[int]:
    run = found.plan.problem.device_run(stage.device)
    return list(run.cores) if isinstance(run, CpuRun) else []


# -- the model -------------------------------------------------------------------------------------


def _model(source: str, training: bool) -> tuple[Any, dict[str, Any]]:
    """The model, without weights for ``hf:``, and how the script builds it."""
    scheme, _, rest = source.partition(":")
    if scheme == "torch":
        from placewright.importers.torch.sources import load_factory

        return load_factory(rest)[0], {"factory": rest}
    from placewright.importers.torch.sources import hf_kind, load_hf

    model, _, inputs = load_hf(rest, training)
    config: Any = model.config
    return model, {
        "class": f"AutoModelFor{hf_kind(rest)}",
        "config": json.loads(config.to_json_string(use_diff=False)),
        "weights": _weights(rest),
        "inputs": {name: _input(name, value, config) for name, value in inputs.items()},
    }


def _weights(config: str) -> str | None:
    """The directory with the weights; None where there is none, and they are random."""
    from placewright.importers.torch.sources import FRESH, hf_weights, weights_folder

    folder, given = weights_folder(config), hf_weights(config)
    if folder is not None and any(folder.glob("*.safetensors")):
        return str(folder.resolve())
    if given not in (None, FRESH):
        raise OptionError(
            f"{ENGINE}: Transformers loads weights of a directory with safetensors, and {given} "
            "is none; give weights=DIRECTORY"
        )
    return None


def _input(name: str, value: Any, config: Any) -> Any:
    """A tensor as shape, dtype and what whole numbers are to stay below; else the value itself."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    described = {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    if value.is_floating_point():
        return described
    is_class = name == "labels" and not hasattr(config.get_text_config(), "vocab_size")
    below = config.num_labels if is_class else config.get_text_config().vocab_size
    return {**described, "below": int(below)}
