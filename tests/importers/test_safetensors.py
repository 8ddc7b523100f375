"""Headers of safetensors files are read, and every fault of one is a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from placewright.errors import FormatError
from placewright.importers.safetensors import INDEX, SINGLE, Stored, read_checkpoint


def write(path: Path, entries: dict[str, Any], data: int) -> None:
    header = json.dumps(entries).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(data))


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


TWO = {
    "__metadata__": {"format": "pt"},
    "b": entry("I32", [2], 12, 20),
    "a": entry("BF16", [2, 3], 0, 12),
}


def test_a_file_tells_type_shape_and_bytes(tmp_path: Path) -> None:
    write(tmp_path / SINGLE, TWO, 20)
    assert read_checkpoint(tmp_path) == {
        "a": Stored("BF16", (2, 3), 12),
        "b": Stored("I32", (2,), 8),
    }


def test_numbers_of_less_than_a_byte_are_counted_in_bits(tmp_path: Path) -> None:
    write(tmp_path / SINGLE, {"a": entry("F4", [3, 2], 0, 3)}, 3)
    found = read_checkpoint(tmp_path)
    assert found is not None and found["a"].bytes == 3


def test_files_written_by_the_library_are_read(tmp_path: Path) -> None:
    numpy, safetensors = pytest.importorskip("numpy"), pytest.importorskip("safetensors.numpy")
    tensors = {"x": numpy.zeros((2, 5), numpy.float16), "y": numpy.zeros((), numpy.int64)}
    safetensors.save_file(tensors, tmp_path / SINGLE)
    assert read_checkpoint(tmp_path) == {"x": Stored("F16", (2, 5), 20), "y": Stored("I64", (), 8)}


def test_a_folder_without_safetensors_has_no_checkpoint(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path) is None


def shards(folder: Path, places: dict[str, str]) -> None:
    write(folder / "one.safetensors", {"a": entry("F32", [1], 0, 4)}, 4)
    write(folder / "two.safetensors", {"b": entry("F32", [2], 0, 8)}, 8)
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))


def test_shards_are_read_as_one_checkpoint(tmp_path: Path) -> None:
    shards(tmp_path, {"a": "one.safetensors", "b": "two.safetensors"})
    assert read_checkpoint(tmp_path) == {"a": Stored("F32", (1,), 4), "b": Stored("F32", (2,), 8)}


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        ({"a": "one.safetensors", "b": "three.safetensors"}, "'three.safetensors' is missing"),
        ({"a": "one.safetensors", "b": "../two.safetensors"}, "is no file beside it"),
        ({"a": "one.safetensors", "c": "two.safetensors"}, "holds 'b', which"),
        ({"a": "one.safetensors", "z": "one.safetensors"}, "lacks 'z'"),
        ({"a": 3}, "is no file name"),
        ({}, "has no weight_map"),
    ],
)
def test_an_index_that_does_not_fit_its_shards_is_refused(
    tmp_path: Path, places: dict[str, str], sentence: str
) -> None:
    shards(tmp_path, places)
    with pytest.raises(FormatError, match=sentence):
        read_checkpoint(tmp_path)


def test_safetensors_of_another_name_are_not_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "adapter.safetensors", TWO, 20)
    with pytest.raises(FormatError, match=r"adapter\.safetensors but neither"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("change", "data", "sentence"),
    [
        ({"a": entry("BF16", [2, 3], 0, 12)}, 19, "'b' ends at byte 20"),
        ({"a": entry("BF16", [2, 3], 0, 12)}, 21, "holds 21 bytes of tensors"),
        ({"a": entry("BF16", [2, 4], 0, 12)}, 20, "takes 16 bytes"),
        ({"a": entry("BF16", [2, 2], 4, 12)}, 20, "begins at byte 4"),
        ({"a": entry("BF16", [2, 3], 12, 0)}, 20, "data_offsets of whole numbers"),
        ({"a": entry("BF16", [2, -3], 0, 12)}, 20, "data_offsets of whole numbers"),
        ({"a": entry("BF17", [2, 3], 0, 12)}, 20, "type 'BF17'"),
        ({"a": 3}, 20, "'a' needs a shape"),
        ({"a": entry("BF16", [2, 3], 0, 10**15)}, 20, "data_offsets span"),
    ],
)
def test_an_entry_that_cannot_be_is_refused(
    tmp_path: Path, change: dict[str, Any], data: int, sentence: str
) -> None:
    write(tmp_path / SINGLE, TWO | change, data)
    with pytest.raises(FormatError, match=sentence):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "0 bytes long, too short"),
        (b"\x01\x02", "2 bytes long, too short"),
        ((10**9).to_bytes(8, "little") + b"{}", "its header is said to be 1000000000"),
        ((9).to_bytes(8, "little") + b"{}", "its header is said to be 9"),
        ((2).to_bytes(8, "little") + b"[]", "no JSON object"),
        ((2).to_bytes(8, "little") + b"{x", "not valid JSON"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git lfs pull"),
    ],
)
def test_a_file_cut_off_or_of_another_kind_is_refused(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / SINGLE).write_bytes(content)
    with pytest.raises(FormatError, match=sentence):
        read_checkpoint(tmp_path)


def test_only_headers_are_read(tmp_path: Path) -> None:
    """A terabyte of weights, which is a hole in the file, takes no time."""
    size = 2**40
    header = json.dumps({"a": entry("I8", [size], 0, size)}).encode()
    with (tmp_path / SINGLE).open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    found = read_checkpoint(tmp_path)
    assert found is not None and found["a"].bytes == size
