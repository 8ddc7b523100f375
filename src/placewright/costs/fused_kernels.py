"""What ops cost where engines run several of them as one kernel.

PyTorch runs a program call by call: each call is a kernel that reads its inputs from memory, writes
its result there, and is launched. Engines that serve (vLLM, SGLang, llama.cpp), and compilers such
as Inductor, have one kernel for

- attention: scores, scale, mask, softmax and context; scores stay in the kernel;
- a product and the bias that is added to it;
- elementwise ops and reductions of rows that read each other: a norm that is written out with the
  residual before it, an activation and what it gates, rotary positions; and what routes tokens to
  experts and back.

A kernel reads what comes from outside once, writes what is read outside, and is launched once. All
that counts at its op with the most weights, or at its last; the others cost nothing.

Which elementwise ops and reductions are one kernel: let the *depth* of an op be the length of the
longest path to it, where a step from one of them to another counts nothing and any other step one.
Those of equal depth that are connected are a kernel. A path that leaves it comes to a greater depth
and never back, so no kernel waits for itself. The other two are chains that are left at their last
op alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from placewright.formats.op_words import word_of
from placewright.graph import Graph
from placewright.stash import NOTHING, memory_behind, views

_PRODUCTS = frozenset({"matmul", "conv"})
_AROUND_SOFTMAX = frozenset({"scale", "mask", "mul", "div", "cast", "dropout"})
_ROWS = {
    "softmax", "layernorm", "rmsnorm", "mean", "sum", "amax", "amin", "var", "varmean", "argmax",
}  # fmt: skip
"""Reductions: of the rows that a kernel has."""
_ELEMENTWISE = {
    "add", "sub", "mul", "div", "pow", "sqrt", "rsqrt", "reciprocal", "neg", "abs", "exp", "expm1",
    "log", "log1p", "erf", "cos", "sin", "tan", "tanh", "sigmoid", "relu", "gelu", "silu", "swiglu",
    "leakyrelu", "elu", "hardswish", "mish", "softplus", "clip", "minimum", "maximum", "scale",
    "mask", "cast", "dropout", "rope", "tril", "triu", "eq", "ne", "lt", "le", "gt", "ge",
    "logicalnot", "logicaland", "logicalor", "bitwisenot", "bitwiseand", "bitwiseor", "sign",
    "floor", "round", "concat", "clone", "zeroslike", "oneslike", "fulllike", "full", "zeros",
    "ones", "arange", "square", "lerp", "addcmul", "addcdiv",
}  # fmt: skip

_ALWAYS_FUSED = _ROWS | _ELEMENTWISE
_ROUTING = {
    "topk", "sort", "argsort", "histc", "bincount", "cumsum", "floordivide", "onehot", "index",
    "indexselect", "indexput", "scatter", "scatteradd",
}  # fmt: skip
"""Of tokens to experts: which go where, in which order, and back, as programs have it. (The zoo and
GGUF files have ops of their own for the tokens of an expert and the sum over experts, which may be
on several devices.)"""


def with_fused_kernels(graph: Graph) -> Graph:
    """The graph as such an engine runs it: the same ops and tensors, other costs of ops.

    For graphs of inference. Times that a graph came with stay as they are.
    """
    kernels = _Kernels(graph)
    columns = [graph.op_flops, graph.op_bytes_read, graph.op_bytes_written]
    flops, read, written = (column.copy() for column in columns)
    dtypes = list(graph.op_dtypes)
    for ops in kernels.found():
        weights = graph.op_parameter_bytes[ops]
        at = ops[int(weights.argmax())] if weights.any() else ops[-1]
        cost = graph.op_flops[ops].sum(), kernels.bytes_read(ops), kernels.bytes_written(ops)
        for column, amount in zip((flops, read, written), cost, strict=True):
            column[ops] = 0.0
            column[at] = amount
        dtypes[at] = graph.op_dtypes[ops[int(graph.op_flops[ops].argmax())]]
    return replace(
        graph,
        op_flops=flops,
        op_bytes_read=read,
        op_bytes_written=written,
        op_dtypes=tuple(dtypes),
    )


class _Kernels:
    """Which ops of a graph are one kernel.

    What views look at stands for them: a view is no op here, and what reads it reads that.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        words = {each: word_of(each) for each in set(graph.op_types)}
        self._word = [words[each] for each in graph.op_types]
        self._idle = views(graph)
        self._order: list[int] = graph.topological_order.tolist()
        self._place = {op: place for place, op in enumerate(self._order)}
        self._maker: list[int] = graph.tensor_producer.tolist()
        self._reads: list[dict[int, float]] = [{} for _ in graph.op_names]
        self._readers: list[set[int]] = [set() for _ in graph.tensor_names]
        self._add_reads()

    def _add_reads(self) -> None:
        """The tensors that each op reads, with bytes, and the ops that read each tensor."""
        graph = self._graph
        behind, size = memory_behind(graph, self._idle), graph.tensor_bytes
        is_view = self._idle & (np.bincount(graph.consumers, minlength=graph.op_count) < 2)
        for tensor, op in zip(graph.edge_tensor.tolist(), graph.consumers.tolist(), strict=True):
            source = int(behind[tensor])
            if source != NOTHING and not is_view[op]:
                left = graph.op_bytes_read[op] - sum(self._reads[op].values())
                amount = min(size[tensor], size[source], max(left, 0.0))
                self._reads[op][source] = self._reads[op].get(source, 0.0) + float(amount)
                self._readers[source].add(op)

    def found(self) -> Iterator[list[int]]:
        """The kernels of more than one op, each its ops in topological order."""
        taken: set[int] = set()
        for op in self._order:
            chain = self._attention(op) or self._with_bias(op)
            if chain and taken.isdisjoint(chain):
                taken.update(chain)
                yield chain
        yield from self._elementwise(taken)

    def bytes_read(self, ops: Sequence[int]) -> float:
        """What they read that comes from outside, once each."""
        inside = set(ops)
        outside: dict[int, float] = {}
        rest = float(self._graph.op_bytes_read[ops].sum())
        for op in ops:
            for tensor, amount in self._reads[op].items():
                rest -= amount
                if self._maker[tensor] not in inside:
                    outside[tensor] = outside.get(tensor, 0.0) + amount
        size = self._graph.tensor_bytes
        once = sum(min(amount, float(size[tensor])) for tensor, amount in outside.items())
        return max(rest, 0.0) + once

    def bytes_written(self, ops: Sequence[int]) -> float:
        """What of theirs is read outside, or by nobody: that is the model's result."""
        inside = set(ops)
        leaving = {
            self._maker[tensor]
            for op in ops
            for tensor in self._makes[op]
            if not self._readers[tensor] or not self._readers[tensor] <= inside
        }
        return float(sum(self._graph.op_bytes_written[op] for op in leaving))

    @cached_property
    def _makes(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self._graph.op_names]
        for tensor, op in enumerate(self._maker):
            found[op].append(tensor)
        return found

    # -- chains that are left at their last op alone -------------------------------------------

    def _with_bias(self, op: int) -> list[int] | None:
        """A product and the bias that `op` adds to it."""
        adds = self._word[op] == "add" and self._graph.op_parameter_bytes[op] > 0
        product = self._only_before(op) if adds else None
        return [product, op] if product is not None and self._is_product(product) else None

    def _attention(self, op: int) -> list[int] | None:
        """The attention whose softmax is `op`: from a product of activations to another."""
        if self._word[op] != "softmax":
            return None
        before = self._to_product(op, self._only_before)
        behind = self._to_product(op, self._only_behind)
        if before is None or behind is None:
            return None
        ends = [before[-1], behind[-1]]
        return None if self._graph.op_parameter_bytes[ends].any() else before[:0:-1] + behind

    def _to_product(self, op: int, following: Callable[[int], int | None]) -> list[int] | None:
        """From a softmax to the product that is the end of its attention on this side."""
        found = [op]
        while not self._is_product(found[-1]):
            one = following(found[-1])
            if one is None or not (self._is_product(one) or self._word[one] in _AROUND_SOFTMAX):
                return None
            found.append(one)
        return found

    def _is_product(self, op: int) -> bool:
        return self._word[op] in _PRODUCTS

    def _only_before(self, op: int) -> int | None:
        """The op whose result `op` alone reads, and nothing else."""
        if len(self._reads[op]) != 1:
            return None
        (tensor,) = self._reads[op]
        return self._maker[tensor] if self._readers[tensor] == {op} else None

    def _only_behind(self, op: int) -> int | None:
        """The op that alone reads the result of `op`."""
        readers = {reader for tensor in self._makes[op] for reader in self._readers[tensor]}
        return readers.pop() if len(readers) == 1 else None

    # -- elementwise ops and reductions ---------------------------------------------------------

    def _elementwise(self, taken: set[int]) -> Iterator[list[int]]:
        """The connected ops of equal depth that fuse, but for those `taken`."""
        fuses = self._fusing(taken)
        depth = dict.fromkeys(self._order, 0)
        kernel: dict[int, list[int]] = {}
        for op in self._order:
            before = {self._maker[tensor] for tensor in self._reads[op]}
            steps = (depth[one] + (not (op in fuses and one in fuses)) for one in before)
            depth[op] = max(steps, default=0)
            if op in fuses:
                kernel[op] = [op]
                for one in before & fuses:
                    if depth[one] == depth[op] and kernel[one] is not kernel[op]:
                        small, large = sorted((kernel[op], kernel[one]), key=len)
                        large += small
                        kernel.update(dict.fromkeys(small, large))
        several = {id(ops): ops for ops in kernel.values() if len(ops) > 1}
        for ops in several.values():
            yield sorted(ops, key=self._place.__getitem__)

    def _fusing(self, taken: set[int]) -> set[int]:
        """Not what appends to a cache, nor lookups in tables of weights."""
        apart = self._idle | (self._graph.op_state_bytes > 0)
        holds = self._graph.op_parameter_bytes > 0
        return {
            op
            for op, word in enumerate(self._word)
            if not apart[op]
            and op not in taken
            and (word in _ALWAYS_FUSED or (word in _ROUTING and not holds[op]))
        }
