"""A model that is larger than what any rank may take runs on two, each with its own half."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("psutil")

from placewright.cluster import Cluster, Device, Link  # noqa: E402
from placewright.errors import ExecutionError  # noqa: E402
from placewright.plan import Plan  # noqa: E402
from placewright.planning import plan as make_plan  # noqa: E402
from placewright.report.memory import planned_memory  # noqa: E402
from placewright.runtime import RunOptions, run_plan  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of memory that counts"),
]
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 512,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
WHOLE = 314e6  # bytes of weights
LIMIT = 0.6 * WHOLE
OVERHEAD = 24e6  # bytes of activations, and of libraries that are loaded late


@pytest.fixture(params=["fresh", "files"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The model's configuration, or its directory with weights in two safetensors files."""
    query = "?batch=1&sequence=32&phase=prefill"
    if request.param == "fresh":
        (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        return f"hf:{tmp_path / 'config.json'}{query}"
    transformers.logging.set_verbosity_error()
    config = transformers.LlamaConfig(**CONFIG)
    transformers.LlamaForCausalLM(config).save_pretrained(
        tmp_path / "model", max_shard_size="200MB"
    )
    return f"hf:{tmp_path / 'model'}{query}"


def planned(source: str, planner: str, memory: float) -> Plan:
    cpus = tuple(Device(name, "EPYC 7763", "host", memory=memory) for name in ("left", "right"))
    return make_plan(source, Cluster("pair", cpus, (Link("left", "right", 1e9),)), planner=planner)


def options(plan: Plan, limit: float) -> RunOptions:
    limits = [limit] * len(planned_memory(plan))
    given = "fresh" if "config.json" in plan.source else None
    return RunOptions(repeats=2, clocked=1, weights=given, memory_limits=limits, timeout=120)


@pytest.mark.usefixtures("temporary")
def test_two_ranks_run_what_is_too_large_for_one(source: str) -> None:
    plan = planned(source, "memory-fill", LIMIT - OVERHEAD)
    assert sum(planned_memory(plan)) == pytest.approx(WHOLE, rel=0.01)
    report = run_plan(plan, options(plan, LIMIT))
    assert report.max_abs_difference <= 1e-6
    for peak, memory in zip(report.rank_peak_memory, planned_memory(plan), strict=True):
        assert memory <= peak <= min(LIMIT, memory + OVERHEAD)


@pytest.mark.usefixtures("temporary")
def test_one_rank_alone_runs_out_of_memory(source: str) -> None:
    plan = planned(source, "single-device", 2 * WHOLE)
    with pytest.raises(ExecutionError) as caught:
        run_plan(plan, options(plan, LIMIT))
    assert str(caught.value).startswith("rank 0 ran out of memory while loading its weights: ")
    assert str(caught.value).endswith(" MiB more are not there; put less on its device")
