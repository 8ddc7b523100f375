"""Machines whose speed the test decides, with clocks of their own."""

from __future__ import annotations

from collections.abc import Callable

from placewright.costs.profiles.steady import COMPUTING, Reference, Watch

READING = 1e-3  # seconds of the reference at full speed


class Machine:
    """Work takes its seconds by the `speed` that there is when it begins."""

    def __init__(self, speed: Callable[[float], float] = lambda now: 1.0) -> None:
        self.now, self.speed, self.readings = 0.0, speed, 0

    def clock(self) -> float:
        return self.now

    def work(self, seconds: float) -> float:
        """Do it; the seconds it took."""
        took = seconds / self.speed(self.now)
        self.now += took
        return took

    def read(self) -> tuple[float]:
        self.readings += 1
        return (self.work(READING),)

    def watch(self, burst: int = 3) -> Watch:
        return Watch(self.read, (COMPUTING,), burst=burst, clock=self.clock)

    def reference(self, *seconds: float) -> Reference:
        """Parts that take so many seconds at full speed."""
        return Reference([lambda each=each: self.work(each) for each in seconds], self.clock)


def always_steady() -> Watch:
    """Of a machine that never swings; its clock is the real one."""
    return Watch(lambda: (READING,), (COMPUTING,), burst=1)
