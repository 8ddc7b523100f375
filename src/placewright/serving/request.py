"""One problem of both phases: a request is one prefill and then one step of decode per token.

Ops that are the same part of the model are colocated, weights and KV cache are counted once, and a
step counts as often as there are tokens. For ``latency`` no op of decode starts before all of
prefill is done, so the makespan is the sum of the two; for ``throughput`` the loads of a device
add up by themselves.

A transfer of a step counts once per token too, its latency included. A problem has one latency
per route for all tensors, so here a route has none, and what a tensor takes is in its bytes:
``seconds = bytes · seconds_per_byte`` with ``seconds_per_byte`` of a route as a tensor of typical
size has it, and `bytes` such that no route is slower than it really is. Where all routes are
alike, or the tensor has the typical size, this is exact; otherwise it is less. So a bound of
this problem is a bound of the request, and what a plan takes is worked out of the phases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from placewright.graph import Floats, Graph, Ints, merged
from placewright.importers.phases import Phases
from placewright.problem import COST_SPREADS, Problem
from placewright.serving.mix import Mix

BETWEEN = "first token"
"""The op between the phases: it takes no time and no capacity."""

SIZES_TRIED = 33  # for what counts as a tensor of typical size


@dataclass(frozen=True)
class Request:
    """`problem` is that of both phases: first the ops of `prefill`, then those of `decode`."""

    problem: Problem
    prefill: Problem
    decode: Problem
    mix: Mix

    def parts(self) -> tuple[tuple[Problem, slice, slice], ...]:
        """Each phase with its ops and its edges within `problem`."""
        ops, edges = self.prefill.op_count, self.prefill.edge_count
        return (
            (self.prefill, slice(0, ops), slice(0, edges)),
            (
                self.decode,
                slice(ops, ops + self.decode.op_count),
                slice(edges, edges + self.decode.edge_count),
            ),
        )


def request_of(phases: Phases, prefill: Problem, decode: Problem, mix: Mix) -> Request:
    """The request of two phases on the same devices, `prefill` and `decode` as they are alone."""
    repeats = float(mix.output)
    groups = _groups(phases)
    sends = _Sends(prefill, decode, repeats)
    tensor_bytes = np.concatenate([sends.bytes(prefill), repeats * sends.bytes(decode)])
    columns: dict[str, Any] = {
        "op_names": _prefixed(prefill.op_names, decode.op_names),
        "op_types": prefill.op_types + decode.op_types,
        "op_modules": _prefixed(prefill.op_modules, decode.op_modules),
        "op_time": np.concatenate([prefill.op_time, repeats * decode.op_time]),
        "op_memory": _memory(phases, prefill, decode, groups),
        "is_backward": _joined(prefill.is_backward, decode.is_backward),
        "forward_twin": np.full(prefill.op_count + decode.op_count, -1, dtype=np.int32),
        "colocation": groups,
        "op_pinned": _joined(prefill.op_pinned, decode.op_pinned),
        "op_cost_source": _joined(prefill.op_cost_source, decode.op_cost_source),
        "op_cost_spread": _spreads(prefill, decode),
        "op_sync_bytes": np.zeros(prefill.op_count + decode.op_count),
        "op_cache": np.concatenate([np.zeros(prefill.op_count), _cache(decode)]),
        "tensor_producer": _joined(prefill.tensor_producer, decode.tensor_producer, prefill),
        "tensor_bytes": tensor_bytes,
        "consumer_offsets": np.concatenate(
            [prefill.consumer_offsets, prefill.edge_count + decode.consumer_offsets[1:]]
        ),
        "consumers": _joined(prefill.consumers, decode.consumers, prefill),
    }
    problem = replace(
        prefill,
        name=f"{phases.source} for {mix} on {_cluster_name(phases, prefill)}",
        link_latency=np.zeros_like(prefill.link_latency),
        link_seconds_per_byte=sends.links,
        host_latency=np.zeros_like(prefill.host_latency),
        host_seconds_per_byte=sends.host,
        **columns,
    )
    if problem.options.objective == "latency":
        problem = _one_after_the_other(problem, prefill.op_count)
    return Request(problem, prefill, decode, mix)


def _cluster_name(phases: Phases, prefill: Problem) -> str:
    return prefill.name.removeprefix(f"{phases.prefill.name} on ")


def _prefixed(prefill: tuple[str, ...], decode: tuple[str, ...]) -> tuple[str, ...]:
    return (
        *(f"prefill.{name}".rstrip(".") for name in prefill),
        *(f"decode.{name}".rstrip(".") for name in decode),
    )


def _joined(one: Any, two: Any, before: Problem | None = None) -> Any:
    """Two columns, the second's numbers of ops counted on from those of the problem `before`."""
    return np.concatenate([one, two if before is None else two + before.op_count])


def _spreads(prefill: Problem, decode: Problem) -> Floats:
    """`[op, device]` how far times may be off; empty where that follows from their sources."""
    phases = (prefill, decode)
    if not any(each.op_cost_spread.size for each in phases):
        return np.empty(0)
    found = (
        each.op_cost_spread
        if each.op_cost_spread.size
        else np.array(COST_SPREADS)[each.op_cost_source]
        for each in phases
    )
    return np.concatenate(list(found))


def _groups(phases: Phases) -> Ints:
    """`[op]` its colocation group: those of either phase, and the pairs of both."""
    prefill, decode = phases.prefill, phases.decode
    pairs = [(str(one), str(prefill.op_count + two)) for one, two in phases.twins]
    tied = [*_tied(prefill, 0), *_tied(decode, prefill.op_count)]
    group_of = merged([*pairs, *tied])
    numbers: dict[str, int] = {}
    groups = np.full(prefill.op_count + decode.op_count, -1, dtype=np.int32)
    for op, group in group_of.items():
        groups[int(op)] = numbers.setdefault(group, len(numbers))
    return groups


def _tied(graph: Graph, first: int) -> list[list[str]]:
    found: dict[int, list[str]] = {}
    for op, group in enumerate(graph.colocation.tolist()):
        if group >= 0:
            found.setdefault(group, []).append(str(first + op))
    return list(found.values())


def _memory(phases: Phases, prefill: Problem, decode: Problem, groups: Ints) -> Floats:
    """`[op]` bytes: those of decode, and what of its weights a group of prefill has besides.

    What is of prefill alone keeps all it keeps there.

    A weight of both phases is in both graphs; in a group of tied weights it may be at another op.
    """
    weights = phases.prefill.op_parameter_bytes
    own = np.concatenate([weights, np.zeros(decode.op_count)])
    counted = np.concatenate([np.zeros(prefill.op_count), phases.decode.op_parameter_bytes])
    grouped = groups >= 0
    count = int(groups.max(initial=-1)) + 1
    needed, there = (np.bincount(groups[grouped], each[grouped], count) for each in (own, counted))
    share = np.maximum(needed - there, 0.0) / np.where(needed > 0, needed, 1.0)
    kept = prefill.op_memory.copy()
    in_group = grouped[: prefill.op_count]
    kept[in_group] = (weights * share[groups[: prefill.op_count]])[in_group]
    return np.concatenate([kept, decode.op_memory])


def _cache(problem: Problem) -> Floats:
    return problem.op_cache if problem.op_cache.size else np.zeros(problem.op_count)


# -- transfers -----------------------------------------------------------------------------------


class _Sends:
    """Transfers without latencies: `links` and `host` seconds per byte, and tensors' bytes.

    Of `SIZES_TRIED` sizes the typical one is that with which all transfers of a request, over any
    route alike, lose the fewest seconds.
    """

    def __init__(self, prefill: Problem, decode: Problem, repeats: float) -> None:
        through_host = prefill.staging == "host" and prefill.options.objective != "latency"
        links = prefill.link_latency, prefill.link_seconds_per_byte
        host = prefill.host_latency, prefill.host_seconds_per_byte
        latency, rate = (each.ravel() for each in (host if through_host else links))
        takes_time = (latency > 0) | (rate > 0)
        routes: Floats = np.stack([latency[takes_time], rate[takes_time]])
        if routes.size:
            routes = np.unique(routes, axis=1)
        self._latency: Floats = routes[0]
        self._rate: Floats = routes[1]
        self._typical = self._best_size(prefill, decode, repeats)
        self.links, self.host = (self._per_byte(*ways) for ways in (links, host))

    def bytes(self, problem: Problem) -> Floats:
        """`[tensor]` the most bytes with which no route takes longer than it really does."""
        if not self._rate.size:
            return problem.tensor_bytes
        sizes, place = np.unique(problem.tensor_bytes, return_inverse=True)
        return self._bytes(sizes, self._typical)[place]

    def _bytes(self, sizes: Floats, typical: float) -> Floats:
        per_byte = self._per_byte(self._latency, self._rate, typical)
        found: Floats = (self._seconds(sizes) / per_byte).min(axis=1)
        return found

    def _seconds(self, sizes: Floats) -> Floats:
        """`[size, route]` what a transfer really takes."""
        return self._latency + sizes[:, None] * self._rate

    def _per_byte(self, latency: Floats, rate: Floats, typical: float | None = None) -> Floats:
        typical = typical or self._typical
        return (latency + typical * rate) / typical

    def _best_size(self, prefill: Problem, decode: Problem, repeats: float) -> float:
        sizes = np.concatenate([prefill.tensor_bytes, decode.tensor_bytes])
        counts = np.repeat([1.0, repeats], [prefill.tensor_count, decode.tensor_count])
        counts, sizes = counts[sizes > 0], sizes[sizes > 0]
        if not (sizes.size and self._rate.size):
            return 1.0
        sizes, place = np.unique(sizes, return_inverse=True)
        count = np.bincount(place, counts)
        real = self._seconds(sizes)

        def lost(typical: float) -> float:
            per_byte = self._per_byte(self._latency, self._rate, typical)
            kept = self._bytes(sizes, typical)[:, None] * per_byte
            return float(count @ (real - kept).sum(axis=1))

        tried = np.geomspace(sizes[0], sizes[-1], SIZES_TRIED)
        return float(min(tried, key=lost))


def _one_after_the_other(problem: Problem, prefill_ops: int) -> Problem:
    """The same with an op after all of prefill and before all of decode."""
    n, devices = problem.op_count, problem.device_count
    is_read = np.diff(problem.consumer_offsets) > 0
    makes, reads = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    makes[problem.tensor_producer[is_read]] = True
    reads[problem.consumers] = True
    last = np.flatnonzero(~makes[:prefill_ops])
    first = prefill_ops + np.flatnonzero(~reads[prefill_ops:])
    source, spread = problem.op_cost_source, problem.op_cost_spread
    given = np.full((1, devices), source.max(initial=0), dtype=np.int8)
    edges = problem.edge_count
    offsets = edges + np.arange(1, len(last) + 1)
    return replace(
        problem,
        op_names=(*problem.op_names, BETWEEN),
        op_types=(*problem.op_types, ""),
        op_modules=(*problem.op_modules, ""),
        op_time=np.concatenate([problem.op_time, np.zeros((1, devices))]),
        op_memory=np.append(problem.op_memory, 0.0),
        is_backward=np.append(problem.is_backward, False),
        forward_twin=np.append(problem.forward_twin, -1),
        colocation=np.append(problem.colocation, -1),
        op_pinned=np.append(problem.op_pinned, -1),
        op_cost_source=np.concatenate([source, given]) if source.size else source,
        op_cost_spread=np.concatenate([spread, np.zeros((1, devices))]) if spread.size else spread,
        op_sync_bytes=np.append(problem.op_sync_bytes, 0.0),
        op_cache=np.append(problem.op_cache, 0.0),
        tensor_producer=np.concatenate([problem.tensor_producer, last, [n]]),
        tensor_bytes=np.concatenate([problem.tensor_bytes, np.zeros(len(last) + 1)]),
        consumer_offsets=np.concatenate(
            [problem.consumer_offsets, offsets, [edges + len(last) + len(first)]]
        ),
        consumers=np.concatenate([problem.consumers, np.full(len(last), n), first]),
    )
