"""The events of a trace: slices on the tracks of a process, and arrows between slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Slice:
    """Something that lasts, on a track; seconds.

    `rank` orders slices of no length at the same moment: what leads to another comes before it.
    """

    track: int
    name: str
    category: str
    start: float
    finish: float
    args: dict[str, Any]
    rank: float = 0.0

    @property
    def middle(self) -> float:
        return (self.start + self.finish) / 2

    @property
    def begins(self) -> float:
        """Microseconds, as are those below."""
        return microseconds(self.start)

    @property
    def lasts(self) -> float:
        return round(max(microseconds(self.finish) - self.begins, 0.0), 3)

    @property
    def last(self) -> float:
        """The last moment within it: before its end, unless it lasts no time."""
        return max(self.begins, round(self.begins + self.lasts - 0.001, 3))


@dataclass
class Process:
    """The tracks, slices and flows of one process; ids of flows count from `first_flow`."""

    number: int
    name: str
    first_flow: int = 1
    tracks: list[str] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    flows: list[list[tuple[Slice, float]]] = field(default_factory=list)
    """Arrows: slices, and in each a moment in microseconds."""

    def track(self, name: str) -> int:
        """A new track's number; tracks are shown in this order."""
        self.tracks.append(name)
        return len(self.tracks)

    def add(self, made: Slice) -> Slice:
        self.slices.append(made)
        return made

    def flow(self, *points: tuple[Slice, float]) -> None:
        """An arrow through moments (seconds) in slices, each put off until the one before it.

        There is none where that is after the slice's end: clocks of two processes may disagree.
        """
        found: list[tuple[Slice, float]] = []
        for inside, moment in points:
            at = min(max(microseconds(moment), inside.begins), inside.last)
            at = max(at, found[-1][1] if found else at)
            if at > inside.last:
                return
            found.append((inside, at))
        self.flows.append(found)

    def events(self) -> Iterator[Event]:
        yield self._named("process_name", 0, name=self.name)
        yield self._named("process_sort_index", 0, sort_index=self.number)
        for number, name in enumerate(self.tracks, 1):
            yield self._named("thread_name", number, name=name)
            yield self._named("thread_sort_index", number, sort_index=number)
        yield from (event for _, event in sorted(self._timed(), key=lambda one: one[0]))

    def _timed(self) -> Iterator[tuple[tuple[float, ...], Event]]:
        """Slices and points of arrows, each with a key to sort by.

        A viewer gives a point to the slice that began last on its track. So at one moment a slice
        comes just before its points, and each point of an arrow before the next one.
        """
        order = {each: number for number, each in enumerate(sorted(self.slices, key=_moment))}
        instants: dict[int, float] = {}  # of each track, when something of no length was there
        for each, number in order.items():
            whole = instants.get(each.track) != each.begins or not each.lasts
            for at, event in self._slice(each, whole=whole):
                yield (at, number, 0, 0), event
            if not each.lasts:
                instants[each.track] = each.begins
        for flow, points in enumerate(self.flows, self.first_flow):
            before = (0.0, -1)
            for step, (inside, at) in enumerate(points):
                before = max(before, (at, order[inside] if at == inside.begins else -1))
                last = step == len(points) - 1
                yield (*before, 1, step), self._point(flow, step, inside, at, last=last)

    def _named(self, what: str, track: int, **args: Any) -> Event:
        return {"ph": "M", "name": what, "pid": self.number, "tid": track, "ts": 0, "args": args}

    def _slice(self, each: Slice, *, whole: bool) -> Iterator[tuple[float, Event]]:
        """One event, or one each for its beginning and end, with their moments.

        Of whole slices that begin together a viewer takes the longest to be around the others,
        which one that begins after a slice of no length is not.
        """
        place = {"pid": self.number, "tid": each.track}
        said = {"name": each.name, "cat": each.category, **place, "ts": each.begins}
        if whole:
            yield each.begins, {"ph": "X", **said, "dur": each.lasts, "args": each.args}
            return
        end = round(each.begins + each.lasts, 3)
        yield each.begins, {"ph": "B", **said, "args": each.args}
        yield end, {"ph": "E", **place, "ts": end}

    def _point(self, flow: int, step: int, inside: Slice, at: float, *, last: bool) -> Event:
        event: Event = {
            "ph": "f" if last else "t" if step else "s",
            "name": "tensor",
            "cat": "flow",
            "id": flow,
            "pid": self.number,
            "tid": inside.track,
            "ts": at,
        }
        if last:
            event["bp"] = "e"  # it ends at the slice around it, not at the next
        return event


def _moment(each: Slice) -> tuple[float, float, float]:
    return each.begins, each.begins + each.lasts, each.rank


def microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
