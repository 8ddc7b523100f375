"""GGUF files written byte by byte, without the `gguf` package, with tensors of random bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

ALIGNMENT = 32
HEADS, KV_HEADS = 4, 2
BLOCKS = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_0": (2, 32, 18),
    "Q8_0": (8, 32, 34),
    "Q2_K": (10, 256, 84),
    "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210),
    "IQ4_XS": (23, 256, 136),
    "BF16": (30, 1, 2),
    "MXFP4": (39, 32, 17),
    "NVFP4": (40, 64, 36),  # a byte of scale for each 16
    "Q1_0": (41, 128, 18),
}
"""Number of a type, elements and bytes of a block: of ``ggml.h`` and ``ggml-common.h``."""
Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
"""By name the type and the shape, the dimension that lies together first."""


def write(path: Path, metadata: Mapping[str, Any], tensors: Tensors) -> dict[str, int]:
    """Write a file; how many bytes of data it has for each tensor."""
    random = np.random.default_rng(0)
    data = {name: _data(random, *tensor) for name, tensor in tensors.items()}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_text(key) + _value(value) for key, value in metadata.items())
    offset = 0
    for name, (kind, shape) in tensors.items():
        head += _text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += struct.pack("<IQ", BLOCKS[kind][0], offset)
        offset += len(_padded(data[name]))
    path.write_bytes(_padded(head) + b"".join(map(_padded, data.values())))
    return {name: len(content) for name, content in data.items()}


def _data(random: np.random.Generator, kind: str, shape: tuple[int, ...]) -> bytes:
    """Small numbers where the type's layout is written here, else random bytes."""
    count = math.prod(shape)
    _, elements, size = BLOCKS[kind]
    if kind in ("F32", "F16"):
        centre = 1.0 if len(shape) == 1 else 0.0  # norms are about 1
        numbers = centre + 0.05 * random.standard_normal(count)
        return numbers.astype(np.float32 if kind == "F32" else np.float16).tobytes()
    blocks = random.integers(0, 256, (count // elements, size), dtype=np.uint8)
    if kind in ("Q8_0", "Q4_0"):  # a scale of two bytes, and the numbers
        scale = 0.05 / (74.0 if kind == "Q8_0" else 4.6)
        blocks[:, :2] = np.frombuffer(np.float16(scale).tobytes(), dtype=np.uint8)
    return blocks.tobytes()


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % ALIGNMENT)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    """Its type and itself: text, a whole number, a fraction, or a list of these."""
    if isinstance(value, list):
        kind, form = {str: (8, ""), float: (6, "<f"), int: (5, "<i")}[type(value[0])]
        items = [struct.pack(form, each) if form else _text(each) for each in value]
        return struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<II", 4, value)


def llama(
    layers: int,
    types: Mapping[str, str] | None = None,
    *,
    hidden: int = 256,
    wide: int = 768,
    words: int = 512,
    experts: int = 0,
) -> tuple[dict[str, Any], Tensors]:
    """Metadata and tensors of a Llama with grouped heads; `types` by a part of a name, else Q8_0.

    With `experts` each feed-forward is that many, two of which a token goes to. Norms are F32.
    """
    blocks = [_block(layer, hidden, wide, experts) for layer in range(layers)]
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (hidden, words)}
    shapes |= {name: shape for block in blocks for name, shape in block.items()}
    shapes |= {"output_norm": (hidden,), "output": (hidden, words)}
    tensors = {
        f"{name}.weight": ("F32" if len(shape) == 1 else _type(f"{name}.", types or {}), shape)
        for name, shape in shapes.items()
    }
    sizes = {
        "block_count": layers,
        "context_length": 4096,
        "embedding_length": hidden,
        "feed_forward_length": wide,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": hidden // HEADS,
        "vocab_size": words,
        **({"expert_count": experts, "expert_used_count": 2} if experts else {}),
    }
    return {
        "general.architecture": "llama",
        **{f"llama.{key}": value for key, value in sizes.items()},
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>"] + [f"t{n}" for n in range(words - 3)],
        "tokenizer.ggml.scores": [0.0] * words,
        "tokenizer.ggml.token_type": [2, 3, 3] + [1] * (words - 3),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }, tensors


def _block(layer: int, hidden: int, wide: int, experts: int) -> dict[str, tuple[int, ...]]:
    cached = hidden * KV_HEADS // HEADS
    attention = {
        "attn_norm": (hidden,),
        "attn_q": (hidden, hidden),
        "attn_k": (hidden, cached),
        "attn_v": (hidden, cached),
        "attn_output": (hidden, hidden),
        "ffn_norm": (hidden,),
    }
    dense = {"ffn_gate": (hidden, wide), "ffn_up": (hidden, wide), "ffn_down": (wide, hidden)}
    if experts:
        dense = {f"{name}_exps": (*shape, experts) for name, shape in dense.items()}
        dense = {"ffn_gate_inp": (hidden, experts), **dense}
    return {f"blk.{layer}.{name}": shape for name, shape in {**attention, **dense}.items()}


def _type(name: str, types: Mapping[str, str]) -> str:
    if name.endswith("ffn_gate_inp."):
        return "F32"
    return next((kind for part, kind in types.items() if part in name), "Q8_0")
