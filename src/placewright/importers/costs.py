"""What an op of a framework computes and moves, as importers count it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from placewright.units import listed


@dataclass(frozen=True)
class Cost:
    """FLOPs, bytes read and written, and the `graph.DTYPES` entry whose peak applies.

    `uncounted` are operators whose FLOPs nothing here can count.
    """

    flops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    dtype: str = "fp32"
    uncounted: frozenset[str] = frozenset()

    def __add__(self, other: Cost) -> Cost:
        """Both, one after the other; the dtype of the one that computes more."""
        return Cost(
            self.flops + other.flops,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            other.dtype if other.flops > self.flops else self.dtype,
            self.uncounted | other.uncounted,
        )

    def times(self, count: float) -> Cost:
        return replace(
            self,
            flops=self.flops * count,
            bytes_read=self.bytes_read * count,
            bytes_written=self.bytes_written * count,
        )

    def at_least(self, other: Cost) -> Cost:
        """The larger of the two, quantity by quantity."""
        return replace(
            self,
            flops=max(self.flops, other.flops),
            bytes_read=max(self.bytes_read, other.bytes_read),
            bytes_written=max(self.bytes_written, other.bytes_written),
            uncounted=self.uncounted | other.uncounted,
        )


def uncounted_remark(operators: Iterable[str]) -> str:
    """What a person should know of a model with operators whose FLOPs are not known."""
    return (
        f"the FLOPs of {listed(sorted(operators))} are not known: only the bytes are counted, so "
        "their times are too short unless they are measured ('placewright profile')"
    )
