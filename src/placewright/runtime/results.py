"""What a run measured: times of the whole, and of every step."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

_LARGE = ("passes", "results", "single_process_results")

StepKind = Literal["op", "send", "wait", "update"]


@dataclass(frozen=True)
class StepTime:
    """A step of one rank; seconds since the ranks left the barrier.

    `name` is that of the op; of a `send` or a `wait` it is the op whose output travels, `peer` the
    other rank and `bytes` what is sent. An `update` is the optimizer's step of a weight.
    """

    rank: int
    kind: StepKind
    name: str
    start: float
    finish: float
    peer: int | None = None
    bytes: int = 0


@dataclass(frozen=True)
class RunReport:
    """What a run measured. Seconds and bytes; per rank in the order of the ranks.

    `measured` is the median over the repeats of the makespan: from the moment the ranks leave a
    barrier to the end of the last rank's last op; `fastest` is the least of them. A warm-up run
    is not counted. `predicted` is the plan's value, None where there is no plan.

    `single_process_seconds` is the median of the whole program run in one process with
    `threads_per_rank` threads (those of the rank that has most); None where weights do not fit in
    memory at once, and were loaded as they were needed. `max_abs_difference` is the largest
    distance of any output from that run's.

    `rank_busy_seconds` is a rank's time without waiting for others (median), `rank_cores` the
    logical CPUs it was pinned to, none where it was not, and `rank_peak_memory` the most bytes that
    its process took beyond torch itself; none where ranks are threads. `update_seconds` is what new
    values of weights and the optimizer's step take after a call, until the last rank is done.

    `passes` are the steps of further calls, on which the clock was read at every step: the one of
    the median makespan first. `results` are the program's own in each call that was kept: the
    last, or all where a program keeps state between calls; `single_process_results` are those of
    the single process in the same calls. `call_seconds` is the median from one call's start to the
    next's, with all that is between calls.

    `tokens` are those that a run with `decoding` made, `[sequence][token]`, and `same_tokens` says
    whether the single process made the same; None where none were asked for.

    `random_ops` counts the ops that draw at random, such as dropout. They draw otherwise in the
    single process: where there are any, outputs differ though the run is right.
    """

    measured: float
    fastest: float
    single_process_seconds: float | None
    max_abs_difference: float
    rank_busy_seconds: tuple[float, ...]
    transfer_count: int
    transfer_bytes: int
    ranks: int
    threads_per_rank: int
    repeats: int
    predicted: float | None = None
    devices: tuple[str, ...] = ()
    """The plan's device each rank stood for."""
    rank_threads: tuple[int, ...] = ()
    rank_cores: tuple[tuple[int, ...], ...] = ()
    rank_peak_memory: tuple[float, ...] = ()
    update_seconds: float = 0.0
    passes: tuple[tuple[StepTime, ...], ...] = field(default=(), repr=False)
    results: tuple[tuple[Any, ...], ...] = field(default=(), repr=False, compare=False)
    single_process_results: tuple[tuple[Any, ...], ...] = field(
        default=(), repr=False, compare=False
    )
    call_seconds: float = 0.0
    tokens: tuple[tuple[int, ...], ...] = ()
    same_tokens: bool | None = None
    random_ops: int = 0

    @property
    def steps(self) -> tuple[StepTime, ...]:
        """The steps of the clocked call of the median makespan; none where there was none."""
        return self.passes[0] if self.passes else ()

    @property
    def losses(self) -> tuple[float, ...]:
        """Of a training run, the loss of each step."""
        return tuple(float(each[0]) for each in self.results)

    @property
    def tokens_per_second(self) -> float | None:
        """New tokens of all sequences, a call after the other; None where none were made."""
        return len(self.tokens) / self.call_seconds if self.tokens else None

    @property
    def predicted_tokens_per_second(self) -> float | None:
        """The same if a call takes as long as predicted, and nothing is between calls."""
        return len(self.tokens) / self.predicted if self.tokens and self.predicted else None

    def to_document(self) -> dict[str, Any]:
        """As plain JSON values; `devices` is called ``rank_devices``; without steps and results."""
        shallow = replace(self, passes=(), results=(), single_process_results=())
        document = {key: value for key, value in asdict(shallow).items() if key not in _LARGE}
        document["rank_devices"] = document.pop("devices")
        if self.tokens:
            document["tokens_per_second"] = self.tokens_per_second
            document["predicted_tokens_per_second"] = self.predicted_tokens_per_second
        return document
