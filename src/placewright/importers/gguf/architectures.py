"""The architectures of GGUF files whose decoders are known, one row each.

Most of a block follows from the tensors that it has: biases, norms of queries and keys, norms
behind attention and feed-forward, gates, experts, projections in one. A row says what they do not.
Other architectures keep something else than keys and values (Mamba), compress them (DeepSeek's
latent attention), have an encoder, or have not been looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What the tensors of a decoder do not say.

    `norm` and `activation` are types of ops. Of `window_period` layers the last looks at all
    tokens, the others at a sliding window (0: all look at all). `rotary`: queries and keys are
    rotated.
    """

    norm: str = "rmsnorm"
    activation: str = "silu"
    window_period: int = 0
    rotary: bool = True


_LLAMA = Architecture()
_LAYERNORM = Architecture(norm="layernorm")

ARCHITECTURES: Mapping[str, Architecture] = {
    "command-r": _LAYERNORM,
    "exaone": _LLAMA,
    "gemma": Architecture(activation="gelu"),
    "gemma2": Architecture(activation="gelu", window_period=2),
    "gemma3": Architecture(activation="gelu", window_period=6),
    "gpt-oss": Architecture(window_period=2),
    "gpt2": Architecture(norm="layernorm", activation="gelu", rotary=False),
    "granite": _LLAMA,
    "granitemoe": _LLAMA,
    "internlm2": _LLAMA,
    "llama": _LLAMA,
    "mistral3": _LLAMA,
    "olmo2": _LLAMA,
    "olmoe": _LLAMA,
    "phi3": _LLAMA,
    "qwen2": _LLAMA,
    "qwen2moe": _LLAMA,
    "qwen3": _LLAMA,
    "qwen3moe": _LLAMA,
    "stablelm": _LAYERNORM,
    "starcoder2": Architecture(norm="layernorm", activation="gelu"),
}
