"""How a plan is run: the options of ``placewright run`` beside what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from placewright.errors import OptionError

if TYPE_CHECKING:
    from placewright.plan import Plan
    from placewright.runtime import RunOptions
    from placewright.runtime.decoding import Decoding


@dataclass(frozen=True)
class How:
    """How a plan is run: a group of options (see `groups`)."""

    launcher: Annotated[
        Literal["processes", "local", "torchrun"],
        typer.Option(
            help="A process per device on this machine, a thread of this process per device, or "
            "torchrun: this command was started by torchrun, a process per device, on any hosts."
        ),
    ] = "processes"
    repeats: Annotated[int, typer.Option(help="Timed runs, after one warm-up.", min=1)] = 5
    tokens: Annotated[
        int | None,
        typer.Option(
            help="Of a plan of hf:CONFIG?phase=generate: make so many tokens, a call each.", min=1
        ),
    ] = None
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            help="Token ids to begin with, as in 1,2,3; once for all sequences of the batch, or "
            "for each of them.",
            metavar="IDS",
        ),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(
            help="A file of weights, a directory with safetensors, or fresh: random ones. "
            "If not given, the source's own.",
            metavar="WHERE",
        ),
    ] = None
    inputs: Annotated[
        Path | None,
        typer.Option(
            help="An .npz file with values for the model's inputs, by their names. Others are the "
            "source's own, or made up.",
            metavar="FILE",
        ),
    ] = None
    optimizer: Annotated[
        Literal["sgd", "adam", "adamw"] | None,
        typer.Option(help="Of a training plan: take its step after each call."),
    ] = None
    learning_rate: Annotated[
        float | None, typer.Option(help="Of the optimizer; 0.001 if not given.")
    ] = None
    limit_memory: Annotated[
        bool,
        typer.Option("--limit-memory", help="Let no rank take more than its device's memory."),
    ] = False
    schedule: Annotated[
        Literal["gpipe", "1f1b", "interleaved"] | None,
        typer.Option(
            help="Of a throughput plan: the order of micro-batches on each rank (the plan's, or "
            "gpipe)."
        ),
    ] = None
    micro_batches: Annotated[
        int | None,
        typer.Option(
            help="Of a throughput plan: how many go through the pipeline (the plan's, or 8).",
            min=1,
        ),
    ] = None
    steps: Annotated[
        int, typer.Option(help="Of a throughput plan for training: steps to take.", min=0)
    ] = 0
    timeout: Annotated[float, typer.Option(help="Seconds before a rank counts as stuck.")] = 60.0
    threads: Annotated[
        int | None,
        typer.Option(help="Threads of each rank; if not given, those of its device.", min=1),
    ] = None
    interface: Annotated[
        str, typer.Option(help="With torchrun, the network interface between hosts.")
    ] = ""
    seed: Annotated[int, typer.Option(help="Of random weights and made-up inputs.", min=0)] = 0

    def refuse_pipeline_options(self, *, onnx: bool) -> None:
        """OptionError for what says how a pipeline of torch runs, of a plan that is none."""
        if onnx and self.launcher == "torchrun":
            raise OptionError("ONNX models are not run under torchrun; leave out --launcher")
        given = {
            "--schedule": self.schedule is not None,
            "--micro-batches": self.micro_batches is not None,
            "--steps": self.steps > 0,
        }
        if named := [name for name, is_given in given.items() if is_given]:
            what = (
                "of ONNX models inputs go through one after another; leave it out"
                if onnx
                else "plan with --objective throughput, or leave it out"
            )
            raise OptionError(f"{named[0]} is for pipelines of torch programs; {what}")

    def options(self, plan: Plan) -> RunOptions:
        """What is asked of the runtime. OptionError for options that do not go together."""
        from placewright.runtime import RunOptions
        from placewright.runtime.ranks.state import Optimizer

        if self.interface and self.launcher != "torchrun":
            raise OptionError("--interface is for ranks on several hosts; add --launcher torchrun")
        if self.learning_rate is not None and self.optimizer is None:
            raise OptionError("--learning-rate is for an optimizer; add --optimizer")
        rate = 1e-3 if self.learning_rate is None else self.learning_rate
        return RunOptions(
            launcher=self.launcher,
            repeats=self.repeats,
            timeout=self.timeout,
            threads=self.threads,
            optimizer=Optimizer(self.optimizer, rate) if self.optimizer else None,
            weights=self.weights,
            seed=self.seed,
            memory_limits=_memory(plan) if self.limit_memory else (),
            interface=self.interface,
            decoding=_decoding(self.tokens, self.prompt or ()),
            inputs=self.inputs,
        )


def _decoding(tokens: int | None, prompts: Sequence[str]) -> Decoding | None:
    """What of tokens is asked for; OptionError for a prompt that is not token ids."""
    from placewright.runtime.decoding import Decoding

    if tokens is None:
        if prompts:
            raise OptionError("--prompt is what tokens are made after; add --tokens")
        return None
    for text in prompts:
        if not re.fullmatch(r" *[0-9]{1,18} *(, *[0-9]{1,18} *)*", text):
            raise OptionError(f"--prompt is {text!r}; give token ids, as in 1,2,3")
    return Decoding(tokens, [[int(each) for each in text.split(",")] for text in prompts])


def _memory(plan: Plan) -> list[float]:
    """Bytes of each device that the plan uses."""
    return [float(plan.problem.device_memory[device]) for device in plan.used_devices]
