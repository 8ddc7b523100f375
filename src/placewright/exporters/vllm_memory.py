"""Memory as vLLM takes it: what its largest batch needs besides weights and KV cache.

Before it makes its KV cache, vLLM runs `BATCH_TOKENS` tokens through the layers of each stage, and
has the last one sample for each sequence that may be under way. What that needs at most comes out
of the same share of a GPU's memory. Results count from when they are made until they are read last,
and at the head logits in single precision, sorted, with their indices. The KV cache is in pages; a
layer with a sliding window keeps, besides the window, what is under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from placewright.graph import ITEM_BYTES, Flags, Floats, Graph, Ints, Wide
from placewright.problem import Problem
from placewright.serving.capacity import GPU_MEMORY_UTILIZATION, REQUESTS, tokens_kept, windows

BATCH_TOKENS = 2048
SEQUENCES = 256
PAGE_TOKENS = 16
LOGIT_BYTES = 2.0 + 4.0 + 4.0 + 8.0 + 4.0 + 1.0
"""Of a logit: as it comes, in single precision, sorted, its index, its probability, a mask."""
MORE_TERMS = 64.0  # products in × out, over bytes of weights: of rows that are no tokens

TOKENS, SEQUENCES_AT_ONCE = "batched_tokens", "sequences_at_once"
"""What a plan says that its memory is for: tokens of a batch, and sequences that are sampled."""


def counted(problem: Problem, graph: Graph) -> tuple[Problem, Mapping[str, str]]:
    """The problem as vLLM counts its memory, and for how many tokens and sequences.

    Unchanged where the graph keeps no KV cache.

    >>> counted(problem, graph)[1]                                       # doctest: +SKIP
    {'context': '512', 'batched_tokens': '2048', 'sequences_at_once': '256'}
    """
    context = graph.attributes.get("context")
    if not isinstance(context, int) or not problem.op_cache.size:
        return problem, {}
    sequences = _sequences(problem, graph)
    tokens = max(BATCH_TOKENS, sequences)
    head, sampled = _head(graph), sequences * _logits(graph) * LOGIT_BYTES
    cache = problem.op_cache * _growth(problem, graph)
    memory = problem.op_memory - problem.op_cache + cache
    taken = tokens * _results_per_token(problem, graph)
    if graph.colocation[head] < 0:
        memory[head] += sampled
    else:  # what ops share is told by the bytes that they keep, so these are to be of weights
        taken += sampled
    less = np.where(problem.is_cpu, 0.0, taken / GPU_MEMORY_UTILIZATION)
    room = np.maximum(problem.device_memory - less, 0.0)
    facts = {"context": context, TOKENS: tokens, SEQUENCES_AT_ONCE: sequences}
    found = replace(problem, op_memory=memory, op_cache=cache, device_memory=room)
    return found, {name: str(number) for name, number in facts.items()}


def _sequences(problem: Problem, graph: Graph) -> int:
    """How many may be under way at once: a batch per stage; vLLM's own number where that is more.

    Requests say all that there are.
    """
    gpus = max(1, int((~problem.is_cpu).sum()))
    batches = gpus if problem.options.objective == "throughput" else 1
    known = (graph.input_samples or 1) * batches
    return known if graph.attributes.get(REQUESTS) else max(known, SEQUENCES)


def _growth(problem: Problem, graph: Graph) -> Floats:
    """`[op]` the tokens that vLLM keeps of a batch over those that the graph does.

    Of requests each batch under way brings its own (`requests`); else there is the cache of one.
    """
    context, sequences = _context(graph), graph.input_samples or 1
    most, kept = windows(graph), tokens_kept(graph, context)
    under_way = 2 * BATCH_TOKENS  # vLLM schedules one batch more than there are stages
    if not graph.attributes.get(REQUESTS) or problem.options.objective == "latency":
        under_way = (int((~problem.is_cpu).sum()) + 1) * BATCH_TOKENS
    window = _paged(kept) + PAGE_TOKENS + under_way / sequences
    rows = np.where(kept < context, np.minimum(window, _paged(context)), _paged(context))
    return np.where(most > 0, rows / kept, 1.0)


def _paged(tokens: Floats | int) -> Floats:
    found: Floats = np.ceil(np.asarray(tokens, dtype=np.float64) / PAGE_TOKENS) * PAGE_TOKENS
    return found


def _results_per_token(problem: Problem, graph: Graph) -> float:
    """The most bytes of results that there are at once for each token, before the head.

    Ops of one depth run at once: so the experts of a layer do.
    """
    depth = _depths(graph)
    last, idle = _last_depths(graph, depth)
    before = np.flatnonzero(depth[graph.tensor_producer] < depth[_head(graph)])
    elsewhere = idle | _of_the_cache(problem, graph)
    elsewhere |= _of_weights_alone(graph)
    made = np.where(elsewhere[graph.tensor_producer], 0.0, graph.tensor_bytes)[before]
    change = np.bincount(depth[graph.tensor_producer[before]], made, graph.op_count + 1)
    change -= np.bincount(last[before] + 1, made, graph.op_count + 1)
    return float(change.cumsum().max()) / _tokens(graph)


def _depths(graph: Graph) -> Wide:
    """`[op]` how many ops are before it, one after the other."""
    found = np.zeros(graph.op_count, dtype=np.int64)
    readers = _readers(graph)
    for op in graph.topological_order.tolist():
        for reader in readers[op]:
            found[reader] = max(found[reader], found[op] + 1)
    return found


def _last_depths(graph: Graph, depth: Wide) -> tuple[Wide, Flags]:
    """`[tensor]` the depth at which it is read last, through views too; `[op]` which make these."""
    idle = _idle(graph)
    through = depth.copy()
    readers = _readers(graph)
    for op in reversed(graph.topological_order.tolist()):
        if idle[op]:
            through[op] = max((through[each] for each in readers[op]), default=depth[op])
    last = depth[graph.tensor_producer]
    tensor = np.repeat(np.arange(graph.tensor_count), np.diff(graph.consumer_offsets))
    np.maximum.at(last, tensor, through[graph.consumers])
    return last, idle


def _readers(graph: Graph) -> list[list[int]]:
    """`[op]` the ops that read a result of it."""
    return _grouped(graph.op_count, *graph.edges)


def _grouped(count: int, at: Ints, values: Ints) -> list[list[int]]:
    """``values`` in `count` lists, each in the one that ``at`` says."""
    found: list[list[int]] = [[] for _ in range(count)]
    for place, value in zip(at.tolist(), values.tolist(), strict=True):
        found[place].append(value)
    return found


def _idle(graph: Graph) -> Flags:
    """`[op]` whether it does nothing, as views do."""
    found: Flags = graph.op_flops + graph.op_bytes_read + graph.op_bytes_written == 0
    return found


def _of_the_cache(problem: Problem, graph: Graph) -> Flags:
    """`[op]` whether its result has as many rows as the cache: vLLM reads these where they are.

    Attention ends with the op whose weights a token goes through once.
    """
    inputs = _grouped(graph.op_count, graph.consumers, graph.edge_tensor)
    numbers = graph.tensor_bytes / _item(graph)[graph.tensor_producer] / _tokens(graph)
    made = np.bincount(graph.tensor_producer, numbers, graph.op_count)
    found: Flags = problem.op_cache > 0
    for op in graph.topological_order.tolist():
        read = [tensor for tensor in inputs[op] if found[graph.tensor_producer[tensor]]]
        terms = made[op] * max(numbers[read], default=0.0)
        if read and not 0 < terms <= MORE_TERMS * graph.op_parameter_bytes[op]:
            found[op] = True
    return found


def _of_weights_alone(graph: Graph) -> Flags:
    """`[op]` whether its result is the same for any token, such as one plus the weights of a norm.

    Lookups read tokens, which the graph has no op for.
    """
    made = np.bincount(graph.tensor_producer, graph.tensor_bytes, graph.op_count)
    lookup = np.array(["embedding" in kind for kind in graph.op_types])
    # What makes less than it has multiplies tokens with that.
    whole = (made >= graph.op_parameter_bytes) | _idle(graph)
    begins = (graph.op_parameter_bytes > 0) & whole & ~lookup
    producers, readers = graph.edges
    coming = _grouped(graph.op_count, readers, producers)
    found = np.zeros(graph.op_count, dtype=np.bool_)
    for op in graph.topological_order.tolist():
        found[op] = all(found[each] for each in coming[op]) if coming[op] else begins[op]
    return found


def _head(graph: Graph) -> int:
    """The last op that has weights, or shares them."""
    weights = (graph.op_parameter_bytes > 0) | (graph.colocation >= 0)
    return int(graph.topological_order[weights[graph.topological_order]][-1])


def _logits(graph: Graph) -> float:
    """Of one sequence: FLOPs are two for each and each number that the head reads."""
    head = _head(graph)
    read = graph.edge_tensor[graph.consumers == head]
    numbers = float((graph.tensor_bytes / _item(graph)[graph.tensor_producer])[read].max(initial=1))
    return float(graph.op_flops[head]) / (2 * numbers)


def _item(graph: Graph) -> Floats:
    return np.array([ITEM_BYTES[dtype] for dtype in graph.op_dtypes])


def _tokens(graph: Graph) -> int:
    sequences = graph.input_samples or 1
    return sequences * _context(graph) if graph.attributes["phase"] == "prefill" else sequences


def _context(graph: Graph) -> int:
    return int(graph.attributes["context"])
