"""Run the stages of a plan on torch.distributed.pipelining, a rank per stage.

    torchrun --standalone --nproc-per-node STAGES run.py [--micro-batches M] [--check]

Each rank builds the model in the host's memory, cuts it before the first module of each stage, and
keeps its own stage on its device. The inputs are random; a micro-batch is as large as the plan's
batch. --check compares outputs (and of training, gradients) with the model in one process.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import pipelining
from torch.utils.checkpoint import checkpoint

HERE = Path(__file__).resolve().parent
SCHEDULES = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}


class Whole(nn.Module):
    """The model as a function of its tensors, which gives a loss, or a tuple of tensors.

    Inputs are copied first and outputs last, so that the first stage has all of the former, the
    last all of the latter. Scalars come and go as `vector`s.
    """

    def __init__(self, model: nn.Module, values: dict[str, Any], *, loss: bool) -> None:
        super().__init__()
        self.model = model
        self.values = values
        self.names = [name for name, value in values.items() if isinstance(value, Tensor)]
        self.loss = loss

    def forward(self, *tensors: Tensor) -> Any:
        given = zip(self.names, tensors, strict=True)
        shaped = {name: each.clone().reshape(self.values[name].shape) for name, each in given}
        values = {**self.values, **shaped}
        positional = [values.pop(name) for name in self.values if name.isdigit()]
        made = self.model(*positional, **values)
        if self.loss:
            return loss_of(made).reshape(1).clone()
        return tuple(vector(each).clone() for each in tensors_of(made))


def vector(value: Tensor) -> Tensor:
    """A scalar with one dimension, along which those of micro-batches lie; others as they are."""
    return value if value.dim() else value.reshape(1)


def loss_of(made: Any) -> Tensor:
    if isinstance(made, Tensor):
        return made
    loss: Tensor = made["loss"] if "loss" in made else made[0]
    return loss


def tensors_of(made: Any) -> list[Tensor]:
    """The logits of a model of Transformers, else each tensor that was returned."""
    if isinstance(made, Tensor):
        return [made]
    if hasattr(made, "logits"):
        return [made.logits]
    each = made.values() if isinstance(made, dict) else made
    return [value for value in each if isinstance(value, Tensor)]


def main() -> None:
    plan = json.loads((HERE / "stages.json").read_text("utf-8"))
    options = parsed(plan)
    stages, rank = plan["stages"], int(os.environ.get("RANK", "-1"))
    if int(os.environ.get("WORLD_SIZE", "0")) != len(stages):
        sys.exit(
            f"the plan has {len(stages)} stages; start as many ranks: torchrun --standalone "
            f"--nproc-per-node {len(stages)} {sys.argv[0]}"
        )
    device = device_of(stages[rank])
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        report = run(plan, options, rank, device)
        if rank == len(stages) - 1:
            print(json.dumps(report))
    finally:
        dist.destroy_process_group()


def parsed(plan: dict[str, Any]) -> argparse.Namespace:
    stages = len(plan["stages"])
    parser = argparse.ArgumentParser(description="Run the stages of a plan, a rank each.")
    planned = plan.get("micro_batches", 2 * stages)
    parser.add_argument("--micro-batches", type=int, default=planned)
    parser.add_argument("--schedule", choices=tuple(SCHEDULES), default=plan["schedule"])
    parser.add_argument("--repeats", type=int, default=1, help="batches, one after the other")
    parser.add_argument("--check", action="store_true", help="compare with one process")
    options = parser.parse_args()
    if options.repeats < 1 or options.micro_batches < 1:
        parser.error("--repeats and --micro-batches are at least 1")
    if options.schedule == "1f1b" and not plan["training"]:
        parser.error("1f1b orders backward passes, and the plan infers; take gpipe")
    if options.schedule == "1f1b" and options.micro_batches < stages:
        parser.error(f"1f1b needs as many micro-batches as stages, which are {stages}")
    return options


def device_of(stage: dict[str, Any]) -> torch.device:
    """The device of this rank; on a CPU that is some cores, as many threads."""
    device = torch.device(stage["run"])
    if device.type == "cuda":
        if not torch.cuda.is_available() or device.index >= torch.cuda.device_count():
            sys.exit(
                f"a stage is planned for {stage['device']} ({device}), and torch sees "
                f"{torch.cuda.device_count()} GPUs here"
            )
        torch.cuda.set_device(device)
    elif stage["cores"]:
        torch.set_num_threads(len(stage["cores"]))
    return device


def run(
    plan: dict[str, Any], options: argparse.Namespace, rank: int, device: torch.device
) -> dict[str, Any]:
    """Run the batches; the report of this rank."""
    training, count = plan["training"], options.micro_batches
    whole, examples = built(plan, training=training and not options.check)
    stages = plan["stages"]
    pipe = cut(whole, examples, stages)
    stage = pipe.build_stage(rank, device)
    if training:
        recompute(stage.submod, stages[rank].get("recompute", []))
    stage.submod.register_forward_pre_hook(packed_gradients)
    stage.submod.register_forward_hook(packed)
    ties = tied(whole, pipe, stage, rank) if training else []
    schedule: Any = SCHEDULES[options.schedule](
        stage,
        count,
        loss_fn=(lambda loss, target: loss.sum()) if training else None,
        scale_grads=False,
    )
    inputs = [drawn(plan, examples, number) for number in range(count)]
    batch = [torch.cat(each).to(device) for each in zip(*inputs, strict=True)]
    seconds, outputs = [], None
    for _ in range(options.repeats):
        stage.submod.zero_grad()
        dist.barrier()
        started = time.perf_counter()
        with torch.set_grad_enabled(training):
            outputs = stepped(schedule, batch, rank, len(stages), training=training)
        add_up(ties)
        dist.barrier()
        seconds.append(time.perf_counter() - started)
    report: dict[str, Any] = {
        "schedule": options.schedule, "micro_batches": count, "seconds": seconds,
    }  # fmt: skip
    return report | compared(plan, stage, inputs, outputs) if options.check else report


def packed(module: nn.Module, inputs: Any, outputs: Any) -> Any:
    """Outputs without gaps in memory, as ranks send them."""
    if isinstance(outputs, Tensor):
        return outputs.contiguous()
    return tuple(each.contiguous() for each in outputs)


def packed_gradients(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Have gradients of what was received go back without gaps too."""
    for each in inputs:
        if isinstance(each, Tensor) and each.requires_grad:
            hooked: Any = each.register_hook
            hooked(lambda gradient: gradient.contiguous())


def stepped(
    schedule: Any, batch: list[Tensor], rank: int, ranks: int, *, training: bool
) -> tuple[Tensor, ...] | None:
    """One batch; the outputs, or the losses, where this is the last rank."""
    arguments = batch if rank == 0 else []
    last = rank == ranks - 1
    targets = {"target": torch.zeros(schedule._n_microbatches)} if last and training else {}
    made = schedule.step(*arguments, **targets)
    if made is None:
        return None
    return (made,) if isinstance(made, Tensor) else tuple(made)


# -- the model -------------------------------------------------------------------------------------


def built(plan: dict[str, Any], *, training: bool) -> tuple[Whole, list[Tensor]]:
    """The model, the same on each rank, and example inputs of a micro-batch."""
    torch.manual_seed(0)
    if "factory" in plan["model"]:
        model, values = from_factory(plan["model"]["factory"])
    else:
        model, values = from_transformers(plan["model"])
    whole = Whole(model.train(training), values, loss=plan["training"])
    return whole, [vector(values[name]) for name in whole.names]


def from_factory(spec: str) -> tuple[nn.Module, dict[str, Any]]:
    """What ``PACKAGE.MODULE:FACTORY`` makes: arguments by position, and by name."""
    place, _, name = spec.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    factory: Any = importlib.import_module(place)
    for part in name.split("."):
        factory = getattr(factory, part)
    model, arguments, *rest = factory()
    positional = {str(number): value for number, value in enumerate(arguments)}
    return model, {**positional, **(rest[0] if rest else {})}


def from_transformers(model: dict[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    """Of a configuration; with the weights of a directory where the source names one."""
    import transformers

    fields = dict(model["config"])
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    factory: Any = getattr(transformers, model["class"])
    if model["weights"]:
        made = factory.from_pretrained(
            model["weights"], config=config, dtype=config.dtype, local_files_only=True,
            use_safetensors=True,
        )  # fmt: skip
    else:
        made = factory.from_config(config)
    values = {
        name: torch.zeros(each["shape"], dtype=getattr(torch, each["dtype"]))
        if isinstance(each, dict)
        else each
        for name, each in model["inputs"].items()
    }
    return made, values


def drawn(plan: dict[str, Any], examples: list[Tensor], number: int) -> list[Tensor]:
    """The inputs of a micro-batch: random floats, random tokens; else those of the factory."""
    generator = torch.Generator().manual_seed(number)
    below = [
        each.get("below")
        for each in plan["model"].get("inputs", {}).values()
        if isinstance(each, dict)
    ] or [None] * len(examples)
    found = []
    for example, limit in zip(examples, below, strict=True):
        if example.is_floating_point():
            values = torch.randn(example.shape, generator=generator).to(example.dtype)
        elif limit is not None:
            values = torch.randint(limit, example.shape, generator=generator).to(example.dtype)
        else:
            values = example
        found.append(values)
    return found


# -- stages ----------------------------------------------------------------------------------------


def cut(whole: Whole, examples: list[Tensor], stages: list[dict[str, Any]]) -> pipelining.Pipe:
    """The model in stages; ends where these are not those of the plan."""
    beginning = pipelining.SplitPoint.BEGINNING
    names = aliases(whole)
    with torch.no_grad():  # else what a model does without gradients becomes a call of its own
        pipe = pipelining.pipeline(
            whole,
            tuple(examples),
            split_spec={f"model.{stage['begins_at']}": beginning for stage in stages[1:]},
        )
    if pipe.num_stages != len(stages):
        sys.exit(
            f"torch cuts the model into {pipe.num_stages} stages, the plan into {len(stages)}: a "
            "module before which one begins is called several times"
        )
    for number, stage in enumerate(stages):
        own, others = stage["modules"], [s["modules"] for s in stages if s is not stage]
        for name, _ in pipe.get_stage_module(number).named_parameters():
            known = names.get(name, [name])
            foreign = any(covers(each, known) for each in others)
            if foreign and not covers(own, known):
                sys.exit(
                    f"torch puts '{name.removeprefix('model.')}' on stage {number}, the plan does "
                    "not: the model does not call its modules in the order of the plan"
                )
        as_packed(pipe.get_stage_module(number).graph)
    return pipe


def tied(whole: Whole, pipe: pipelining.Pipe, stage: Any, rank: int) -> list[tuple[Tensor, Any]]:
    """This rank's parameters that other stages train too, each with the group of these ranks."""
    names = aliases(whole)
    holders: dict[str, dict[int, str]] = {}
    for number in range(pipe.num_stages):
        for name, parameter in pipe.get_stage_module(number).named_parameters():
            if parameter.requires_grad:
                holders.setdefault(names.get(name, [name])[0], {}).setdefault(number, name)
    found = []
    for ranks in holders.values():
        if len(ranks) > 1:
            group = dist.new_group(sorted(ranks))  # every rank makes the groups of all
            if rank in ranks:
                found.append((stage.submod.get_parameter(ranks[rank]), group))
    return found


def add_up(ties: list[tuple[Tensor, Any]]) -> None:
    """Make the gradients of parameters that several stages hold those of all of them."""
    for parameter, group in ties:
        dist.all_reduce(parameter.grad, group=group)


def recompute(stage: nn.Module, blocks: list[str]) -> None:
    """Have blocks keep what goes into them, and run again in the backward pass."""
    wanted = {f"model.{name}" for name in blocks}
    called = [  # torch has a module for each call of one that is called several times: NAME@1
        module for name, module in stage.named_modules() if name.partition("@")[0] in wanted
    ]
    for block in called:
        contexts = partial(kept_buffers, block)
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, context_fn=contexts)


def kept_buffers(block: nn.Module) -> tuple[Any, Any]:
    """What a block runs in: as it is at first, and with its buffers put back when it runs again.

    Else a batch norm would count each micro-batch twice in its running mean.
    """

    @contextmanager
    def unchanged() -> Iterator[None]:
        before = [each.clone() for each in block.buffers()]
        try:
            yield
        finally:  # torch leaves a block early, by an exception, once it has all it needs
            with torch.no_grad():
                for buffer, value in zip(block.buffers(), before, strict=True):
                    buffer.copy_(value)

    return nullcontext(), unchanged()


def as_packed(graph: Any) -> None:
    """Have room made for what travels as it is sent: without gaps in memory."""
    outputs = graph.find_nodes(op="output")[0].all_input_nodes
    for node in [*graph.find_nodes(op="placeholder"), *outputs]:
        if isinstance(node.meta.get("val"), Tensor):
            node.meta["val"] = node.meta["val"].contiguous()


def aliases(whole: Whole) -> dict[str, list[str]]:
    """All names of each parameter, by each of them."""
    of: dict[int, list[str]] = {}
    for name, value in whole.named_parameters(remove_duplicate=False):
        of.setdefault(id(value), []).append(name)
    return {name: names for names in of.values() for name in names}


def covers(modules: list[str], names: list[str]) -> bool:
    return any(name.startswith(f"model.{module}.") for name in names for module in modules)


def compared(
    plan: dict[str, Any],
    stage: Any,
    inputs: list[list[Tensor]],
    outputs: tuple[Tensor, ...] | None,
) -> dict[str, Any]:
    """The largest differences, over all ranks, from the model in one process."""
    whole, _ = built(plan, training=False)
    whole.to(stage.device)
    made = []
    for values in inputs:
        with torch.set_grad_enabled(plan["training"]):
            result = whole(*(each.to(stage.device) for each in values))
        if plan["training"]:
            result.sum().backward()
        made.append((result,) if isinstance(result, Tensor) else result)
    expected = [torch.cat(each) for each in zip(*made, strict=True)]
    pairs = [] if outputs is None else list(zip(expected, outputs, strict=True))
    found = {"max_abs_difference": largest(pairs, stage.device)}
    if plan["training"]:
        known = dict(whole.named_parameters(remove_duplicate=False))
        own = stage.submod.named_parameters()
        gradients = [(known[name].grad, each.grad) for name, each in own if each.grad is not None]
        found["max_gradient_difference"] = largest(gradients, stage.device)
    return found


def largest(pairs: Any, device: torch.device) -> float:
    """The largest difference between the tensors of pairs, of any rank."""
    distances = [float((one.detach() - two.detach()).abs().max()) for one, two in pairs]
    value = torch.tensor(max(distances, default=0.0), device=device)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return float(value)


if __name__ == "__main__":
    main()
