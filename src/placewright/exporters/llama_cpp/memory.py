"""Memory as llama.cpp takes it: what it adds to weights and KV cache.

The KV cache has room for a multiple of 256 tokens of each sequence. A layer with a sliding window
keeps, besides the window, as many tokens as a batch has, and no more than the context; all of it
in a model that has a window in every layer (Mistral, Phi-3), which llama.cpp runs without. Each
device has a compute buffer (`buffers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from placewright.exporters.devices import main_cpu, main_host
from placewright.exporters.llama_cpp.buffers import BATCH_TOKENS, COPIES, compute_buffer
from placewright.graph import Floats, Graph
from placewright.problem import Problem
from placewright.serving.capacity import tokens_kept, windows

ROWS = 256


def counted(problem: Problem, graph: Graph) -> tuple[Problem, Mapping[str, str]]:
    """The problem as llama.cpp counts its memory; for how many tokens, sequences and buffer bytes.

    Unchanged where the graph keeps no KV cache: it says no context.

    >>> counted(problem, graph)[1]                                       # doctest: +SKIP
    {'context': '4096', 'sequences': '1', 'buffer': '98566144'}
    """
    context = graph.attributes.get("context")
    if not isinstance(context, int) or not problem.op_cache.size:
        return problem, {}
    sequences = graph.input_samples or 1
    cache = problem.op_cache * _growth(graph, context)
    memory = problem.op_memory - problem.op_cache + cache
    others = problem.device_count - (main_cpu(problem, main_host(problem)) is not None)
    copies = COPIES if others > 1 else 1
    buffer = compute_buffer(graph, int(_padded(context)), sequences, copies)
    room = np.maximum(problem.device_memory - buffer, 0.0)
    facts = {"context": str(context), "sequences": str(sequences), "buffer": f"{buffer:.0f}"}
    return replace(problem, op_memory=memory, op_cache=cache, device_memory=room), facts


def _padded(tokens: Floats | int) -> Floats:
    found: Floats = np.ceil(np.asarray(tokens, dtype=np.float64) / ROWS) * ROWS
    return found


def _growth(graph: Graph, context: int) -> Floats:
    """`[op]` the tokens that llama.cpp keeps over those that the graph does."""
    most, kept, keeps = windows(graph), tokens_kept(graph, context), graph.op_state_bytes > 0
    rows = _padded(context)
    window = np.minimum(rows, _padded(kept + min(BATCH_TOKENS, float(rows))))
    slides = (kept < context) & bool(np.isinf(most[keeps]).any())
    return np.where(most > 0, np.where(slides, window, rows) / kept, 1.0)
