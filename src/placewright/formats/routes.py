"""The routes of a problem in a file: three matrices, or for many devices `formats.Ways`.

What a large cluster says many times over is written once: pairs of devices that take equally long
and use as many channels have one *way*, and devices that are alike, such as those of a host, are
a group with one row in the table of ways. This form is used where it is at most 1 / `WORTH` as
long as the matrices, so that the file of a few devices keeps these; both are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placewright.errors import GraphError
from placewright.graph import Wide, given_up
from placewright.problem import Problem

if TYPE_CHECKING:
    from placewright.formats.schema import Routes, Ways

WORTH = 4
MAX_ENTRIES = 2**30  # of the tables that a few words of a file stand for

Numbers = NDArray[Any]  # whole numbers


def routes_document(problem: Problem) -> dict[str, Any]:
    """`link_latency`, `link_seconds_per_byte` and the channels of a problem as plain lists."""
    return _ways(problem) or _matrices(problem)


def read_routes(routes: Routes, count: int, where: str) -> dict[str, Any]:
    """The four columns of a problem of `count` devices; GraphError where entries do not fit."""
    if routes.ways is not None:
        return _read_ways(routes.ways, count, len(routes.channel_names), where)
    rows = routes.channels or []
    if len(rows) != count or any(len(row) != count for row in rows):
        raise GraphError(f"{where}: routes.channels is no square matrix, a row per device")
    channels = _flat(rows)
    return {
        "link_latency": routes.latency,  # `Problem` says what is wrong
        "link_seconds_per_byte": routes.seconds_per_byte,
        "channel_offsets": offsets_of(channels),
        "channels": joined(channels),
    }


def _matrices(problem: Problem) -> dict[str, Any]:
    channels = lists(problem.channel_offsets, problem.channels)
    return {
        "latency": problem.link_latency.tolist(),
        "seconds_per_byte": problem.link_seconds_per_byte.tolist(),
        "channels": _rows(channels, problem.device_count),
    }


# -- lists in lists ------------------------------------------------------------------------------


def lists(offsets: Numbers, values: Numbers) -> list[list[int]]:
    """CSR as lists."""
    everything, ends = values.tolist(), offsets.tolist()
    return [everything[first:last] for first, last in pairwise(ends)]


def offsets_of(entries: Sequence[Sequence[int]]) -> Wide:
    """Where each list begins in `joined`, and the end."""
    offsets = np.zeros(len(entries) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in entries], out=offsets[1:])
    return offsets


def joined(entries: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    return np.array([each for entry in entries for each in entry], dtype=np.int32)


def refuse_huge(entries: int, where: str) -> None:
    """A few words may stand for a table that no machine holds."""
    if entries > MAX_ENTRIES:
        raise GraphError(
            f"{where} needs tables of {entries:,} entries, more than the {MAX_ENTRIES:,} that are "
            "read; use fewer devices"
        )


def bits(values: NDArray[np.float64]) -> Wide:
    """What tells two floats apart, 0.0 and -0.0 as well."""
    return values.view(np.int64)


def _flat(rows: list[list[list[int]]]) -> list[list[int]]:
    return [each for row in rows for each in row]


def _rows(entries: list[Any], width: int) -> list[Any]:
    return [entries[start : start + width] for start in range(0, len(entries), width)]


# -- writing ways --------------------------------------------------------------------------------


def _ways(problem: Problem) -> dict[str, Any] | None:
    """The routes by ways; None where they cannot be written so, or it is not worth it."""
    count = problem.device_count
    most = (3 * count**2 + len(problem.channels)) // WORTH
    way = _way_of_pairs(problem)
    ways = 0 if way is None else int(way.max()) + 1
    if way is None or 2 * ways * (count + 1) > most:
        return None
    group = _groups(way)
    table = _between_groups(way, group)
    if count + table.size + 2 * ways * (count + 1) > most:
        return None
    used = _Used(problem, way.ravel())
    leaving, at_source = used.shared(0)
    arriving, at_target = used.shared(1)
    between = used.others(at_source | at_target)
    written = sum(len(some) + sum(map(len, some)) for some in (leaving, arriving, *between))
    if count + table.size + 2 * ways + written > most:
        return None
    example = np.unique(way, return_index=True)[1][1:]  # a pair of each way
    return {
        "ways": {
            "group": group.tolist(),
            "way": table.tolist(),
            "latency": problem.link_latency.ravel()[example].tolist(),
            "seconds_per_byte": problem.link_seconds_per_byte.ravel()[example].tolist(),
            "leaving": _rows(leaving, ways),
            "arriving": _rows(arriving, ways),
            "between": between,
        }
    }


def _way_of_pairs(problem: Problem) -> Numbers | None:
    """`[a, b]` the number of the way, -1 where a = b.

    None where channels do not rise or a transfer from a device to itself has figures, which ways
    cannot say.
    """
    count = problem.device_count
    apart = ~np.eye(count, dtype=bool)
    columns = (
        bits(problem.link_latency),
        bits(problem.link_seconds_per_byte),
        np.diff(problem.channel_offsets).reshape(count, count),
    )
    if any(column[~apart].any() for column in columns) or not _channels_rise(problem):
        return None
    number = np.zeros(count * (count - 1), dtype=np.int64)
    for column in columns:
        values = _ranks(column[apart])
        number = _ranks(number * (values.max(initial=0) + 1) + values)
    way = np.full((count, count), -1)
    way[apart] = number
    return way


def _ranks(values: Numbers) -> Numbers:
    """`[entry]` how many distinct values are smaller."""
    return np.searchsorted(_distinct(values), values)


def _distinct(values: Numbers) -> Numbers:
    """In rising order: `numpy.unique` hashes, ten times slower where most values differ."""
    values = np.sort(values)
    first: Numbers = values[np.diff(values, prepend=values[:1] - 1) != 0]
    return first


def _channels_rise(problem: Problem) -> bool:
    rises = np.diff(problem.channels) > 0
    starts = problem.channel_offsets[1:-1]
    rises[starts[(starts > 0) & (starts < len(problem.channels))] - 1] = True
    return bool(rises.all())


def _groups(way: Numbers) -> Numbers:
    """`[device]` its group: devices with the same ``way[a, b]`` to and from all others."""
    count = len(way)
    both = np.hstack([way, way.T]).astype(np.int32)  # [device] to every device, then from every
    group = np.full(count, -1)
    for device in range(count):
        if group[device] >= 0:
            continue
        free = np.flatnonzero(group < 0)
        differs = both[free] != both[device]
        for end in (0, count):  # how the two are with each other and themselves comes after
            differs[:, end + device] = False
            differs[np.arange(len(free)), end + free] = False
        alike = ~differs.any(axis=1) & (way[free, device] == way[device, free])
        group[free[alike]] = group.max() + 1
    return group


def _between_groups(way: Numbers, group: Numbers) -> Numbers:
    """``table[g, h]`` the way from a device of g to another of h, -1 where there is none."""
    members = [np.flatnonzero(group == each) for each in range(group.max() + 1)]
    first = [each[0] for each in members]
    table = way[np.ix_(first, first)]
    for each, (one, *others) in enumerate(members):
        table[each, each] = way[one, others[0]] if others else -1
    return table


class _Used:
    """Which channels pairs of devices use, as one long table: `pair[entry]`, `channel[entry]`.

    Of the channels of a pair (a, b) by way w, those that every pair from a by w uses are shared,
    and so are those that every pair to b does: on any network both are among the pair's own.
    What they leave out is the pair's alone.
    """

    def __init__(self, problem: Problem, way: Numbers) -> None:
        self.count = problem.device_count
        self.names = len(problem.channel_names)
        self.way = way
        self.ways = int(way.max()) + 1
        self.pair = np.repeat(np.arange(len(way)), np.diff(problem.channel_offsets))
        self.channel = problem.channels

    def shared(self, end: int) -> tuple[list[list[int]], NDArray[np.bool_]]:
        """The channels per device and way that all pairs from it (`end` 0) or to it (1) use.

        And `[entry]` whether it is one of them.
        """
        device = np.divmod(np.arange(len(self.way)), self.count)[end]
        place = device * self.ways + self.way
        pairs = np.bincount(place[self.way >= 0], minlength=self.count * self.ways)
        key = place[self.pair] * self.names + self.channel
        found, times = np.unique(key, return_counts=True)
        found = found[times == pairs[found // self.names]]
        starts = np.searchsorted(found, np.arange(len(pairs) + 1) * self.names)
        at = np.minimum(np.searchsorted(found, key), max(len(found) - 1, 0))
        is_shared = found[at] == key if len(found) else np.zeros(len(key), dtype=bool)
        return lists(starts, found % self.names), is_shared

    def others(self, is_shared: NDArray[np.bool_]) -> list[list[list[int]]]:
        """Per way the other channels of each of its pairs; an empty list where none has any."""
        pair, channel = self.pair[~is_shared], self.channel[~is_shared]
        starts = np.searchsorted(pair, np.arange(len(self.way) + 1))
        between: list[list[list[int]]] = [[] for _ in range(self.ways)]
        for way in np.unique(self.way[pair]).tolist():
            pairs = np.flatnonzero(self.way == way)
            own = zip(starts[pairs].tolist(), starts[pairs + 1].tolist(), strict=True)
            between[way] = [channel[first:last].tolist() for first, last in own]
        return between


# -- reading ways --------------------------------------------------------------------------------


def _read_ways(ways: Ways, count: int, names: int, where: str) -> dict[str, Any]:
    refuse_huge(8 * count**2, where)
    _check(ways, count, names, where)
    numbers = len(ways.latency)
    way = np.array(ways.way)[np.ix_(ways.group, ways.group)]
    apart = ~np.eye(count, dtype=bool)
    if (way[apart] < 0).any():
        a, b = np.argwhere(apart & (way < 0))[0].tolist()
        raise GraphError(
            f"{where}: routes.ways.way has -1 for groups {ways.group[a]} and {ways.group[b]}, "
            "which have two different devices; give the number of their way"
        )
    pairs = np.flatnonzero(apart)
    way = way[apart]
    source, target = np.divmod(pairs, count)
    found = [
        _keys(pairs, device * numbers + way, _flat(rows), names, where)
        for device, rows in ((source, ways.leaving), (target, ways.arriving))
    ]
    for number, own in enumerate(ways.between):
        of_way = pairs[way == number]
        if own and len(own) != len(of_way):
            raise GraphError(
                f"{where}: routes.ways.between.{number} has {len(own)} entries for "
                f"{len(of_way)} pairs of devices; give one per pair, or none at all"
            )
        found.append(_keys(of_way[: len(own)], np.arange(len(own)), own, names, where))
    keys = _distinct(np.concatenate(found))
    starts = np.searchsorted(keys, np.arange(count**2 + 1) * names)
    return {
        "link_latency": _matrix(ways.latency, way, apart),
        "link_seconds_per_byte": _matrix(ways.seconds_per_byte, way, apart),
        "channel_offsets": starts,
        "channels": (keys % max(names, 1)).astype(np.int32),
    }


def _check(ways: Ways, count: int, names: int, where: str) -> None:
    """Lengths, and numbers that stand for something."""
    groups, numbers = len(ways.way), len(ways.latency)
    for name, rows, length, what in (
        ("group", [ways.group], count, "devices"),
        ("way", ways.way, groups, "groups"),
        ("seconds_per_byte", [ways.seconds_per_byte], numbers, "ways"),
        ("leaving", [ways.leaving], count, "devices"),
        ("leaving", ways.leaving, numbers, "ways"),
        ("arriving", [ways.arriving], count, "devices"),
        ("arriving", ways.arriving, numbers, "ways"),
        ("between", [ways.between], numbers, "ways"),
    ):
        for row in rows:
            if len(row) != length:
                raise GraphError(
                    f"{where}: routes.ways.{name} has {len(row)} entries for {length} {what}; "
                    "give one for each"
                )
    for name, entries, limit, what in (
        ("group", [ways.group], groups, "groups"),
        ("way", ways.way, numbers, "ways"),
        ("leaving", _flat(ways.leaving), names, "channels"),
        ("arriving", _flat(ways.arriving), names, "channels"),
        ("between", _flat(ways.between), names, "channels"),
    ):
        for row in entries:
            if row and max(row) >= limit:
                raise GraphError(
                    f"{where}: routes.ways.{name} has entry {max(row)}, but there are {limit} "
                    f"{what}, numbered from 0"
                )


def _keys(
    pairs: Numbers, place: Numbers, channels: Sequence[Sequence[int]], names: int, where: str
) -> Numbers:
    """``pair · names + channel`` for each of `pairs` and each channel listed at its place."""
    starts, values = offsets_of(channels), joined(channels)
    length = np.diff(starts)[place]
    refuse_huge(8 * int(length.sum()), where)
    before = np.cumsum(length) - length
    entry = np.arange(length.sum()) + np.repeat(starts[place] - before, length)
    keys: Numbers = np.repeat(pairs, length) * names + values[entry]
    return keys


def _matrix(figures: list[float], way: Numbers, apart: NDArray[np.bool_]) -> NDArray[np.float64]:
    matrix = np.zeros(apart.shape)
    matrix[apart] = np.array(figures)[way]
    return given_up(matrix)
