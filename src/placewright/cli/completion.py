"""What a shell offers at TAB: planners, presets, models of the zoo, choices, and files.

Where nothing is offered, the shell offers files by its own rules. Every TAB starts a process, so
only tables of names are read here: no compiler, no framework, no file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import typer

from placewright.cli.bash import DONE

Offer = tuple[str, str]
"""A completion and what it is."""
Completer = Callable[[typer.Context, str], list[Offer]]

_CLUSTER_FILES = (".yaml", ".yml", ".json")
_SOURCE_FILES = (".onnx", ".pt2", ".json")


# -- what an option takes --------------------------------------------------------------------------


def one_of(names: Iterable[str] | Mapping[str, str]) -> Completer:
    """Completes one of `names`; a mapping says what they are."""
    known = names if isinstance(names, Mapping) else dict.fromkeys(names, "")

    def complete(ctx: typer.Context, incomplete: str) -> list[Offer]:
        return _offered(known, incomplete)

    return complete


def several_of(names: Mapping[str, str], separator: str, alone: str) -> Completer:
    """Completes names in a row, each at most once, or `alone` by itself."""

    def complete(ctx: typer.Context, incomplete: str) -> list[Offer]:
        return _offered(_continued(names, incomplete, separator, alone), incomplete)

    return complete


def formats(ctx: typer.Context, incomplete: str) -> list[Offer]:
    from placewright.formats.schema import FORMATS

    return _offered(dict.fromkeys(FORMATS, ""), incomplete)


def planners(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The planners of the objective given, or of every objective."""
    return _offered(_planners(_objective(ctx)), incomplete)


def planners_in_a_row(ctx: typer.Context, incomplete: str) -> list[Offer]:
    return _offered(_continued(_planners(_objective(ctx)), incomplete, ","), incomplete)


def latency_planners(ctx: typer.Context, incomplete: str) -> list[Offer]:
    return _offered(_planners("latency"), incomplete)


def _objective(ctx: typer.Context) -> str | None:
    given: str | None = ctx.params.get("objective")
    return "batch-throughput" if ctx.params.get("batches") else given


def _planners(objective: str | None) -> dict[str, str]:
    from placewright.planners.table import TABLE

    if objective is not None:
        return {row.name: row.summary for row in TABLE if row.objective == objective}
    found: dict[str, list[str]] = {}
    for row in TABLE:
        found.setdefault(row.name, []).append(row.objective)
    return {name: f"for {', '.join(objectives)}" for name, objectives in found.items()}


def clusters(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The presets, and files that may hold a cluster."""
    return _offered(_presets(), incomplete, _CLUSTER_FILES)


def clusters_in_a_row(ctx: typer.Context, incomplete: str) -> list[Offer]:
    return _offered(_continued(_presets(), incomplete, ","), incomplete, _CLUSTER_FILES)


def _presets() -> dict[str, str]:
    from placewright.costs.clusters import preset_names

    return dict.fromkeys(preset_names(), "")


def sources(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The models of the zoo, and files that may hold a model."""
    from placewright.importers.zoo.table import TABLE

    models = {f"zoo:{model.name}": model.description for model in TABLE}
    return _offered(models, incomplete, _SOURCE_FILES)


# -- what of it fits -------------------------------------------------------------------------------


def _offered(
    names: Mapping[str, str], incomplete: str, suffixes: tuple[str, ...] = ()
) -> list[Offer]:
    """Those of `names` that go on from `incomplete`, and files of these suffixes if any does.

    Where no name does the shell knows more about files than we do.
    """
    done = os.environ.get(DONE, "")
    start = done + incomplete
    fitting = {name: what for name, what in names.items() if name.startswith(start)}
    if fitting and suffixes:
        fitting |= dict.fromkeys(_files(start, suffixes), "")
    return [(name.removeprefix(done), what) for name, what in fitting.items()]


def _files(start: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """Files here whose names begin with `start` and end in a suffix, and directories."""
    try:
        entries = sorted(Path.cwd().iterdir())
    except OSError:  # gone, or not ours to read
        return
    for path in entries:
        if not path.name.startswith(start) or (path.name.startswith(".") and not start):
            continue
        if path.is_dir():
            yield f"{path.name}/"
        elif path.suffix.lower() in suffixes:
            yield path.name


def _continued(
    names: Mapping[str, str], incomplete: str, separator: str, alone: str = ""
) -> dict[str, str]:
    """`names` behind the row that the current word begins with, but for those in it."""
    row, last, _ = (os.environ.get(DONE, "") + incomplete).rpartition(separator)
    if not last:
        return dict(names)
    given = row.split(separator)
    if alone in given:
        return {}
    left = {name: what for name, what in names.items() if name not in (*given, alone)}
    return {f"{row}{separator}{name}": what for name, what in left.items()}
