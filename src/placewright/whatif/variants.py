"""Variants of a cluster: other numbers of devices, other bandwidths, other batches.

>>> from placewright.costs.clusters import load_cluster
>>> box = load_cluster("2x3090")
>>> [variant.name for variant in variants([box], [parse_count("RTX 3090=1..3")])]
['1 × RTX 3090', '2 × RTX 3090', '3 × RTX 3090']
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import combinations, product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from placewright.cluster import Cluster, Link
from placewright.costs.catalog import find_kind
from placewright.costs.clusters import preset_names
from placewright.errors import OptionError
from placewright.units import parse_bandwidth

MOST_VARIANTS = 1000
MOST_DEVICES = 1024  # of one kind
EVERY_LINK = "*"


@dataclass(frozen=True)
class Variant:
    """One thing to plan for: a cluster, and options (of `Options`) besides those of the sweep.

    `at` is its place on each axis of what is varied, from the least up: which cluster, how many
    devices, how much bandwidth, which batch. Empty where nothing says.
    """

    name: str
    cluster: Cluster
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    at: tuple[int, ...] = ()


@dataclass(frozen=True)
class CountAxis:
    """How many devices of one kind there are, one number per variant."""

    kind: str
    counts: tuple[int, ...]


@dataclass(frozen=True)
class BandwidthAxis:
    """What links named `pattern` carry: per variant ``"25 GB/s"`` or a factor, ``"x2"``."""

    pattern: str
    amounts: tuple[str, ...]


def variants(
    clusters: Sequence[Cluster],
    counts: Sequence[CountAxis] = (),
    bandwidths: Sequence[BandwidthAxis] = (),
    batches: Sequence[int] = (),
) -> list[Variant]:
    """Every cluster with every combination of what is varied.

    OptionError if there are none or more than `MOST_VARIANTS`, or a cluster lacks the kind of
    device or the links to be varied.
    """
    kinds = [axis.kind for axis in counts]
    if any(same_kind(one, other) for one, other in combinations(kinds, 2)):
        raise OptionError("--count is given twice for one kind; write KIND=1,2,4 once")
    size = len(clusters) * max(len(batches), 1)
    for axis in counts:
        size *= len(axis.counts)
    for links in bandwidths:
        size *= len(links.amounts)
    if not 1 <= size <= MOST_VARIANTS:
        raise OptionError(f"that makes {size} variants; a sweep takes 1 to {MOST_VARIANTS}")
    choices: list[list[tuple[Any, Any]]] = [
        *([(axis, count) for count in axis.counts] for axis in counts),
        *([(links, amount) for amount in links.amounts] for links in bandwidths),
        *([[(None, batch) for batch in batches]] if batches else []),
    ]
    places = [range(len(clusters)), *([*_ranks([value for _, value in axis])] for axis in choices)]
    named = len(clusters) > 1 or not choices
    return [
        _variant(clusters[at[0]], chosen, named, at)
        for at, (_, *chosen) in zip(product(*places), product(clusters, *choices), strict=True)
    ]


def _ranks(values: Sequence[int | str]) -> list[int]:
    """The place of each value among all, the least first; as listed where they are of two kinds."""
    written = [value for value in values if isinstance(value, str)]
    if len({amount.startswith("x") for amount in written}) > 1:  # a factor, and bytes per second
        return list(range(len(values)))
    size = [_amount(value) if isinstance(value, str) else float(value) for value in values]
    order = sorted(range(len(values)), key=lambda k: size[k])
    return [order.index(k) for k in range(len(values))]


def _variant(
    cluster: Cluster, chosen: Sequence[tuple[Any, Any]], named: bool, at: tuple[int, ...]
) -> Variant:
    words, whole = [cluster.name] if named else [], cluster
    options = {}
    for axis, value in chosen:
        if isinstance(axis, CountAxis):
            cluster = with_count(cluster, axis.kind, value)
            words.append(f"{value} × {axis.kind}")
        elif isinstance(axis, BandwidthAxis):
            cluster = with_bandwidth(cluster, axis.pattern, value, whole)
            words.append(value if axis.pattern == EVERY_LINK else f"{axis.pattern} {value}")
        else:
            options["batch"] = value
            words.append(f"batch {value}")
    return Variant(", ".join(words), cluster, MappingProxyType(options), at)


# -- clusters by name ------------------------------------------------------------------------


def check_distinct(names: Sequence[str]) -> None:
    """OptionError if one preset or file is among `names` twice, however it is written."""
    presets = {preset.casefold() for preset in preset_names()}
    seen = set()
    for name in names:
        preset = name.casefold() in presets
        which = name.casefold() if preset else Path(name).resolve()
        if which in seen:
            raise OptionError(f"--clusters has '{name}' twice; name each preset or file once")
        seen.add(which)


def told_apart(names: Sequence[str], clusters: Sequence[Cluster]) -> list[Cluster]:
    """The `clusters` that were loaded by `names`, those that are called the same renamed.

    The stem of the file is put behind, or where stems are the same too, the file as it was given.

    >>> box = load_cluster("2x3090")
    >>> [each.name for each in told_apart(["2x3090", "my/box.yaml"], [box, box])]
    ['2x3090', '2x3090 (box)']
    """
    own = [cluster.name for cluster in clusters]
    labels = own
    for more in ([Path(name).stem for name in names], names):
        times = Counter(labels)
        labels = [
            label if times[label] == 1 or name == word else f"{name} ({word})"
            for label, name, word in zip(labels, own, more, strict=True)
        ]
    return [replace(each, name=label) for each, label in zip(clusters, labels, strict=True)]


# -- devices ---------------------------------------------------------------------------------


def with_count(cluster: Cluster, kind: str, count: int) -> Cluster:
    """`cluster` with `count` devices of `kind`: the first ones, or copies of the last one.

    A copy has that device's links. Where devices of the kind are linked with each other, it is
    linked with the one it copies too. A channel that only links of that device name (a network
    card of its own) is the copy's own again; one that others name too (a bus) is shared. A copy
    is nothing of the machine at hand.
    """
    mine = [device for device in cluster.devices if same_kind(device.kind, kind)]
    if not mine:
        kinds = ", ".join(dict.fromkeys(device.kind for device in cluster.devices))
        raise OptionError(
            f"cluster '{cluster.name}' has no device of kind '{kind}' (it has {kinds})"
        )
    gone = {device.name for device in mine[count:]}
    if len(gone) == cluster.device_count:
        raise OptionError(f"cluster '{cluster.name}' has no devices left with 0 of kind '{kind}'")
    devices = [device for device in cluster.devices if device.name not in gone]
    links = [link for link in cluster.links if not {link.a, link.b} & gone]
    taken = {*cluster.device_names, *cluster.switches}
    siblings = {device.name for device in mine}
    place = devices.index(mine[-1]) + 1 if not gone else 0
    for copies in range(count - len(mine)):
        name = _free_name(mine[-1].name, taken)
        links += _copied_links(links, mine[-1].name, name, siblings)
        devices.insert(place + copies, replace(mine[-1], name=name, run=None))
        taken.add(name)
    return replace(cluster, devices=tuple(devices), links=tuple(links))


def _copied_links(links: Sequence[Link], device: str, copy: str, siblings: set[str]) -> list[Link]:
    """The links of `device` for its `copy`, and one between the two if it has one to a sibling."""
    shared = {link.channel for link in links if device not in (link.a, link.b)}
    found: list[Link] = []
    between: Link | None = None
    for link in links:
        if device not in (link.a, link.b):
            continue
        own = link.channel is not None and link.channel not in shared
        link = replace(link, channel=f"{link.channel} of {copy}" if own else link.channel)
        a, b = (copy if end == device else end for end in (link.a, link.b))
        found.append(replace(link, a=a, b=b))
        if between is None and {link.a, link.b} <= siblings:
            ends = (device, copy) if link.b == device else (copy, device)
            between = replace(link, a=ends[0], b=ends[1])
    return found if between is None else [*found, between]


def _free_name(name: str, taken: set[str]) -> str:
    """`name` with the next number that is not taken: gpu3 → gpu4, cpu → cpu2."""
    match = re.fullmatch(r"(.*?)([0-9]{1,9})", name)
    stem, number = (match[1], int(match[2]) + 1) if match else (name, 2)
    while f"{stem}{number}" in taken:
        number += 1
    return f"{stem}{number}"


def same_kind(one: str, other: str) -> bool:
    """Whether two names mean one kind of device, in whatever spelling the catalog knows."""
    if one.casefold() == other.casefold():
        return True
    known = find_kind(one)
    return known is not None and known == find_kind(other)


# -- links -----------------------------------------------------------------------------------


def with_bandwidth(
    cluster: Cluster, pattern: str, amount: str, whole: Cluster | None = None
) -> Cluster:
    """`cluster` with what links named `pattern` carry set to `amount`, or times a factor.

    `pattern` is matched, with wildcards, to a link's channel, either end, or ``a-b``. Where the
    two directions differ, their ratio stays. Links that are unlimited (one memory) stay so.
    OptionError without such a link, but for a single device, such as the first of a sweep, and
    where the `whole` cluster has it, of which other devices were left out.
    """

    def is_meant(link: Link) -> bool:
        return _matches(link, pattern) and math.isfinite(link.bandwidth)

    links = [_rescaled(link, amount) if is_meant(link) else link for link in cluster.links]
    known = (*cluster.links, *(whole.links if whole else ()))
    if cluster.device_count > 1 and not any(map(is_meant, known)):
        raise OptionError(
            f"cluster '{cluster.name}' has no link '{pattern}' with a bandwidth; name a channel, "
            "a device or switch, or two as A-B"
        )
    return replace(cluster, links=tuple(links))


def _matches(link: Link, pattern: str) -> bool:
    names = (link.channel or "", link.a, link.b, f"{link.a}-{link.b}", f"{link.b}-{link.a}")
    return any(fnmatchcase(name, pattern) for name in names)


def _rescaled(link: Link, amount: str) -> Link:
    factor = _amount(amount)
    if not amount.startswith("x"):
        factor /= link.bandwidth
    back = link.reverse_bandwidth
    return replace(
        link,
        bandwidth=link.bandwidth * factor,
        reverse_bandwidth=None if back is None else back * factor,
    )


# -- what a person writes --------------------------------------------------------------------


def parse_count(text: str) -> CountAxis:
    """``KIND=1..8`` or ``KIND=1,2,4``.

    >>> parse_count("T4=1..3").counts
    (1, 2, 3)
    """
    kind, separator, numbers = text.rpartition("=")
    if not separator or not kind:
        raise OptionError(f"--count {text}: write it as KIND=1..8 or KIND=1,2,4")
    span = re.fullmatch(r"\s*(\d{1,6})\s*\.\.\s*(\d{1,6})\s*", numbers)
    if span:
        counts = tuple(range(int(span[1]), min(int(span[2]), MOST_DEVICES + 1) + 1))
        if not counts:
            raise OptionError(f"--count {text}: the range is empty; write the smaller number first")
    else:
        counts = _whole_numbers(numbers, f"--count {text}: write it as KIND=1..8 or KIND=1,2,4")
    if max(counts) > MOST_DEVICES:
        raise OptionError(f"--count {text}: at most {MOST_DEVICES} devices of a kind")
    return CountAxis(kind.strip(), counts)


def parse_bandwidths(text: str) -> BandwidthAxis:
    """``10 GB/s,25 GB/s`` or ``x0.5,x2`` for every link, ``NAME=…`` for those of that name."""
    pattern, _, amounts = text.rpartition("=")
    parts = tuple(dict.fromkeys(part.strip() for part in amounts.split(",")))
    for part in parts:
        try:
            value = _amount(part)
        except ValueError:
            value = 0.0
        if not (math.isfinite(value) and value > 0):
            raise OptionError(
                f"--bandwidth {text}: '{part}' is no bandwidth above 0; write 25GB/s, 100Gbit/s "
                "or a factor such as x2"
            )
    return BandwidthAxis(pattern.strip() or EVERY_LINK, parts)


def parse_batches(text: str) -> tuple[int, ...]:
    """``1,4,16``."""
    message = f"--batches {text}: write whole numbers above 0, such as 1,4,16"
    batches = _whole_numbers(text, message)
    if min(batches) < 1:
        raise OptionError(message)
    return batches


def _amount(text: str) -> float:
    return float(text[1:]) if text.startswith("x") else parse_bandwidth(text)


def _whole_numbers(text: str, message: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise OptionError(message)
    return tuple(dict.fromkeys(int(part) for part in parts))
