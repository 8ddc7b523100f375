"""The bytes of quantised tensors, against files that are written byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from placewright.importers import load
from placewright.importers.gguf.header import read_header
from placewright.importers.gguf.types import TYPES
from tests.importers.gguf_bytes import ALIGNMENT, BLOCKS, llama, write

MIXED = {"attn_q": "Q6_K", "attn_k": "IQ4_XS", "attn_v": "Q5_K", "attn_output": "Q2_K"}
MIXED |= {"ffn_up": "Q4_K", "ffn_gate": "MXFP4", "ffn_down": "Q4_0", "output.": "Q8_0"}
MIXED |= {"token_embd": "BF16"}


def test_every_op_has_the_bytes_that_the_file_has_for_its_tensor(tmp_path: Path) -> None:
    path = tmp_path / "mixed.gguf"
    written = write(path, *llama(layers=3, types=MIXED))
    graph = load(str(path)).graph
    kept = zip(graph.op_names, graph.op_parameter_bytes.tolist(), strict=True)
    assert {f"{name}.weight": count for name, count in kept if count} == written
    assert graph.attributes["stored_bytes"] == sum(written.values())
    by_type = dict(each.rsplit(" ", 1) for each in graph.attributes["stored_dtypes"].split(", "))
    assert int(by_type["Q4_K"]) == sum(n for name, n in written.items() if "ffn_up" in name)


def test_tensors_fill_the_file_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "mixed.gguf"
    written = write(path, *llama(layers=2, types=MIXED))
    tensors = read_header(path).tensors
    assert {name: tensor.bytes for name, tensor in tensors.items()} == written
    end = max(tensor.offset + tensor.bytes for tensor in tensors.values())
    data = sum(-(-count // ALIGNMENT) * ALIGNMENT for count in written.values())
    assert end <= data < path.stat().st_size
    assert data - end < ALIGNMENT


@pytest.mark.parametrize("name", BLOCKS)
def test_a_type_has_the_block_of_the_format(name: str) -> None:
    number, elements, size = BLOCKS[name]
    assert TYPES[number] == (name, elements, size)
