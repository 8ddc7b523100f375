"""What several accelerators take at least that share the nodes between two ideals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Floats, Wide
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.invocation.ideal_steps import nodes_between


class Work(NamedTuple):
    """Seconds by node, `time[node, pace]`, and what is to be shared out among which accelerators.

    Combinations of accelerators by rising `size`, first one of each pace: ``least[node, number]``
    seconds on the best of a combination, `quickest[node]` on the best of all. The divisions of a
    combination among two parties are, from `offsets[number]` on, numbers `one` and `other`.
    `leader_offsets` and `leaders`: CSR, the nodes that come right before a node;
    ``comparable[node]`` as bits those that it leads to or depends on, and itself.
    """

    time: Floats
    least: Floats
    quickest: Floats
    size: Wide
    offsets: Wide
    one: Wide
    other: Wide
    leader_offsets: Wide
    leaders: Wide
    comparable: NDArray[np.uint64]


class Desk(NamedTuple):
    """Room to work in: by node, and by set of parts (as bits)."""

    nodes: Wide  # those between, in the first so many places
    part: Wide  # [node] a node of its part that comes before it, then -1 - the part's number
    longest: Floats  # [node]
    bits: NDArray[np.uint64]  # [part] its nodes
    total: Floats  # [set, number] the sum of `least`
    quickest: Floats  # [set] the sum of `quickest`
    spared: Floats  # [set, number] of that at most, of one part, where it has cut nodes of its own
    stretch: Floats  # [part, number] the sum of `least` since the last such node
    since: Floats  # [part] the longest path up to that
    critical: Floats  # [set]
    seconds: Floats  # [set, number]


@kernel
def fill_blocks(bits, level, steps, work, most_parts, desk, found, spared):
    """Fill ``found[row, step]``, a row for each combination of several, in their order.

    And ``spared[level]``, the most that two sets of nodes which have nothing to do with each other
    spare at the same time on whatever is quickest: what the one takes that takes less.

    The nodes between fall into *parts*, that no edge leads from one to another of. Subgraphs that
    are not all in a row either come in two parties that have nothing to do with each other, each of
    which has some of the parts; or some chain of "waits for" leads from any to any other, and then
    at most all but two can be at the same time. 0 where there are more than `most_parts`.
    """
    paces = work.time.shape[1]
    for low in range(len(bits)):
        for step in range(steps.offsets[low], steps.offsets[low + 1]):
            high = steps.targets[step]
            if steps.nodes[step] == 0:  # of another level
                found[:, step] = 0.0
                continue
            between = desk.nodes[: nodes_between(bits[low], bits[high], desk.nodes)]
            parts = _label(between, bits[low], bits[high], work, desk)
            if parts > most_parts:
                found[:, step] = 0.0
                half = _total(between, work.quickest) / 2
                spared[level[low]] = max(spared[level[low]], half)
                continue
            _add_up(between, parts, work, desk)
            every = (1 << parts) - 1
            _share_out(every, work, desk)
            spared[level[low]] = max(spared[level[low]], _most_spared(every, desk))
            for number in range(paces, len(work.size)):
                seconds = _in_two_parties(
                    every, work.offsets[number : number + 2], work.one, work.other, desk.seconds
                )
                if work.size[number] > 3 and (parts > 1 or desk.since[0] == 0.0):
                    tied = desk.total[every, number] / (work.size[number] - 2)
                    seconds = min(seconds, max(tied, desk.critical[every]))
                found[number - paces, step] = seconds


@inner
def _share_out(every, work, desk):
    """Fill ``seconds[chosen, number]``: of some parts, by any subgraphs of the combination.

    If these are not in two parties one waits for another, so not all are at the same time. But for
    the largest combinations, of which no party has one.
    """
    paces, seconds = work.time.shape[1], desk.seconds
    for chosen in range(1, every):
        for number in range(len(work.size)):
            if work.size[number] == work.size[-1]:
                break
            seconds[chosen, number] = desk.total[chosen, number]
            if number < paces:
                continue
            tied = desk.total[chosen, number] / (work.size[number] - 1)
            tied = max(tied, desk.critical[chosen])
            if chosen & (chosen - 1):
                divisions = work.offsets[number : number + 2]
                parties = _in_two_parties(chosen, divisions, work.one, work.other, seconds)
                seconds[chosen, number] = min(tied, parties)
            else:
                seconds[chosen, number] = max(
                    tied, seconds[chosen, number] - desk.spared[chosen, number]
                )


@inner
def _most_spared(every, desk):
    """What two sets of parts spare at most."""
    most = 0.0
    for chosen in range(1, every):
        most = max(most, min(desk.quickest[chosen], desk.quickest[every ^ chosen]))
    return most


@inner
def _in_two_parties(chosen, divisions, one, other, seconds):
    """The least seconds of two parties, the first of which has the first of the parts chosen."""
    first, best = chosen & -chosen, np.inf
    others = chosen ^ first
    rest = others
    while rest:  # of the second party: every set of parts but the first, and none
        mine = chosen ^ rest
        for i in range(divisions[0], divisions[1]):
            best = min(best, max(seconds[mine, one[i]], seconds[rest, other[i]]))
        rest = (rest - 1) & others
    return best


@inner
def _total(between, seconds):
    total = 0.0
    for node in between:
        total += seconds[node]
    return total


@inner
def _root(part, node):
    while part[node] != node:
        node = part[node]
    return node


@inner
def _label(between, low, high, work, desk):
    """Join the nodes that hang together, `desk.part`, to the first; how many parts there are."""
    part, longest = desk.part, desk.longest
    parts = len(between)
    for node in between:
        part[node] = node
        before = 0.0
        for k in range(work.leader_offsets[node], work.leader_offsets[node + 1]):
            leader = work.leaders[k]
            inside = high[leader >> 6] & ~low[leader >> 6]
            if inside >> np.uint64(leader & 63) & np.uint64(1):
                before = max(before, longest[leader])
                one, other = _root(part, leader), _root(part, node)
                parts -= one != other
                part[max(one, other)] = min(one, other)
        longest[node] = before + work.quickest[node]
    return parts


@inner
def _add_up(between, parts, work, desk):
    """Of every part the sums and what may be spared of them; of every set the longest path too."""
    sets = 1 << parts
    desk.total[:sets] = 0.0
    desk.quickest[:sets] = 0.0
    desk.critical[:sets] = 0.0
    _number(between, desk)
    _measure(between, work, desk)
    for part in range(parts):
        _end_stretch(part, desk.critical[1 << part], work, desk)
    for chosen in range(1, sets):
        first = chosen & -chosen
        others = chosen ^ first
        if others:
            for each in range(len(work.size)):
                desk.total[chosen, each] = desk.total[first, each] + desk.total[others, each]
            desk.quickest[chosen] = desk.quickest[first] + desk.quickest[others]
            desk.critical[chosen] = max(desk.critical[first], desk.critical[others])


@inner
def _number(between, desk):
    """Number the parts, and collect their nodes."""
    number = 0
    for node in between:
        if desk.part[node] == node:  # the first of its part
            desk.part[node] = -1 - number
            desk.bits[number] = np.uint64(0)
            desk.spared[1 << number] = 0.0
            desk.stretch[number] = 0.0
            desk.since[number] = 0.0
            number += 1
        else:
            root = node
            while desk.part[root] >= 0:
                root = desk.part[root]
            desk.part[node] = desk.part[root]
        desk.bits[-1 - desk.part[node], node >> 6] |= np.uint64(1) << np.uint64(node & 63)


@inner
def _measure(between, work, desk):
    """Add up the nodes of each part, stretch by stretch between its cut nodes."""
    for node in between:
        part = -1 - desk.part[node]
        if _cuts(desk.bits[part], work.comparable[node]):
            _end_stretch(part, desk.longest[node] - work.quickest[node], work, desk)
            desk.since[part] = desk.longest[node]
        else:
            for each in range(len(work.size)):
                desk.stretch[part, each] += work.least[node, each]
        for each in range(len(work.size)):
            desk.total[1 << part, each] += work.least[node, each]
        desk.quickest[1 << part] += work.quickest[node]
        desk.critical[1 << part] = max(desk.critical[1 << part], desk.longest[node])


@inner
def _cuts(bits, comparable):
    for word in range(len(bits)):  # noqa: SIM110
        if bits[word] & ~comparable[word]:
            return False
    return True


@inner
def _end_stretch(part, longest, work, desk):
    """What several subgraphs within a stretch may spare; they leave one for the cut nodes.

    Up to `longest` seconds from the start of the part. Of four or fewer, several can be in one
    stretch alone.
    """
    alone = 1 << part
    for each in range(len(work.size)):
        beside = work.size[each] - 1
        if beside > 1:
            total = desk.stretch[part, each]
            spared = min(total - (longest - desk.since[part]), total * (1 - 1 / beside))
            desk.spared[alone, each] = max(desk.spared[alone, each], spared)
        desk.stretch[part, each] = 0.0
