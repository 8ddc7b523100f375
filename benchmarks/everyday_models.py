"""The models of `everyday.py`: configurations as published, with weights as people run them.

Language models are GGUF files of which there is a header only (the rest is a hole in the file):
matrices in blocks of four bits, ``Q4_K``, embedding and head in ``Q6_K``, as llama.cpp quantises
to ``Q4_K_S``; or all in ``F16``. The diffusion transformer is built on PyTorch's meta device.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

F32, F16, Q4_K, Q6_K = (0, 1, 4), (1, 1, 2), (12, 256, 144), (14, 256, 210)
"""Number of the type, elements of a block, bytes of a block."""
ALIGNMENT = 32
DECODE = "phase=decode&context=4096"


@dataclass(frozen=True)
class Decoder:
    """A decoder by its published configuration; `experts` of which a token uses `active`."""

    architecture: str
    layers: int
    hidden: int
    feedforward: int
    heads: int
    kv_heads: int
    vocabulary: int
    head_size: int = 128
    experts: int = 0
    active: int = 0
    tied: bool = False
    quantised: bool = True
    metadata: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Model:
    """A row of the table: `source` is what placewright takes, or a `Decoder` to write a file of."""

    name: str
    source: str | Decoder
    is_language: bool = True

    def written(self, folder: Path) -> str:
        """The source, with its file in the folder where it needs one."""
        if isinstance(self.source, str):
            return self.source
        path = folder / f"{self.name.replace(' ', '-')}.gguf"
        if not path.exists():
            write_header(path, self.source)
        return f"{path}?{DECODE}"


def tensors(shape: Decoder) -> Iterator[tuple[str, tuple[int, ...], tuple[int, int, int]]]:
    """Name, shape and type of every tensor, in the order of the data."""
    matrix, ends = (Q4_K, Q6_K) if shape.quantised else (F16, F16)
    wide, kept = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    hidden, inner = shape.hidden, shape.feedforward
    yield "token_embd", (hidden, shape.vocabulary), ends
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        yield f"{at}attn_norm", (hidden,), F32
        yield f"{at}attn_q", (hidden, wide), matrix
        yield f"{at}attn_k", (hidden, kept), matrix
        yield f"{at}attn_v", (hidden, kept), matrix
        if shape.architecture == "qwen3moe":
            yield f"{at}attn_q_norm", (shape.head_size,), F32
            yield f"{at}attn_k_norm", (shape.head_size,), F32
        yield f"{at}attn_output", (wide, hidden), matrix
        yield f"{at}ffn_norm", (hidden,), F32
        if shape.architecture == "gemma2":
            yield f"{at}post_attention_norm", (hidden,), F32
            yield f"{at}post_ffw_norm", (hidden,), F32
        count = (shape.experts,) if shape.experts else ()
        if count:
            yield f"{at}ffn_gate_inp", (hidden, shape.experts), F32
        suffix = "_exps" if count else ""
        yield f"{at}ffn_gate{suffix}", (hidden, inner, *count), matrix
        yield f"{at}ffn_up{suffix}", (hidden, inner, *count), matrix
        yield f"{at}ffn_down{suffix}", (inner, hidden, *count), matrix
    yield "output_norm", (hidden,), F32
    if not shape.tied:
        yield "output", (hidden, shape.vocabulary), ends


def write_header(path: Path, shape: Decoder) -> None:
    """Write a GGUF file as large as the model, with nothing behind its header."""
    facts = {
        "block_count": shape.layers,
        "embedding_length": shape.hidden,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_size,
        "attention.value_length": shape.head_size,
        "context_length": 32768,
        **shape.metadata,
    }
    if shape.experts:
        facts |= {"expert_count": shape.experts, "expert_used_count": shape.active}
    entries = [_text("general.architecture") + struct.pack("<I", 8) + _text(shape.architecture)]
    for key, value in facts.items():
        entries.append(_text(f"{shape.architecture}.{key}") + struct.pack("<II", 4, value))
    offset, infos = 0, []
    for name, dimensions, (number, elements, size) in tensors(shape):
        infos.append(
            _text(f"{name}.weight")
            + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
            + struct.pack("<IQ", number, offset)
        )
        nbytes = math.prod(dimensions) // elements * size
        offset += -(-nbytes // ALIGNMENT) * ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(entries))
    content = b"".join([head, *entries, *infos])
    with path.open("wb") as file:
        file.write(content)
        file.truncate(-(-len(content) // ALIGNMENT) * ALIGNMENT + offset)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


LLAMA_8B = (32, 4096, 14336, 32, 8, 128256)
MODELS = (
    Model("Llama-2-7B fp16", f"zoo:llama-7b?{DECODE}"),
    Model("Llama-3.1-8B int4", Decoder("llama", *LLAMA_8B)),
    Model("Llama-3.1-8B bf16 hf", "hf:llama?num_hidden_layers=32&hidden_size=4096"
          "&intermediate_size=14336&num_attention_heads=32&num_key_value_heads=8&vocab_size=128256"
          f"&max_position_embeddings=8192&dtype=bfloat16&{DECODE}"),
    Model("Gemma-2-9B fp16 tied", Decoder(
        "gemma2", 42, 3584, 14336, 16, 8, 256000, head_size=256, tied=True, quantised=False,
        metadata={"attention.sliding_window": 4096})),
    Model("Llama-2-13B fp16", f"zoo:llama-13b?{DECODE}"),
    Model("Qwen3-30B-A3B int4", Decoder(
        "qwen3moe", 48, 2048, 768, 32, 4, 151936, experts=128, active=8)),
    Model("Qwen2.5-32B int4", Decoder("qwen2", 64, 5120, 27648, 40, 8, 152064)),
    Model("Llama-3.3-70B int4", Decoder("llama", 80, 8192, 28672, 64, 8, 128256)),
    Model("Mixtral-8x7B fp16", f"zoo:mixtral-8x7b?{DECODE}"),
    Model("Qwen3-235B-A22B int4", Decoder(
        "qwen3moe", 94, 4096, 1536, 64, 4, 151936, experts=128, active=8)),
    Model("Qwen3-Coder-480B-A35B int4", Decoder(
        "qwen3moe", 62, 6144, 2560, 96, 8, 151936, experts=160, active=8)),
    Model("ResNet-152 fp16, 32 images", "zoo:resnet152?batch=32&dtype=fp16", is_language=False),
    Model("DiT 9.7B fp16, 1024x1024", "torch:everyday_models:diffusion_transformer",
          is_language=False),
)  # fmt: skip


def diffusion_transformer() -> tuple[Any, tuple[Any, ...]]:
    """A DiT (Peebles and Xie 2023) as wide and deep as FLUX.1, on the meta device.

    One step of denoising 4096 patches of 64 latent numbers, which is an image of 1024 by 1024.
    """
    import torch

    with torch.device("meta"):
        model = _dit(width=3072, depth=57, heads=24).half()
        patches = torch.empty(1, 4096, 64, dtype=torch.float16)
        condition = torch.empty(1, 3072, dtype=torch.float16)
    return model, (patches, condition)


def _dit(width: int, depth: int, heads: int) -> Any:
    import torch
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention

    class Block(nn.Module):
        """Attention and feed-forward, each scaled, shifted and gated by the condition."""

        def __init__(self) -> None:
            super().__init__()
            self.modulation = nn.Linear(width, 6 * width)
            self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
            self.qkv = nn.Linear(width, 3 * width)
            self.project = nn.Linear(width, width)
            self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
            changes = self.modulation(nn.functional.silu(condition)).unsqueeze(1).chunk(6, dim=-1)
            y = self.norm1(x) * (1 + changes[0]) + changes[1]
            parts = self.qkv(y).unflatten(-1, (3, heads, width // heads)).permute(2, 0, 3, 1, 4)
            attended = scaled_dot_product_attention(parts[0], parts[1], parts[2])
            x = x + changes[2] * self.project(attended.transpose(1, 2).flatten(2))
            y = self.norm2(x) * (1 + changes[3]) + changes[4]
            return x + changes[5] * self.down(nn.functional.gelu(self.up(y), approximate="tanh"))

    class Dit(nn.Module):
        """Patches in, noise out."""

        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(64, width)
            self.blocks = nn.ModuleList(Block() for _ in range(depth))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, 64)

        def forward(self, patches: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
            x = self.embed(patches)
            for block in self.blocks:
                x = block(x, condition)
            return self.head(self.norm(x))

    return Dit().eval()
