"""A source is exported once, for its program and for its graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from placewright.costs.profiles.profiling import profile  # noqa: E402
from placewright.costs.profiles.store import ProfileStore  # noqa: E402
from placewright.errors import OptionError  # noqa: E402
from placewright.importers import load  # noqa: E402
from placewright.importers.torch import export  # noqa: E402
from placewright.importers.torch.once import Source  # noqa: E402
from placewright.importers.torch.programs import load_executable  # noqa: E402
from placewright.importers.torch.signature import signature  # noqa: E402
from tests.costs.profiles.models import two_layers  # noqa: E402
from tests.costs.profiles.test_profiling import cluster  # noqa: E402

HERE = "torch:tests.costs.profiles.models"
GPT = "hf:gpt2?n_layer=1&n_embd=16&n_head=2&vocab_size=99&sequence=8"


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was exported, one by one."""
    seen: list[str] = []
    real = export.export_module

    def counted(module, args, kwargs=None, *, training=False):
        seen.append(type(module).__name__)
        return real(module, args, kwargs, training=training)

    monkeypatch.setattr(export, "export_module", counted)
    return seen


@pytest.mark.parametrize(
    ("name", "training"),
    [
        (f"{HERE}:two_layers", False),
        (f"{HERE}:words", True),
        (GPT, False),
        (GPT, True),
        (f"{GPT}&phase=decode", False),
    ],
)
def test_its_program_and_graph_are_those_of_two_exports(name, training, exports):
    source = Source(name, training=training)
    assert exports == []
    graph, executable = source.graph, source.executable
    assert len(exports) == 1
    apart, program = load(name, training=training).graph, load_executable(name, training=training)
    assert graph.op_names == apart.op_names and graph.name == apart.name
    assert graph.op_signatures == apart.op_signatures
    assert np.array_equal(graph.op_parameter_bytes, apart.op_parameter_bytes)
    assert graph.input_samples == apart.input_samples and graph.attributes == apart.attributes
    assert list(map(signature, executable.calls)) == list(map(signature, program.calls))
    assert executable.values.keys() == program.values.keys()
    assert [node.name for node in executable.calls] == list(graph.op_names)


def test_of_a_file_too(tmp_path: Path):
    module, args = two_layers()
    torch.export.save(torch.export.export(module, args), tmp_path / "two.pt2")
    source = Source(str(tmp_path / "two.pt2"))
    assert source.graph.name == "two"
    assert [node.name for node in source.executable.calls] == list(source.graph.op_names)


@pytest.mark.parametrize(("name", "training"), [("zoo:gpt2", False), ("two.pt2", True)])
def test_what_has_no_program_is_refused(name, training):
    with pytest.raises(OptionError, match=f"{name} has no program to run"):
        _ = Source(name, training=training).executable


def test_a_profile_takes_what_was_exported_already(tmp_path: Path, exports):
    source = Source(f"{HERE}:two_layers")
    distinct = len(set(source.graph.op_signatures))
    with ProfileStore(tmp_path / "store") as store:
        [done] = profile(source.name, cluster(), store, exported=source)
    assert done.measured == distinct and len(exports) == 1
