"""What the ranks tell of the batches they ran."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from placewright.runtime.ranks.job import Event


class Times:
    """`batches[length][repeat][rank]`: the event that tells when that batch began and ended."""

    def __init__(self, ranks: int, repeats: int, micro_batches: Sequence[int]) -> None:
        self.batches: list[list[dict[int, Event]]] = [
            [{} for _ in range(repeats + 1)] for _ in micro_batches
        ]
        self.peaks = [0] * ranks
        self._micro_batches = micro_batches
        self._expected = len(micro_batches) * (repeats + 1) * ranks
        self._seen = 0

    def add(self, rank: int, event: Event) -> None:
        if event["event"] == "batch":
            self.batches[event["length"]][event["repeat"]][rank] = event
            self._seen += 1
        if "peak" in event:
            self.peaks[rank] = event["peak"]

    @property
    def share(self) -> float:
        return self._seen / self._expected

    def batch_seconds(self, length: int) -> float:
        """The median; the first repeat was a warm-up."""
        seconds: list[float] = [
            max(e["finished"] for e in batch.values()) - min(e["started"] for e in batch.values())
            for batch in self.batches[length][1:]
        ]
        return statistics.median(seconds)

    def steady(self) -> float:
        """Seconds of one more micro-batch."""
        short, long = self._micro_batches
        return (self.batch_seconds(1) - self.batch_seconds(0)) / (long - short)

    def sync(self) -> float:
        """Seconds of a batch for adding up gradients, of the rank with most; median."""
        seconds: list[float] = [
            max(event["sync"] for event in batch.values()) for batch in self.batches[0][1:]
        ]
        return statistics.median(seconds)

    def busy(self, rank: int) -> float:
        seconds: list[float] = [batch[rank]["busy"] for batch in self.batches[0][1:]]
        return statistics.median(seconds)
