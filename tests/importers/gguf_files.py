"""Small GGUF files, written by the `gguf` package, with quantised tensors of random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

HIDDEN, HEADS, KV_HEADS, SIZE, WIDE, WORDS = 256, 4, 2, 64, 512, 96
Shapes = dict[str, tuple[int, ...]]
"""As the file has them: the dimension that lies together first."""


def block(number: int, **changes: tuple[int, ...] | None) -> Shapes:
    """The weights of a block of a Llama; `changes` by name, None for one that is left out."""
    shapes: dict[str, tuple[int, ...] | None] = {
        "attn_norm": (HIDDEN,),
        "attn_q": (HIDDEN, HEADS * SIZE),
        "attn_k": (HIDDEN, KV_HEADS * SIZE),
        "attn_v": (HIDDEN, KV_HEADS * SIZE),
        "attn_output": (HEADS * SIZE, HIDDEN),
        "ffn_norm": (HIDDEN,),
        "ffn_gate": (HIDDEN, WIDE),
        "ffn_up": (HIDDEN, WIDE),
        "ffn_down": (WIDE, HIDDEN),
        **changes,
    }
    return {f"blk.{number}.{name}.weight": shape for name, shape in shapes.items() if shape}


def ends(tied: bool = False) -> Shapes:
    """The weights outside the blocks."""
    shapes: Shapes = {"token_embd.weight": (HIDDEN, WORDS), "output_norm.weight": (HIDDEN,)}
    return shapes if tied else {**shapes, "output.weight": (HIDDEN, WORDS)}


def write(
    path: Path,
    tensors: Shapes,
    types: Mapping[str, str] | None = None,
    architecture: str = "llama",
    **metadata: Any,
) -> Path:
    """A file of these tensors; `types` by the end of a name (else F32), metadata by its key."""
    writer = gguf.GGUFWriter(str(path), architecture)
    blocks = {name.split(".")[1] for name in tensors if name.startswith("blk.")}
    sizes = {
        "block_count": len(blocks),
        "embedding_length": HIDDEN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "context_length": 64,
        **{key.replace("__", "."): value for key, value in metadata.items()},
    }
    for key, value in sizes.items():
        if isinstance(value, list):
            writer.add_array(f"{architecture}.{key}", value)
        else:
            writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_token_list([f"word{number}" for number in range(WORDS)])
    random = np.random.default_rng(0)
    for name, shape in tensors.items():
        values = random.standard_normal(shape[::-1]).astype(np.float32)
        kind = next((k for end, k in (types or {}).items() if end in name), "F32")
        number = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, gguf.quants.quantize(values, number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stored_bytes(path: Path) -> dict[str, int]:
    """Bytes of each tensor, as the `gguf` package reads the file."""
    return {each.name: int(each.n_bytes) for each in gguf.GGUFReader(str(path)).tensors}
