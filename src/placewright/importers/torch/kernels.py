"""Kernels of layers that keep a state: scans, a step of one, the short convolution before them.

Mamba, Mamba 2, gated delta rules and their like have kernels in libraries of their own
(mamba_ssm, causal_conv1d, fla), as the engines that serve have. A module of Transformers runs a
reference where these are not installed, which may be a loop over all tokens. Where a phase of
serving is exported, each call of a reference is one op here instead, ``placewright::…``: it reads
its inputs once and writes its result and the new state (`kernel_ops` has what it computes).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placewright.importers.pairs import causal, share_of_pairs

Arguments = Mapping[str, Any]

_NAMESPACE = "placewright"
HOME = "transformers.models."
"""Where references are."""


@dataclass(frozen=True)
class Kernel:
    """An op of this `name`, with its `flops` and the shape of the new `state` by its arguments.

    The reference overwrites its argument `overwrites`, or returns the state if it is asked to.
    `is_pointwise`: no products of matrices, so that it computes in fp32 whatever it reads.
    """

    name: str
    flops: Callable[[Arguments], float]
    state: Callable[[Arguments], Sequence[int]] | None = None
    overwrites: str = ""
    asked_by: str = ""
    is_pointwise: bool = True


def _convolution(given: Arguments) -> float:
    return float(2 * given["hidden_states"].numel() * given["weight"].shape[-1])


_PER_STATE = 7
"""Of a step, for each number of a state: its decay (two), what is new, and two of a product and
a sum, for the state and for the result."""


def _scan(given: Arguments) -> float:
    return float(_PER_STATE * given["hidden_states"].numel() * given["A"].shape[-1])


def _step(given: Arguments) -> float:
    return float(_PER_STATE * given["state"].numel())


def _chunk_scan(given: Arguments) -> float:
    """Pairs of tokens within chunks, and a state from chunk to chunk."""
    batch, tokens, heads, size = given["hidden_states"].shape
    groups, state = given["B"].shape[-2:]
    chunk = min(int(given["chunk_size"]), tokens)
    pairs = chunk * share_of_pairs(chunk, chunk, causal())
    of_a_token = pairs * (groups * state + heads * size) + 2 * heads * size * state
    return float(2 * batch * tokens * of_a_token)


def _delta_step(given: Arguments) -> float:
    tokens = given["query"].shape[1]
    return float(_PER_STATE * math.prod(_delta_state(given)) * tokens)


def _delta_chunks(given: Arguments) -> float:
    """Within chunks pairs of keys, their triangular system, pairs with queries, and values.

    From chunk to chunk what the state says of keys and queries, and what is new of it.
    """
    batch, heads, of_key, of_value = _delta_state(given)
    tokens = given["query"].shape[1]
    chunk = min(int(given["chunk_size"]), tokens)
    of_a_token = chunk * (3 * of_key + 2 * of_value) + 3 * of_key * of_value
    return float(2 * batch * heads * tokens * of_a_token)


def _delta_state(given: Arguments) -> Sequence[int]:
    value = given["value"]
    return value.shape[0], value.shape[2], given["key"].shape[-1], value.shape[-1]


def _scan_state(given: Arguments) -> Sequence[int]:
    return *given["hidden_states"].shape[:2], given["A"].shape[-1]


def _chunk_scan_state(given: Arguments) -> Sequence[int]:
    batch, _, heads, size = given["hidden_states"].shape
    return batch, heads, size, given["B"].shape[-1]


def _updated(name: str, flops: Callable[[Arguments], float], overwrites: str) -> Kernel:
    return Kernel(name, flops, lambda given: given[overwrites].shape, overwrites)


def _delta(name: str, flops: Callable[[Arguments], float], *, is_pointwise: bool) -> Kernel:
    asked = "output_final_state"
    return Kernel(name, flops, _delta_state, asked_by=asked, is_pointwise=is_pointwise)


KERNELS: Mapping[str, Kernel] = {
    "causal_conv1d_fn": Kernel("causal_conv1d", _convolution),
    "causal_conv1d_update": _updated("causal_conv1d_update", _convolution, "conv_state"),
    "mamba_selective_scan": Kernel(
        "selective_scan", _scan, _scan_state, asked_by="return_last_state"
    ),
    "mamba_selective_state_update": _updated("selective_state_update", _step, "state"),
    "mamba2_selective_state_update": _updated("selective_state_update", _step, "state"),
    "mamba2_chunk_scan": Kernel(
        "chunk_scan",
        _chunk_scan,
        _chunk_scan_state,
        asked_by="return_final_states",
        is_pointwise=False,
    ),
    "torch_chunk_gated_delta_rule": _delta("chunk_delta_rule", _delta_chunks, is_pointwise=False),
    "torch_recurrent_gated_delta_rule": _delta("delta_rule", _delta_step, is_pointwise=True),
    "chunk_kimi_delta_attention": _delta("chunk_delta_rule", _delta_chunks, is_pointwise=False),
    "recurrent_kimi_delta_attention": _delta("delta_rule", _delta_step, is_pointwise=True),
}
"""References of Transformers by their names, the same in every module that has them."""


def flops_of(inputs: Sequence[Any], call: str, **_: Any) -> float:
    """FLOPs of a call of an op, by its own arguments."""
    kernel, given = said(inputs, call)
    return kernel.flops(given)


OPS = {f"{_NAMESPACE}::{each.name}" for each in KERNELS.values()}
POINTWISE = {f"{_NAMESPACE}::{each.name}" for each in KERNELS.values() if each.is_pointwise}
"""Those that compute in fp32."""


def said(inputs: Sequence[Any], call: str) -> tuple[Kernel, Arguments]:
    """What a call of an op says: the kernel, and the arguments of its reference."""
    text = json.loads(call)
    given = dict(zip(text["tensors"], inputs, strict=True)) | text["settings"]
    return KERNELS[place_of(call).rpartition(":")[2]], given


def place_of(call: str) -> str:
    """The reference that a call of an op stands for: ``module:function``."""
    return str(json.loads(call)["of"])
