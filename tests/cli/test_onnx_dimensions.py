"""Commands say on stderr which dimensions of an ONNX model they assumed; stdout stays clean."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from placewright.plan import Plan
from tests.cli.running import run

onnx = pytest.importorskip("onnx")

CLUSTER = """\
format: placewright.cluster/1
name: pair
devices:
  - {name: x, kind: T4, memory: 16 GB}
  - {name: y, kind: T4, memory: 16 GB}
links:
  - {between: [x, y], bandwidth: 12 GB/s, latency: 5 us}
"""
ASSUMED = (
    "placewright: detector.onnx: dynamic dimensions taken as 1: height (of images), images.3; "
    "give them, as in 'detector.onnx?height=SIZE&images.3=SIZE'\n"
)
GIVEN = "detector.onnx?height=640&images.3=480"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with ``detector.onnx`` (a convolution) and ``pair.yaml``."""
    monkeypatch.chdir(tmp_path)
    floats = onnx.TensorProto.FLOAT
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("Conv", ["images", "w"], ["y"], pads=[1] * 4)],
        "torch-jit-export",
        [helper.make_tensor_value_info("images", floats, [1, 3, "height", None])],
        [helper.make_tensor_value_info("y", floats, None)],
        [onnx.TensorProto(name="w", data_type=floats, dims=[4, 3, 3, 3], raw_data=b"\0" * 432)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    Path("detector.onnx").write_bytes(model.SerializeToString())
    Path("pair.yaml").write_text(CLUSTER)
    return tmp_path


COMMANDS = {
    "info": (),
    "plan": ("-c", "pair.yaml", "-p", "heft"),
    "compare": ("-c", "pair.yaml", "--planners", "heft,met"),
    "sweep": ("-c", "pair.yaml", "--bandwidth", "x1,x2", "-p", "heft"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_assumed_and_nothing_where_all_is_given(here: Path, name: str):
    assumed = run(name, "detector.onnx", *COMMANDS[name], "--json")
    assert (assumed.code, assumed.err) == (0, ASSUMED)
    assert assumed.json
    given = run(name, GIVEN, *COMMANDS[name], "--json")
    assert (given.code, given.err) == (0, "")
    assert given.json != assumed.json


def test_a_plan_is_read_again_with_the_sizes_it_was_made_with(here: Path):
    run("plan", GIVEN, "-c", "pair.yaml", "-p", "heft", "-o", "plan.json")
    assert Plan.load("plan.json").source == GIVEN
    assert Plan.load("plan.json").problem.name.startswith("detector")
    again = run("replan", "plan.json", "-c", "2x3090", "-p", "heft", "--json")
    assert (again.code, again.err) == (0, "")
    run("plan", "detector.onnx", "-c", "pair.yaml", "-p", "heft", "-o", "plan.json")
    assert run("replan", "plan.json", "-c", "2x3090", "-p", "heft").err == ASSUMED


def test_the_title_is_the_file_and_not_what_the_exporter_called_the_graph(here: Path):
    assert run("info", GIVEN, "--json").json["name"] == "detector"
    assert run("info", GIVEN).out.startswith("detector ")


@pytest.mark.parametrize(
    ("source", "fragment"),
    [
        ("detector.onnx?hight=2", "no dynamic dimension 'hight'; did you mean 'height'? the file"),
        ("detector.onnx?height=0", "dimension 'height' is 0"),
        ("detector.onnx?height=a", "dimension 'height' is 'a'; it must be a whole number from 1"),
        ("pair.yaml?height=2", "pair.yaml: not a model"),
        ("absent.onnx?height=2", "absent.onnx: no such file"),
    ],
)
def test_sizes_that_cannot_be_are_one_line(here: Path, source: str, fragment: str):
    result = run("plan", source, "-c", "pair.yaml", "-p", "heft")
    assert (result.code, result.out) == (2, "")
    assert fragment in result.err
    assert result.err.count("\n") == 1


def test_without_the_extra_the_line_says_what_to_install(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "onnx", None)
    result = run("info", GIVEN)
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert "pip install 'placewright[onnx]'" in result.err


def test_in_a_process_of_its_own_the_warning_is_one_line_of_stderr(here: Path):
    script = "import sys; sys.argv[0] = 'placewright'; from placewright.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "info", "detector.onnx", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ASSUMED
    assert done.stdout.startswith("{")
