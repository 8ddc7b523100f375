"""What a run of a pipeline measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from placewright.runtime.pipelined.schedules import Schedule


@dataclass(frozen=True)
class PipelineReport:
    """Seconds and bytes; per rank in the order of the ranks, which is that of the chain.

    `measured` is what one more micro-batch takes in the steady state: the seconds by which a
    longer batch takes longer, shared out over its additional micro-batches; to be compared with
    `predicted`, the plan's value. Of a plan of steps of as many micro-batches it is the batch's
    seconds over their number, as the plan's value is. `batch_seconds` is the whole batch of
    `micro_batches`, from the moment the ranks leave a barrier until the last is done. Both are
    medians over `repeats`.

    `max_abs_difference` is the largest distance of any output of any micro-batch from that of a
    single process; for training the outputs are the losses. `max_gradient_difference` is that of
    the gradients, averaged over the micro-batches. `losses` has the average of each training
    step, `single_process_losses` those of a single process.

    `rank_busy_seconds` is a rank's time of computing in a batch, `rank_bubble_share` the rest of
    the batch's time, as a share; `rank_peak_memory` the most bytes its process had.
    `rank_stages` are the virtual stages of each rank, which replicas share, `stage_bytes` what each
    stage sends for a micro-batch. `sync_seconds` is what replicas, and stages with copies of a
    weight, take to add up their gradients, waits for the last of them included: once in a batch,
    and so no part of `measured`.
    """

    schedule: Schedule
    measured: float
    batch_seconds: float
    max_abs_difference: float
    max_gradient_difference: float | None
    losses: tuple[float, ...]
    single_process_losses: tuple[float, ...]
    rank_busy_seconds: tuple[float, ...]
    rank_bubble_share: tuple[float, ...]
    rank_peak_memory: tuple[int, ...]
    rank_stages: tuple[tuple[int, ...], ...]
    stage_bytes: tuple[int, ...]
    sync_seconds: float
    micro_batches: int
    repeats: int
    ranks: int
    rank_threads: tuple[int, ...]
    rank_cores: tuple[tuple[int, ...], ...] = ()
    predicted: float | None = None
    devices: tuple[str, ...] = ()
    """The plan's device each rank stood for."""

    def to_document(self) -> dict[str, Any]:
        """As plain JSON values; `devices` is called ``rank_devices``."""
        document = asdict(self)
        document["rank_devices"] = document.pop("devices")
        return document
