"""``sweep`` and ``replan``: what they print and write, and what they refuse."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import signal
from pathlib import Path

import pytest

from placewright.plan import Plan
from placewright.planners.latency.construct.simple import MTopo
from placewright.report import sweep_figure as figures
from placewright.report.fitted_table import NOTE
from placewright.verify import verify
from placewright.whatif import sweep as sweeping
from tests.cli.running import Run, run

GRAPH = {
    "format": "placewright.graph/1",
    "name": "four",
    "ops": {"name": ["a", "b", "c", "d"], "parameter_bytes": [8, 8, 8, 8]},
    "tensors": {
        "producer": [0, 1, 2],
        "bytes": [4, 4, 4],
        "consumers": [[1, 2], [3], [3]],
    },
    "times": {"fast": [1, 2, 2, 1], "slow": [2, 4, 4, 2]},
}
CLUSTER = """\
format: placewright.cluster/1
name: trio
devices:
  - {name: x, kind: fast, memory: 20}
  - {name: y, kind: fast, memory: 20}
  - {name: z, kind: slow, memory: 20}
links:
  - {between: [x, y], bandwidth: 4, latency: 0.5}
  - {between: [y, z], bandwidth: 4, latency: 0.5}
  - {between: [x, z], bandwidth: 4, latency: 0.5}
"""
MIX = ("--mix", "prompt=64,output=8")
PRICES = ("--price=RTX 3090=0.2", "--price=RTX 4090=0.35", "--price=RTX 3060=0.1")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with ``graph.json``, ``trio.yaml`` and ``duo.yaml`` (without z)."""
    monkeypatch.chdir(tmp_path)
    Path("graph.json").write_text(json.dumps(GRAPH))
    Path("trio.yaml").write_text(CLUSTER)
    lines = CLUSTER.replace("trio", "duo").splitlines(keepends=True)
    Path("duo.yaml").write_text("".join(line for line in lines if "z" not in line))
    return tmp_path


@pytest.fixture
def planned(here: Path) -> Path:
    """And ``plan.json``, a plan on all three."""
    assert run("plan", "graph.json", "-c", "trio.yaml", "-p", "heft", "-o", "plan.json").code == 0
    return here


def succeeded(result: Run) -> Run:
    assert (result.code, result.err) == (0, "")
    return result


def sweep(*more: object) -> Run:
    return run("sweep", "graph.json", *more)


def replan(*more: object) -> Run:
    return run("replan", "plan.json", *more)


# -- sweep ---------------------------------------------------------------------------------------


def test_a_sweep_for_an_engine_has_a_proved_plan_per_variant():
    asked = ("--clusters", "2x3090,4090+3060", "--for", "vllm", "--json")
    prices = [f"--price={kind}=0.1" for kind in ("RTX 3090", "RTX 4090", "RTX 3060")]
    mix = "--mix=prompt=64,output=8,batch=best"
    lines = run("sweep", "zoo:gpt2?layers=3", *asked, *prices, mix).json
    assert [line["status"] for line in lines] == ["optimal", "optimal"]
    for line in lines:
        rate = line["serving"]["tokens_per_second"]
        assert line["price_of_tokens"] == pytest.approx(line["price"] / 3600 / rate * 1e6)
    alone = run("sweep", "zoo:gpt2?layers=3", *asked).json
    plan = run("plan", "zoo:gpt2?layers=3", "-c", "2x3090", "--for", "vllm", "--json").json
    assert alone[0]["value"] == plan["value"]


def test_a_sweep_for_an_engine_says_why_a_variant_has_no_plan():
    asked = ("sweep", "zoo:llama-13b", "-c", "2x3090", "--count", "RTX 3090=1,2", "--for", "vllm")
    one, two = run(*asked, "--json").json
    assert one["value"] is None and "24.2 GiB" in one["error"] and two["value"] > 0
    refused(run(*asked, "-p", "heft"), "leave out -p")
    refused(run(*asked, "--time-limit", "3"), "and --time-limit")


@pytest.mark.parametrize(
    ("engine", "why"), [("nonesuch", "no engine"), ("csv", "takes any plan, so leave out --for")]
)
def test_an_engine_that_no_variant_can_be_planned_for_is_an_option_that_does_not_exist(engine, why):
    asked = ("sweep", "zoo:gpt2?layers=1", "--clusters", "2x3090,4090+3060", "--for", engine)
    found = run(*asked)
    refused(found, why)
    assert found.out == ""


def test_sweep_prints_a_line_per_cluster_and_marks_the_front(here):
    out = succeeded(sweep("--clusters", "duo.yaml,trio.yaml")).out
    for word in (
        "graph.json",
        "duo *",
        "trio",
        "devices",
        "lower bound",
        "gap",
        "no other variant",
    ):
        assert word in out
    assert "USD" not in out and "/s" not in out


def test_sweep_varies_a_cluster_in_every_way_at_once(here):
    records = succeeded(
        sweep("-c", "trio.yaml", "--count", "fast=2..3", "--bandwidth", "x-y=x1,x2", "--json")
    ).json
    assert [record["variant"] for record in records] == [
        "2 × fast, x-y x1", "2 × fast, x-y x2", "3 × fast, x-y x1", "3 × fast, x-y x2",
    ]  # fmt: skip
    assert [record["device_count"] for record in records] == [3, 3, 4, 4]
    assert records[1]["value"] <= records[0]["value"]
    assert all(record["lower_bound"] <= record["value"] for record in records)
    assert all(record["price"] is None for record in records)


def test_sweep_shows_prices_and_throughput_where_there_are_any(here):
    arguments = ("--batches", "1,4", "--price", "rtx 3090=2.25")
    out = succeeded(run("sweep", "zoo:gpt2?layers=1", "-c", "2x3090", *arguments)).out
    for word in ("USD/hour", "4.50", "samples/s", "batch 4", "the price"):
        assert word in out


def test_sweep_of_a_mix_says_what_tokens_cost(here):
    model = "zoo:llama-7b?layers=2&hidden=64&feedforward=96&heads=4&kv_heads=4&vocabulary=50"
    options = ("-p", "greedy", "--mix", "prompt=8,output=4", "--price", "RTX 3090=0.2")
    count = ("-c", "2x3090", "--count", "RTX 3090=1,2")
    out = succeeded(run("sweep", model, *count, *options)).out
    assert "USD/1M tokens" in out
    assert "better in tokens per second and the price" in out


def test_sweep_of_a_mix_without_devices_is_refused(here):
    mix = ("--mix", "prompt=8,output=4")
    refused(run("sweep", "zoo:gpt2", *mix, "--bandwidth", "x2"), "--mix needs devices")


def test_the_sweep_in_the_docs_prints_what_the_docs_say():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    example, *_ = re.findall(r"^placewright (sweep .*)$", page, re.MULTILINE)
    shown = page.partition("The first prints this")[2].split("```")[1].removeprefix("text\n")
    printed = succeeded(run(*shlex.split(example))).out
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()
    front = [line.split("│")[3] for line in shown.splitlines() if " * │" in line]
    assert len(set(front)) > 1  # it shows something


@pytest.mark.parametrize(
    "arguments",
    [
        ("sweep", "--clusters", "2x3090,4090+3060", *MIX),
        ("sweep", "--clusters", "2x3090,4090+3060", *MIX, *PRICES),
        ("sweep", "--clusters", "2x3090,4090+3060", *PRICES, "--batches", "1,4"),
        ("compare", "-c", "2x3090", *MIX),
        ("plan", "-c", "4090+3060", "-p", "heft", *MIX),
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[3:4]),
)
def test_tables_leave_out_columns_in_80_characters_and_cut_nothing(arguments, monkeypatch):
    command, *others = arguments
    if command == "sweep":
        others += ["-p", "heft"]
    monkeypatch.setattr("placewright.cli.output.PIPED_WIDTH", 80)
    narrow = succeeded(run(command, "zoo:gpt2?layers=2", *others)).out
    wide = succeeded(run(command, "zoo:gpt2?layers=2", *others, "--wide")).out
    rows = [line for line in narrow.splitlines() if line.startswith(("┃", "│"))]
    assert all(len(row) <= 80 and "…" not in row for row in rows)
    assert NOTE in narrow and NOTE not in wide
    columns = [
        [title.strip() for title in row.strip("┃").split("┃")]
        for row in (narrow.splitlines()[2], wide.splitlines()[2])
    ]
    assert set(columns[0]) < set(columns[1])
    lines = sum(line.startswith("│") for line in wide.splitlines())
    assert len(rows) == 1 + lines  # each on one line


def test_a_narrow_sweep_keeps_the_reason_of_a_variant_without_a_plan(here, monkeypatch):
    monkeypatch.setattr("placewright.cli.output.PIPED_WIDTH", 60)
    out = succeeded(sweep("-c", "duo.yaml", "--count", "fast=1,2")).out
    assert NOTE in out
    reasons = "".join(line.split("│")[-2].strip() + " " for line in out.splitlines() if "│" in line)
    assert "the model needs 32 B, the devices have 20 B" in " ".join(reasons.split())


def test_clusters_of_one_name_are_told_apart_by_their_files(here):
    Path("other").mkdir()
    for path in ("same.yaml", "other/same.yaml", "quick.yaml"):
        Path(path).write_text(CLUSTER)
    named = sweep("--clusters", "duo.yaml,quick.yaml,trio.yaml", "--json")
    assert [line["variant"] for line in named.json] == ["duo", "trio (quick)", "trio"]
    named = sweep("--clusters", "same.yaml,quick.yaml,other/same.yaml", "--json")
    assert [line["variant"] for line in named.json] == [
        "trio (same.yaml)", "trio (quick)", "trio (other/same.yaml)",
    ]  # fmt: skip


def test_sweep_json_holds_a_variant_without_a_plan_and_its_reason(here):
    result = succeeded(sweep("-c", "duo.yaml", "--count", "fast=1,2", "--json"))
    one, two = result.json
    assert (one["value"], one["status"], one["front"]) == (None, "unknown", False)
    assert "the model needs 32 B, the devices have 20 B" in one["error"]
    assert two["front"]


def test_sweep_without_any_plan_exits_3_and_still_prints_why(here):
    result = sweep("-c", "duo.yaml", "--count", "fast=1")
    assert result.code == 3
    assert "the model needs 32 B" in result.out
    assert result.err.startswith("placewright: no variant has a plan: the model needs 32 B")


def test_sweep_takes_the_cluster_that_a_workload_brings(workloads):
    path = workloads / "tarnawski" / "throughput" / "layer_bert24_inference.json"
    arguments = ("--objective", "throughput", "-p", "greedy", "--bandwidth", "x1,x2", "--json")
    one, two = succeeded(run("sweep", path, *arguments)).json
    assert one["objective"] == "throughput"
    assert one["device_count"] == len(one["devices"])
    assert two["value"] <= one["value"]


def test_an_interrupted_sweep_prints_what_is_done(here, monkeypatch):
    real, calls = sweeping.make_plan, []

    def interrupted(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(sweeping, "make_plan", interrupted)
    result = sweep("-c", "trio.yaml", "--count", "fast=2,3,4")
    assert result.code == 0
    assert result.err == "placewright: interrupted with 2 of 3 variants left\n"
    assert result.out.count("interrupted") == 2


@pytest.mark.parametrize(("suffix", "library"), [("html", "plotly"), ("png", "matplotlib")])
def test_sweep_draws_a_figure(here, suffix, library):
    pytest.importorskip(library)
    succeeded(sweep("--clusters", "duo.yaml,trio.yaml", "--figure", f"out.{suffix}"))
    assert (here / f"out.{suffix}").stat().st_size > 1000


def refused(result: Run, *fragments: str, code: int = 2) -> None:
    assert (result.code, result.out) == (code, ""), result.err
    assert result.err.startswith("placewright: ")
    assert len(result.err.splitlines()) == 1
    for fragment in fragments:
        assert fragment in result.err


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ((), "nothing varies; give --clusters, --count, --bandwidth or --batches"),
        (("-c", "trio.yaml"), "nothing varies"),
        (("-c", "a", "--clusters", "b"), "--cluster and --clusters are both given"),
        (("--count", "fast=1"), "has no devices of its own; name clusters"),
        (("--clusters", "trio.yaml,none.yaml"), "no cluster file or preset 'none.yaml'"),
        (("--clusters", "trio.yaml,"), "--clusters trio.yaml,: one of the names is empty"),
        (("--clusters", "2x3090,2X3090"), "--clusters has '2X3090' twice; name each preset"),
        (("--clusters", "trio.yaml,./trio.yaml"), "--clusters has './trio.yaml' twice"),
        (("-c", "trio.yaml", "--count", "fast"), "--count fast: write it as KIND=1..8"),
        (("-c", "trio.yaml", "--count", "gpu=1"), "no device of kind 'gpu' (it has fast, slow)"),
        (("-c", "trio.yaml", "--bandwidth", "quick"), "'quick' is no bandwidth above 0"),
        (("-c", "trio.yaml", "--bandwidth", "q=x2"), "cluster 'trio' has no link 'q'"),
        (("-c", "trio.yaml", "--batches", "0"), "--batches 0: write whole numbers above 0"),
        (("-c", "trio.yaml", "--batches", "1", "--batch", "2"), "--batch and --batches are both"),
        (
            ("-c", "trio.yaml", "--batches", "1", "--objective", "latency"),
            "--batches belongs to objective batch-throughput, not to latency",
        ),
        (("--clusters", "trio.yaml", "--price", "fast"), "--price fast: write it as NAME=VALUE"),
        (("--clusters", "trio.yaml", "--price", "fast=free"), "--price fast=free: give USD"),
        (("--clusters", "trio.yaml", "--price", "fast=-1"), "--price fast=-1: give USD"),
        (("--clusters", "trio.yaml", "--price", "fast=1"), "kind 'slow' have no price"),
        (("--clusters", "trio.yaml", "--price", "gpu=1"), "price for 'gpu', but no device"),
        (("--clusters", "trio.yaml", "-p", "none"), "no planner 'none'"),
        (("--clusters", "trio.yaml", "--contention", "none "), "contention is 'none '"),
        (("--clusters", "trio.yaml", "--figure", "out.gif"), "out.gif: no kind of figure"),
        (("--clusters", "trio.yaml", "--figure", "no/out.png"), "there is no directory no"),
        (("--clusters", "trio.yaml", "--count", "fast=0..1023", "--count", "slow=0..9"), "10240"),
    ],
    ids=str,
)
def test_sweep_refuses_bad_input_with_one_sentence(here, arguments, fragment):
    refused(sweep(*arguments), fragment)


def test_a_figure_without_its_extra_is_refused_before_planning(here, monkeypatch):
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    refused(sweep("--clusters", "trio.yaml", "--figure", "out.png"), "placewright[report]")


# -- replan --------------------------------------------------------------------------------------


def test_replan_prints_the_answers_and_the_chosen_plan(planned):
    out = succeeded(replan("--lost", "z", "-o", "new.json")).out
    for word in ("without z", "repair", "moved", "latency", "planner", "written to new.json"):
        assert word in out
    new = Plan.load("new.json")
    assert new.problem.device_names == ("x", "y")
    assert new.source == "graph.json"
    assert verify(new).ok
    assert run("verify", "new.json").code == 0


def test_replan_says_where_routes_went_over_a_lost_device(planned):
    assert run("plan", "zoo:gpt2?layers=1", "-c", "a100+2xt4+cpu", "-o", "plan.json").code == 0
    result = replan("--lost", "cpu", "-p", "heft")
    assert result.code == 0
    assert result.err == (
        "placewright: routes between other devices went over 'cpu' and are kept; "
        "if they are gone, give --cluster\n"
    )
    assert replan("--lost", "t4-0", "-p", "heft").err == ""


def test_replan_json_holds_every_answer(planned):
    lost = next(name for name in ("y", "x") if name in Plan.load("plan.json").device_of().values())
    record = succeeded(replan("--lost", lost, "--json", "-o", "new.json")).json
    assert record["chosen"]["plan"] == "new.json"
    assert record["chosen"]["value"] == Plan.load("new.json").value
    moved = [point["moved_bytes"] for point in record["points"]]
    assert moved == sorted(moved)
    assert moved[0] >= record["forced_bytes"] > 0
    assert record["total_bytes"] == 32
    assert sum(point["chosen"] for point in record["points"]) == 1


def test_replan_on_another_cluster_reads_the_source_again(planned):
    record = succeeded(replan("-c", "duo.yaml", "--json", "-p", "heft")).json
    assert [device["name"] for device in record["chosen"]["devices"]] == ["x", "y"]
    lost = succeeded(replan("--lost", "z", "--json", "-p", "heft")).json
    assert record["chosen"]["value"] == lost["chosen"]["value"]
    Path("graph.json").write_text(json.dumps(GRAPH | {"name": "same"}))
    assert replan("-c", "duo.yaml", "-p", "heft").code == 0
    Path("graph.json").write_text(json.dumps(GRAPH | {"ops": GRAPH["ops"] | {"name": [*"abce"]}}))
    refused(replan("-c", "duo.yaml"), "graph.json is not what the plan was made from")


@pytest.mark.parametrize(
    ("arguments", "fragment", "code"),
    [
        ((), "give either --lost DEVICE or --cluster", 2),
        (("--lost", "x", "-c", "duo.yaml"), "--lost and --cluster are two ways to say", 2),
        (("--lost", "w"), "no device 'w' to lose; the plan has x, y, z", 2),
        (("-c", "none"), "no cluster file or preset 'none'", 2),
        (("--lost", "z", "--max-move", "much"), "--max-move: 'much' is no amount of memory", 2),
        (("--lost", "z", "-p", "none"), "no planner 'none'", 2),
        (("--lost", "z", "--keep", "inf"), "--keep is inf", 2),
        (("--lost", "x", "--lost", "y"), "the model needs 32 B, the devices have 20 B", 3),
        (("--lost", "x", "--max-move", "0"), "have to move, and --max-move allows 0 B", 3),
    ],
    ids=str,
)
def test_replan_refuses_bad_input_with_one_sentence(planned, arguments, fragment, code):
    refused(replan(*arguments), fragment, code=code)


def test_replan_takes_pipelines(here):
    options = ("--objective", "throughput", "-p", "row-cuts", "-o", "plan.json")
    assert run("plan", "graph.json", "-c", "trio.yaml", *options).code == 0
    lost = next(name for name in ("y", "x") if name in Plan.load("plan.json").device_of().values())
    result = succeeded(replan("--lost", lost, "-p", "row-cuts", "-o", "new.json"))
    assert "time per" in result.out and "latency" not in result.out.partition("device ")[0]
    new = Plan.load("new.json")
    assert lost not in new.problem.device_names
    assert verify(new).ok
    elsewhere = succeeded(replan("-c", "duo.yaml", "-p", "row-cuts", "--json")).json
    assert {device["name"] for device in elsewhere["chosen"]["devices"]} == {"x", "y"}
    record = succeeded(replan("--lost", lost, "-p", "row-cuts", "--json")).json
    assert record["chosen"]["objective"] == "throughput"
    assert record["chosen"]["moved_bytes"] >= record["forced_bytes"] > 0


def test_replan_refuses_what_is_no_plan_or_one_for_another_objective(here):
    refused(run("replan", "none.json", "--lost", "x"), "none.json: no such file")
    refused(run("replan", "graph.json", "--lost", "x"), "expected 'placewright.plan/1'")
    options = ("--objective", "batch-throughput", "-p", "greedy", "-o", "plan.json")
    run("plan", "graph.json", "-c", "trio.yaml", *options)
    refused(replan("--lost", "x"), "objectives latency and throughput, not for batch-throughput")


def test_replan_judges_the_plan_first(planned):
    document = json.loads(Path("plan.json").read_text())
    document["placement"] = [9] * 4
    Path("plan.json").write_text(json.dumps(document))
    refused(replan("--lost", "z"), "device 9", code=4)


def test_replan_believes_no_pin_of_a_plan_that_does_not_hold(planned):
    document = json.loads(Path("plan.json").read_text())
    document["value"] /= 2
    document["problem"]["ops"]["pinned"] = document["placement"]
    Path("plan.json").write_text(json.dumps(document))
    lost = document["problem"]["devices"]["name"][document["placement"][0]]
    refused(replan("--lost", lost), "the plan is wrong: the value", code=4)


@pytest.mark.parametrize("command", ["sweep", "replan"])
def test_both_commands_have_help(command):
    assert f"Usage: placewright {command}" in succeeded(run(command, "--help")).out


# -- plan --cost-noise --robust --------------------------------------------------------------


def test_a_robust_plan_is_reported_beside_what_it_started_from(here):
    command = ("plan", "graph.json", "-c", "trio.yaml", "-p", "heft", "--cost-noise", "0.3")
    words = (*command, "--robust", "--time-limit", "2", "-o", "robust.json")
    found = succeeded(run(*words, "--json")).json
    assert found["p95"] <= found["before"]["p95"]
    assert found["cost_noise"] == 0.3
    assert verify(Plan.load("robust.json")).ok
    assert "robust: " in succeeded(run(*words)).out


def test_an_interrupt_while_planning_ends_a_robust_plan_too(here, monkeypatch):
    def interrupted(self, problem, *args):
        with contextlib.suppress(KeyboardInterrupt):  # as planners do that have something
            signal.raise_signal(signal.SIGINT)
        return real(self, problem, *args)

    real = MTopo.plan
    monkeypatch.setattr(MTopo, "plan", interrupted)
    before = signal.getsignal(signal.SIGINT)
    words = ("plan", "graph.json", "-c", "trio.yaml", "-p", "m-topo")
    found = run(*words, "--cost-noise", "0.2", "--robust", "-o", "plan.json")
    assert found.code == 0
    assert "interrupted before a more robust plan was looked for" in found.err
    assert "robust: " not in found.out
    assert verify(Plan.load("plan.json")).ok
    assert signal.getsignal(signal.SIGINT) is before


def test_robust_without_a_noise_is_refused(here):
    refused = run("plan", "graph.json", "-c", "trio.yaml", "--robust")
    assert refused.code == 2
    assert "--robust needs --cost-noise" in refused.err


def test_a_sweep_for_an_engine_has_steps_of_micro_batches():
    made = run(
        "sweep", "zoo:llama-7b?layers=4&batch=2&context=512", "--training", "--for", "megatron",
        "--micro-batches", "4", "--data-parallel", "best", "--count", "A100 80GB=2,4",
        "--clusters", "8xA100", "--json",
    )  # fmt: skip
    lines = json.loads(made.out)
    assert len(lines) == 2
    for line in lines:
        assert line["options"]["micro_batches"] == 4
        assert line["options"]["data_parallel"] > 1 and line["gap"] < 1e-4
