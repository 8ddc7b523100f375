"""METIS and Scotch: graph partitioners as planners, the baselines of Celeritas and Tarnawski.

Both see an undirected graph: a vertex per unit, weighted by its time (mean over the devices that
support it), and between two units what they exchange (mean transfer time, both ways together).
They cut it into one part per device, of a weight that follows the device's speed, such that as
little as possible is exchanged between parts. Neither knows of precedence, of memory or of ops
that a device cannot run: a unit whose device cannot take it goes to its fastest device with room.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from placewright.analysis.orders import mean_edge_time
from placewright.budget import Budget, Progress
from placewright.errors import InputError, MissingExtraError, OptionError
from placewright.graph import Floats, Ints
from placewright.planners.base import LatencyPlanner, MemoryAccount, Proposal, one_of
from placewright.problem import Problem

EXTRA = "partitioners"
TOTAL_WEIGHT = 2**29  # of all vertices, and of all edges: below what 32 bits hold
LARGEST_SEED = 2**31 - 1


@dataclass(frozen=True, eq=False)
class WeightedGraph:
    """An undirected graph in CSR, every edge listed from both ends; whole weights, all positive."""

    offsets: Ints
    neighbours: Ints
    edge_weight: Ints
    vertex_weight: Ints


class _Partitioner(LatencyPlanner):
    """What the two have in common: the graph, the weights of the parts, and the repair.

    Options: `balance`: what the parts share out, ``time`` or ``memory``; `imbalance`: the share
    by which a part may exceed what it should weigh (0.03).
    """

    name: ClassVar[str]

    def __init__(self, balance: str = "time", imbalance: str | float = 0.03) -> None:
        self.balance = one_of(self.name, "balance", balance, ("time", "memory"))
        self.imbalance = self._share(imbalance)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        weight = mean_unit_time(problem) if self.balance == "time" else problem.unit_memory
        wanted = device_speeds(problem) if self.balance == "time" else device_capacity(problem)
        # No more parts than vertices, and none for a device that should get nothing.
        devices = np.argsort(-wanted, kind="stable")[: problem.unit_count]
        devices = np.sort(devices[wanted[devices] > 0])
        unit_device = np.zeros(problem.unit_count, dtype=np.int32)
        if len(devices):
            shares = wanted[devices] / wanted[devices].sum()
            part = np.zeros(problem.unit_count, dtype=np.int32)
            if len(devices) > 1:
                part = self.partition(unit_graph(problem, weight), shares, seed % LARGEST_SEED)
            unit_device = devices[part].astype(np.int32)
        return Proposal(_repair(problem, unit_device, self.name).placement())

    def partition(self, graph: WeightedGraph, shares: Floats, seed: int) -> Ints:
        """`[vertex]` a part; part p should get `shares[p]` of all vertex weight."""
        raise NotImplementedError

    def _share(self, text: str | float) -> float:
        try:
            share = float(text)
        except ValueError:
            share = -1.0
        if not 0.001 <= share <= 1:
            raise OptionError(
                f"planner '{self.name}': imbalance is {text}; give a share from 0.001 to 1"
            )
        return share


class Metis(_Partitioner):
    """METIS: multilevel partitioning (Karypis and Kumar 1997; Celeritas §6.2.2).

    Recursive bisection for up to eight devices, direct k-way partitioning for more. Options: see
    `_Partitioner`.
    """

    name: ClassVar[str] = "metis"

    def partition(self, graph: WeightedGraph, shares: Floats, seed: int) -> Ints:
        try:
            import pymetis
        except ImportError:
            raise MissingExtraError(EXTRA, "planner 'metis'") from None

        options = pymetis.Options(seed=seed, ufactor=round(1000 * self.imbalance))
        with _quiet_output():
            found = pymetis.part_graph(
                len(shares),
                pymetis.CSRAdjacency(graph.offsets, graph.neighbours),
                vweights=graph.vertex_weight,
                eweights=graph.edge_weight,
                tpwgts=_summing_to_one(shares),
                options=options,
            )
        return np.asarray(found.vertex_part, dtype=np.int32)


class Scotch(_Partitioner):
    """Scotch: mapping by dual recursive bipartitioning (Pellegrini 2009; Tarnawski §6, §7).

    The target is a complete graph of devices, weighted by their speeds. Options: see
    `_Partitioner`.
    """

    name: ClassVar[str] = "scotch"

    def partition(self, graph: WeightedGraph, shares: Floats, seed: int) -> Ints:
        scotch = _load_scotch()
        target = _whole(shares, TOTAL_WEIGHT)
        with scotch.Context() as context, scotch.Graph() as plain, scotch.Architecture() as devices:
            context.option_set(_DETERMINISTIC, 1)
            context.random_seed(seed)
            context.random_reset()
            plain.build(graph.offsets, graph.neighbours, graph.vertex_weight, graph.edge_weight)
            devices.complete_weighted(len(shares), target)
            strategy = scotch.Strategy()
            strategy.request_mapping(balance=self.imbalance)
            with context.bind_graph(plain) as bound:
                return np.asarray(bound.map(devices, strategy), dtype=np.int32)


_DETERMINISTIC = 0  # SCOTCH_OPTIONNUMDETERMINISTIC of scotch.h


# -- the graph and the parts -----------------------------------------------------------------


def mean_unit_time(problem: Problem) -> Floats:
    """`[unit]` seconds averaged over the devices that it may run on."""
    allowed = np.isfinite(problem.unit_time)
    total: Floats = np.where(allowed, problem.unit_time, 0.0).sum(axis=1)
    mean: Floats = total / np.maximum(allowed.sum(axis=1), 1)
    return mean


def device_speeds(problem: Problem) -> Floats:
    """`[device]` how much of the work it should get, in any unit.

    The speed at what it supports, relative to the mean, times the share of the work that this is.
    """
    allowed = np.isfinite(problem.unit_time)
    mean = mean_unit_time(problem)
    supported: Floats = np.where(allowed, mean[:, None], 0.0).sum(axis=0)
    needed: Floats = np.where(allowed, problem.unit_time, 0.0).sum(axis=0)
    if not mean.sum() > 0:
        units: Floats = allowed.astype(np.float64).sum(axis=0)
        return units
    timed = needed > 0
    speed = np.divide(supported, needed, out=np.zeros_like(needed), where=timed)
    # What takes no time at all is as fast as the fastest that takes some.
    speed[~timed & (supported > 0)] = max(float(speed.max()), 1.0)
    share: Floats = speed * supported / mean.sum()
    return share


def device_capacity(problem: Problem) -> Floats:
    """`[device]` memory, none counted for more than the whole model needs."""
    everything = max(float(problem.op_memory.sum()), 1.0)
    return np.minimum(problem.device_memory, everything)


def unit_graph(problem: Problem, unit_weight: Floats) -> WeightedGraph:
    """Units and what they exchange.

    Where a tensor is sent once per device, its consumers in one unit count once; consumers in
    several units count each, though the cut may put them on one device: partitioners know edges
    between two vertices only.
    """
    source = problem.op_unit[problem.edge_producer].astype(np.int64)
    target = problem.op_unit[problem.consumers].astype(np.int64)
    seconds = mean_edge_time(problem)
    counted = source != target
    if problem.options.transfer_unit == "tensor":
        key = problem.edge_tensor.astype(np.int64) * problem.unit_count + target
        first = np.zeros(problem.edge_count, dtype=bool)
        first[np.unique(key, return_index=True)[1]] = True
        counted &= first
    source, target, seconds = source[counted], target[counted], seconds[counted]
    pair = np.minimum(source, target) * problem.unit_count + np.maximum(source, target)
    pairs, which = np.unique(pair, return_inverse=True)
    exchanged = np.bincount(which, seconds, len(pairs)).astype(np.float64)
    weight = _whole(exchanged, TOTAL_WEIGHT // 2)
    one, other = np.divmod(pairs, problem.unit_count)
    start, end = np.concatenate([one, other]), np.concatenate([other, one])
    order = np.lexsort((end, start))
    return WeightedGraph(
        np.searchsorted(start[order], np.arange(problem.unit_count + 1)).astype(np.int64),
        end[order].astype(np.int64),
        np.concatenate([weight, weight])[order],
        _whole(unit_weight, TOTAL_WEIGHT),
    )


def _whole(amounts: Floats, total: int) -> Ints:
    """Whole numbers of at least 1 in proportion to `amounts`, of about `total` in all."""
    everything = float(amounts.sum())
    if not everything > 0:
        return np.ones(len(amounts), dtype=np.int64)
    return np.maximum(1, np.rint(amounts * (total / everything))).astype(np.int64)


def _summing_to_one(shares: Floats) -> list[float]:
    listed: list[float] = shares.tolist()
    listed[-1] = max(1.0 - sum(listed[:-1]), 0.0)
    return listed


def _repair(problem: Problem, unit_device: Ints, planner: str) -> MemoryAccount:
    """Every unit where it should be, if it may be there and has room; else where it is fastest."""
    account = MemoryAccount(problem, planner)
    fastest = np.argsort(problem.unit_time, axis=1, kind="stable")
    for unit, device in enumerate(unit_device):
        account.place_first(unit, np.concatenate([[device], fastest[unit]]))
    return account


# -- libraries -------------------------------------------------------------------------------


def _load_scotch() -> Any:
    """pyscotch with its Scotch loaded, which it announces on stderr."""
    try:
        import pyscotch
    except ImportError:
        raise MissingExtraError(EXTRA, "planner 'scotch'") from None
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            pyscotch.Graph  # noqa: B018  (loads the library)
    except (ImportError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"planner 'scotch': pyscotch is installed but finds no Scotch library ({reason}); "
            "install Scotch (Debian: libscotch-dev) or set PYSCOTCH_LIB_DIR to its folder"
        ) from None
    return pyscotch


@contextlib.contextmanager
def _quiet_output() -> Iterator[None]:
    """Keep a C library from printing on standard output, where a JSON document may be due.

    METIS does so ("Cannot bisect a graph with 0 vertices!") when a part stays empty.
    """
    sys.stdout.flush()
    _flush_c_output()
    try:
        kept = os.dup(1)
    except OSError:  # there is no standard output
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        _flush_c_output()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _flush_c_output() -> None:
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
