"""Kept imports: the same graph without the libraries, until anything it depends on changes."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from placewright.errors import PlacewrightWarning
from placewright.graph import Graph, GraphBuilder
from placewright.importers import load
from placewright.importers.cache import imports, keys, store

LLAMA = "hidden_size=32&num_hidden_layers=1&num_attention_heads=2&vocab_size=50"
KEY = {"source": "a test"}

FACTORY = """
import torch, {helper}
from pathlib import Path

def make():
    width = {helper}.WIDTH * int(Path("width.txt").read_text())
    return torch.nn.Linear(width, 3), (torch.zeros(2, width),)
"""
"""Its module imports another, and reads a file."""

SHOW = """
import sys
from placewright.importers import load
graph = load(sys.argv[1]).graph
print(graph.op_parameter_bytes.sum(), "torch" in sys.modules, "transformers" in sys.modules)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "imports"
    monkeypatch.setenv(store.VARIABLE, str(folder))
    return folder


def a_graph() -> Graph:
    builder = GraphBuilder("two")
    first = builder.add_op(
        "a", "matmul", flops=0.1, parameter_bytes=3.0, module="m.0", dtype="bf16"
    )
    tensor = builder.add_tensor(first, 1e-3, "t")
    builder.add_op("b", "relu", [tensor], state_bytes=7.0, colocate="g", signature="relu(x)")
    builder.attributes["context"] = 8
    builder.input_samples = 2
    return builder.build()


def same(one: Graph, two: Graph) -> bool:
    return one.to_document() == two.to_document()


def apart(folder: Path, source: str) -> tuple[float, bool]:
    """Weights in bytes of `source`, loaded in another process; whether torch was loaded there."""
    done = in_a_process(folder, source)
    assert done.stderr == ""
    weights, *libraries = done.stdout.split()
    return float(weights), "True" in libraries


def in_a_process(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore::FutureWarning", "-c", SHOW, source],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )


def test_what_is_kept_comes_back_as_it_was(cache: Path) -> None:
    store.write(KEY, store.KeptImport(a_graph(), ("assumed",)))
    found = store.read(KEY)
    assert found is not None
    assert same(found.graph, a_graph())
    assert np.array_equal(found.graph.op_flops, a_graph().op_flops)
    assert found.remarks == ("assumed",)
    assert store.read({"source": "another"}) is None


def test_nothing_is_kept_where_it_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(store.VARIABLE, "off")
    monkeypatch.chdir(tmp_path)
    store.write(KEY, store.KeptImport(a_graph()))
    assert store.folder() is None
    assert store.read(KEY) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "text", "bit", "version"])
def test_a_damaged_file_is_said_and_written_anew(cache: Path, damage: str) -> None:
    store.write(KEY, store.KeptImport(a_graph()))
    (path,) = cache.iterdir()
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "cut": content[:middle],
            "text": b"hello",
            "bit": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "version": gzip.compress(json.dumps({"format": "placewright.import/9"}).encode()),
        }[damage]
    )
    with pytest.warns(PlacewrightWarning, match="made again"):
        assert store.read(KEY) is None
    store.write(KEY, store.KeptImport(a_graph()))
    assert store.read(KEY) is not None


def test_a_file_of_another_key_is_not_taken(cache: Path) -> None:
    store.write(KEY, store.KeptImport(a_graph()))
    (path,) = cache.iterdir()
    store.write({"source": "b"}, store.KeptImport(a_graph()))
    (other,) = set(cache.iterdir()) - {path}
    path.replace(other)
    with pytest.warns(PlacewrightWarning, match="something else"):
        assert store.read({"source": "b"}) is None


def test_the_longest_unused_goes_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for age, name in ((30, "old"), (20, "used"), (10, "new")):
        store.write({"source": name}, store.KeptImport(a_graph()))
        newest = max(cache.iterdir(), key=lambda path: path.stat().st_mtime)
        moment = newest.stat().st_mtime - age
        os.utime(newest, (moment, moment))
    size = max(entry.bytes for entry in store.entries())
    assert store.read({"source": "old"}) is not None  # which is a use
    monkeypatch.setattr(store, "MOST_BYTES", int(3.5 * size))
    store.write({"source": "one more"}, store.KeptImport(a_graph()))
    kept = [name for name in ("old", "used", "new", "one more") if store.read({"source": name})]
    assert kept == ["old", "new", "one more"]
    assert len(store.clear()) == 3
    assert store.entries() == []


def test_a_folder_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "file" / "imports"))
    with pytest.warns(PlacewrightWarning, match="not kept: .*set PLACEWRIGHT_IMPORTS"):
        store.write(KEY, store.KeptImport(a_graph()))


def test_remarks_of_an_import_are_repeated(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Graph:
        warnings.warn("assumed 1", PlacewrightWarning, stacklevel=1)
        return a_graph()

    for _ in range(2):
        with pytest.warns(PlacewrightWarning, match="assumed 1"):
            imports._kept(lambda: KEY, make)
    assert len(store.entries()) == 1


def test_an_import_of_files_that_change_meanwhile_is_not_kept(cache: Path) -> None:
    versions = iter([{"source": 1}, {"source": 2}])
    imports._kept(lambda: next(versions), a_graph)
    assert store.entries() == []


# -- hf: ---------------------------------------------------------------------------------------


def test_a_kept_configuration_needs_no_torch(cache: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    source = f"hf:llama?{LLAMA}&phase=decode&context=8"
    made = load(source).graph.op_parameter_bytes.sum()
    assert made > 0
    assert apart(tmp_path, source) == (made, False)


def test_the_kept_graph_is_the_one_that_was_made(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    from placewright.importers.torch import sources

    source = f"hf:llama?{LLAMA}&phase=decode&context=8&batch=2"
    made = load(source).graph
    monkeypatch.setattr(sources, "load_hf", None)
    kept = load(source).graph
    assert same(made, kept)
    assert kept.input_samples == 2


def test_the_key_of_a_configuration_has_all_it_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "gpt2"}')
    found = [keys.hf_key(str(config), False, None)]
    found.append(keys.hf_key(str(config), True, None))
    found.append(keys.hf_key(str(config), False, 7))
    found.append(keys.hf_key(f"{config}?batch=2", False, None))
    config.write_text('{"model_type": "gpt2", "n_layer": 2}')
    found.append(keys.hf_key(str(config), False, None))
    monkeypatch.setattr(keys, "_version", lambda name: "0.0")
    found.append(keys.hf_key(str(config), False, None))
    texts = {json.dumps(key) for key in found}
    assert None not in found
    assert len(texts) == len(found)


def test_the_key_of_a_checkpoint_has_its_headers(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    found = []
    for dtype in (np.float32, np.float16):
        safetensors.save_file({"w": np.zeros(4, dtype)}, tmp_path / "model.safetensors")
        found.append(keys.hf_key(str(tmp_path), False, None))
    assert found[0] != found[1]


def test_a_library_that_is_edited_in_place_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    known = keys._version
    monkeypatch.setattr(
        keys, "_version", lambda name: None if name == "transformers" else known(name)
    )
    assert keys.hf_key("gpt2", False, None) is None


# -- torch: ------------------------------------------------------------------------------------


@pytest.fixture
def factory(tmp_path: Path, cache: Path) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "my_models.py").write_text(FACTORY.format(helper="my_sizes"))
    (folder / "my_sizes.py").write_text("WIDTH = 2\n")
    (folder / "width.txt").write_text("5")
    return folder


def test_a_factory_is_kept_until_what_it_reads_changes(factory: Path) -> None:
    source = "torch:my_models:make"
    assert apart(factory, source) == (4 * (3 * 10 + 3), True)
    (factory / "my_sizes.py").write_text("WIDTH = 30\n")
    assert apart(factory, source) == (4 * (3 * 150 + 3), True)
    (factory / "width.txt").write_text("7")
    assert apart(factory, source) == (4 * (3 * 210 + 3), True)
    assert apart(factory, source) == (4 * (3 * 210 + 3), False)


UNCOUNTED = """
import torch

@torch.library.custom_op("kept_remarks::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def _(x):
    return torch.empty_like(x)

class Twice(torch.nn.Module):
    def forward(self, x):
        return twice(x)

def make():
    return Twice(), (torch.zeros(4),)
"""


def test_what_was_told_of_a_factory_is_told_again(factory: Path) -> None:
    (factory / "my_models.py").write_text(UNCOUNTED)
    for was_made in (True, False):
        done = in_a_process(factory, "torch:my_models:make")
        assert done.stdout.split()[1] == str(was_made)
        assert "the FLOPs of kept_remarks.twice are not known" in done.stderr


def test_a_factory_has_a_key_where_python_looks_in_the_folder_it_is_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a shell of Python, or a notebook, where a program put another folder before."""
    monkeypatch.setattr(sys, "path", ["/nowhere", "", *sys.path])
    assert keys.factory_key("tests.importers.tiny_models:make", False) is not None


def test_the_key_of_a_factory_has_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    before = keys.factory_key("models:make", False)
    monkeypatch.setenv("WIDTH", "7")
    assert keys.factory_key("models:make", False) != before


# -- ONNX --------------------------------------------------------------------------------------


def test_the_key_of_an_onnx_file_has_the_lengths_of_its_weights(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    weights = onnx.numpy_helper.from_array(np.zeros(70_000, np.float32), "w")
    big = onnx.numpy_helper.from_array(np.zeros(70_000, np.float32), "inline").SerializeToString()
    onnx.external_data_helper.set_external_data(weights, "weights.bin")
    path, content = tmp_path / "model.onnx", weights.SerializeToString() + big
    assert keys.onnx_key(path, {}, content) is None  # the file with the weights is not there
    (tmp_path / "weights.bin").write_bytes(b"1234")
    found = keys.onnx_key(path, {}, content)
    assert found is not None
    assert list(found["external"].values()) == [4]
    assert keys.onnx_key(path, {"height": 2}, content) != found
    assert keys.onnx_key(path, {}, content + b"location") is None  # nobody knows of what
    assert keys.onnx_key(path, {}, b"\x08") is None  # as quick without
