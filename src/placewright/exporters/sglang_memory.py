"""Memory as SGLang takes it: layers with a sliding window keep the whole context.

Of Gemma 2 and 3, Mistral or Phi-3 it keeps all tokens of each layer. Only of some (gpt-oss,
Gemma 4, Llama 4) do layers with a window have a pool of their own, for 0.8 of the tokens of the
others, however short the window is; these count as the others here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from placewright.graph import Graph
from placewright.problem import Problem
from placewright.serving.capacity import tokens_kept, windows


def counted(problem: Problem, graph: Graph) -> tuple[Problem, Mapping[str, str]]:
    """The problem as SGLang counts its memory, and for how many tokens of a sequence.

    Unchanged where the graph keeps no KV cache.

    >>> counted(problem, graph)[1]                                       # doctest: +SKIP
    {'context': '4096'}
    """
    context = graph.attributes.get("context")
    if not isinstance(context, int) or not problem.op_cache.size:
        return problem, {}
    growth = np.where(windows(graph) > 0, context / tokens_kept(graph, context), 1.0)
    cache = problem.op_cache * growth
    memory = problem.op_memory - problem.op_cache + cache
    return replace(problem, op_memory=memory, op_cache=cache), {"context": str(context)}
