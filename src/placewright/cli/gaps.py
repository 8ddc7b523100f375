"""A line of small bars: how the gap shrank while planning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placewright.portfolio.events import Event

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 24  # bars: the last ones


class Gaps:
    """The gaps of a run, as they come.

    >>> gaps = Gaps()
    >>> for gap in (0.8, 0.4, 0.1):
    ...     gaps.add(gap)
    >>> gaps.line
    '█▄▁'
    """

    def __init__(self) -> None:
        self.seen: list[float] = []

    def hear(self, event: Event) -> None:
        """Take the gap of an event, if there is a plan."""
        if event.kind in ("plan", "bound") and event.gap is not None:
            self.add(event.gap)

    def add(self, gap: float) -> None:
        self.seen.append(gap)

    @property
    def line(self) -> str:
        """A bar per gap, the tallest as tall as the first; nothing for fewer than two."""
        shown = self.seen[-WIDTH:]
        if len(shown) < 2:
            return ""
        most = max(shown) or 1.0
        return "".join(BARS[min(int(gap / most * len(BARS)), len(BARS) - 1)] for gap in shown)
