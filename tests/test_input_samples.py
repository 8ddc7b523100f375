"""How many samples an input has: from the source to what is called samples per second."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

import placewright as pw
from placewright.errors import FormatError, GraphError
from placewright.report.records import plan_record
from placewright.report.sweep_figure import _dots
from placewright.report.terminal import ComparisonTable, summary
from placewright.report.whatif import sweep_table
from placewright.units import format_seconds
from placewright.whatif.sweep import sweep
from placewright.whatif.variants import Variant
from tests.cli.running import run

THROUGHPUT = {"planner": "single-device", "objective": "throughput"}


def planned(samples: int | None, **options: object) -> pw.Plan:
    graph = replace(pw.load("zoo:resnet50").graph, input_samples=samples)
    return pw.plan(graph, "2x3090", **{**THROUGHPUT, **options})


def printed(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(renderable)
    return console.file.getvalue()


@pytest.mark.parametrize("training", [False, True])
def test_the_zoo_says_how_large_its_batch_is(training):
    assert pw.load("zoo:gpt2?layers=1", training=training).graph.input_samples == 1
    assert pw.load("zoo:gpt2?layers=1&batch=32", training=training).graph.input_samples == 32


def test_a_configuration_of_transformers_says_how_large_its_batch_is():
    pytest.importorskip("transformers")
    source = "hf:gpt2?n_layer=1&n_embd=16&n_head=2&vocab_size=50&sequence=8&batch=3"
    assert pw.load(source).graph.input_samples == 3


def test_a_batch_of_32_is_32_samples_and_its_time_is_that_of_the_batch():
    one, many, unknown = planned(1), planned(32), planned(None)
    assert one.value == many.value == unknown.value  # the same graph otherwise
    assert many.throughput == pytest.approx(32 / many.value)
    assert one.throughput == unknown.throughput == pytest.approx(1 / one.value)


@pytest.mark.parametrize(
    ("samples", "time", "rate"),
    [
        (None, "time per input", "inputs"),
        (1, "time per sample", "samples"),
        (32, "time per batch of 32 samples", "samples"),
    ],
)
def test_every_table_says_what_is_counted(samples, time, rate):
    plan = planned(samples)
    assert summary(plan).startswith(f"{time} ")
    assert f"{plan.throughput:.4g} {rate} per second), " in summary(plan)
    per_sample = f"({format_seconds(plan.value / (samples or 1))} per sample, "
    assert (per_sample in summary(plan)) == ((samples or 1) > 1)
    record = plan_record(plan)
    assert (record["throughput"], record["input_samples"]) == (plan.throughput, samples)
    lines = pw.compare(plan.problem, ["single-device", "ideal-dp"])
    assert all(word in printed(ComparisonTable(lines, "")) for word in time.split(" of "))
    variants = [Variant("all", pw.load_cluster("2x3090"), {})]
    graph = replace(pw.load("zoo:resnet50").graph, input_samples=samples)
    found = sweep(graph, variants, **THROUGHPUT)
    assert _dots(found)[2] == f"{rate} per second"
    swept = printed(sweep_table(found, ""))
    assert all(word in swept for word in [*time.split(" of "), f"{rate}/s"])


def test_a_batch_of_inputs_counts_the_samples_of_each():
    several = {"planner": "single-device", "objective": "batch-throughput", "batch": 4}
    plan = planned(8, **several)
    assert plan.throughput == pytest.approx(4 * 8 / plan.value)
    assert summary(plan).startswith("time for 4 inputs of 8 samples ")
    unknown = planned(None, **several)
    assert unknown.throughput == pytest.approx(4 / unknown.value)
    assert "inputs per second), " in summary(unknown)


def test_files_keep_it_and_old_files_have_none(tmp_path):
    plan = planned(32)
    plan.save(tmp_path / "plan.json")
    assert pw.Plan.load(tmp_path / "plan.json").throughput == plan.throughput
    document = json.loads((tmp_path / "plan.json").read_text())
    assert document["problem"].pop("input_samples") == 32
    old = pw.Plan.from_document(document)
    assert old.problem.input_samples is None
    assert old.throughput == pytest.approx(1 / plan.value)
    assert pw.verify(old).ok

    graph = pw.load("zoo:gpt2?layers=1&batch=32").graph
    graph.save(tmp_path / "graph.json")
    assert pw.Graph.load(tmp_path / "graph.json").input_samples == 32
    document = json.loads((tmp_path / "graph.json").read_text())
    del document["input_samples"]
    assert pw.Graph.from_document(document).input_samples is None


def test_what_is_not_known_is_not_written():
    assert "input_samples" not in planned(None).to_document()["problem"]


@pytest.mark.parametrize("samples", [0, -1, 2.5, True, "8"])
def test_what_is_no_number_of_samples_is_refused(samples):
    graph = pw.load("zoo:gpt2?layers=1").graph
    message = r"input_samples is .*; give a whole number above 0"
    with pytest.raises(GraphError, match=message):
        replace(graph, input_samples=samples)
    with pytest.raises(GraphError, match=message):
        replace(planned(1).problem, input_samples=samples)
    if samples is not True and samples != "8":  # which a file may say for a number
        with pytest.raises(FormatError, match="input_samples"):
            pw.Graph.from_document({**graph.to_document(), "input_samples": samples})


def test_commands_say_what_is_counted():
    arguments = ("zoo:resnet50?batch=32", "-c", "2x3090", "-p", "ideal-dp")
    out = run("plan", *arguments, "--objective", "throughput").out
    assert "time per batch of 32 samples" in out and "samples per second" in out
    record = run("plan", *arguments, "--objective", "throughput", "--json").json
    assert record["input_samples"] == 32
    assert record["throughput"] == pytest.approx(32 / record["value"])
    assert run("info", arguments[0], "--json").json["input_samples"] == 32
    assert "samples per input" in run("info", arguments[0]).out


def test_throughput_without_any_work_is_null():
    builder = pw.GraphBuilder("nothing")
    builder.add_op("view", "view")
    plan = pw.plan(builder.build(), "2x3090", **THROUGHPUT)
    assert plan.throughput == float("inf")
    assert plan_record(plan)["throughput"] is None
