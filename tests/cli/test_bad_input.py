"""Whatever is wrong with the input: one line that names it, the right exit code, nothing written.

Each table below is one kind of input; a row is a name, the input, and what the line must say.
"""

from __future__ import annotations

import copy
import gzip
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placewright.cli import main
from placewright.errors import InputError
from placewright.importers import load
from tests.cli.running import Run, run, without_remark

REMOVED = object()

GRAPH: dict[str, Any] = {
    "format": "placewright.graph/1",
    "name": "chain",
    "ops": {"name": ["a", "b", "c"], "flops": [1e9, 1e9, 1e9], "parameter_bytes": [10, 20, 30]},
    "tensors": {"producer": [0, 1], "bytes": [4, 4], "consumers": [[1], [2]]},
}
CLUSTER: dict[str, Any] = {
    "format": "placewright.cluster/1",
    "name": "pair",
    "devices": [
        {"name": "x", "kind": "T4", "memory": "16 GB"},
        {"name": "y", "kind": "T4", "memory": "16 GB"},
    ],
    "links": [{"between": ["x", "y"], "bandwidth": "12 GB/s", "latency": "5 us"}],
}


def changed(document: Any, *changes: tuple[str, Any]) -> Any:
    """A copy of `document` with each dotted path set to a value, or taken out if `REMOVED`."""
    document = copy.deepcopy(document)
    for field, value in changes:
        *path, last = [int(part) if part.isdigit() else part for part in field.split(".")]
        place = document
        for part in path:
            place = place[part]
        if value is REMOVED:
            del place[last]
        else:
            place[last] = value
    return document


def content(document: Any) -> bytes:
    """Bytes as they are, text as UTF-8, anything else as JSON."""
    if isinstance(document, bytes):
        return document
    return (document if isinstance(document, str) else json.dumps(document)).encode()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with ``good.json`` (a graph) and ``pair.json`` (a cluster)."""
    monkeypatch.chdir(tmp_path)
    Path("good.json").write_bytes(content(GRAPH))
    Path("pair.json").write_bytes(content(CLUSTER))
    return tmp_path


def assert_refused(result: Run, code: int, *fragments: str) -> None:
    assert result.code == code, result.err
    assert result.out == ""
    assert result.err.startswith("placewright: ")
    assert result.err.endswith("\n")
    assert len(result.err.splitlines()) == 1
    assert len(result.err) > len("placewright: \n")
    assert "Traceback" not in result.err
    for fragment in fragments:
        assert fragment in result.err


def refuse(here: Path, arguments: tuple[object, ...], *fragments: str, code: int = 2) -> None:
    """Run a command that must be refused and must leave the directory as it was."""
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    assert_refused(run(*arguments), code, *fragments)
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before


def rows(table: dict[str, Any]) -> Any:
    """Parametrize by the rows of a table, whose first column names the test."""
    return pytest.mark.parametrize("row", table.values(), ids=table.keys())


def archive(*names: str) -> bytes:
    """A zip archive with empty files of these names."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as opened:
        for name in names:
            opened.writestr(name, b"")
    return written.getvalue()


# -- graphs --------------------------------------------------------------------------------------

BAD_GRAPHS: dict[str, tuple[Any, ...]] = {
    "truncated": (content(GRAPH)[:100], "not valid JSON, line 1"),
    "empty": (b"", "the file is empty"),
    "only white space": (b" \n\t\n", "the file is empty"),
    "not UTF-8": (b'{"format": "\xe9"}', "not UTF-8 text (byte 12)"),
    "UTF-16": ("{}".encode("utf-16"), "is UTF-16 text; save the file as UTF-8"),
    "a number as text": (changed(GRAPH, ("ops.flops", [1, "8", 1])), "field ops.flops.1"),
    "a boolean for a number": (changed(GRAPH, ("tensors.bytes.0", True)), "field tensors.bytes.0"),
    "a time as text": (changed(GRAPH, ("times", {"T4": [1, 1, "1"]})), "field times.T4.2"),
    "an op number as text": (changed(GRAPH, ("tensors.consumers.1", ["2"])),
                             "field tensors.consumers.1: entry 0 is '2'; write the number"),
    "a boolean for an op": (changed(GRAPH, ("tensors.producer", [False, 1])),
                            "field tensors.producer: entry 0 is False"),
    "a group as text": (changed(GRAPH, ("ops.colocation", [-1, -1, "1"])),
                        "field ops.colocation: entry 2 is '1'; write a whole number"),
    "a truth as text": (changed(GRAPH, ("ops.backward", ["no", False, False])),
                        "field ops.backward: entry 0 is 'no'; write true or false"),
    "samples as text": (changed(GRAPH, ("input_samples", "1")), "field input_samples"),
    "FLOPs beyond all numbers": (changed(GRAPH, ("ops.flops", [1e308] * 3)),
                                 "op_flops adds up to more than a number can hold"),
    "weights beyond all numbers": (changed(GRAPH, ("ops.parameter_bytes", [1e308] * 3)),
                                   "op_parameter_bytes adds up to more"),
    "bytes beyond all numbers": (changed(GRAPH, ("tensors.bytes", [1e308] * 2)),
                                 "tensor_bytes adds up to more"),
    "compressed": (gzip.compress(b"{}"), "is compressed (gzip); unpack it"),
    "a pointer of Git LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 9\n",
                             "is a Git LFS pointer", "git lfs pull"),
    "an archive": (archive("model.onnx"), "is a zip archive; unpack it"),
    "plain text": (b"hello", "not a model placewright reads"),
    "a list": ([1, 2, 3], "neither a placewright graph"),
    "NaN": (changed(GRAPH, ("ops.flops.1", float("nan"))), "NaN is not a number JSON allows"),
    "Infinity": (changed(GRAPH, ("ops.flops.1", float("inf"))), "Infinity is not a number"),
    "-Infinity": (changed(GRAPH, ("ops.flops.1", -float("inf"))), "-Infinity is not a number"),
    "1e400": (content(GRAPH).replace(b"1000000000.0", b"1e400", 1), "field ops.flops.0", "finite"),
    "400 digits": (changed(GRAPH, ("ops.flops.2", 10**400)), "field ops.flops.2"),
    "5000 digits": (content(GRAPH).replace(b"1000000000.0", b"9" * 5000, 1), "not valid JSON"),
    "400 digits of an op number": (
        changed(GRAPH, ("tensors.producer.0", 10**400)),
        "field tensors.producer.0",
    ),
    "negative": (changed(GRAPH, ("ops.parameter_bytes.0", -1)), "field ops.parameter_bytes.0", "0"),
    "negative bytes": (changed(GRAPH, ("tensors.bytes.1", -4)), "field tensors.bytes.1"),
    "text for a number": (changed(GRAPH, ("tensors.bytes.1", "many")), "field tensors.bytes.1"),
    "half an op number": (changed(GRAPH, ("tensors.producer.0", 0.5)), "tensors.producer.0"),
    "a cycle": (changed(GRAPH, ("tensors.consumers.1", [0, 2])), "cycle, a → b → a", "DAG"),
    "an op that reads itself": (changed(GRAPH, ("tensors.consumers.0", [0])), "cycle, a → a"),
    "an unknown consumer": (changed(GRAPH, ("tensors.consumers.0", [7])), "consumers names op 7"),
    "an unknown producer": (changed(GRAPH, ("tensors.producer.0", 7)), "producer names op 7"),
    "a consumer twice": (changed(GRAPH, ("tensors.consumers.0", [1, 1])), "same consumer twice"),
    "no ops": (changed(GRAPH, ("ops", {"name": []})), "field ops.name"),
    "duplicate op names": (changed(GRAPH, ("ops.name.2", "a")), "two ops are named 'a'"),
    "a short column": (changed(GRAPH, ("ops.flops", [1])), "flops has 1 entries, expected 3"),
    "a short tensor column": (changed(GRAPH, ("tensors.bytes", [])), "bytes has 0 entries"),
    "an unknown dtype": (changed(GRAPH, ("ops.dtype", ["fp99"] * 3)), "dtype 'fp99'", "bf16"),
    "an unknown field": (changed(GRAPH, ("ops.colour", [1])), "field ops.colour"),
    "a missing field": (changed(GRAPH, ("tensors.bytes", REMOVED)), "field tensors.bytes"),
    "a twin of a forward op": (changed(GRAPH, ("ops.twin", [-1, 0, -1])), "'b' has twin 'a'"),
    "an unknown twin": (changed(GRAPH, ("ops.twin", [9, -1, -1])), "twin of 'a' is op 9"),
    "a short column of times": (changed(GRAPH, ("times", {"T4": [1]})), "times['T4'] has 1"),
    "a copy for an unknown op": (
        changed(GRAPH, ("copy_tensors", {"producer": [0], "bytes": [4], "consumers": [[3]]})),
        "copy_tensors names op 3, but ops go from 0 to 2",
    ),
    "a negative time": (changed(GRAPH, ("times", {"T4": [1, -1, 1]})), "field times.T4.1"),
    "half a character": (
        content(GRAPH).replace(b'"chain"', b'"\\ud800"'),
        "a text holds \\ud800, half a character",
    ),
    "a later version": (changed(GRAPH, ("format", "placewright.graph/2")), "update placewright"),
    "another kind": (changed(GRAPH, ("format", "placewright.plan/1")), "expected"),
    "no format": (changed(GRAPH, ("format", REMOVED)), "neither a placewright graph"),
    "deep nesting": (b'{"format":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
}  # fmt: skip


@rows(BAD_GRAPHS)
def test_a_bad_graph_is_refused(here, row):
    Path("bad.json").write_bytes(content(row[0]))
    command = ("plan", "bad.json", "-c", "pair.json", "-p", "heft", "-o", "plan.json")
    refuse(here, command, "bad.json", *row[1:])


SOURCES: dict[str, tuple[str, ...]] = {
    "a missing file": ("no.json", "no.json: no such file"),
    "a directory": ("folder", "folder: is a directory; give a file"),
    "a device": ("/dev/null", "/dev/null: is a device; give a file"),
    "a file in a file": ("good.json/x", "good.json/x: cannot be read"),
    "a name too long": ("x" * 5000, "cannot be read"),
    "a name with a line break": ("a\nb", "a\\nb: no such file"),
    "a name with terminal codes": ("\x1b[31mred", "\\x1b[31mred: no such file"),
    "an unknown zoo model": ("zoo:gtp2", "no zoo model 'gtp2'; did you mean 'gpt2'"),
    "a zoo model in capitals": ("zoo:GPT2", "no zoo model 'GPT2'; did you mean 'gpt2'"),
    "a zoo model without zoo:": ("gpt2?batch=2", "no such file; did you mean zoo:gpt2?batch=2?"),
    "a factory without torch:": ("my.models:make", "did you mean torch:my.models:make?"),
    "a file of Python": ("my_models.py", "my_models.py: is Python; write torch:my_models:FACTORY"),
    "no zoo model": ("zoo:", "no zoo model ''"),
    "an unknown zoo key": ("zoo:gpt2?layrs=2", "no parameter 'layrs'; did you mean 'layers'?"),
    "a zoo value that is no number": ("zoo:gpt2?layers=x", "layers=x: must be a whole number"),
    "a zoo value too small": ("zoo:gpt2?layers=0", "layers=0: must be from 1"),
    "a zoo value too large": (f"zoo:gpt2?layers={10**400}", "must be from 1 to 2147483647"),
    "a zoo key without value": ("zoo:gpt2?layers", "'layers' is no parameter: write key=value"),
    "a zoo key twice": ("zoo:gpt2?layers=1&layers=2", "'layers' is given twice"),
    "a zoo dtype": ("zoo:gpt2?dtype=fp99", "dtype=fp99", "must be one of"),
}


@rows(SOURCES)
@pytest.mark.parametrize("command", ["info", "plan"])
def test_a_source_that_is_none_is_refused(here, command, row):
    Path("folder").mkdir()
    more = () if command == "info" else ("-c", "pair.json", "-o", "plan.json")
    refuse(here, (command, row[0], *more), *row[1:])


TORCH_SOURCES: dict[str, tuple[str, ...]] = {
    "no such module": ("torch:no.such:thing", "there is no module 'no'"),
    "a file": ("torch:models.py:make", "write torch:models:make"),
    "no factory": ("torch:json", "write torch:PACKAGE.MODULE:FACTORY"),
    "no such function": ("torch:json:dumpz", "'json' has no 'dumpz'; did you mean 'dump'?"),
    "a module that ends the process": ("torch:ends:make", "importing 'ends' raised SystemExit: 3"),
    "a factory that fails": ("torch:json:dumps", "raised TypeError"),
    "a factory that returns something else": ("torch:os:getcwd", "return (module, args)"),
}


@rows(TORCH_SOURCES)
def test_a_torch_source_that_is_none_is_refused(here, monkeypatch, row):
    pytest.importorskip("torch")
    Path("ends.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    refuse(here, ("info", row[0]), *row)


HF_SOURCES: dict[str, tuple[str, ...]] = {
    "no such type": ("hf:nonsense", "hf:nonsense: no Transformers model type 'nonsense'"),
    "a type almost": ("hf:gtp2", "did you mean 'gpt2'?"),
    "an unknown field": ("hf:gpt2?layrs=1", "has no 'layrs'"),
    "a bad batch": ("hf:gpt2?batch=-1", "batch is '-1'; give a whole number"),
    "a model of a hub": ("hf:meta-llama/Llama-3.1-8B", "download its config.json", "network"),
    "a missing file": ("hf:no/config.json", "config.json: no such file"),
    "a file that is no configuration": ("hf:good.json", "good.json: not a Transformers config"),
}


@rows(HF_SOURCES)
def test_an_hf_source_that_is_none_is_refused(here, row):
    pytest.importorskip("transformers")
    refuse(here, ("info", row[0]), *row[1:])


def test_training_of_a_file_is_refused(here):
    refuse(here, ("info", "good.json", "--training"), "good.json is a file", "--training")


# -- clusters ------------------------------------------------------------------------------------

YAML = "format: placewright.cluster/1\nname: pair\n"
BAD_CLUSTERS: dict[str, tuple[Any, ...]] = {
    "YAML syntax": ("devices: [\n}", "not valid YAML, line 2"),
    "a tab": ("format:\n\t- x", "not valid YAML, line 2"),
    "a Python tag": (YAML + "devices: !!python/object:os.system {}\n", "not valid YAML, line 3",
                     "python/object"),
    "a call of Python": (YAML + "devices: !!python/object/apply:os.mkdir [pwned]\n",
                         "not valid YAML, line 3", "python/object/apply"),
    "a truth that is none": (YAML + "devices: !!bool maybe\n", "a tag such as !!bool does not"),
    "a moment that is none": (YAML + "devices: !!timestamp soon\n", "does not fit its value"),
    "a number of no digits": (YAML + "devices: !!int ''\n", "not valid YAML"),
    "no such date": ("name: 2020-99-99\n", "not valid YAML", "month"),
    "a list that holds itself": (YAML + "devices: &d [*d]\n", "field devices.0"),
    "5000 digits": (YAML + "devices: [{name: x, kind: T4, memory: " + "9" * 5000 + "}]\n",
                    "not valid YAML"),
    "only text": ("pair", "the top level must be an object"),
    "not UTF-8": (b"name: \xff", "not UTF-8 text (byte 6)"),
    "empty": (b"", "the top level must be an object"),
    "the wrong kind": (GRAPH, "format is 'placewright.graph/1', expected 'placewright.cluster/1'"),
    "a later version": (changed(CLUSTER, ("format", "placewright.cluster/9")),
                        "update placewright"),
    "no devices": (changed(CLUSTER, ("devices", [])), "field devices:"),
    "a field of another name": (changed(CLUSTER, ("devices.0.mem", 1)),
                                "field devices.0.mem: is no field here; did you mean 'memory'?"),
    "a number for a mapping": (changed(CLUSTER, ("devices.0.peak_flops", 7)),
                               "field devices.0.peak_flops: must be an object of names and values"),
    "devices missing": (changed(CLUSTER, ("devices", REMOVED)),
                        "field devices: is missing; give it"),
    "duplicate devices": (changed(CLUSTER, ("devices.1.name", "x")),
                          "two devices or switches are named 'x'"),
    "a switch named as a device": (changed(CLUSTER, ("switches", ["y"])), "are named 'y'"),
    "a device without name": (changed(CLUSTER, ("devices.0.name", REMOVED)),
                              "field devices.0.name: is missing; give it"),
    "a link to nothing": (changed(CLUSTER, ("links.0.between", ["x", "z"])), "a link names 'z'"),
    "a link to itself": (changed(CLUSTER, ("links.0.between", ["x", "x"])), "joins 'x' to itself"),
    "a link of three": (changed(CLUSTER, ("links.0.between", ["x", "y", "x"])),
                        "field links.0.between"),
    "disconnected": (changed(CLUSTER, ("links", [])),
                     "cluster 'pair' is disconnected: no route from 'x' to 'y'; add a link"),
    "zero bandwidth": (changed(CLUSTER, ("links.0.bandwidth", 0)), "field links.0.bandwidth:"),
    "zero bandwidth as text": (changed(CLUSTER, ("links.0.bandwidth", "0 GB/s")),
                               "field links.0.bandwidth:"),
    "negative latency": (changed(CLUSTER, ("links.0.latency", -1e-6)), "field links.0.latency:"),
    "unknown duplex": (changed(CLUSTER, ("links.0.duplex", "triple")), "field links.0.duplex:"),
    "negative memory": (changed(CLUSTER, ("devices.1.memory", -5)), "field devices.1.memory:"),
    "unknown unit of memory": (changed(CLUSTER, ("devices.1.memory", "16 Gigs")),
                               "field devices.1.memory: '16 Gigs' is no amount of memory"),
    "unknown unit of bandwidth": (changed(CLUSTER, ("links.0.bandwidth", "12 GBps")),
                                  "field links.0.bandwidth: '12 GBps' is no bandwidth"),
    "unknown unit of time": (changed(CLUSTER, ("links.0.latency", "5 min")),
                             "field links.0.latency: '5 min' is no time"),
    "infinite memory": (YAML + "devices: [{name: x, kind: T4, memory: .inf}]\n",
                        "field devices.0.memory:", "finite"),
    "a list for memory": (changed(CLUSTER, ("devices.1.memory", [1])), "field devices.1.memory:"),
    "1e99999 GB": (changed(CLUSTER, ("devices.0.memory", "1e99999 GB")), "field devices.0.memory:"),
    "an efficiency above 1": (changed(CLUSTER, ("devices.0.compute_efficiency", 1.5)),
                              "field devices.0.compute_efficiency:"),
    "an unknown dtype": (changed(CLUSTER, ("devices.0.peak_flops", {"fp99": 1e12})),
                         "field devices.0.peak_flops.fp99:", "'bf16'"),
    "a peak of zero": (changed(CLUSTER, ("devices.0.peak_flops", {"fp32": 0})),
                       "field devices.0.peak_flops.fp32:"),
    "a kind with no memory": (changed(CLUSTER, ("devices.0", {"name": "x", "kind": "Z9"})),
                              "device 'x' gives no memory", "'Z9'"),
    "an unknown field": (changed(CLUSTER, ("devices.0.colour", "red")), "field devices.0.colour:"),
}  # fmt: skip


@rows(BAD_CLUSTERS)
@pytest.mark.parametrize("command", ["show", "plan"])
def test_a_bad_cluster_is_refused(here, command, row):
    Path("bad.yaml").write_bytes(content(row[0]))
    if command == "show":
        refuse(here, ("cluster", "show", "bad.yaml"), *row[1:])
    else:
        refuse(here, ("plan", "good.json", "-c", "bad.yaml", "-o", "plan.json"), *row[1:])


def test_a_fault_of_a_cluster_file_names_the_file(here):
    for name, document in (
        ("kind.yaml", changed(CLUSTER, ("devices.0", {"name": "x", "kind": "Z9"}))),
        ("apart.yaml", changed(CLUSTER, ("links", []))),
        ("noname", "name: pair"),
        ("text.yaml", "pair"),
        ("field.yaml", changed(CLUSTER, ("devices.1.memory", -5))),
        ("link.yaml", changed(CLUSTER, ("links.0.between", ["x", "z"]))),
    ):
        Path(name).write_bytes(content(document))
        refuse(here, ("cluster", "show", name), f"placewright: {name}: ")


def test_a_fault_in_several_fields_counts_each_once(here):
    devices = [{"name": "x", "kind": "T4", "memory": -1}, {"name": "y", "kind": "T4", "memory": -1}]
    Path("bad.json").write_bytes(content(changed(CLUSTER, ("devices", devices))))
    refuse(here, ("cluster", "show", "bad.json"), "field devices.0.memory:", "(and 1 more)")


def test_a_device_whose_times_nothing_tells_is_refused(here):
    device = {"name": "x", "kind": "Z9", "memory": "1 GB"}
    Path("odd.json").write_bytes(content(changed(CLUSTER, ("devices.0", device))))
    command = ("plan", "good.json", "-c", "odd.json", "-o", "plan.json")
    refuse(here, command, "device 'x' of kind 'Z9'", "peak_flops")


# -- options -------------------------------------------------------------------------------------

BAD_OPTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "an unknown planner": (("-p", "hefty"), "no planner 'hefty'; did you mean 'heft'?"),
    "no planner": (("-p", ""), "no planner ''; there are auto, single-device"),
    "an unknown objective": (("--objective", "speed"), "no objective 'speed'; there are latency"),
    "an unknown transfer unit": (("--transfer-unit", "bit"), "choose tensor, edge"),
    "an unknown contention": (("--contention", "some"), "choose none, port, link"),
    "an unknown memory": (("--memory", "none"), "memory is 'none'; choose resident, peak"),
    "an unknown optimizer": (("--optimizer", "lion"), "--optimizer is 'lion'; choose sgd"),
    "an unknown planner option": (("-p", "heft", "-O", "speed=9"), "no option 'speed'"),
    "an option of auto": (("-O", "speed=9"), "planner 'auto' has no option 'speed'"),
    "a malformed planner option": (("-p", "heft", "-O", "speed"), "-O speed: write it as"),
    "a malformed pin": (("--pin", "a"), "--pin a: write it as NAME=VALUE"),
    "a pin to nothing": (("--pin", "a="), "--pin a=: write it as NAME=VALUE"),
    "a pin of nothing": (("--pin", "=x"), "--pin =x: write it as NAME=VALUE"),
    "a pin twice": (("--pin", "a=x", "--pin", "a=y"), "--pin gives a twice, as x and as y"),
    "an output with too long a name": (("-o", "x" * 300), "cannot be written (File name too long)"),
    "events that cannot be written": (("--events", "good.json/x"), "no directory good.json"),
    "a pin to an unknown device": (("--pin", "a=z"), "'a' to 'z': the devices are x, y"),
    "a pin of an unknown op": (("--pin", "z=x"), "cannot pin 'z'"),
    "a missing directory": (("-o", "no/plan.json"), "no/plan.json: there is no directory no"),
    "a directory to write": (("-o", "folder"), "folder: cannot be written (Is a directory)"),
    "a file as directory": (("-o", "good.json/plan.json"), "no directory good.json"),
}  # fmt: skip


@rows(BAD_OPTIONS)
def test_a_bad_option_is_refused(here, row):
    Path("folder").mkdir()
    command = ("plan", "good.json", "-c", "pair.json", "-o", "plan.json", *row[0])
    refuse(here, command, row[1])


DIGITS = "9" * 5000  # more than Python takes for a number
BEYOND_NUMBERS: dict[str, tuple[str, str]] = {
    "tokens": (f"plan zoo:gpt2 -c 2x3090 --mix prompt={DIGITS},output=2", "--mix: prompt is"),
    "sequences": (f"plan zoo:gpt2 -c 2x3090 --mix prompt=2,output=2,batch={DIGITS}",
                  "--mix: batch is"),
    "pipelines": ("plan zoo:gpt2 -c 2x3090 --for megatron --objective throughput --training "
                  f"--micro-batches 8 --data-parallel {DIGITS}", "data-parallel is"),
    "layers": (f"judge zoo:gpt2 -c 2x3090 --layer-partition {DIGITS},6", "--layer-partition"),
    "an accelerator": ("judge zoo:gpt2 -c 2x3090 --placement number.json", "number.json: 'h' is"),
    "a CUDA device": ("judge zoo:gpt2 -c 2x3090 --placement cuda.json", "cuda.json: 'h' is on"),
    "a port of a Ray cluster": (f"plan zoo:gpt2 -c 2x3090 --ray localhost:{DIGITS}", "ray is"),
    "iterations of a programme": (f"plan zoo:gpt2 -c 2x3090 -p m-sct -O iterations={DIGITS}",
                                  "option iterations is"),
}  # fmt: skip


@rows(BEYOND_NUMBERS)
def test_a_number_of_thousands_of_digits_is_refused(here, row):
    if "--ray" in row[0]:
        pytest.importorskip("ray")
    Path("number.json").write_bytes(content({"h": DIGITS}))
    Path("cuda.json").write_bytes(content({"h": f"cuda:{DIGITS}"}))
    refuse(here, row[0].split(), row[1])


@pytest.mark.parametrize(
    "options",
    ["--objective batch-throughput --batch", "--objective invocation-latency --subgraphs"],
)
def test_a_count_that_no_file_holds_is_refused(here, options):
    for number in (2**31, 10**25):
        command = ("plan", "good.json", "-c", "pair.json", *options.split(), number)
        refuse(here, command, f"is '{number}'; give at most 2147483647")


def test_no_cluster_at_all_is_refused(here):
    refuse(here, ("plan", "good.json"), "good.json has no devices of its own", "--cluster")


@pytest.mark.parametrize(
    ("name", "hint"), [("2x309", "did you mean '2x3090'?"), ("??", "the presets are 2x3090")]
)
def test_an_unknown_preset_is_refused(here, name, hint):
    for command in (("plan", "good.json", "-c", name), ("cluster", "show", name)):
        refuse(here, command, f"no cluster file or preset '{name}'", hint)


def test_comparing_with_an_unknown_planner_is_refused(here):
    command = ("compare", "good.json", "-c", "pair.json", "--planners", "heft,met2")
    refuse(here, command, "no planner 'met2'; did you mean 'met'?")


def test_an_unknown_schema_is_refused(here):
    refuse(here, ("schema", "plam"), "no file format 'plam'; there are graph, cluster, plan")


@pytest.mark.parametrize("command", ["compare good.json -c pair.json", "demo", "cluster detect"])
def test_an_output_in_a_missing_directory_is_refused_before_any_work(here, command, monkeypatch):
    for work in ("planning.make_problem", "costs.detect.detect"):
        monkeypatch.setattr(f"placewright.{work}", lambda *_, **__: pytest.fail("it worked"))
    refuse(here, (*command.split(), "-o", "no/out.json"), "there is no directory no; make it first")


@pytest.fixture
def planned(here: Path) -> Path:
    """The same with ``plan.json``, a plan of ``good.json``, and what makes pages of runs."""
    assert run("plan", "good.json", "-c", "pair.json", "-p", "met", "-o", "plan.json").code == 0
    Path("link.json").symlink_to("good.json")
    return here


INPUTS: dict[str, tuple[str, str]] = {
    "a source": ("plan good.json -c pair.json -p heft -o", "good.json"),
    "a source by another path": ("plan good.json -c pair.json -p heft -o", "../*/good.json"),
    "a link to a source": ("plan link.json -c pair.json -p heft -o", "good.json"),
    "a source by a link": ("plan good.json -c pair.json -p heft -o", "link.json"),
    "a source with values": ("plan good.json?x=1 -c pair.json -p heft -o", "good.json"),
    "a configuration": ("plan hf:good.json?n_layer=1 -c pair.json -p heft -o", "good.json"),
    "a cluster": ("plan good.json -c pair.json -p heft -o", "pair.json"),
    "a store": ("plan good.json -c pair.json --profiles link.json -o", "link.json"),
    "a source, for an engine": ("plan good.json -c pair.json --for vllm -o", "good.json"),
    "a source, by events": ("plan good.json -c pair.json --events", "good.json"),
    "a placement of experts": ("plan good.json -c pair.json -p expert -O file=plan.json -o",
                               "plan.json"),
    "a start, by events": ("plan link.json -c pair.json --warm-start plan.json --events",
                           "plan.json"),
    "a plan, by events": ("improve plan.json --events", "plan.json"),
    "a source of a comparison": ("compare good.json -c pair.json -o", "good.json"),
    "a cluster of a tuning": ("tune good.json -c pair.json -o", "pair.json"),
    "a placement": ("judge good.json -c pair.json --placement plan.json -o", "plan.json"),
    "the cluster of today": ("replan plan.json -c pair.json -o", "pair.json"),
    "the source of today": ("replan plan.json --lost x -o", "good.json"),
    "a plan, by a page": ("report plan.json -o", "plan.json"),
    "a second plan, by a page": ("report plan.json link.json -o", "link.json"),
    "a run, by a page": ("report plan.json --run pair.json -o", "pair.json"),
    "a plan, by an export": ("export plan.json --to csv -o", "plan.json"),
    "a model, by an export": ("export plan.json --to csv -o", "good.json"),
    "a plan, by a trace": ("run plan.json --trace", "plan.json"),
}  # fmt: skip


@rows(INPUTS)
def test_no_output_replaces_what_the_command_reads(planned, row):
    command, output = row
    output = output.replace("*", planned.name)
    option = {"-o": "--output"}.get(command.split()[-1], command.split()[-1])
    refuse(planned, (*command.split(), output), f"{option} {output}: is the input; give another")


def test_no_policy_replaces_what_the_command_reads(planned):
    command = ["plan", "good.json", "-c", "pair.json", "-p", "placeto", "-O", "save=good.json"]
    refuse(planned, command, "-O save good.json: is the input; give another file")


def test_a_plan_may_replace_the_plan_it_goes_on_from(planned):
    for command in (
        "plan good.json -c pair.json -p heft --warm-start plan.json",
        "improve plan.json -p heft",
        "replan plan.json --lost x -p heft",
    ):
        done = run(*command.split(), "-o", "plan.json")
        assert done.code == 0, done.err


@pytest.mark.parametrize(
    "command", ["plan good.json -c pair.json -o", "export plan.json --to csv -o", "demo -o"]
)
def test_nothing_is_written_to_standard_output_by_name(here, command):
    refuse(here, (*command.split(), "-"), "-: nothing is written to standard output")


@pytest.mark.parametrize(
    "command", ["info -", "verify -", "cluster show -", "plan good.json -c -", "plan -"]
)
def test_nothing_is_read_from_standard_input_by_name(here, command):
    refuse(here, command.split(), "-: nothing is read from standard input", "/dev/stdin")


def test_a_pipe_may_be_read(here):
    for name, command in (("good.json", "info"), ("pair.json", "cluster show")):
        reader, writer = os.pipe()
        os.write(writer, Path(name).read_bytes())
        os.close(writer)
        done = run(*command.split(), f"/dev/fd/{reader}")
        os.close(reader)
        assert done.code == 0, done.err


@pytest.mark.parametrize("planner", ["heft", "annealing", "lns", "auto"])
def test_a_seed_below_zero_is_refused(here, planner):
    done = run("plan", "good.json", "-c", "pair.json", "-p", planner, "--seed", "-1")
    assert (done.code, done.out) == (2, "")
    assert "--seed" in done.err and "Traceback" not in done.err


def test_a_pipe_to_write_to_is_refused(here):
    os.mkfifo("pipe")
    command = ("plan", "good.json", "-c", "pair.json", "-p", "heft", "-o", "pipe")
    refuse(here, command, "pipe: is a device or a pipe; give a file")


def test_a_plan_in_a_pipe_is_not_improved_in_vain(here):
    os.mkfifo("pipe")
    refuse(here, ("improve", "pipe"), "pipe: is a device or a pipe; give a file")


def test_events_into_what_cannot_be_opened_are_refused(here, monkeypatch):
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("placewright.cli.observing.Path.open", full)
    command = ("plan", "good.json", "-c", "pair.json", "--events", "events.jsonl")
    refuse(here, command, "events.jsonl: cannot be written (No space left on device)")


def test_names_cannot_command_the_terminal(here):
    Path("odd.json").write_bytes(content(changed(GRAPH, ("name", "\x1b[31mred"))))
    for command in ("plan", "compare"):
        more = ("-p", "heft", "--wide") if command == "plan" else ("--planners", "heft")
        done = run(command, "odd.json", "-c", "pair.json", *more)
        assert done.code == 0, done.err
        assert "\\x1b[31mred" in done.out
        assert "\x1b" not in done.out


def test_an_interrupt_before_a_command_begins_is_one_line(here, monkeypatch):
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("placewright.cli.app.app", interrupted)
    done = run("plan", "good.json")
    assert (done.code, done.out, done.err) == (130, "", "placewright: interrupted\n")


# -- infeasible ----------------------------------------------------------------------------------

INFEASIBLE: dict[str, tuple[tuple[tuple[str, Any], ...], tuple[str, ...], str]] = {
    "too little in all": (
        (("devices.0.memory", 30), ("devices.1.memory", 29)),
        (),
        "the model needs 60 B, the devices have 59 B in all",
    ),
    "an op too large for any": (
        (("devices.0.memory", 29), ("devices.1.memory", 29)),
        (),
        "op 'c' (30 B) fits on no device that supports it: the largest has 29 B",
    ),
    "a pinned op too large": (
        (("devices.0.memory", 29),),
        ("--pin", "c=x"),
        "op 'c' (30 B) fits on no device that supports it: the largest has 29 B",
    ),
    "pinned ops too large together": (
        (("devices.0.memory", 45),),
        ("--pin", "b=x", "--pin", "c=x"),
        "the ops pinned to 'x' need 50 B, it has 45 B",
    ),
    "no split that fits": (
        (("devices.0.memory", 31), ("devices.1.memory", 29)),
        ("-p", "heft"),
        "",
    ),
    "one device for all": (
        (("devices.0.memory", 59), ("devices.1.memory", 59)),
        ("-p", "single-device"),
        "no device supports every op and has the 60 B they need",
    ),
}


@rows(INFEASIBLE)
def test_what_cannot_fit_is_infeasible(here, row):
    changes, options, fragment = row
    Path("small.json").write_bytes(content(changed(CLUSTER, *changes)))
    command = ("plan", "good.json", "-c", "small.json", "-o", "plan.json", *options)
    refuse(here, command, fragment, code=3)


# -- plans ---------------------------------------------------------------------------------------

BAD_PLANS: dict[str, tuple[tuple[tuple[str, Any], ...], str]] = {
    "a short placement": ((("placement", [0, 0]),), "placement has 2 entries for 3 ops"),
    "a long schedule": (
        (("schedule.op_finish", [1, 1, 1, 1]),),
        "schedule.op_finish has 4 entries for 3 ops",
    ),
    "a ragged transfer": (
        (("schedule.transfers.tensor", [0, 1]),),
        "the columns of schedule.transfers differ in length",
    ),
    "a negative device": ((("placement.0", -1),), "field placement.0:"),
    "a negative time": ((("schedule.op_start.0", -1),), "field schedule.op_start.0:"),
    "a later version": ((("format", "placewright.plan/2"),), "update placewright"),
    "another kind": ((("format", "placewright.graph/1"),), "expected 'placewright.plan/1'"),
    "no problem": ((("problem", REMOVED),), "field problem: is missing; give it"),
    "an unknown field": ((("extra", 1),), "field extra:"),
    "an unknown status": ((("status", "splendid"),), "field status:"),
    "an unknown objective": ((("problem.options.objective", "speed"),), "no objective 'speed'"),
    "an unknown contention": (
        (("problem.options.contention", "some"),),
        "field problem.options.contention:",
    ),
    "a ragged table of times": ((("problem.ops.time.1", [1]),), "op_time is no array: its rows"),
    "a short table of times": ((("problem.ops.time", [[1, 1]]),), "op_time has shape (1, 2)"),
    "a ragged matrix": ((("problem.routes.latency.0", [0]),), "link_latency is no array"),
    "channels out of place": (
        (("problem.routes.channels", [[[], [], []], [[]]]),),
        "routes.channels is no square matrix",
    ),
    "an unknown channel": ((("problem.routes.channels.0.1", [77]),), "channels has an entry"),
    "an unknown consumer": ((("problem.tensors.consumers.0", [77]),), "consumers has an entry"),
    "an unknown pin": ((("problem.ops.pinned", [7, -1, -1]),), "op_pinned has an entry above 1"),
    "an unknown twin": ((("problem.ops.twin", [7, -1, -1]),), "forward_twin has an entry above 2"),
    "a cycle": ((("problem.tensors.consumers.1", [0]),), "cycle"),
    "duplicate ops": ((("problem.ops.name.1", "a"),), "two ops are named 'a'; names must be"),
    "duplicate devices": ((("problem.devices.name.1", "x"),), "two devices are named 'x'"),
    "no devices": ((("problem.devices", {"name": [], "kind": [], "memory": []}),
                    ("problem.routes.channels", [])), "has no devices"),
}  # fmt: skip


BAD_WIDE_PLANS: dict[str, tuple[tuple[tuple[str, Any], ...], str]] = {
    "a short list of columns": (
        (("problem.devices.time_column", [0, 0]),),
        "devices.time_column has 2 entries for 8 devices; give one per device",
    ),
    "a column that is not there": (
        (("problem.devices.time_column.3", 1),),
        "devices.time_column names column 1, but op_time has 1, numbered from 0",
    ),
    "a negative column": (
        (("problem.devices.time_column.3", -1),),
        "field problem.devices.time_column.3:",
    ),
    "times that are no table": ((("problem.ops.time", [1, 1, 1]),), "field problem.ops.time.0:"),
    "no columns": ((("problem.ops.time", [[], [], []]),), "op_time has 0, numbered from 0"),
    "a ragged table of columns": ((("problem.ops.time.1", [1, 2]),), "op_time is no array"),
    "a short table of columns": ((("problem.ops.time", [[1]]),), "op_time has shape (1, 8)"),
    "a time that is not a number": (
        (("problem.ops.time.0", [float("nan")]),),
        "NaN is not a number JSON allows",
    ),
    "no routes": (
        (("problem.routes.ways", REMOVED),),
        "field problem.routes: latency is missing; give latency, seconds_per_byte and channels",
    ),
    "routes in both forms": (
        (("problem.routes.latency", [[0]]),),
        "field problem.routes: latency is given besides ways",
    ),
    "an unknown field of the ways": (
        (("problem.routes.ways.x", 1),),
        "routes.ways.x: is no field here",
    ),
    "a short list of groups": (
        (("problem.routes.ways.group", [0]),),
        "routes.ways.group has 1 entries for 8 devices; give one for each",
    ),
    "a group that is not there": (
        (("problem.routes.ways.group.3", 1),),
        "routes.ways.group has entry 1, but there are 1 groups, numbered from 0",
    ),
    "ways in no square": (
        (("problem.routes.ways.way", [[0], [0]]),),
        "routes.ways.way has 1 entries for 2 groups",
    ),
    "a way that is not there": (
        (("problem.routes.ways.way", [[1]]),),
        "routes.ways.way has entry 1, but there are 1 ways, numbered from 0",
    ),
    "devices without a way": (
        (("problem.routes.ways.way", [[-1]]),),
        "routes.ways.way has -1 for groups 0 and 0, which have two different devices",
    ),
    "a way without seconds": (
        (("problem.routes.ways.seconds_per_byte", []),),
        "routes.ways.seconds_per_byte has 0 entries for 1 ways",
    ),
    "a negative latency": (
        (("problem.routes.ways.latency.0", -1),),
        "field problem.routes.ways.latency.0:",
    ),
    "devices that nothing leaves": (
        (("problem.routes.ways.leaving", []),),
        "routes.ways.leaving has 0 entries for 8 devices",
    ),
    "a device that nothing reaches": (
        (("problem.routes.ways.arriving.2", []),),
        "routes.ways.arriving has 0 entries for 1 ways",
    ),
    "a channel that is not there": (
        (("problem.routes.ways.arriving.2", [[77]]),),
        "routes.ways.arriving has entry 77, but there are 16 channels, numbered from 0",
    ),
    "no list of the pairs' channels": (
        (("problem.routes.ways.between", []),),
        "routes.ways.between has 0 entries for 1 ways",
    ),
    "a short list of the pairs' channels": (
        (("problem.routes.ways.between", [[[0]]]),),
        "routes.ways.between.0 has 1 entries for 56 pairs of devices; give one per pair, or none",
    ),
    "an unknown channel of a pair": (
        (("problem.routes.ways.between", [[[77]] * 56]),),
        "routes.ways.between has entry 77, but there are 16 channels",
    ),
}


@pytest.fixture
def wide_plan_document(here: Path) -> Any:
    """A plan for eight devices on a switch: one column of times, one way."""
    names = [f"device{number}" for number in range(8)]
    cluster = {
        "format": "placewright.cluster/1",
        "name": "eight",
        "devices": [{"name": name, "kind": "T4"} for name in names],
        "switches": ["switch"],
        "links": [{"between": [name, "switch"], "bandwidth": "12 GB/s"} for name in names],
    }
    Path("eight.json").write_bytes(content(cluster))
    assert run("plan", "good.json", "-c", "eight.json", "-p", "met", "-o", "plan.json").code == 0
    return json.loads(Path("plan.json").read_text())


@rows(BAD_WIDE_PLANS)
def test_a_malformed_plan_for_many_devices_is_refused(here, wide_plan_document, row):
    changes, fragment = row
    Path("bad.json").write_bytes(content(changed(wide_plan_document, *changes)))
    refuse(here, ("verify", "bad.json"), "bad.json: ", fragment)


def test_a_plan_for_many_devices_holds(wide_plan_document):
    assert run("verify", "plan.json").code == 0


@pytest.fixture
def plan_document(here: Path) -> Any:
    assert run("plan", "good.json", "-c", "pair.json", "-p", "met", "-o", "plan.json").code == 0
    return json.loads(Path("plan.json").read_text())


@rows(BAD_PLANS)
def test_a_malformed_plan_is_refused(here, plan_document, row):
    changes, fragment = row
    Path("bad.json").write_bytes(content(changed(plan_document, *changes)))
    for more in ((), ("--json",)):
        refuse(here, ("verify", "bad.json", *more), "bad.json: ", fragment)


def test_a_throughput_plan_with_a_ragged_table_is_refused(here):
    command = ("plan", "good.json", "-c", "pair.json", "-p", "single-device", "-o", "plan.json")
    assert run(*command, "--objective", "throughput").code == 0
    document = json.loads(Path("plan.json").read_text())
    document["loads"]["outgoing"][0].append(1.0)
    Path("bad.json").write_bytes(content(document))
    refuse(here, ("verify", "bad.json"), "bad.json: field loads: a table has rows that differ")


def test_a_missing_plan_is_refused(here):
    refuse(here, ("verify", "no.json"), "no.json: no such file")


def test_a_truncated_plan_is_refused(here, plan_document):
    Path("bad.json").write_bytes(content(plan_document)[:-30])
    refuse(here, ("verify", "bad.json"), "bad.json: not valid JSON, line 1")


def test_a_wrong_plan_fails_verification_in_one_line(here, plan_document):
    Path("bad.json").write_bytes(content(changed(plan_document, ("value", 1.0))))
    result = run("verify", "bad.json")
    assert result.code == 4
    assert result.err.startswith("placewright: the plan is wrong: the value is 1.000 s")
    assert result.err.count("\n") == 1


# -- published workloads -------------------------------------------------------------------------

MOIRAI: dict[str, Any] = {
    "format": "moirai/1",
    "name": "two",
    "time_unit": "ms",
    "devices": [{"name": "p", "memory": 8}, {"name": "q", "memory": 8}],
    "transfer_rate": [[0, 1], [1, 0]],
    "ops": [{"id": 5, "time": [1, 2], "memory": 1}, {"id": 6, "time": [2, 1], "memory": 1}],
    "edges": [{"source": 5, "target": 6, "transfer_time_0_1": 1}],
}
TARNAWSKI: dict[str, Any] = {
    "maxSizePerFPGA": 100,
    "maxFPGAs": 1,
    "maxCPUs": 1,
    "nodes": [
        {"id": 1, "supportedOnFpga": 1, "cpuLatency": 2, "fpgaLatency": 1, "size": 1},
        {"id": 2, "supportedOnFpga": 1, "cpuLatency": 2, "fpgaLatency": 1, "size": 1},
    ],
    "edges": [{"sourceId": 1, "destId": 2, "cost": 1}],
}
BAD_WORKLOADS: dict[str, tuple[Any, ...]] = {
    "an unknown op": (changed(MOIRAI, ("edges.0.target", 9)), "field edges.0.target", "id 9"),
    "an id twice": (changed(MOIRAI, ("ops.1.id", 5)), "field ops.1.id", "5 is already the id"),
    "a short row of times": (changed(MOIRAI, ("ops.0.time", [1])), "field ops.0.time"),
    "minutes": (changed(MOIRAI, ("time_unit", "min")), "field time_unit"),
    "a later version": (changed(MOIRAI, ("format", "moirai/2")), "update placewright"),
    "a cycle": (
        changed(MOIRAI, ("edges", [*MOIRAI["edges"], {"source": 6, "target": 5,
                                                      "transfer_time_0_1": 1}])),
        "cycle",
    ),
    "an unknown node": (changed(TARNAWSKI, ("edges.0.destId", 9)), "field edges.0.destId", "id 9"),
    "a node without latency": (
        changed(TARNAWSKI, ("nodes.1.fpgaLatency", REMOVED)),
        "field nodes.1.fpgaLatency",
    ),
    "no nodes": (changed(TARNAWSKI, ("nodes", [])), "field nodes"),
    "no device": (changed(TARNAWSKI, ("maxFPGAs", 0), ("maxCPUs", 0)), "maxFPGAs and maxCPUs"),
}  # fmt: skip


@rows(BAD_WORKLOADS)
def test_a_bad_workload_is_refused(here, row):
    Path("bad.json").write_bytes(content(row[0]))
    refuse(here, ("plan", "bad.json", "-p", "heft", "-o", "plan.json"), "bad.json: ", *row[1:])


@pytest.mark.parametrize("workload", [MOIRAI, TARNAWSKI], ids=["moirai", "tarnawski"])
def test_a_good_workload_needs_no_cluster(here, workload):
    Path("good.json").write_bytes(content(workload))
    assert run("plan", "good.json", "-p", "heft", "--json").code == 0


# -- ONNX ----------------------------------------------------------------------------------------


def onnx_model(**external: str) -> bytes:
    """One MatMul; its weights lie in an external file if `external` says where."""
    onnx = pytest.importorskip("onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    weight = onnx.TensorProto(name="w", data_type=floats, dims=[2, 2], raw_data=b"\0" * 16)
    if external:
        weight.ClearField("raw_data")
        weight.data_location = onnx.TensorProto.EXTERNAL
        for key, value in external.items():
            weight.external_data.add(key=key, value=value)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="multiply")],
        "tiny",
        [helper.make_tensor_value_info("x", floats, [2, 2])],
        [helper.make_tensor_value_info("y", floats, [2, 2])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    return bytes(model.SerializeToString())


BAD_ONNX: dict[str, tuple[Callable[[], bytes], str]] = {
    "truncated": (lambda: onnx_model()[:-40], "cut short or damaged"),
    "no model": (lambda: b"\x08" + bytes(range(200)), "ONNX"),
    "empty": (lambda: b"", "the file is empty"),
    "a missing external file": (lambda: onnx_model(location="w.bin"), "w.bin does not exist"),
    "a path up": (lambda: onnx_model(location="../outside.bin"), "leads out of the model's"),
    "an absolute path": (lambda: onnx_model(location="/etc/passwd"), "leads out of the model's"),
    "a path out by a link": (lambda: onnx_model(location="link.bin"), "is a link out of"),
    "too little external data": (lambda: onnx_model(location="short.bin"), "which has 4"),
    "a bad offset": (lambda: onnx_model(location="short.bin", offset="-4"), "offset is '-4'"),
}


@rows(BAD_ONNX)
def test_a_bad_onnx_model_is_refused(here, row, tmp_path_factory):
    outside = tmp_path_factory.mktemp("elsewhere") / "outside.bin"
    outside.write_bytes(b"\0" * 64)
    Path("link.bin").symlink_to(outside)
    Path("short.bin").write_bytes(b"\0" * 4)
    Path("bad.onnx").write_bytes(row[0]())
    command = ("plan", "bad.onnx", "-c", "pair.json", "-p", "heft", "-o", "plan.json")
    refuse(here, command, "bad.onnx", row[1])


def test_the_good_onnx_model_is_taken(here):
    Path("good.onnx").write_bytes(onnx_model())
    assert run("info", "good.onnx", "--json").json["ops"] == 1


# -- real processes ------------------------------------------------------------------------------

PROCESSES: dict[str, tuple[bytes, tuple[str, ...], int, str]] = {
    "truncated JSON": (b'{"a":', ("info", "bad.json"), 2, "bad.json: not valid JSON"),
    "deep JSON": (
        b"[" * 200_000 + b"]" * 200_000,
        ("info", "bad.json"),
        2,
        "bad.json: JSON nested too deeply",
    ),
    "deep YAML": (
        b"[" * 100_000 + b"]" * 100_000,
        ("cluster", "show", "bad.yaml"),
        2,
        "bad.yaml: YAML nested too deeply",
    ),
    "deep block YAML": (
        b"- " * 100_000 + b"x",
        ("cluster", "show", "bad.yaml"),
        2,
        "bad.yaml: YAML nested too deeply",
    ),
    "infeasible": (
        content(changed(CLUSTER, ("devices.0.memory", 1), ("devices.1.memory", 1))),
        ("plan", "good.json", "-c", "bad.json", "-o", "plan.json"),
        3,
        "fits on no device",
    ),
}


@rows(PROCESSES)
def test_a_process_ends_the_same_way(here, row):
    text, arguments, code, fragment = row
    for name in ("bad.json", "bad.yaml"):
        Path(name).write_bytes(text)
    before = sorted(here.rglob("*"))
    process = subprocess.run(
        [sys.executable, "-c", f"from {main.__module__} import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    assert_refused(Run(process.returncode, process.stdout, process.stderr), code, fragment)
    assert sorted(here.rglob("*")) == before


def test_a_name_that_is_no_text_can_still_be_written_to(here):
    odd = Path(os.fsdecode(b"\xff.json"))
    try:
        odd.write_text("")
    except OSError:
        pytest.skip("this file system keeps names in UTF-8 only")
    process = subprocess.run(
        [sys.executable, "-c", f"from {main.__module__} import main; main()", "plan", "good.json",
         "-c", "pair.json", "-p", "heft", "-o", odd, "--json"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert (process.returncode, without_remark(process.stderr.decode())) == (0, "")
    assert odd.stat().st_size > 0


def test_events_and_plan_are_not_one_file(here: Path) -> None:
    asked = ("plan", "good.json", "-c", "pair.json", "-o", "new.json", "--events", "./new.json")
    refuse(here, asked, "--events new.json: is the output too; give another file")


def test_a_name_that_is_no_text_is_refused(here: Path) -> None:
    name = os.fsdecode(b"gr\xffaph.json")
    Path(name).write_bytes(content(GRAPH))
    refuse(here, ("plan", name, "-c", "pair.json"), "this name is not UTF-8; rename the file")


def test_a_name_that_python_takes_for_another_encoding_is_said_to_be_that(monkeypatch) -> None:
    name = "gr\udcc3\udcbcn.json"
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    with pytest.raises(InputError, match="Python takes names for ascii here; set PYTHONUTF8=1"):
        load(name)


def test_gpu_layers_alone_are_refused_with_what_goes_with_them(here: Path) -> None:
    refuse(here, ("judge", "zoo:gpt2", "-c", "4090+cpu", "-ngl", 20),
           "-ngl goes with -ts, the shares of the devices; of one GPU -ts 1")  # fmt: skip


@pytest.mark.parametrize("engine", ["vllm", "sglang", "accelerate", "llama-cpp"])
def test_engines_that_infer_are_not_planned_for_training(here: Path, engine: str) -> None:
    asked = ("plan", "zoo:llama-7b?layers=2", "--training", "-c", "4090+3060", "--for", engine)
    refuse(here, asked, f"--for {engine} plans inference; leave out --training")
