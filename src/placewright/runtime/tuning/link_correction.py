"""Links as a run saw them: a line through the times of its messages, where they allow one.

Only messages count whose receiver was waiting when the sender began: of the others nobody knows
when they arrived. Both directions of a pair are taken together, as a link has one latency.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placewright.cluster import Cluster, Link, LinkMeasurement
from placewright.costs.link_fit import FEWEST_SIZES, LinkFit, fit
from placewright.errors import ExecutionError
from placewright.graph import Floats
from placewright.plan import Plan
from placewright.runtime.ranks.segments import transport
from placewright.runtime.tuning.comparison import Message

FEWEST_MESSAGES = 6  # for a line of their own
WIDEST = 8.0  # for that, the largest is at least so many times as large as the smallest


@dataclass(frozen=True)
class LinkCorrection:
    """Latency (s) and bandwidth (B/s) between devices `a` and `b`, and what the plan took.

    From so many `messages`. `fit` is the line through them, None where there are too few of them,
    or of too similar sizes: then only the one of the plan's two figures that matters more at their
    size is set to what most of them say.
    """

    a: str
    b: str
    messages: int
    latency: float
    bandwidth: float
    latency_before: float
    bandwidth_before: float
    fit: LinkFit | None = None


def link_corrections(plan: Plan, messages: Iterable[Message]) -> tuple[LinkCorrection, ...]:
    """One for each two devices between which a message of the run of `plan` was awaited."""
    pairs: dict[tuple[int, int], list[Message]] = defaultdict(list)
    for each in messages:
        if each.awaited and each.bytes > 0 and each.seconds > 0:
            pairs[min(each.source, each.target), max(each.source, each.target)].append(each)
    return tuple(_correction(plan, *pair, seen) for pair, seen in sorted(pairs.items()))


def _correction(plan: Plan, a: int, b: int, seen: Sequence[Message]) -> LinkCorrection:
    problem = plan.problem
    names = problem.device_names[a], problem.device_names[b]
    latency = float(problem.link_latency[a, b])
    per_byte = float(problem.link_seconds_per_byte[a, b])
    before = latency, 1 / per_byte if per_byte else float("inf")
    sizes = np.array([float(each.bytes) for each in seen])
    seconds = np.array([each.seconds for each in seen])
    line = _line(sizes, seconds)
    if line is not None:
        found = line.latency, line.bandwidth
    else:
        latency, per_byte = _adjusted(sizes, seconds, latency, per_byte)
        found = latency, 1 / per_byte if per_byte else float("inf")
    return LinkCorrection(*names, len(seen), *found, *before, line)


def _line(sizes: Floats, seconds: Floats) -> LinkFit | None:
    """The line of enough messages of sizes far enough apart, if there is one."""
    few = len(sizes) < FEWEST_MESSAGES or len(np.unique(sizes)) < FEWEST_SIZES
    if few or sizes.max() < WIDEST * sizes.min():
        return None
    try:
        return fit(sizes.tolist(), seconds.tolist())
    except ExecutionError:  # times that no line describes
        return None


def _adjusted(
    sizes: Floats, seconds: Floats, latency: float, per_byte: float
) -> tuple[float, float]:
    """Latency and seconds per byte, the one that matters more set to the median of what is left.

    Both are scaled alike where the other alone takes longer than was measured.
    """
    if latency >= float(np.median(sizes)) * per_byte:
        rest = float(np.median(seconds - sizes * per_byte))
        if rest > 0:
            return rest, per_byte
    else:
        rest = float(np.median((seconds - latency) / sizes))
        if rest > 0:
            return latency, rest
    scale = float(np.median(seconds / (latency + sizes * per_byte)))
    return latency * scale, per_byte * scale


def corrected(cluster: Cluster, corrections: Iterable[LinkCorrection]) -> Cluster:
    """`cluster` with the figures of `corrections`, for pairs that have one link of their own.

    Its routing is then ``direct``, since they were measured from end to end.
    """
    found = {frozenset((each.a, each.b)): each for each in corrections}
    parallel = Counter(frozenset((link.a, link.b)) for link in cluster.links)
    usable = {pair: each for pair, each in found.items() if parallel[pair] == 1}
    if not usable:
        return cluster
    links = [_corrected(link, usable.get(frozenset((link.a, link.b)))) for link in cluster.links]
    return replace(cluster, links=tuple(links), routing="direct")


def _corrected(link: Link, correction: LinkCorrection | None) -> Link:
    if correction is None:
        return link
    line, measured = correction.fit, None
    if line is not None:
        measured = LinkMeasurement(transport(), line.median_error, line.largest_error)
    return replace(
        link,
        latency=correction.latency,
        bandwidth=correction.bandwidth,
        reverse_bandwidth=None,
        measured=measured,
    )
