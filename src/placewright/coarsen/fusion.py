"""GCOF: coarsen a graph by the operator fusion of the engine that will run it.

Moirai (Zhang et al. 2023), §III-B and Algorithm 1: ops that the inference backend fuses into one
kernel belong on one device, so the planner may as well see one op. A *rule* is an ordered list
of op types (`fusion_rules`); ops are fused along *direct* connections (one output read by one
op) and *multi-input* connections (one output, its reader reads others too), never along a
*multi-output* one (Fig. 6).

Both steps of the algorithm visit every op once, O(V + E) for given rules:

1. *bind*, in the order in which a depth-first search leaves the ops (readers first): an op is put
   before the chain of ops that alone reads it (``is_valid_conn``) if some rule has the two next
   to each other;
2. *unbind*: every chain is cut into the fewest pieces that are each one op or a whole rule.

Algorithm 1 binds what is part of one rule (``is_sub_rule``) and keeps what its traversal happened
to complete (``is_rule``); binding more and cutting best leaves no more ops than that, and does
not depend on where the traversal begins.

Why the result is a DAG: in a piece, all but the last op are read inside it alone, so whatever
leaves a piece leaves from its last op; a cycle among pieces would be one among these last ops.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from placewright.analysis.capacity import Capacity
from placewright.coarsen.fusion_rules import Item, Rules, load_rules, rule_names
from placewright.graph import Ints, frozen
from placewright.problem import Problem

__all__ = ["Rules", "fusion_groups", "load_rules", "rule_names"]


def fusion_groups(problem: Problem, rules: Rules | str | Path = "inductor") -> Ints:
    """`[op]` the fused op it becomes part of, for `contraction.contract`.

    Groups are numbered by their first op. Ops are fused only where one device supports them all,
    as pinned, and holds them with all that is colocated with them; forward and backward ops are
    never fused with each other.

    Raises OptionError for rules that do not exist and FormatError for a malformed rule file.

    >>> group = fusion_groups(problem, "inductor")
    >>> contraction = contract(problem, group)
    """
    if not isinstance(rules, Rules):
        rules = load_rules(rules)
    matcher = _Matcher(rules)
    places = matcher.places_of(problem.op_types)
    capacity = Capacity(problem)
    group = np.arange(problem.op_count)
    for chain in _bind(problem, places, matcher):
        for start, end in _unbind(chain, places, matcher, capacity):
            piece = chain.ops[start:end]
            if end - start > 1 and capacity.together(piece):
                group[piece] = min(piece)
    return frozen(np.unique(group, return_inverse=True)[1], np.int32)


# -- rules as places -------------------------------------------------------------------------------
#
# A set of places (items of rules) is an int with one bit per place. Following the data through a
# chain of ops moves a set of places forward; extending a chain at its front moves one backward.


class _Matcher:
    """All rules at once, as the automaton whose states are their items (Glushkov 1961).

    An item is two places: that of its op, and, next to it, that of the views after the op.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._words: list[frozenset[str]] = []
        self._before: list[int] = []  # [place] the places from which one step leads here
        self.first = self.last = 0
        for rule in rules.rules:
            self._add(rule)
        self._memo: dict[int, int] = {}

    def _add(self, rule: tuple[Item, ...]) -> None:
        start = len(self._words)
        for at, item in enumerate(rule):
            place = start + 2 * at
            earlier = _neighbours(rule[:at])
            befores = [start + 2 * other for other in earlier] + [place] * item.repeats
            self._words += [item.words, self._rules.through]
            self._before += [sum(0b11 << before for before in befores), 0b11 << place]
            if all(each.optional for each in rule[:at]):
                self.first |= 1 << place
            if all(each.optional for each in rule[at + 1 :]):
                self.last |= 0b11 << place

    @cached_property
    def after(self) -> list[int]:
        """`[place]` the places one step on."""
        after = [0] * len(self._words)
        for place, before in enumerate(self._before):
            for earlier in _bits(before):
                after[earlier] |= 1 << place
        return after

    def places_of(self, op_types: tuple[str, ...]) -> list[int]:
        """`[op]` the places its type may stand in."""
        of_type: dict[str, int] = {}
        for op_type in set(op_types):
            word = self._rules.word(op_type)
            found = (place for place, words in enumerate(self._words) if word in words)
            of_type[op_type] = sum(1 << place for place in found)
        return [of_type[op_type] for op_type in op_types]

    def before(self, places: int) -> int:
        """The places from which one step leads to one of `places`."""
        if places not in self._memo:
            found = 0
            for place in _bits(places):
                found |= self._before[place]
            self._memo[places] = found
        return self._memo[places]


def _neighbours(earlier: tuple[Item, ...]) -> list[int]:
    """Which of the items before one may stand next to it."""
    found = []
    for at in reversed(range(len(earlier))):
        found.append(at)
        if not earlier[at].optional:
            break
    return found


def _bits(number: int) -> list[int]:
    found = []
    while number:
        low = number & -number
        found.append(low.bit_length() - 1)
        number ^= low
    return found


# -- bind ------------------------------------------------------------------------------------------


@dataclass
class _Chain:
    """Ops in the order of the data, each but the last read by ops of the chain alone.

    `reach[i]` is where in the chain the last reader of op i stands. While the chain grows at its
    front both lists are kept from back to front.
    """

    ops: list[int]
    reach: list[int]


def _bind(problem: Problem, places: list[int], matcher: _Matcher) -> list[_Chain]:
    """Chains of two ops or more in which every op and the next are neighbours in some rule.

    All ops of a chain are forward, or all backward.
    """
    readers = _readers(problem)
    backward = problem.is_backward.tolist()
    home: list[_Chain | None] = [None] * problem.op_count
    depth = [0] * problem.op_count  # how far from the chain's end
    chains: list[_Chain] = []
    for op in problem.topological_order[::-1].tolist():
        if not places[op]:
            continue
        chain = _sole_reader(readers[op], home, depth)
        first = chain.ops[-1] if chain else op
        if chain and places[op] & matcher.before(places[first]) and backward[op] == backward[first]:
            depth[op] = len(chain.ops)
            chain.ops.append(op)
            chain.reach.append(min([depth[reader] for reader in readers[op]]))
        else:
            chain = _Chain([op], [0])
            chains.append(chain)
        home[op] = chain
    long = [chain for chain in chains if len(chain.ops) > 1]
    for chain in long:
        end = len(chain.ops) - 1
        chain.ops.reverse()
        chain.reach = [end - each for each in reversed(chain.reach)]
    return long


def _sole_reader(readers: list[int], home: list[_Chain | None], depth: list[int]) -> _Chain | None:
    """The chain that holds all `readers`, its first op among them; None if there is none."""
    chain = home[readers[0]] if readers else None
    if chain is None or any(home[reader] is not chain for reader in readers):
        return None
    first = len(chain.ops) - 1
    return chain if any(depth[reader] == first for reader in readers) else None


def _readers(problem: Problem) -> list[list[int]]:
    """`[op]` the ops that read one of its tensors."""
    producer, consumer = problem.edge_producer, problem.consumers
    order = np.argsort(producer, kind="stable")
    offsets = np.searchsorted(producer[order], np.arange(problem.op_count + 1)).tolist()
    sorted_consumers = consumer[order].tolist()
    return [sorted_consumers[a:b] for a, b in pairwise(offsets)]


# -- unbind ----------------------------------------------------------------------------------------


State = tuple[int, int]
"""Of a piece that may go on: the place of its last op, and how far its readers reach."""


def _unbind(
    chain: _Chain, places: list[int], matcher: _Matcher, capacity: Capacity
) -> list[tuple[int, int]]:
    """`chain` as the fewest pieces ``[start, end)`` that are one op or a whole rule.

    A piece that goes on after an op holds all readers of the op, and what it needs fits a
    device. Among equally few pieces the last ones are the longest. Linear in the chain: for
    every state only the start of the cheapest piece is kept.
    """
    fewest, start_of = [0], [0]
    open_pieces: dict[State, int] = {}  # → where the piece starts
    needs: dict[int, tuple[int, float]] = {}  # start → devices and memory up to here
    for at, op in enumerate(chain.ops):
        needs = _grow_needs(needs, at, op, capacity)
        here = places[op]
        grown = {(place, at): at for place in _bits(matcher.first & here)}
        for (place, need), start in open_pieces.items():
            if start not in needs:
                continue
            reach = max(need, chain.reach[at - 1])
            for later in _bits(matcher.after[place] & here):
                other = grown.get((later, reach), at)
                grown[later, reach] = min(start, other, key=lambda s: (fewest[s], s))
        whole = [start for (place, need), start in grown.items()
                 if matcher.last >> place & 1 and need <= at]  # fmt: skip
        best = min([*whole, at], key=lambda start: (fewest[start], start))
        fewest.append(fewest[best] + 1)
        start_of.append(best)
        open_pieces = grown
        needs = {start: needs[start] for start in set(grown.values())}
    return _trace_back(start_of)


def _grow_needs(
    needs: dict[int, tuple[int, float]], at: int, op: int, capacity: Capacity
) -> dict[int, tuple[int, float]]:
    """`needs` with one op more and a piece that starts at it, without those that fit nowhere."""
    devices, memory = capacity.op_devices[op], capacity.op_memory[op]
    grown = {at: (devices, memory)}
    for start, (before, held) in needs.items():
        if capacity.compatible(before & devices, held + memory):
            grown[start] = (before & devices, held + memory)
    return grown


def _trace_back(start_of: list[int]) -> list[tuple[int, int]]:
    """Pieces from `start_of[end]`, where the last piece of the first `end` ops starts."""
    pieces = []
    end = len(start_of) - 1
    while end:
        pieces.append((start_of[end], end))
        end = start_of[end]
    return pieces[::-1]
