"""Cutting a model into sub-models: which ops, what they read from others and give to them.

A device goes through its ops in the order of the plan. Consecutive ones are one sub-model, which
reads before its first op and gives after its last, wherever that delays nobody: whoever waits for
the first op waits for the second as well, and whatever the second waits for, the first does too.
Ops that lead to no output of the model are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from placewright.errors import InputError
from placewright.graph import Wide


@dataclass(frozen=True)
class Uses:
    """The tensors that an op reads from others or from the model's inputs, and those it makes."""

    reads: tuple[str, ...]
    makes: tuple[str, ...]


@dataclass(frozen=True)
class SubModel:
    """Consecutive ops of one rank.

    `reads` are inputs of the model and what other sub-models give, `gives` what others read or
    the model returns.
    """

    rank: int
    ops: tuple[str, ...]
    reads: tuple[str, ...]
    gives: tuple[str, ...]

    def __str__(self) -> str:
        """``conv1``, or ``conv1 … relu1 (3 ops)``."""
        if len(self.ops) == 1:
            return self.ops[0]
        return f"{self.ops[0]} … {self.ops[-1]} ({len(self.ops)} ops)"


def cut(
    order: Sequence[str],
    rank_of: Mapping[str, int],
    uses: Mapping[str, Uses],
    returned: Collection[str],
) -> list[SubModel]:
    """The sub-models of all ranks; those of one rank in the order in which it runs them.

    `returned` are the tensors that the model returns. However the ranks wait for each other, they
    come to an end, since all constraints are those of `order`. InputError where that is not
    topological.

    >>> uses = {"a": Uses(("x",), ("h",)), "b": Uses(("h",), ("k",)), "c": Uses(("h",), ("y",))}
    >>> for each in cut(["a", "b", "c"], {"a": 0, "b": 0, "c": 1}, uses, ["k", "y"]):
    ...     print(each.rank, each, each.reads, each.gives)
    0 a ('x',) ('h',)
    0 b ('h',) ('k',)
    1 c ('h',) ('y',)
    """
    maker, order = _makers(order, uses), _needed(order, uses, returned)
    lines: dict[int, list[str]] = {}
    for op in order:
        lines.setdefault(rank_of[op], []).append(op)
    joined = _Joined(order, rank_of, uses, maker)
    groups = [(rank, group) for rank, line in lines.items() for group in joined.groups(line)]
    return _sub_models(groups, uses, maker, set(returned))


def cut_in_runs(
    order: Sequence[str],
    rank_of: Mapping[str, int],
    uses: Mapping[str, Uses],
    returned: Collection[str],
) -> list[SubModel]:
    """As `cut`, but a sub-model for as many ops as follow one another in `order` on one rank.

    They come in the order of their first ops, which is topological.
    """
    maker, order = _makers(order, uses), _needed(order, uses, returned)
    groups: list[tuple[int, list[str]]] = []
    for op in order:
        if not groups or groups[-1][0] != rank_of[op]:
            groups.append((rank_of[op], []))
        groups[-1][1].append(op)
    return _sub_models(groups, uses, maker, set(returned))


def _makers(order: Sequence[str], uses: Mapping[str, Uses]) -> dict[str, str]:
    """Tensor → the op that makes it; InputError for an op that comes before one it reads."""
    made = {name: op for op in order for name in uses[op].makes}
    done: set[str] = set()
    for op in order:
        for name in uses[op].reads:
            if name in made and name not in done:
                raise InputError(
                    f"the order has op '{op}' before op '{made[name]}', whose output it needs; "
                    "give a topological order"
                )
        done.update(uses[op].makes)
    return made


def _needed(order: Sequence[str], uses: Mapping[str, Uses], returned: Collection[str]) -> list[str]:
    """The ops that lead to what is returned."""
    wanted = set(returned)
    needed = []
    for op in reversed(order):
        if not wanted.isdisjoint(uses[op].makes):
            needed.append(op)
            wanted.update(uses[op].reads)
    return needed[::-1]


class _Joined:
    """Which ops of a rank can be one sub-model with the next one."""

    def __init__(
        self,
        order: Sequence[str],
        rank_of: Mapping[str, int],
        uses: Mapping[str, Uses],
        maker: Mapping[str, str],
    ) -> None:
        self._rank_of = rank_of
        self._sources = {
            op: {maker[name] for name in uses[op].reads if name in maker} for op in order
        }
        self._readers: dict[str, list[str]] = {op: [] for op in order}
        for op, sources in self._sources.items():
            for source in sources:
                self._readers[source].append(op)
        self._seen = self._clocks(order)

    def _clocks(self, order: Sequence[str]) -> dict[str, Wide]:
        """`[op][rank]` how many ops of that rank are done when `op` is, itself included."""
        seen: dict[str, Wide] = {}
        last = [np.zeros(max(self._rank_of.values()) + 1, np.int64)] * (
            max(self._rank_of.values()) + 1
        )
        for op in order:
            rank = self._rank_of[op]
            clock = np.maximum.reduce([last[rank], *(seen[each] for each in self._sources[op])])
            clock[rank] = last[rank][rank] + 1
            seen[op] = last[rank] = clock
        return seen

    def groups(self, line: Sequence[str]) -> list[list[str]]:
        """The ops of a rank, in its order, by sub-models."""
        groups = [list(line[:1])]
        for op, following in pairwise(line):
            if self._delays_nobody(op, following):
                groups[-1].append(following)
            else:
                groups.append([following])
        return groups

    def _delays_nobody(self, op: str, following: str) -> bool:
        rank = self._rank_of[op]
        waited = self._seen[following][rank]
        readers = (each for each in self._readers[op] if self._rank_of[each] != rank)
        sources = (each for each in self._sources[following] if self._rank_of[each] != rank)
        return all(self._seen[each][rank] >= waited for each in readers) and all(
            self._seen[op][self._rank_of[each]] >= self._seen[each][self._rank_of[each]]
            for each in sources
        )


def _sub_models(
    groups: Sequence[tuple[int, Sequence[str]]],
    uses: Mapping[str, Uses],
    maker: Mapping[str, str],
    returned: set[str],
) -> list[SubModel]:
    group_of = {op: number for number, (_, ops) in enumerate(groups) for op in ops}
    wanted = set(returned)
    reads: list[tuple[str, ...]] = []
    for number, (_, ops) in enumerate(groups):
        names = dict.fromkeys(name for op in ops for name in uses[op].reads)
        outer = [n for n in names if n not in maker or group_of[maker[n]] != number]
        wanted.update(outer)
        reads.append(tuple(outer))
    return [
        SubModel(
            rank,
            tuple(ops),
            outer,
            tuple(name for op in ops for name in uses[op].makes if name in wanted),
        )
        for (rank, ops), outer in zip(groups, reads, strict=True)
    ]
