"""Plans whose weights an engine would load in other bytes, or by other names, are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import placewright as pw
from placewright.errors import OptionError
from placewright.exporters.exporting import export
from placewright.exporters.planning import plan_for
from placewright.exporters.requests import plan_requests_for
from placewright.importers import Imported
from placewright.plan import Plan

QUANTISED = "hf:llama?weights=int4&phase=decode&context=64"
NO_INT4 = r"does not make int4 of a model's weights, .* plan hf:DIRECTORY of a quantised checkpoint"
NO_GGUF = r"does not run GGUF files in their bytes, .* or --for vllm or sglang or llama-cpp"


def plan_of(source: str, engine: str) -> Plan:
    """A plan of a small model that says it is of `source`."""
    found = plan_for("zoo:llama-7b?layers=2", "2x3090", engine, free_seconds=0).plan
    return replace(found, source=source)


def written(source: str, engine: str, path: Path) -> list[str]:
    return export(plan_of(source, engine), engine, path / "out")


@pytest.mark.parametrize(
    "engine", ["accelerate", "transformers", "megatron", "deepspeed", "torch-pipelining"]
)
@pytest.mark.parametrize(("source", "why"), [(QUANTISED, NO_INT4), ("m.gguf", NO_GGUF)])
def test_weights_that_an_engine_does_not_load_are_refused(
    engine: str, source: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=f"^{engine} {why}"):
        written(source, engine, tmp_path)
    graph = pw.load("zoo:llama-7b?layers=1").graph
    with pytest.raises(OptionError, match=f"^{engine} {why}"):
        plan_for(Imported(graph, source=source), "2x3090", engine)


def test_requests_are_refused_before_they_are_planned() -> None:
    with pytest.raises(OptionError, match=NO_GGUF):
        plan_requests_for("m.gguf", "2x3090", "accelerate", "prompt=8,output=8")


def test_llama_cpp_has_no_fp8() -> None:
    source = Imported(pw.load("zoo:llama-7b?layers=1").graph, source="hf:llama?weights=fp8")
    with pytest.raises(OptionError, match=r"does not make fp8 .* or --for vllm or sglang$"):
        plan_for(source, "2x3090", "llama-cpp")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama-cpp"])
def test_an_engine_is_told_which_type_its_weights_must_have(engine: str, tmp_path: Path) -> None:
    assert "weights in int4" in written(QUANTISED, engine, tmp_path)[-1]


def test_the_zoos_names_of_modules_are_in_no_device_map(tmp_path: Path) -> None:
    plan = plan_for("zoo:llama-7b?layers=2", "2x3090", "accelerate", free_seconds=0).plan
    with pytest.raises(OptionError, match=r"of zoo:llama-7b\?layers=2, which no library has; plan"):
        export(plan, "accelerate", tmp_path / "map.json")
