"""Opening sessions on devices, and passes through them against the clock."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placewright.budget import Progress, no_progress
from placewright.errors import ExecutionError, reason
from placewright.importers.onnx.reading import OnnxModel
from placewright.importers.onnx.shapes import real_inputs
from placewright.runtime.onnx_sessions.cutting import SubModel
from placewright.runtime.onnx_sessions.models import Parts
from placewright.runtime.onnx_sessions.outputs import Array, array_of
from placewright.runtime.onnx_sessions.passes import Done, Pass, Program
from placewright.runtime.onnx_sessions.sessions import Session
from placewright.runtime.onnx_sessions.team import Device, Team
from placewright.runtime.run_options import RunOptions

if TYPE_CHECKING:
    from onnxruntime import OrtValue

    Values = Mapping[str, OrtValue]

Ranks = Sequence[Sequence[Done]]
"""`[rank]` the tasks of a pass, in the order of each."""
Sessions = Sequence[Mapping[int, Session]]
"""`[rank]` its session of each sub-model that it runs."""
_BEFORE = 0.5  # the share of a run that is over when passes begin


@dataclass(frozen=True)
class Measured:
    """What passes gave: `timed[repeat][rank]` after a warm-up, `clocked` after these.

    Passes that are clocked are as the others, and come with the one of the median makespan first.
    `outputs[sample]` are those of the last pass: copies, for a tensor of ONNX Runtime's keeps all
    memory of its session. `sizes` are the bytes of what sub-models gave.
    """

    timed: Sequence[Ranks]
    clocked: Sequence[Ranks]
    outputs: Sequence[Sequence[Array]]
    sizes: Mapping[str, int]

    @property
    def seconds(self) -> list[float]:
        """Of the timed passes: a sample's time, or what one more takes in the steady state."""
        return [per_sample(ranks, len(self.outputs)) for ranks in self.timed]

    def busy(self, rank: int) -> float:
        """Seconds of a sample that a rank does not wait (median)."""
        totals = (sum(done.finished - done.started for done in each[rank]) for each in self.timed)
        return statistics.median(totals) / len(self.outputs)


def per_sample(ranks: Ranks, samples: int) -> float:
    """The makespan of one sample; of several, the mean distance of their ends.

    The first ends, one for each rank, do not count: the pipeline fills up till then.
    """
    if samples == 1:
        return makespan(ranks)
    ends = [0.0] * samples
    for done in (done for line in ranks for done in line):
        ends[done.task[0]] = max(ends[done.task[0]], done.finished)
    ends.sort()  # replicas need not be done in the order of the samples
    filled = min(len(ranks), samples) - 1
    return (ends[-1] - ends[filled]) / (samples - 1 - filled)


def makespan(ranks: Ranks) -> float:
    """Seconds from the start of the first rank to the end of the last."""
    lines = [line for line in ranks if line]
    started = min((line[0].asked for line in lines), default=0.0)
    return max((line[-1].finished for line in lines), default=0.0) - started


def measure_whole(
    found: OnnxModel,
    returned: Sequence[str],
    device: Device,
    samples: Sequence[Values],
    options: RunOptions,
) -> Measured:
    """The model as its file has it, in one session on `device`."""
    names = tuple(value.name for value in real_inputs(found.model.graph))
    whole = SubModel(0, ("the whole model",), names, tuple(returned))
    with Team([device], options.timeout) as team:

        def opened(rank: int) -> Session:
            with _opening(team, rank, whole):
                return Session(found.path, device.threads, team.options)

        program = Program.of([whole], 1, tuple(returned), len(samples))
        sessions = [{0: each} for each in team.each(opened)]
        return measure(team, program, sessions, samples, replace(options, clocked=0))


def open_parts(found: OnnxModel, program: Program, team: Team) -> Sessions:
    """Each rank's sessions of its sub-models, opened by the rank's thread."""
    models = Parts(found)

    def opened(rank: int) -> dict[int, Session]:
        sessions = {}
        for number, part in enumerate(program.parts):
            if rank in program.ranks(number):
                with _opening(team, rank, part):
                    sessions[number] = models.open(part, team.devices[rank].threads, team.options)
        return sessions

    return team.each(opened)


@contextmanager
def _opening(team: Team, rank: int, part: SubModel) -> Iterator[None]:
    """Whatever ONNX Runtime raises, which comes as many types, as one error of ours."""
    team.begins(rank, f"opens {part}")
    try:
        yield
    except Exception as error:
        team.check()
        raise ExecutionError(
            f"ONNX Runtime cannot open {part} for device '{team.devices[rank].name}' "
            f"({type(error).__name__}: {' '.join(reason(error).split())})"
        ) from None
    with team.lock:
        team.goes_on(rank)


def measure(
    team: Team,
    program: Program,
    sessions: Sessions,
    samples: Sequence[Values],
    options: RunOptions,
    progress: Progress = no_progress,
) -> Measured:
    """A warm-up, the timed passes, and the clocked ones."""
    passes = []
    count = 1 + options.repeats + options.clocked
    for number in range(count):
        run = Pass(team, program, sessions, samples)
        passes.append(team.each(run.rank))
        share = (number + 1) / count
        progress(f"running on {len(team.devices)} devices", _BEFORE + (1 - _BEFORE) * share)
    clocked = sorted(passes[1 + options.repeats :], key=makespan)
    middle = clocked.pop((len(clocked) - 1) // 2) if clocked else None
    return Measured(
        passes[1 : 1 + options.repeats],
        [middle, *clocked] if middle else [],
        [[array_of(value) for value in values] for values in run.outputs],
        run.sizes,
    )
