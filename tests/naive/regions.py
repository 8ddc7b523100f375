"""Slow, obvious twins of `common.dominators` and `latency.region_moves`: sets and searches."""

from __future__ import annotations

from tests import naive


def producers(problem, op):
    return {int(problem.edge_producer[e]) for e in naive.inputs_of(problem, op)}


def before(problem, op):
    """`op` and all it reads of, however indirectly."""
    found, waiting = {op}, [op]
    while waiting:
        for other in producers(problem, waiting.pop()) - found:
            found.add(other)
            waiting.append(other)
    return found


def behind(problem, op):
    return {other for other in range(problem.op_count) if op in before(problem, other)}


def beside(problem, op):
    return set(range(problem.op_count)) - before(problem, op) - behind(problem, op)


def dominated(problem, op, counts=None, *, back=False):
    """Ops that no path from an end of the graph reaches without `op`.

    Producers (consumers, if `back`) without ``counts[other]`` are overlooked: an op that has no
    other is an end itself.
    """
    sources = {}
    for other in range(problem.op_count):
        if back:
            near = {c for c in range(problem.op_count) if other in producers(problem, c)}
        else:
            near = producers(problem, other)
        sources[other] = {each for each in near if counts is None or counts[each]}
    reached = {other for other in sources if not sources[other] and other != op}
    grown = True
    while grown:
        more = {other for other in sources if other != op and sources[other] & reached}
        grown = not more <= reached
        reached |= more
    return set(sources) - reached
