"""Options that several commands share, and reading their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from placewright.cli import completion
from placewright.coarsen import COARSENINGS
from placewright.coarsen.granularity import GRANULARITIES
from placewright.costs.profiles.lookup import USERS
from placewright.costs.roofline import CostOptions
from placewright.costs.roofline import Kernels as KindsOfKernels
from placewright.costs.roofline import Optimizer as Optimizers
from placewright.costs.roofline import Recompute as Recomputes
from placewright.errors import OptionError
from placewright.exporters.engines import ENGINES
from placewright.formats import files
from placewright.importers.kinds import file_of
from placewright.objectives import OBJECTIVES
from placewright.options import CHOICES, Options
from placewright.units import parse_whole


def chosen(help: str, values: Sequence[str]) -> Any:
    """An option whose value is one of these."""
    return typer.Option(help=help, autocompletion=completion.one_of(values))


Source = Annotated[
    str,
    typer.Argument(
        help="A file (ONNX[?dimension=size&...], GGUF[?phase=...], .pt2, graph or workload JSON), "
        "zoo:NAME[?key=value&...], torch:PACKAGE.MODULE:FACTORY or hf:CONFIG.",
        metavar="SOURCE",
        autocompletion=completion.sources,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        "-c",
        help="A preset (see 'cluster list'), or a YAML or JSON file.",
        autocompletion=completion.clusters,
    ),
]
Planner = Annotated[
    str,
    typer.Option(
        "--planner",
        "-p",
        help="A planner (see 'planners'), one of your own (MODULE:CLASS), or auto: the quick ones, "
        "then searches and proofs.",
        autocompletion=completion.planners,
    ),
]
LatencyPlanner = Annotated[
    str,
    typer.Option(
        "--planner",
        "-p",
        help="A planner for latency (see 'planners'), or auto.",
        autocompletion=completion.latency_planners,
    ),
]
Objective = Annotated[
    str | None,
    chosen(
        "What to minimise: latency, invocation-latency, throughput or batch-throughput.",
        tuple(OBJECTIVES),
    ),
]
TransferUnit = Annotated[
    str | None,
    chosen(
        "Send a tensor once per device (tensor) or per consumer (edge).", CHOICES["transfer_unit"]
    ),
]
Contention = Annotated[
    str | None,
    chosen("What transfers share: none, port or link.", CHOICES["contention"]),
]
Memory = Annotated[
    str | None,
    chosen(
        "What must fit: what ops keep (resident), or the peak of the schedule.", CHOICES["memory"]
    ),
]
Load = Annotated[
    str | None,
    chosen(
        "Throughput: computing and transfers one after another (sum), at once (overlap), "
        "or in, out and computing at once (duplex).",
        CHOICES["load"],
    ),
]
Contiguous = Annotated[
    bool | None,
    typer.Option(
        "--contiguous/--no-contiguous",
        help="Throughput: whether devices must form a row that data goes along.",
    ),
]
Schedule = Annotated[
    str | None,
    chosen("Throughput of training: pipedream or gpipe.", CHOICES["schedule"]),
]
Replicate = Annotated[
    bool | None,
    typer.Option(
        "--replicate/--no-replicate", help="Throughput: let a stage run on several equal devices."
    ),
]
Shares = Annotated[
    str | None,
    chosen(
        "Throughput, with --replicate: equal (a stage's devices are equally fast) or unequal (any, "
        "each with a share of the inputs).",
        CHOICES["shares"],
    ),
]
Subgraphs = Annotated[
    int | None,
    typer.Option(help="Invocation latency: contiguous subgraphs an accelerator may hold."),
]
Batch = Annotated[
    int | None, typer.Option(help="Batch throughput: how many inputs there are to finish.")
]
MicroBatches = Annotated[
    int | None,
    typer.Option(
        help="Throughput, with --for: inputs of a step, after which the pipeline is empty; "
        "pipedream is 1F1B then.",
    ),
]
DataParallel = Annotated[
    str | None,
    typer.Option(
        help="With --micro-batches: so many pipelines of equal stages share them; best looks for "
        "the best number.",
        metavar="NUMBER|best",
    ),
]
Training = Annotated[
    bool, typer.Option("--training", help="Import forward and backward (zoo:, torch:, hf:).")
]
TrainingRun = Annotated[  # of what has a program, which the zoo's models have not
    bool, typer.Option("--training", help="Forward and backward (torch:, hf:).")
]
Optimizer = Annotated[
    str,
    chosen("For training memory: sgd, momentum or adam.", get_args(Optimizers)),
]
Recompute = Annotated[
    str,
    chosen(
        "Training: keep all activations (none); of each block what goes into it, and run it again "
        "in the backward pass (block); or so of as few blocks as must, with --for and "
        "--micro-batches (needed).",
        get_args(Recomputes),
    ),
]
Kernels = Annotated[
    str,
    chosen(
        "Each call is a kernel, as PyTorch runs a program (program), or several are one, as in "
        "engines that serve (fused); auto: as --for ENGINE does, else fused with a phase.",
        get_args(KindsOfKernels),
    ),
]
Profiles = Annotated[
    Path | None,
    typer.Option(
        help="The store of measured costs, a SQLite file (the user's own).", metavar="FILE"
    ),
]
Pins = Annotated[
    list[str] | None,
    typer.Option("--pin", help="OP=DEVICE: fix an op to a device. May be repeated."),
]
PlannerOptions = Annotated[
    list[str] | None,
    typer.Option("-O", help="KEY=VALUE: an option of the planner. May be repeated."),
]
Coarsening = Annotated[
    str,
    typer.Option(
        help="Plan a coarser graph: none, fusion, sequential, modules, layers, units or repeats, "
        "or one of another (repeats+fusion).",
        autocompletion=completion.several_of(COARSENINGS, "+", alone="none"),
    ),
]
Granularity = Annotated[
    str,
    chosen(
        "What is never split: an op, a module, or a block (the model's repeated unit).",
        tuple(GRANULARITIES),
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--for",
        help="Plan what this engine can run, proved, beside the best plan without its limits.",
        autocompletion=completion.one_of(
            [name for name, row in ENGINES.items() if row.limits is not None]
        ),
    ),
]
TimeLimit = Annotated[
    float,
    typer.Option(help="Seconds that planning may take (planner auto: 10, if none).", min=0.0),
]
Gap = Annotated[
    float | None,
    typer.Option(help="Stop when value and bound are as close as this share of the value."),
]
Iterations = Annotated[
    int | None,
    typer.Option(help="Rounds or steps instead of a time limit: the same seed, the same plan."),
]
Processes = Annotated[
    int | None, typer.Option(help="Worker processes of planner auto (as many as cores).")
]
Ray = Annotated[
    str | None,
    typer.Option(
        help="Plan on the machines of a Ray cluster: auto, local, HOST:PORT or ray://HOST:PORT.",
        metavar="ADDRESS",
    ),
]
Mix = Annotated[
    str | None,
    typer.Option(
        help="Plan prefill and decode of zoo:, hf: or GGUF together, for requests of so many "
        "tokens: prompt=512,output=128. With ,batch=B for B sequences; --for finds batch=best.",
        metavar="prompt=P,output=N",
    ),
]
WarmStart = Annotated[
    Path | None,
    typer.Option(help="A plan file of the same ops to start from.", metavar="PLAN"),
]
Events = Annotated[
    Path | None,
    typer.Option(
        callback=lambda path: writable(path),
        help="Planner auto: write better plans and bounds to this file, a JSON object per line; "
        "hrl and placeto: their learning curve.",
    ),
]
Seed = Annotated[int, typer.Option(help="For planners that draw at random.", min=0)]
CostNoise = Annotated[
    float | None,
    typer.Option(help="Latency: how it varies when every cost does by about this share.", min=0.0),
]
Robust = Annotated[
    bool,
    typer.Option("--robust", help="With --cost-noise: look for the plan of least 95th percentile."),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print the answer in one line, without progress."),
]
Wide = Annotated[
    bool,
    typer.Option("--wide", help="Print whole tables, however wide, into a pipe too."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def writable(path: Path | None) -> Path | None:
    """Refuse an output that could not be written before, not after, the work of minutes."""
    if path is not None:
        files.check_writable(named_file(path))
    return path


def named_file(path: Path) -> Path:
    """Refuse the name that other tools take for standard output."""
    if str(path) == "-":
        raise OptionError("-: nothing is written to standard output; give the name of a file")
    return path


def keep_inputs(option: str, path: Path | None, *inputs: str | Path | None) -> None:
    """OptionError if an output is one of the files that the command reads, which would be lost."""
    for given in inputs:
        if path is not None and given is not None and _same_file(path, str(given)):
            raise OptionError(f"{option} {path}: is the input; give another file")


def _same_file(path: Path, source: str) -> bool:
    try:
        found = file_of(source)
        return found.is_file() and found.resolve() == path.resolve()
    except (OSError, ValueError, RuntimeError):  # names no file can have, links in a circle
        return False


Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", callback=writable, help="Write the plan to this file."),
]


@dataclass(frozen=True)
class Problem:
    """What is planned, and on what terms: a group of options (see `groups`)."""

    objective: Objective = None
    transfer_unit: TransferUnit = None
    contention: Contention = None
    memory: Memory = None
    load: Load = None
    contiguous: Contiguous = None
    schedule: Schedule = None
    replicate: Replicate = None
    shares: Shares = None
    subgraphs: Subgraphs = None
    batch: Batch = None
    training: Training = False
    optimizer: Optimizer = "adam"
    recompute: Recompute = "none"
    kernels: Kernels = "auto"
    pin: Pins = None
    profiles: Profiles = None

    @property
    def options(self) -> dict[str, Any]:
        """The fields of `Options` as a person gave them; None where they did not, or cannot."""
        return {each.name: getattr(self, each.name, None) for each in fields(Options)}

    @property
    def costs(self) -> CostOptions:
        store = USERS if self.profiles is None else self.profiles
        recompute = _word(self.recompute, Recomputes, "--recompute")
        optimizer = _word(self.optimizer, Optimizers, "--optimizer")
        kernels = _word(self.kernels, KindsOfKernels, "--kernels")
        return CostOptions(optimizer, store, recompute, kernels)

    @property
    def pinned(self) -> dict[str, str]:
        return pairs(self.pin, "--pin")

    def of_requests(self, granularity: str, cost_noise: float | None = None) -> dict[str, Any]:
        """What `serving.planning` takes of these; OptionError for what --mix cannot have."""
        if cost_noise is not None:
            raise OptionError("--cost-noise is for one run of a model; leave it out, or --mix")
        if granularity != "op":
            raise OptionError("--granularity is for one run of a model; leave it out, or --mix")
        if self.training:
            raise OptionError("--mix is for inference; leave out --training")
        if self.recompute != "none":
            raise OptionError("--mix is for inference; leave out --recompute")
        return {"costs": self.costs, "pinned": self.pinned, "options": self.options}


@dataclass(frozen=True)
class PlannedProblem(Problem):
    """The same with what only plans for engines are about."""

    micro_batches: MicroBatches = None
    data_parallel: DataParallel = None

    @property
    def options(self) -> dict[str, Any]:
        """The fields of `Options`, and ``best`` for a number of pipelines that is looked for."""
        given = self.data_parallel
        number = None if given is None else parse_whole(given)
        return {**super().options, "data_parallel": given if number is None else number}


@dataclass(frozen=True)
class Search:
    """What a planner is told: a group of options (see `groups`)."""

    planner_option: PlannerOptions = None
    gap: Gap = None
    iterations: Iterations = None
    processes: Processes = None
    ray: Ray = None

    @property
    def planner_options(self) -> dict[str, str]:
        """Those of ``-O``, and the four that have names of their own."""
        names = ("gap", "iterations", "processes", "ray")
        given = {name: getattr(self, name) for name in names}
        named = {name: str(value) for name, value in given.items() if value is not None}
        return named | pairs(self.planner_option, "-O")


def _word(given: str, words: Any, option: str) -> Any:
    """`given` if it is one of the `words`; OptionError otherwise."""
    if given not in get_args(words):
        raise OptionError(f"{option} is '{given}'; choose {', '.join(get_args(words))}")
    return given


def pairs(values: Sequence[str] | None, option: str) -> dict[str, str]:
    """``["a=1", "b=2"]`` as a mapping; the last ``=`` parts a pair, for op names hold any sign."""
    found: dict[str, str] = {}
    for value in values or ():
        key, separator, right = value.rpartition("=")
        if not separator or not key or not right:
            raise OptionError(f"{option} {value}: write it as NAME=VALUE")
        if found.setdefault(key, right) != right:
            raise OptionError(f"{option} gives {key} twice, as {found[key]} and as {right}")
    return found
