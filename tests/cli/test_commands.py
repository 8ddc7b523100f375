"""Every command: what it prints, what it writes, and the code it ends with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placewright
from placewright import planners
from placewright.cluster import Cluster
from placewright.costs.catalog import kinds
from placewright.errors import ExecutionError
from placewright.graph import Graph
from placewright.plan import Plan
from tests.cli.running import Run, run

PLAN_KEYS = {
    "objective", "value", "lower_bound", "bound_source", "gap", "status", "planner", "seconds",
    "seed", "devices", "remarks", "plan",
}  # fmt: skip
QUICK = [row.name for row in planners.TABLE if row.objective == "latency" and row.quick]
COMMANDS = ("plan", "compare", "verify", "info", "planners", "zoo", "cluster", "schema", "demo")

# a → b, c → d; two devices with measured times. Pins force transfers both ways round.
GRAPH = {
    "format": "placewright.graph/1",
    "name": "diamond",
    "ops": {
        "name": ["a", "b", "c", "d"],
        "parameter_bytes": [4, 3, 2, 1],
        "colocation": [-1, 0, 0, -1],
    },
    "tensors": {
        "producer": [0, 1, 2],
        "bytes": [8, 4, 2],
        "consumers": [[1, 2], [3], [3]],
    },
    "times": {"fast": [1, 2, 3, 1], "slow": [2, 4, 6, 2]},
}
CLUSTER = """\
format: placewright.cluster/1
name: pair
devices:
  - {name: x, kind: fast, memory: 20}
  - {name: y, kind: slow, memory: 20}
links:
  - {between: [x, y], bandwidth: 4, latency: 0.5}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with ``graph.json`` and ``pair.yaml``."""
    monkeypatch.chdir(tmp_path)
    Path("graph.json").write_text(json.dumps(GRAPH))
    Path("pair.yaml").write_text(CLUSTER)
    return tmp_path


def planned(*more: object) -> Run:
    return run("plan", "graph.json", "-c", "pair.yaml", *more)


def started(*arguments: str, environment: Mapping[str, str] | None = None) -> Any:
    """``placewright ARGUMENTS`` in a process of its own."""
    script = "import sys; sys.argv[0] = 'placewright'; from placewright.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )


def succeeded(result: Run) -> Run:
    assert (result.code, result.err) == (0, "")
    return result


# -- the application -----------------------------------------------------------------------------


def test_version_is_that_of_the_package():
    assert succeeded(run("--version")).out.strip() == placewright.__version__


def test_help_lists_every_command_and_the_machinery_of_completion():
    out = succeeded(run("--help")).out
    for word in (*COMMANDS, "--version", "--install-completion", "--show-completion"):
        assert word in out


@pytest.mark.parametrize(
    "command",
    [*COMMANDS, *(f"cluster {each}" for each in ("list", "kinds", "show", "detect"))],
)
def test_every_command_has_help(command):
    out = succeeded(run(*command.split(), "--help")).out
    assert "Usage: placewright " + command in out
    assert succeeded(run(*command.split(), "-h")).out == out


def test_completion_offers_the_commands_that_begin_so():
    words = {"COMP_WORDS": "placewright pl", "COMP_CWORD": "1"}
    process = started(environment={"_PLACEWRIGHT_COMPLETE": "complete_bash", **words})
    assert process.communicate()[0].split() == [b"plan", b"planners"]


def test_no_command_prints_the_help_and_is_a_usage_error():
    result = run()
    assert result.code == 2
    assert "Usage: placewright" in result.out + result.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan",),
        ("verify",),
        ("info",),
        ("schema",),
        ("cluster", "show"),
        ("nonsense",),
        ("plan", "zoo:gpt2", "--no-such-option"),
        ("plan", "zoo:gpt2", "-c"),
        ("plan", "zoo:gpt2", "-c", "2x3090", "--seed", "x"),
        ("plan", "zoo:gpt2", "-c", "2x3090", "--time-limit", "-1"),
        ("plan", "zoo:gpt2", "-c", "2x3090", "--time-limit", "nan"),
        ("plan", "zoo:gpt2", "too", "many"),
    ],
    ids=" ".join,
)
def test_a_command_called_wrongly_exits_2_and_says_how(arguments):
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert "Error: " in result.err
    assert "Traceback" not in result.err


def test_too_little_memory_is_said_in_one_line(monkeypatch):
    def full(*args: Any, **kwargs: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("placewright.importers.load", full)
    result = run("info", "zoo:gpt2")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "placewright: this machine's memory is used up; ask for fewer ops or devices\n"
    )


def test_interrupting_a_command_exits_130_and_says_so(monkeypatch):
    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("placewright.importers.load", interrupted)
    result = run("info", "zoo:gpt2")
    assert (result.code, result.out, result.err) == (130, "", "placewright: interrupted\n")


def test_interrupting_the_script_while_it_imports_is_no_traceback():
    """By the entry that the console script has; as numpy is imported, which takes the longest."""
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())
    module, function = project["project"]["scripts"]["placewright"].split(":")
    code = f"""
import signal, sys
class Interrupting:
    def find_spec(self, name, *others):
        if name == "numpy":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from {module} import {function}
{function}()
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (found.returncode, found.stdout) == (130, b"")
    assert found.stderr == b"placewright: interrupted\n"


def test_an_error_of_execution_exits_5(monkeypatch):
    def failing(*args: Any, **kwargs: Any) -> None:
        raise ExecutionError("rank 1 stopped answering")

    monkeypatch.setattr("placewright.importers.load", failing)
    result = run("info", "zoo:gpt2")
    assert (result.code, result.err) == (5, "placewright: rank 1 stopped answering\n")


def test_a_reader_that_has_seen_enough_is_no_error():
    process = started("zoo", "--json")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        errors = process.stderr.read()
    assert (process.wait(), errors) == (0, b"")


# -- plan ----------------------------------------------------------------------------------------


def test_plan_prints_a_table_of_devices_and_the_answer(here):
    out = succeeded(planned("-p", "heft", "--wide")).out
    for word in ("diamond on pair", "x", "y", "latency", "lower bound", "gap", "planner heft"):
        assert word in out
    assert sorted(path.name for path in here.iterdir()) == ["graph.json", "pair.yaml"]


def test_plan_json_holds_the_promised_fields(here):
    record = succeeded(planned("-p", "heft", "--json", "-o", "plan.json", "--seed", "7")).json
    assert record.keys() >= PLAN_KEYS
    assert record["objective"] == "latency"
    assert record["lower_bound"] <= record["value"]
    assert record["gap"] == pytest.approx(1 - record["lower_bound"] / record["value"])
    assert record["status"] == ("optimal" if record["gap"] <= 1e-4 else "feasible")
    assert (record["planner"], record["seed"], record["plan"]) == ("heft", 7, "plan.json")
    assert record["seconds"] > 0
    assert [device["name"] for device in record["devices"]] == ["x", "y"]
    assert all(device.keys() >= {"name", "load", "memory"} for device in record["devices"])
    assert sum(device["memory"] for device in record["devices"]) == 10


def test_plan_json_without_output_names_no_file(here):
    assert succeeded(planned("-p", "met", "--json")).json["plan"] is None


def test_plan_json_says_null_for_unlimited_memory(here):
    Path("pair.yaml").write_text(CLUSTER.replace("memory: 20", "memory: unlimited"))
    devices = succeeded(planned("-p", "met", "--json")).json["devices"]
    assert [device["capacity"] for device in devices] == [None, None]


def test_plan_takes_the_default_planner_which_no_quick_one_beats(here):
    best = succeeded(planned("--json")).json
    compared = succeeded(run("compare", "graph.json", "-c", "pair.yaml", "--json")).json
    assert best["value"] <= min(line["value"] for line in compared if line["value"] is not None)
    assert best["planner"] == "auto"


@pytest.mark.parametrize("name", QUICK)
def test_plan_knows_each_quick_planner_of_the_table(here, name):
    assert succeeded(planned("-p", name, "--json")).json["planner"] == name


def test_plan_records_the_options_of_the_problem(here):
    options = {"transfer_unit": "edge", "contention": "port", "memory": "peak"}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    Path("pair.yaml").write_text(CLUSTER.replace("memory: 20", "memory: 200"))
    record = succeeded(planned("-p", "heft", "--json", "-o", "plan.json", *flags)).json
    assert record["options"] == {"objective": "latency", **options}
    assert Plan.load("plan.json").problem.options.to_document() == record["options"]


def test_plan_puts_pinned_ops_where_they_are_pinned(here):
    succeeded(planned("-p", "heft", "-o", "plan.json", "--pin", "a=y", "--pin", "d=x"))
    device_of = Plan.load("plan.json").device_of()
    assert (device_of["a"], device_of["d"]) == ("y", "x")


def test_plan_keeps_colocated_ops_together(here):
    succeeded(planned("-p", "greedy", "-o", "plan.json"))
    device_of = Plan.load("plan.json").device_of()
    assert device_of["b"] == device_of["c"]


def test_plan_training_counts_the_optimizer(here):
    def memory(optimizer: str) -> float:
        record = run("plan", "zoo:gpt2?layers=1", "-c", "2x3090", "--training", "-p",
                     "single-device", "--optimizer", optimizer, "--json").json  # fmt: skip
        return sum(device["memory"] for device in record["devices"])

    assert memory("sgd") < memory("momentum") < memory("adam")


def test_the_same_plan_is_the_same_file(here):
    for name in ("one.json", "two.json"):
        succeeded(planned("-p", "heft", "-o", name))
    assert Path("one.json").read_bytes() == Path("two.json").read_bytes()


def test_plan_overwrites_a_plan_and_leaves_nothing_else(here):
    Path("plan.json").write_text("old")
    succeeded(planned("-p", "heft", "-o", "plan.json"))
    assert Plan.load("plan.json").planner == "heft"
    names = sorted(path.name for path in here.iterdir())
    assert names == ["graph.json", "pair.yaml", "plan.json"]


# -- verify --------------------------------------------------------------------------------------

Change = Callable[[Any], Any]


TIED = ("zoo:gpt2?layers=1", "-c", "8xA100", "--training", "--objective", "throughput")


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "-p", "ideal-dp"),
        ("compare", "--planners", "row-cuts,ideal-dp"),
        ("sweep", "--count", "A100 80GB=2,3", "-p", "ideal-dp"),
    ],
)
def test_that_tied_weights_have_copies_is_remarked_once(command):
    name, *more = command
    result = run(name, *TIED, *more)
    assert result.code == 0
    (line,) = result.err.splitlines()
    assert line.startswith("placewright: 'lm_head' has a copy of weights")
    records = succeeded(run(name, *TIED, *more, "--json")).json
    for record in records if isinstance(records, list) else [records]:
        assert [f"placewright: {text}" for text in record["remarks"]] == [line]
    free = run(name, *TIED, "--no-contiguous", *more)
    assert succeeded(free).out and not free.err


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "-p", "ideal-dp"),
        ("compare", "--planners", "single-device,ideal-dp"),
        ("sweep", "--count", "RTX 3090=2,3", "-p", "ideal-dp"),
    ],
)
def test_what_tied_weights_forbid_is_remarked_once_with_the_way_out(command, here):
    """Of a file that does not say what copies come to."""
    graph = placewright.load("zoo:gpt2?layers=1", training=True).graph
    graph = replace(graph, op_copy_bytes=np.zeros(0), copy_colocation=np.zeros(0), copy_tensors=())
    graph.save("tied.json")
    tied = ("tied.json", "-c", "2x3090", "--objective", "throughput")
    name, *more = command
    result = run(name, *tied, *more)
    assert result.code == 0
    (line,) = result.err.splitlines()
    assert line.startswith("placewright: 'embedding.tokens' and 'lm_head' are on one device")
    assert "--no-contiguous" in line
    records = succeeded(run(name, *tied, *more, "--json")).json
    for record in records if isinstance(records, list) else [records]:
        assert [f"placewright: {text}" for text in record["remarks"]] == [line]
    assert succeeded(run(name, *tied, "--no-contiguous", *more)).out


@pytest.fixture
def plan_file(here: Path) -> Path:
    """A plan with b and c on x, a and d on y: every tensor but none of its own is sent."""
    pins = ["--pin", "a=y", "--pin", "b=x", "--pin", "d=y"]
    succeeded(planned("-p", "heft", "-o", "plan.json", *pins))
    assert run("verify", "plan.json").code == 0
    return Path("plan.json")


def test_verify_accepts_what_plan_wrote(plan_file):
    out = succeeded(run("verify", plan_file)).out
    assert "plan.json: holds; latency" in out
    assert out.count("  ok  ") == len(succeeded(run("verify", plan_file, "--json")).json["checks"])


def test_verify_json_holds_the_verdict(plan_file):
    verdict = succeeded(run("verify", plan_file, "--json")).json
    assert (verdict["ok"], verdict["violations"]) == (True, [])
    plan = Plan.load(plan_file)
    for field in ("value", "lower_bound", "gap", "status"):
        assert verdict[field] == getattr(plan, field)


def plus(amount: float) -> Change:
    return lambda value: value + amount


def to(value: object) -> Change:
    return lambda _: value


TAMPERINGS: list[tuple[str, Change, str]] = [
    ("placement.1", to(1), "pinned"),
    ("placement.2", to(1), "must be together"),
    ("placement.0", to(9), "names device 9"),
    ("value", plus(-0.5), "the value is"),
    ("value", plus(0.5), "the value is"),
    ("lower_bound", to(1e9), "lower bound"),
    ("status", {"optimal": "feasible", "feasible": "optimal"}.get, "the status is"),
    ("schedule.op_start.1", plus(-1), "op 'b'"),
    ("schedule.op_finish.1", plus(0.25), "op 'b'"),
    ("schedule.op_start.0", plus(0.25), "op 'a'"),
    ("schedule.transfers.tensor.0", to(1), "op 'b'"),
    ("schedule.transfers.tensor.0", to(77), "names tensor 77"),
    ("schedule.transfers.consumer.0", to(1), "names consumer 1"),
    ("schedule.transfers.source.0", to(0), "goes nowhere"),
    ("schedule.transfers.target.0", to(1), "goes nowhere"),
    ("schedule.transfers.target.0", to(5), "names target 5"),
    ("schedule.transfers.start.0", plus(0.25), "the route needs"),
    ("schedule.transfers.finish.0", plus(-0.25), "the route needs"),
    ("problem.ops.time.1.0", plus(0.5), "op 'b' takes"),
    ("problem.ops.time.1.0", to(None), "cannot run it"),
    ("problem.ops.memory.1", to(1000), "needs"),
    ("problem.devices.memory.0", to(1), "device 'x' needs"),
    ("problem.tensors.bytes.0", plus(4), "the route needs"),
    ("problem.routes.latency.1.0", plus(0.25), "the route needs"),
    ("problem.routes.seconds_per_byte.1.0", plus(1), "the route needs"),
    ("problem.ops.pinned.1", to(1), "is pinned to 'y'"),
    ("problem.ops.colocation.0", to(0), "must be together"),
]


@pytest.mark.parametrize(
    ("field", "change", "named"),
    TAMPERINGS,
    ids=[f"{number}-{field}" for number, (field, _, _) in enumerate(TAMPERINGS)],
)
def test_verify_exits_4_when_one_number_of_the_plan_is_changed(plan_file, field, change, named):
    document = json.loads(plan_file.read_text())
    *path, last = [int(part) if part.isdigit() else part for part in field.split(".")]
    place = document
    for part in path:
        place = place[part]
    before = place[last]
    place[last] = change(before)
    assert place[last] != before
    plan_file.write_text(json.dumps(document))
    verdict = run("verify", plan_file, "--json")
    assert verdict.code == 4
    assert verdict.json["ok"] is False
    assert any(named in violation for violation in verdict.json["violations"])
    assert verdict.err.startswith("placewright: the plan is wrong: ")
    assert verdict.err.count("\n") == 1


def test_verify_prints_each_violation_of_a_wrong_plan(plan_file):
    document = json.loads(plan_file.read_text())
    document["value"] = 0
    document["schedule"]["op_finish"][1] += 1
    plan_file.write_text(json.dumps(document))
    result = run("verify", plan_file)
    assert result.code == 4
    assert result.out.count("  wrong  ") >= 2


# -- compare -------------------------------------------------------------------------------------


def test_compare_has_a_line_for_each_quick_planner(here):
    records = succeeded(run("compare", "graph.json", "-c", "pair.yaml", "--json")).json
    assert [record["planner"] for record in records] == QUICK
    assert all(record.keys() >= PLAN_KEYS for record in records)


def test_compare_takes_the_planners_named_and_writes_the_best_plan(here):
    names = "single-device, heft"
    arguments = ("compare", "graph.json", "-c", "pair.yaml", "--planners", names)
    records = succeeded(run(*arguments, "--json", "-o", "best.json")).json
    assert [record["planner"] for record in records] == names.split(", ")
    assert Plan.load("best.json").value == min(record["value"] for record in records)
    assert written_by(records) == [Plan.load("best.json").planner]
    assert run("verify", "best.json").code == 0


def written_by(records: list[dict[str, Any]]) -> list[str]:
    """Whose plans the records say are in a file."""
    return [record["planner"] for record in records if record["plan"] is not None]


def test_compare_prints_a_table_with_the_best_marked(here):
    out = succeeded(
        run("compare", "graph.json", "-c", "pair.yaml", "--planners", "single-device,heft")
    ).out
    assert "makespan" in out
    assert "single-device *" in out or "heft *" in out


TOO_BIG_FOR_ONE = ("compare", "zoo:gpt3-13b", "-c", "moirai-inter-server", "--planners",
                   "single-device,heft")  # fmt: skip


def test_compare_says_why_a_planner_has_no_plan():
    result = run(*TOO_BIG_FOR_ONE)
    assert result.code == 0
    assert "heft *" in result.out
    assert result.err.startswith("planner 'single-device': ")
    assert "no device supports every op and has the 23.9 GiB they need" in result.err


def test_compare_json_has_the_reason_of_a_planner_without_a_plan():
    failed, found = succeeded(run(*TOO_BIG_FOR_ONE, "--json")).json
    assert (failed["planner"], failed["value"], failed["status"]) == (
        "single-device", None, "unknown",
    )  # fmt: skip
    assert "23.9 GiB" in failed["error"]
    assert found.keys() >= PLAN_KEYS


def test_compare_exits_3_and_writes_nothing_when_no_planner_has_a_plan(here):
    Path("pair.yaml").write_text(CLUSTER.replace("memory: 20", "memory: 6"))
    result = run("compare", "graph.json", "-c", "pair.yaml", "--planners", "single-device", "-o",
                 "best.json")  # fmt: skip
    assert result.code == 3
    assert result.err.splitlines()[-1].startswith("placewright: no planner found a plan")
    assert not Path("best.json").exists()


def test_compare_keeps_what_it_has_when_interrupted(here, monkeypatch):
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("placewright.planners.latency.construct.simple.MTopo.plan", interrupted)
    result = run("compare", "graph.json", "-c", "pair.yaml", "--planners", "met,m-topo,heft",
                 "-o", "best.json")  # fmt: skip
    assert result.code == 0
    assert result.err == "m-topo: interrupted\nheft: interrupted\n"
    assert Plan.load("best.json").planner == "met"


# -- info, planners, zoo, schema -----------------------------------------------------------------


def test_info_describes_a_graph(here):
    facts = succeeded(run("info", "graph.json", "--json")).json
    assert (facts["name"], facts["ops"], facts["tensors"], facts["edges"]) == ("diamond", 4, 3, 4)
    assert (facts["depth"], facts["colocation_groups"]) == (3, 1)
    assert (facts["parameter_bytes"], facts["tensor_bytes"]) == (10, 14)
    assert facts["measured_on"] == ["fast", "slow"]
    out = succeeded(run("info", "graph.json")).out
    assert "diamond" in out
    assert "measured on" in out


def test_info_counts_backward_ops_of_training():
    facts = succeeded(run("info", "zoo:gpt2?layers=1", "--training", "--json")).json
    assert 0 < facts["ops_with_twin"] <= facts["backward_ops"] < facts["ops"]
    assert "backward" in succeeded(run("info", "zoo:gpt2?layers=1", "--training")).out


def test_info_prints_names_that_look_like_markup_as_they_are(here):
    Path("graph.json").write_text(json.dumps({**GRAPH, "name": "[red]model[/red]"}))
    assert "[red]model[/red]" in succeeded(run("info", "graph.json")).out


def test_planners_lists_the_table():
    records = succeeded(run("planners", "--json")).json
    assert [record["name"] for record in records] == [row.name for row in planners.TABLE]
    assert all(record.keys() == {"name", "objective", "summary", "paper", "options"}
               for record in records)  # fmt: skip
    assert "heft" in succeeded(run("planners")).out


def test_zoo_lists_models_that_can_be_planned():
    records = {record["name"]: record for record in succeeded(run("zoo", "--json")).json}
    assert records["gpt2"]["parameter_count"] == pytest.approx(124e6, rel=0.01)
    assert records["gpt2"]["parameters"]["layers"] == 12
    assert "llama-13b" in succeeded(run("zoo")).out


@pytest.mark.parametrize("name", ["graph", "cluster", "plan"])
def test_schema_accepts_the_files_that_placewright_writes(plan_file, name):
    jsonschema = pytest.importorskip("jsonschema")
    Graph.load("graph.json").save("again.json")
    Cluster.load("pair.yaml").save("cluster.json")
    written = {"graph": "again.json", "cluster": "cluster.json", "plan": "plan.json"}[name]
    schema = succeeded(run("schema", name)).json
    document = json.loads(Path(written).read_text())
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "format": "placewright.other/1"}, schema)


# -- cluster -------------------------------------------------------------------------------------


def test_cluster_kinds_has_the_catalog():
    records = succeeded(run("cluster", "kinds", "--json")).json
    assert [each["name"] for each in records] == list(kinds())
    assert records[0]["peak_flops"]["fp32"] > 1e12 and records[0]["source"]
    out = succeeded(run("cluster", "kinds")).out
    for text in ("RTX 4090", "24 GB", "of its machine", "MI300X"):
        assert text in out


def test_cluster_list_has_the_presets():
    records = succeeded(run("cluster", "list", "--json")).json
    names = [record["name"] for record in records]
    assert {"2x3090", "moirai-inter-server", "tarnawski", "this-machine"} <= set(names)
    assert all(record["devices"] and record["description"] for record in records)
    assert "2x3090" in succeeded(run("cluster", "list")).out


def test_cluster_show_prints_a_cluster_file_with_every_figure(here):
    document = succeeded(run("cluster", "show", "2x3090", "--json")).json
    cluster = Cluster.from_document(document)
    assert cluster.device_names == ("gpu0", "gpu1")
    assert all(device.peak_flops and device.memory for device in cluster.devices)


def test_cluster_show_prints_devices_and_routes(here):
    out = succeeded(run("cluster", "show", "pair.yaml")).out
    for word in ("pair", "fast", "slow", "20 B", "4B/s", "500.000 ms"):
        assert word in out


def test_cluster_detect_describes_this_machine_in_a_file_that_can_be_planned_on(here):
    document = succeeded(run("cluster", "detect", "--json", "-o", "mine.yaml")).json
    assert Cluster.load("mine.yaml") == Cluster.from_document(document)
    assert "device" in succeeded(run("cluster", "detect")).out
    record = succeeded(run("plan", "zoo:resnet50", "-c", "mine.yaml", "-p", "met", "--json")).json
    assert record["devices"][0]["name"] == document["devices"][0]["name"]


def test_cluster_detect_splits_the_cpu_into_devices_of_its_cores(here):
    whole = succeeded(run("cluster", "detect", "--json")).json["devices"][-1]["run"]
    one = succeeded(run("cluster", "detect", "--split-cpu", "1", "--json", "-o", "one.yaml")).json
    assert (one["devices"][-1]["name"], one["devices"][-1]["run"]) == ("cpu0", whole)
    assert Cluster.load("one.yaml") == Cluster.from_document(one)
    assert "runs on" in succeeded(run("cluster", "show", "one.yaml")).out
    too_many = len(whole["cores"]) + 1
    result = run("cluster", "detect", "--split-cpu", str(too_many))
    assert result.code == 2 and f"cannot be split into {too_many} devices" in result.err


# -- demo ----------------------------------------------------------------------------------------


@pytest.fixture
def short_demo(monkeypatch):
    monkeypatch.setattr("placewright.cli.demo.SECONDS", 4.0)


def test_demo_plans_compares_and_verifies_in_one_go(here, short_demo):
    result = run("demo")
    assert result.code == 0
    assert "verified, and written to placewright-demo.json" in result.out
    assert all(any(f"'{name}'" in line for name in QUICK) for line in result.err.splitlines())
    assert run("verify", "placewright-demo.json").code == 0


def test_demo_json_has_all_planners_and_the_best(here, short_demo):
    document = run("demo", "--json", "-o", "best.json").json
    assert [line["planner"] for line in document["planners"]] == [*QUICK, "auto"]
    values = [line["value"] for line in document["planners"] if line["value"] is not None]
    assert document["best"]["value"] == min(values)
    assert document["best"]["plan"] == "best.json"
    assert document["best"].keys() >= PLAN_KEYS
