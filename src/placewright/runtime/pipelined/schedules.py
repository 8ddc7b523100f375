"""Which of torch's schedules runs a chain of stages, and what it asks of the micro-batches."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from placewright.errors import OptionError
from placewright.runtime.pipelined.groups import Groups
from placewright.runtime.pipelined.legality import check_table
from placewright.runtime.pipelined.tables import Action, Policy, action_table

Schedule = Literal["gpipe", "1f1b", "interleaved"]
Method = Literal["gpipe", "1f1b", "interleaved", "table", "turns"]


def method_of(schedule: Schedule, groups: Groups, micro_batches: int) -> Method:
    """Torch's own schedule where it fits the chain, else ``table``: one of `tables`.

    `gpipe` and `1f1b` of torch take one stage a rank; `interleaved` the same number on each, in
    rounds. Where stages have replicas a table says their turns, and torch runs no schedule
    (``turns``). OptionError for a number of micro-batches that torch's schedule cannot run.
    """
    if schedule not in get_args(Schedule):
        raise OptionError(f"schedule is '{schedule}'; choose {', '.join(get_args(Schedule))}")
    if groups.has_replicas:
        return "turns"
    ranks, rank_of = groups.count, groups.group_of
    if schedule == "interleaved":
        if not _in_rounds(rank_of):
            return "table"
        rounds = max(1, micro_batches // ranks)
        if micro_batches % rounds:
            raise OptionError(
                f"{micro_batches} micro-batches do not make {rounds} equal rounds on {ranks} "
                f"ranks, as schedule 'interleaved' needs; take a multiple of {ranks}"
            )
        return schedule
    if len(rank_of) > ranks:
        return "table"
    if schedule == "1f1b" and micro_batches < ranks:
        raise OptionError(
            f"schedule '1f1b' needs as many micro-batches as stages, which are {ranks}, and "
            f"there are {micro_batches}; take more, or schedule 'gpipe'"
        )
    return schedule


def longer(micro_batches: int, groups: Groups) -> int:
    """At least twice as many, and a number that every schedule can run.

    With replicas, so many more that each has the same share of those that are added.
    """
    if groups.has_replicas:
        return micro_batches + -(-micro_batches // groups.round) * groups.round
    return -(-2 * micro_batches // groups.count) * groups.count


def write_table(folder: Path, schedule: Schedule, groups: Groups, micro_batches: int) -> None:
    """A checked table as the file that torch's schedule runtime reads."""
    policy: Policy = "gpipe" if schedule == "gpipe" else "1f1b"
    table = action_table(groups, micro_batches, policy)
    check_table(table, groups, micro_batches)
    with _file(folder, micro_batches).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([[str(action) for action in row] for row in table])


def read_row(folder: Path, micro_batches: int, rank: int) -> list[Action]:
    """What that table says of one rank."""
    with _file(folder, micro_batches).open(newline="", encoding="utf-8") as file:
        return [Action.parse(text) for text in list(csv.reader(file))[rank]]


def made(method: Method, stages: list[Any], micro_batches: int, loss: Any, folder: Path) -> Any:
    """The schedule object of torch that runs a rank's stages."""
    from torch.distributed.pipelining import schedules

    options = {"loss_fn": loss, "scale_grads": False}
    if method == "gpipe":
        return schedules.ScheduleGPipe(stages[0], micro_batches, **options)
    if method == "1f1b":
        return schedules.Schedule1F1B(stages[0], micro_batches, **options)
    if method == "interleaved":
        return schedules.ScheduleInterleaved1F1B(stages, micro_batches, **options)
    runtime: Any = schedules._PipelineScheduleRuntime(  # type: ignore[no-untyped-call]
        stages, micro_batches, **options
    )
    runtime._load_csv(str(_file(folder, micro_batches)))
    return runtime


def _in_rounds(rank_of: Sequence[int]) -> bool:
    ranks = max(rank_of) + 1
    even = len(set(Counter(rank_of).values())) == 1
    return even and all(rank == stage % ranks for stage, rank in enumerate(rank_of))


def _file(folder: Path, micro_batches: int) -> Path:
    return folder / f"actions-{micro_batches}.csv"
