"""``placewright profile --standard-evaluation``: costs of a large batch from smaller ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.cluster import Cluster
from placewright.errors import OptionError

if TYPE_CHECKING:
    from placewright.measuring.standard_evaluation import Evaluation


@dataclass(frozen=True)
class Asked:
    """What the command line asks for; `batches` as it was written."""

    source: str
    cluster: Cluster
    profiles: Path | None
    devices: Sequence[str]
    training: bool
    batches: str | None
    steps: int | None


def evaluate(asked: Asked, *, json: bool) -> None:
    """Do it and print what was done; what could not be done goes to stderr."""
    from placewright.cli.output import print_json, progress, remark
    from placewright.costs.profiles.store import ProfileStore
    from placewright.measuring.standard_evaluation import STEPS, standard_evaluation

    batches = _whole_numbers(asked.batches)
    with ProfileStore(asked.profiles) as store, progress(quiet=json) as on_progress:
        done = standard_evaluation(
            asked.source,
            asked.cluster,
            store,
            batches=batches,
            steps=STEPS if asked.steps is None else asked.steps,
            devices=asked.devices,
            training=asked.training,
            on_progress=on_progress,
        )
        path = store.path
    if json:
        print_json([_record(each, path) for each in done])
    else:
        _print(done, path)
    for reason in dict.fromkeys(each.left_out for each in done if each.left_out):
        remark(f"placewright: the large batch was not run, its ops stay regressed: {reason}")


def _whole_numbers(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise OptionError(f"--batches is '{text}'; give whole numbers as 2,4,8")
    return tuple(int(part) for part in parts)


def _record(done: Evaluation, path: Path) -> dict[str, object]:
    return {
        "devices": list(done.devices),
        "identity": done.identity,
        "library": done.library,
        "batches": list(done.batches),
        "batch": done.batch,
        "known": done.known,
        "regressed": done.regressed,
        "corrected": done.corrected,
        "left_out": done.left_out,
        "seconds": done.seconds,
        "profiles": str(path),
    }


def _print(done: Sequence[Evaluation], path: Path) -> None:
    from placewright.cli.output import console, profiles_table

    rows = (
        (
            each,
            ", ".join(map(str, each.batches)) or "-",
            each.batch,
            each.known,
            each.regressed,
            each.corrected,
        )
        for each in done
    )
    words, numbers = ("from batches", "to"), ("known", "regressed", "corrected")
    console().print(profiles_table(path, words, numbers, rows))
