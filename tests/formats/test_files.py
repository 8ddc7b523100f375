"""Files are read whole or refused in one sentence, and written whole or not at all."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from placewright.errors import FormatError
from placewright.formats import files

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)  # fmt: skip


def refused(match: str):
    return pytest.raises(FormatError, match=match)


# -- reading -------------------------------------------------------------------------------------


def test_a_file_is_read_as_it_is(tmp_path):
    (tmp_path / "file").write_bytes(b"\x00\xff")
    assert files.read_bytes(tmp_path / "file") == b"\x00\xff"


def test_a_file_larger_than_allowed_is_refused_unread(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"12345")
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 4)
    with refused("5 bytes is more than the 4 allowed"):
        files.read_bytes(tmp_path / "file")


@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero", "/dev/random"])
def test_a_device_is_refused_for_it_might_never_end(device):
    if not Path(device).is_char_device():
        pytest.skip(f"no {device} here")
    with refused(f"{device}: is a device; give a file"):
        files.read_bytes(device)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path):
    path = tmp_path / "secret"
    path.write_text("{}")
    path.chmod(0)
    with refused("secret: cannot be read"):
        files.read_bytes(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_what_comes_through_a_pipe_is_read(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"[1]",))
    writer.start()
    assert files.read_document(path) == [1]
    writer.join()


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = tmp_path / "bom.json"
    path.write_bytes(b"\xef\xbb\xbf[1]")
    assert files.read_document(path) == [1]


@given(JSON)
def test_json_reads_back_what_was_written(value):
    assert files.parse_json(json.dumps(value), "x.json") == value


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_lacks_are_refused(constant):
    with refused(f"x.json: {constant} is not a number JSON allows"):
        files.parse_json(f"[{constant}]", "x.json")


def test_a_syntax_error_is_located():
    with refused("x.json: not valid JSON, line 2 column 3"):
        files.parse_json("[1,\n  x]", "x.json")


@pytest.mark.parametrize("escape", [r"\ud800", r"\uDFFF", r"x\uD83Dy"])
def test_half_a_character_is_refused(escape):
    with refused(r"a text holds \\ud[8d3f]"):
        files.parse_json(f'{{"name": ["{escape}"]}}', "x.json")


@pytest.mark.parametrize("text", [r"\ud83d\ude00", r"\uD83D\uDE00", r"\\ud800", "😀"])
def test_whole_characters_are_taken_however_they_are_written(text):
    (found,) = files.parse_json(f'["{text}"]', "x.json")
    assert found in ("😀", r"\ud800")


@pytest.mark.parametrize("depth", [files.MAX_YAML_DEPTH - 1, files.MAX_YAML_DEPTH])
def test_yaml_may_nest_as_deep_as_the_limit(depth):
    found = files.parse_yaml("[" * depth + "]" * depth, "x.yaml")
    for _ in range(depth - 1):
        (found,) = found
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        open * depth + middle + close * depth
        for depth in (101, 5000)
        for open, middle, close in [("[", "", "]"), ("- ", "x", ""), ("{a: ", "", "}")]
    ],
)
def test_yaml_nested_deeper_is_refused(text):
    with refused("x.yaml: YAML nested too deeply"):
        files.parse_yaml(text, "x.yaml")


def test_yaml_side_by_side_is_not_deep():
    assert len(files.parse_yaml("- []\n- {}\n" * 500, "x.yaml")) == 1000


@pytest.mark.parametrize(
    "text",
    ["!!python/object:os.system {}", "!!python/name:os.system", "!!python/tuple [1]", "!x 1"],
)
def test_yaml_that_makes_objects_is_refused(text):
    with refused("x.yaml: not valid YAML, line 1 column 1: could not determine a constructor"):
        files.parse_yaml(text, "x.yaml")


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.json", '{"a": 1}'), ("a.yaml", "a: 1"), ("a.YML", "a: 1"), ("a", '{"a": 1}')],
)
def test_a_document_is_json_unless_its_name_says_yaml(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert files.read_document(tmp_path / name) == {"a": 1}


NO_TEXT = {
    "gzip": (gzip.compress(b"{}"), "is compressed \\(gzip\\); unpack it"),
    "bzip2": (bz2.compress(b"{}"), "is compressed \\(bzip2\\); unpack it"),
    "xz": (lzma.compress(b"{}"), "is compressed \\(xz\\); unpack it"),
    "utf-16": ("{}".encode("utf-16"), "is UTF-16 text; save the file as UTF-8"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\n", "is a Git LFS pointer"),
    "zip": (b"PK\x03\x04rest", "is a zip archive; unpack it"),
    "onnx": (b"\x08\x08\x12\x07pytorch", "is an ONNX model or another binary file; give a plan"),
    "zeros": (b"{\x00}", "is an ONNX model or another binary file; give a plan"),
}


# Named: gzip writes the time into what it packs, and every worker of a test run must draw one name.
@pytest.mark.parametrize(("content", "message"), NO_TEXT.values(), ids=NO_TEXT)
def test_what_is_no_text_is_named_for_what_it_is(tmp_path, content, message):
    (tmp_path / "x.json").write_bytes(content)
    with refused(f"x.json: {message}"):
        files.read_document(tmp_path / "x.json", "a plan")


@pytest.mark.parametrize("name", ["x", "x.txt", "x.json"])
def test_yaml_is_told_by_its_content_where_it_is_expected(tmp_path, name):
    path = tmp_path / name
    path.write_text("# a comment\nname: x\n")
    assert files.read_document(path, may_be_yaml=True) == {"name": "x"}
    with refused("not valid JSON, line 1"):
        files.read_document(path)
    path.write_text(' {"name": "x",}')
    with refused("not valid JSON, line 1"):
        files.read_document(path, may_be_yaml=True)
    path.write_text(" ")
    with refused("the file is empty"):
        files.read_document(path, may_be_yaml=True)


def test_yaml_takes_numbers_by_powers_of_ten_for_numbers():
    assert files.parse_yaml("[1e-6, -2E5, 1.5e+3]", "x") == [1e-6, -2e5, 1.5e3]
    assert files.parse_yaml("[1e, e5, 1e-6s]", "x") == ["1e", "e5", "1e-6s"]


def test_standard_input_has_no_name_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused("-: nothing is read from standard input by this name; give a file or /dev/stdin"):
        files.read_bytes("-")


# -- formats -------------------------------------------------------------------------------------


def test_the_expected_format_passes():
    files.check_format({"format": "placewright.graph/1"}, "placewright.graph/1", "x")


@pytest.mark.parametrize(
    ("document", "match"),
    [
        ([], 'x: the top level must be an object with "format": "placewright.graph/1"'),
        ({}, 'x: field format is missing; write "format": "placewright.graph/1"'),
        ({"format": 1}, "x: format is 1, expected"),
        ({"format": "placewright.plan/1"}, "x: format is 'placewright.plan/1', expected"),
        ({"format": "placewright.graph/2"}, "x: format is 'placewright.graph/2', this version"),
    ],
)
def test_another_format_is_refused(document, match):
    with refused(match):
        files.check_format(document, "placewright.graph/1", "x")


class Inner(BaseModel, extra="forbid"):
    amount: float | None = None
    either: int | list[int] = 0
    table: dict[str, int] = {}


class Outer(BaseModel):
    inner: list[Inner]


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({}, "inner"),
        ([], "top level"),
        ({"inner": {}}, "inner"),
        ({"inner": [{}, 3]}, "inner.1"),
        ({"inner": [{"amount": "x"}]}, "inner.0.amount"),
        ({"inner": [{"either": "x"}]}, "inner.0.either"),
        ({"inner": [{"either": {}}]}, "inner.0.either"),
        ({"inner": [{"either": [1, "x"]}]}, "inner.0.either"),
        ({"inner": [{"table": {"a b": "x"}}]}, "inner.0.table.a b"),
        ({"inner": [{"more": 1}]}, "inner.0.more"),
    ],
)
def test_a_fault_is_named_by_its_place_in_the_file(document, field):
    with pytest.raises(FormatError) as caught:
        files.validate(Outer, document, "x.json")
    message = str(caught.value)
    assert message.startswith(f"x.json: field {field}")
    assert "\n" not in message
    assert not any(word in message.partition(": field ")[2].partition(": ")[0] for word in "[]()")


class Placed(BaseModel):
    placement: list[int] | list[list[int]]


@pytest.mark.parametrize(
    ("placement", "field"),
    [
        ([0, 0.5, 1], "placement.1"),
        ([[0, 1], [1, 0.5]], "placement.1.1"),
        ([0.5], "placement.0"),
        ([[0.5]], "placement.0.0"),
        ([0, [1], 2], "placement.1"),
        ("x", "placement"),
    ],
)
def test_of_alternatives_the_one_that_fits_best_is_meant(placement, field):
    with refused(rf"field {field}: [^()]*$"):  # and no other
        files.validate(Placed, {"placement": placement}, "x.json")


def test_faults_beyond_the_first_are_counted_once_a_field():
    document = {"inner": [{"either": "x"}, {"either": "x", "amount": "x"}]}
    with refused(r"field inner.0.either: .* \(and 2 more\)$"):
        files.validate(Outer, document, "x.json")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (files.parse_json, '{"a": 1, "b": {"c": 1, "c": 2}}'),
        (files.parse_yaml, "a: 1\nb: [{c: 1, c: 2}]"),
        (files.parse_yaml, "c: 1\nb: 2\nc: 1"),
    ],
)
def test_a_key_given_twice_is_refused(read, text):
    with refused("x.file: field c is there twice"):
        read(text, "x.file")


def test_an_alias_of_yaml_is_no_key_twice():
    assert files.parse_yaml("a: &x {b: 1}\nc: *x", "x.yaml") == {"a": {"b": 1}, "c": {"b": 1}}


# -- writing -------------------------------------------------------------------------------------


def test_what_is_written_replaces_the_file_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "out.json"
    path.write_text("old")
    files.write_json(path, {"é": [1.5, None]})
    assert path.read_bytes() == '{"é": [1.5, null]}\n'.encode()
    assert list(tmp_path.iterdir()) == [path]


def test_a_written_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_text("")
    files.write_text(tmp_path / "out", "")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "out")]
    assert modes[0] == modes[1]


def test_a_file_that_is_there_keeps_its_mode(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text("{}")
    path.chmod(0o600)
    files.write_text(path, "[]")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.read_text() == "[]"


@pytest.mark.parametrize("name", ["no/out.json", "folder", "x" * 300])
def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with refused("cannot be written"):
        files.write_text(tmp_path / name, "text")
    assert list(tmp_path.rglob("*")) == [tmp_path / "folder"]


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    files.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "link").symlink_to("link")
    with refused("leads back to itself"):
        files.write_text(tmp_path / "link", "text")


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with refused("is a device or a pipe; give a file"):
        files.write_text(tmp_path / "pipe", "text")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="streams have no names in /proc")
@pytest.mark.parametrize("name", ["/dev/fd", "/proc/self/fd", "link"])
def test_a_file_is_not_written_by_the_name_of_a_stream_that_reads_it(tmp_path, name):
    (tmp_path / "read").write_text("old")
    with (tmp_path / "read").open() as file:
        (tmp_path / "link").symlink_to(f"/proc/self/fd/{file.fileno()}")
        path = tmp_path / name if name == "link" else Path(name) / str(file.fileno())
        for write in (lambda: files.write_text(path, "new"), lambda: files.check_writable(path)):
            with refused("is a stream of this process; give the file by its name"):
                write()
    assert (tmp_path / "read").read_text() == "old"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_json_lacks_is_never_written(tmp_path, value):
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "out.json", [value])
    assert list(tmp_path.iterdir()) == []


def test_a_write_cut_short_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    path.write_text("old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refused(r"out.json: cannot be written \(No space left on device\)"):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
