"""Nodes that take no time join a neighbour (contiguous stages, after Tarnawski et al. §6, App. B).

A node v is *free* if it takes no seconds on any class of devices and has no weights to keep equal
between replicas. Let u be another node, and let v be able to run wherever u is. Of the nets, let

- A be those of u that v alone reads, D those of v that u reads (others may read them too);
- B be those of v that any node but u reads;
- C be those that v reads and u neither makes nor reads.

**Claim.** v may join u, whatever the split, if

1. *order*: u comes right before v and all else right before v comes right before u too; or the
   same with "after"; or nothing comes right before or right after v;
2. *transfers*: sending B costs no more than sending A, reading B no more than reading A, and so C
   and D, each counted in tensors and in bytes, of either pass by itself;
3. *memory*: v keeps no bytes, or memory is slack.

*Proof.* Take a split with v in stage s and u in another stage r, and move v to r. The split stays
contiguous: under 1 ("before") u comes before v, so r comes before s. What comes right before v is
not after r, as it is u or comes right before u. What comes right after v is in s or after s, and so
after r. ("After" is the mirror image, and a node without neighbours in the order can be anywhere.)
No stage takes longer to compute. As to transfers, where each tensor passes through host memory:

- r sent A and read D before, and sends at most B and reads at most C now: no more, by 2. It
  already paid for what v and u both read. What u sends to v and to others, it still sends at most.
- s read A and sent D before, and if it has readers of B or producers of C, it reads those and sends
  these now: no more, by 2.
- Any other stage reads and sends what it did before, or less.

Each comparison is of one stage with itself, so it does not matter that devices differ, nor whether
a load is a sum or the largest of its parts, nor how many replicas share it (App. C.2), as v is
equally fast on all, nor in which shares, which stay as they were. Where tensors go directly from
device to device, each is sent once to every stage that reads it: then B counts once for each of its
readers. Where links differ as well (App.
C.3), sending to another stage may cost more, so B and C must be empty: then no stage sends or reads
anything it did not before. Under ``gpipe`` a stage reads a tensor in the forward pass if one of its
nodes does, so v must not read a tensor that is read in both passes. By 3 everything fits. ∎

Repeated, so that free nodes in a row (reshapes, dropouts, splits of a tuple) join one after another
what they hang on. Where memory is not slack it makes a plan and a bound, see `Reading`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placewright.analysis.contracted import ContractedGraph, NetTable
from placewright.analysis.reductions.circles import contracted_in_order
from placewright.graph import Flags, Wide
from placewright.problem import Problem

OUT, IN = 0, 1


def memory_is_slack(graph: ContractedGraph) -> bool:
    """Whether any device has room for everything."""
    return bool(graph.memory.sum() <= graph.problem.device_memory.min())


def joined(graph: ContractedGraph, may_join: Flags) -> ContractedGraph:
    """The graph with each free node that `may_join`, and can, in one node with a neighbour."""
    free = is_free(graph) & may_join
    if not free.any():
        return graph
    joining = _Joining(graph, free)
    joining.run()
    if all(node == group for node, group in enumerate(joining.group)):
        return graph
    _, group = np.unique(joining.roots(), return_inverse=True)
    return contracted_in_order(graph, group)


def is_free(graph: ContractedGraph) -> Flags:
    """`[node]` whether it takes no time anywhere, beside what it keeps and transfers."""
    free = (graph.time == 0).all(axis=(0, 2))
    if graph.problem.options.replicate:
        free &= graph.sync_bytes == 0
    return np.asarray(free, dtype=np.bool_)


class _Balance:
    """What is sent and read more (B, C) than before (A, D), by pass: tensors and bytes."""

    def __init__(self) -> None:
        self._more: dict[tuple[str, int, int], list[float]] = {}

    def add(self, pair: str, direction: int, way: int, tensors: float, size: float) -> None:
        sums = self._more.setdefault((pair, direction, way), [0.0, 0.0])
        sums[0] += tensors
        sums[1] += size

    def is_no_more(self) -> bool:
        return all(tensors <= 0 and size <= 0 for tensors, size in self._more.values())


class _Lists(dict[int, list[int]]):
    """Rows of a CSR table as lists, made when they are first asked for."""

    def __init__(self, offsets: Wide, entries: Wide | Flags) -> None:
        super().__init__()
        self._offsets, self._entries = offsets, entries

    def __missing__(self, row: int) -> list[int]:
        self[row] = self._entries[self._offsets[row] : self._offsets[row + 1]].tolist()
        return self[row]


class _Sets(dict[int, set[int]]):
    """The same as sets."""

    def __init__(self, offsets: Wide, entries: Wide) -> None:
        super().__init__()
        self._lists = _Lists(offsets, entries)

    def __missing__(self, row: int) -> set[int]:
        self[row] = set(self._lists[row])
        return self[row]


class _Readers(dict[int, dict[int, bool]]):
    """Of each net the nodes that read it, with whether they do in the forward pass."""

    def __init__(self, nets: NetTable) -> None:
        super().__init__()
        self._nodes = _Lists(nets.offsets, nets.readers)
        self._forward = _Lists(nets.offsets, nets.forward)

    def __missing__(self, net: int) -> dict[int, bool]:
        self[net] = dict(zip(self._nodes[net], map(bool, self._forward[net]), strict=True))
        return self[net]


class _Joining:
    """Free nodes joining their neighbours one by one; names of the claim above.

    What it knows of a node's surroundings is read when it is first needed. A node that joins
    is replaced in all its neighbours and nets, so what is read later names no node that has gone.
    """

    def __init__(self, graph: ContractedGraph, free: Flags) -> None:
        problem, nets = graph.problem, graph.nets
        self.free = np.flatnonzero(free).tolist()
        self.allowed = graph.allowed
        self.group = list(range(graph.node_count))
        """Where each node went, itself if it did not."""
        self.before, self.after = _Sets(*graph.leaders), _Sets(*graph.followers)
        self.home, self.way = nets.producer.tolist(), nets.way.tolist()
        self.size = nets.bytes.tolist()
        has_latency = bool(problem.link_latency.any() or problem.host_latency.any())
        self.tensors = (nets.tensors * has_latency).tolist()
        self.readers = _Readers(nets)
        self.nets = _Sets(*graph.node_nets[:2])
        self.by_pass = graph.passes > 1
        self.once = problem.staging == "host"
        self.alike = self.once or links_alike(problem)

    def run(self) -> None:
        """Until no free node can join: each that does may let others."""
        waiting = self.free
        tried = len(waiting) + 1
        while len(waiting) < tried:
            tried = len(waiting)
            waiting = [node for node in waiting if not self._joins(node)]

    def roots(self) -> list[int]:
        """`[node]` the one that stands for its group."""
        found = []
        for node in range(len(self.group)):
            root = node
            while self.group[root] != root:
                root = self.group[root]
            found.append(root)
        return found

    def _joins(self, node: int) -> bool:
        target = next((each for each in self._targets(node) if self._may_join(node, each)), None)
        if target is not None:
            self._join(node, target)
        return target is not None

    # -- conditions ------------------------------------------------------------------------------

    def _targets(self, node: int) -> Iterator[int]:
        """The nodes of condition 1."""
        before, after = self.before[node], self.after[node]
        yield from (each for each in before if before - {each} <= self.before[each])
        yield from (each for each in after if after - {each} <= self.after[each])
        if not before and not after:
            yield from self._companions(node)

    def _companions(self, node: int) -> Iterator[int]:
        """Those a node without neighbours in the order shares nets with, and one in any case."""
        shared = {each for net in self.nets[node] for each in (self.home[net], *self.readers[net])}
        yield from sorted(shared - {node})
        others = (each for each, root in enumerate(self.group) if each == root != node)
        yield from (each for each in (next(others, node),) if each != node)

    def _may_join(self, v: int, u: int) -> bool:
        if (self.allowed[u] & ~self.allowed[v]).any():
            return False
        balance = _Balance()
        return all(self._count(net, v, u, balance) for net in self.nets[v]) and balance.is_no_more()

    def _count(self, net: int, v: int, u: int, balance: _Balance) -> bool:
        """Add a net of v to the balance; False if v may not join u for it."""
        if self.home[net] == v:
            return self._count_made(net, u, balance)
        return self._count_read(net, v, u, balance)

    def _count_made(self, net: int, u: int, balance: _Balance) -> bool:
        way, tensors, size = self.way[net], self.tensors[net], self.size[net]
        readers = self.readers[net]
        others = [forward for each, forward in readers.items() if each != u]
        if u in readers:
            balance.add("CD", OUT, way, -tensors, -size)
            balance.add("CD", IN, 0 if readers[u] else 1, -tensors, -size)
        if others:
            times = 1 if self.once else len(others)
            balance.add("AB", OUT, way, times * tensors, times * size)
        for forward in set(others):
            balance.add("AB", IN, 0 if forward else 1, tensors, size)
        return self.alike or not others

    def _count_read(self, net: int, v: int, u: int, balance: _Balance) -> bool:
        way, tensors, size = self.way[net], self.tensors[net], self.size[net]
        readers = self.readers[net]
        if self.by_pass and len(set(readers.values())) > 1:
            return False
        pair, sign = ("AB", -1) if self.home[net] == u else ("CD", 1)
        if (pair == "AB" and len(readers) > 1) or u in readers:
            return True
        balance.add(pair, OUT, way, sign * tensors, sign * size)
        balance.add(pair, IN, 0 if readers[v] else 1, sign * tensors, sign * size)
        return self.alike or pair == "AB"

    # -- joining ---------------------------------------------------------------------------------

    def _join(self, v: int, u: int) -> None:
        """Node u stands for v too; it runs where it did, for v can run there."""
        self.group[v] = u
        for net in self.nets[v]:
            self._rename(net, v, u)
        self.nets[u] = {net for net in self.nets[u] | self.nets[v] if self.readers[net]}
        for one, two in ((self.before, self.after), (self.after, self.before)):
            for each in one[v]:
                two[each].discard(v)
                if each != u:
                    two[each].add(u)
            one[u] = (one[u] | one[v]) - {u, v}

    def _rename(self, net: int, v: int, u: int) -> None:
        readers = self.readers[net]
        if self.home[net] == v:
            self.home[net] = u
        forward = readers.pop(v, None)
        if forward is not None:
            readers[u] = readers.get(u, False) or forward
        if self.home[net] == u:
            readers.pop(u, None)


def links_alike(problem: Problem) -> bool:
    """Whether a transfer between two devices costs the same, whichever they are."""
    apart = ~np.eye(problem.device_count, dtype=np.bool_)
    return all(
        len(np.unique(link[apart])) <= 1
        for link in (problem.link_latency, problem.link_seconds_per_byte)
    )
