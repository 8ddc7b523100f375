"""Slow, obvious twins of the coarsenings: definitions spelled out over all subsets."""

from __future__ import annotations

import itertools
import re

import numpy as np
import rustworkx as rx


def edge_pairs(problem):
    """Pairs (producer, consumer), each once."""
    return set(zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True))


def descendants(problem):
    """`[op]` the ops a path leads to."""
    pairs = edge_pairs(problem)
    found = [set() for _ in range(problem.op_count)]
    for op in problem.topological_order[::-1].tolist():
        for producer, consumer in pairs:
            if producer == op:
                found[op] |= {consumer} | found[consumer]
    return found


# -- one channel -----------------------------------------------------------------------------------


def naive_cut_ops(problem):
    """Comparable with every other op, and no edge from an ancestor to a descendant."""
    after = descendants(problem)
    ops = range(problem.op_count)
    cuts = [
        c
        for c in ops
        if all(other in after[c] or c in after[other] for other in ops if other != c)
        and not any(c in after[a] and b in after[c] for a, b in edge_pairs(problem))
    ]
    return sorted(cuts, key=lambda c: -len(after[c]))


def naive_comparable_with_all(problem):
    after = descendants(problem)
    ops = range(problem.op_count)
    return [all(other in after[c] or c in after[other] for other in ops if other != c) for c in ops]


def naive_passing(problem):
    """Per edge whether an op comparable with all others is between its producer and consumer."""
    after = descendants(problem)
    middles = np.flatnonzero(naive_comparable_with_all(problem)).tolist()
    ends = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
    return [any(c in after[a] and b in after[c] for c in middles) for a, b in ends]


def with_ends(problem):
    """The undirected graph with an input before all sources and an output after all sinks."""
    pairs = edge_pairs(problem)
    n = problem.op_count
    graph = rx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(n + 2))
    graph.add_edges_from_no_data(sorted(pairs))
    for op in range(n):
        if all(op != consumer for _, consumer in pairs):
            graph.add_edge(n, op, None)
        if all(op != producer for producer, _ in pairs):
            graph.add_edge(op, n + 1, None)
    return graph


def naive_articulation_ops(problem):
    return {op for op in rx.articulation_points(with_ends(problem)) if op < problem.op_count}


def naive_modules(problem):
    """DiviML §IV-B: cut every bridge, and every articulation op that is no end of one.

    `[op]` how many of the cuts it comes after.
    """
    n, after = problem.op_count, descendants(problem)
    graph = with_ends(problem)
    bridges = [set(each) for each in rx.bridges(graph)]
    pairs = edge_pairs(problem)
    cuts = [a for a, b in pairs if {a, b} in bridges]
    cuts += [
        c for c in rx.articulation_points(graph) if c < n and not any(c in each for each in bridges)
    ]
    return np.array([sum(op in after[c] for c in cuts) for op in range(n)])


# -- more channels ---------------------------------------------------------------------------------


def naive_narrow_cuts(problem, block, channels):
    """`[op]` its piece, by going through all downsets (see `kernels.latency.narrow_cuts`)."""
    pairs = edge_pairs(problem)
    order = problem.topological_order.tolist()
    position = {op: at for at, op in enumerate(order)}

    def outgoing(down):
        return sum(a in down and b not in down for a, b in pairs)

    def is_downset(down):
        return all(a in down for a, b in pairs if b in down)

    taken, piece, number = set(), {}, 0
    while len(taken) < len(order):
        first = next(op for op in order if op not in taken)
        members = [op for op in order if block[op] == block[first]]
        rest = [op for op in members if op not in taken and op != first]
        found = None
        for top in members[members.index(first) : -1]:
            free = [op for op in rest if position[op] <= position[top]]
            downs = [
                taken | {first, *chosen}
                for size in range(len(free) + 1)
                for chosen in itertools.combinations(free, size)
            ]
            downs = [each for each in downs if is_downset(each) and outgoing(each) <= channels]
            if downs:
                found = min(downs, key=lambda each: (outgoing(each), len(each)))
                break
        found = found or taken | set(members)
        for op in found - taken:
            piece[op] = number
        taken, number = found, number + 1
    return np.array([piece[op] for op in range(len(order))])


def naive_edge_connected(problem, k):
    """`[op]` its maximal k-edge-connected induced subgraph, by trying all cuts."""
    links = {frozenset(pair) for pair in edge_pairs(problem)}

    def parts(ops):
        for size in range(1, len(ops) // 2 + 1):
            for side in itertools.combinations(ops, size):
                other = [op for op in ops if op not in side]
                if sum(len(link & set(side)) == 1 and link <= set(ops) for link in links) < k:
                    return parts(list(side)) + parts(other)
        return [ops]

    component = np.empty(problem.op_count, dtype=int)
    for number, ops in enumerate(parts(list(range(problem.op_count)))):
        component[ops] = number
    return component


def naive_joining(sizes, costs, max_ops):
    """The least sum of the `costs` of boundaries kept, joining runs of at most `max_ops` ops."""
    best = np.inf
    for kept in itertools.product([False, True], repeat=len(costs)):
        ends = [t + 1 for t, keep in enumerate(kept) if keep] + [len(sizes)]
        runs = [sizes[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        if all(len(run) == 1 or sum(run) <= max_ops for run in runs):
            best = min(best, sum(c for c, keep in zip(costs, kept, strict=True) if keep))
    return best


# -- fusion ----------------------------------------------------------------------------------------


def naive_fused_count(problem, patterns, longest):
    """Ops left after fusion by regular expressions over one-letter op types.

    Chains first (two ops are neighbours if some text of the patterns has them so), then the best
    of all ways to cut each. Texts of up to `longest` letters are tried for the neighbours.
    """
    letters = sorted(set(filter(str.isalpha, "".join(patterns))))
    texts = [
        "".join(each)
        for size in range(2, longest + 1)
        for each in itertools.product(letters, repeat=size)
    ]
    neighbours = {
        text[at : at + 2]
        for text in texts
        if any(re.fullmatch(pattern, text) for pattern in patterns)
        for at in range(len(text) - 1)
    }
    readers = {op: {b for a, b in edge_pairs(problem) if a == op} for op in range(problem.op_count)}
    chains = []
    for op in problem.topological_order[::-1].tolist():
        home = [chain for chain in chains if readers[op] and readers[op] <= set(chain)]
        if home and home[0][0] in readers[op]:
            pair = problem.op_types[op] + problem.op_types[home[0][0]]
            if pair in neighbours:
                home[0].insert(0, op)
                continue
        chains.append([op])
    return sum(_fewest_pieces(problem, chain, patterns, readers) for chain in chains)


def is_fusible(problem, piece, patterns, readers):
    """Whether the ops of `piece`, in this order, are a rule and all but the last read inside."""
    text = "".join(problem.op_types[op] for op in piece)
    return all(readers[op] <= set(piece) for op in piece[:-1]) and any(
        re.fullmatch(pattern, text) for pattern in patterns
    )


def _fewest_pieces(problem, chain, patterns, readers):
    best = len(chain)
    for cuts in itertools.product([False, True], repeat=len(chain) - 1):
        ends = [at + 1 for at, cut in enumerate(cuts) if cut] + [len(chain)]
        pieces = [chain[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        if all(len(p) == 1 or is_fusible(problem, p, patterns, readers) for p in pieces):
            best = min(best, len(pieces))
    return best


def lifted(problem, op_time, edge_time):
    """Raise what is too soon until nothing is."""
    ops, edges = op_time.tolist(), edge_time.tolist()
    changed = True
    while changed:
        changed = False
        for edge, producer in enumerate(problem.edge_producer.tolist()):
            consumer = int(problem.consumers[edge])
            if edges[edge] < ops[producer]:
                edges[edge], changed = ops[producer], True
            if ops[consumer] < edges[edge]:
                ops[consumer], changed = edges[edge], True
    return ops, edges
