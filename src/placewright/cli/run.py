"""``placewright run``: execute a plan for real."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from placewright.cli import options as o
from placewright.errors import OptionError

if TYPE_CHECKING:
    from placewright.plan import Plan
    from placewright.runtime import RunOptions, RunReport
    from placewright.runtime.decoding import Decoding


def command(
    plan: Annotated[Path, typer.Argument(help="A plan file.", metavar="PLAN")],
    launcher: Annotated[
        Literal["processes", "local", "torchrun"],
        typer.Option(
            help="A process per device on this machine, a thread of this process per device, or "
            "torchrun: this command was started by torchrun, a process per device, on any hosts."
        ),
    ] = "processes",
    repeats: Annotated[int, typer.Option(help="Timed runs, after one warm-up.", min=1)] = 5,
    tokens: Annotated[
        int | None,
        typer.Option(
            help="Of a plan of hf:CONFIG?phase=generate: make so many tokens, a call each.", min=1
        ),
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            help="Token ids to begin with, as in 1,2,3; once for all sequences of the batch, or "
            "for each of them.",
            metavar="IDS",
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="A file of weights, a directory with safetensors, or fresh: random ones. "
            "If not given, the source's own.",
            metavar="WHERE",
        ),
    ] = None,
    optimizer: Annotated[
        Literal["sgd", "adam", "adamw"] | None,
        typer.Option(help="Of a training plan: take its step after each call."),
    ] = None,
    learning_rate: Annotated[float, typer.Option(help="Of the optimizer.")] = 1e-3,
    limit_memory: Annotated[
        bool,
        typer.Option("--limit-memory", help="Let no rank take more than its device's memory."),
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds before a rank counts as stuck.")] = 60.0,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads of each rank; if not given, those of its device.", min=1),
    ] = None,
    interface: Annotated[
        str, typer.Option(help="With torchrun, the network interface between hosts.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Of random weights and made-up inputs.")] = 0,
    json: o.Json = False,
) -> None:
    """Run a plan, a rank per device it uses; compare with a single process.

    Prints measured beside predicted time, and how far the outputs are from those of one process;
    with --tokens the tokens too.
    """
    from placewright.plan import Plan
    from placewright.runtime import RunOptions
    from placewright.runtime.state import Optimizer

    loaded = Plan.load(plan)
    options = RunOptions(
        launcher=launcher,
        repeats=repeats,
        timeout=timeout,
        threads=threads,
        optimizer=Optimizer(optimizer, learning_rate) if optimizer else None,
        weights=weights,
        seed=seed,
        memory_limits=_memory(loaded) if limit_memory else (),
        interface=interface,
        decoding=_decoding(tokens, prompt or ()),
    )
    report = _run(loaded, options, quiet=json)
    if report is not None:
        _print(loaded, report, plan, json=json)


def _decoding(tokens: int | None, prompts: Sequence[str]) -> Decoding | None:
    """What of tokens is asked for; OptionError for a prompt that is not token ids."""
    from placewright.runtime.decoding import Decoding

    if tokens is None:
        if prompts:
            raise OptionError("--prompt is what tokens are made after; give --tokens N too")
        return None
    for text in prompts:
        if not re.fullmatch(r" *[0-9]{1,18} *(, *[0-9]{1,18} *)*", text):
            raise OptionError(f"--prompt is {text!r}; give token ids, as in 1,2,3")
    return Decoding(tokens, [[int(each) for each in text.split(",")] for text in prompts])


def _memory(plan: Plan) -> list[float]:
    """Bytes of each device that the plan uses."""
    used = sorted(set(plan.placement.device.tolist()))
    return [float(plan.problem.device_memory[device]) for device in used]


def _run(plan: Plan, options: RunOptions, *, quiet: bool) -> RunReport | None:
    """None where another process of torchrun's reports."""
    from placewright.cli.output import progress
    from placewright.runtime import run_plan, run_rank

    if options.launcher == "torchrun":
        return run_rank(plan, options)
    with progress(quiet=quiet) as on_progress:
        return run_plan(plan, options, on_progress=on_progress)


def _print(plan: Plan, report: RunReport, path: Path, *, json: bool) -> None:
    from placewright.cli.output import console, print_json

    if json:
        from placewright.report.records import plan_record

        print_json(plan_record(plan, path) | report.to_document())
        return
    from placewright.report.terminal import run_table

    console().print(run_table(plan, report))
