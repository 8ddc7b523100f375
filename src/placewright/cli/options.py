"""Options that several commands share, and reading their values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, get_args

import typer

from placewright.costs.roofline import Optimizer as Optimizers
from placewright.errors import FormatError, OptionError

Source = Annotated[
    str,
    typer.Argument(
        help="A file (ONNX, .pt2, graph or workload JSON), zoo:NAME[?key=value&...], "
        "torch:PACKAGE.MODULE:FACTORY or hf:CONFIG.",
        metavar="SOURCE",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", "-c", help="A preset (see 'cluster list'), or a YAML or JSON file."),
]
Planner = Annotated[
    str,
    typer.Option(
        "--planner", "-p", help="A planner (see 'planners'), or auto: the best of the quick ones."
    ),
]
Objective = Annotated[str | None, typer.Option(help="What to minimise: latency.")]
TransferUnit = Annotated[
    str | None,
    typer.Option(help="Send a tensor once per device (tensor) or per consumer (edge)."),
]
Contention = Annotated[str | None, typer.Option(help="What transfers share: none, port or link.")]
Memory = Annotated[
    str | None,
    typer.Option(help="What must fit: what ops keep (resident), or the peak of the schedule."),
]
Training = Annotated[
    bool, typer.Option("--training", help="Import forward and backward (zoo:, torch:, hf:).")
]
Optimizer = Annotated[str, typer.Option(help="For training memory: sgd, momentum or adam.")]
Pins = Annotated[
    list[str] | None,
    typer.Option("--pin", help="OP=DEVICE: fix an op to a device. May be repeated."),
]
PlannerOptions = Annotated[
    list[str] | None,
    typer.Option("-O", help="KEY=VALUE: an option of the planner. May be repeated."),
]
Coarsening = Annotated[
    str, typer.Option(help="Plan a coarser graph: none, fusion, sequential or modules.")
]
TimeLimit = Annotated[float, typer.Option(help="Seconds that planning may take.", min=0.0)]
Seed = Annotated[int, typer.Option(help="For planners that draw at random.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def writable(path: Path | None) -> Path | None:
    """Refuse an output that could not be written before, not after, the work of minutes."""
    if path is not None and not path.parent.is_dir():
        raise FormatError(f"{path}: there is no directory {path.parent}; make it first")
    if path is not None and path.is_dir():
        raise FormatError(f"{path}: cannot be written (Is a directory)")
    return path


Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", callback=writable, help="Write the plan to this file."),
]


def optimizer(name: str) -> Optimizers:
    """`name` if it is an optimizer whose memory is known; OptionError otherwise."""
    for known in get_args(Optimizers):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise OptionError(f"--optimizer is '{name}'; choose {', '.join(get_args(Optimizers))}")


def pairs(values: Sequence[str] | None, option: str) -> dict[str, str]:
    """``["a=1", "b=2"]`` as a mapping; the last ``=`` parts a pair, for op names hold any sign."""
    found = {}
    for value in values or ():
        key, separator, right = value.rpartition("=")
        if not separator or not key or not right:
            raise OptionError(f"{option} {value}: write it as NAME=VALUE")
        found[key] = right
    return found
