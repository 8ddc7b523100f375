"""Sweeps: lines, prices, the front, what fails and what is interrupted; tables and figures."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import signal
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from placewright.cluster import Cluster, Device, Link
from placewright.costs.clusters import load_cluster
from placewright.errors import (
    ClusterError,
    FormatError,
    InfeasibleError,
    MissingExtraError,
    OptionError,
)
from placewright.graph import GraphBuilder
from placewright.importers import load
from placewright.planners.latency.construct.simple import SingleDevice
from placewright.planning import plan
from placewright.report import sweep_figure as figures
from placewright.report import whatif as report
from placewright.serving.mix import Mix
from placewright.serving.planning import plan_request
from placewright.verify import verify
from placewright.whatif import sweep as module
from placewright.whatif.sweep import require_plan, sweep
from placewright.whatif.sweep_lines import SweepLine, with_certainty, with_front
from placewright.whatif.variants import Variant, parse_count, variants


def graph():
    """Two heavy ops that a small device cannot hold together."""
    builder = GraphBuilder("pair")
    a = builder.add_op("a", "op", flops=1e12, parameter_bytes=10e9)
    tensor = builder.add_tensor(a, 1e6)
    builder.add_op("b", "op", inputs=[tensor], flops=1e12, parameter_bytes=10e9)
    return builder.build()


def box(count: int) -> Cluster:
    devices = tuple(Device(f"gpu{k}", "T4", memory=16e9) for k in range(count))
    links = tuple(Link(f"gpu{k}", f"gpu{k + 1}", 12e9) for k in range(count - 1))
    return Cluster(f"box{count}", devices, links)


BOXES = [Variant(f"box{count}", box(count)) for count in (1, 2, 3)]


TINY = "zoo:llama-7b?layers=2&hidden=64&feedforward=96&heads=4&kv_heads=2&vocabulary=50"
MIX = Mix(8, 4)
PRICES = {"RTX 3090": 0.2, "RTX 4090": 0.4, "RTX 3060": 0.1}


# -- lines ---------------------------------------------------------------------------------------


def test_a_variant_without_a_plan_is_a_line_with_the_reason():
    one, two, three = sweep(graph(), BOXES)
    assert one.plan is None
    assert "18.6 GiB" in one.error  # two ops of 10 GB
    for line, count in ((two, 2), (three, 3)):
        assert line.plan is not None
        assert (line.devices, line.error, line.price) == (count, "", None)
        assert verify(line.plan).ok
    assert two.plan.source == "pair"


def test_a_variant_is_planned_as_plan_plans_it():
    line = sweep("zoo:gpt2?layers=2", [Variant("it", load_cluster("2x3090"))], planner="heft")[0]
    alone = plan("zoo:gpt2?layers=2", "2x3090", planner="heft")
    assert line.plan.value == alone.value
    assert line.plan.source == alone.source
    assert line.plan.planner == "heft"


def test_batches_are_judged_by_throughput():
    found = variants([load_cluster("2x3090")], batches=[1, 4])
    lines = sweep("zoo:gpt2?layers=1", found, objective="batch-throughput", planner="greedy")
    assert [line.plan.problem.options.batch for line in lines] == [1, 4]
    assert [line.score for line in lines] == [line.plan.throughput for line in lines]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"planner": "nonsense"}, "no planner 'nonsense'"),
        ({"planner_options": {"a": "b"}}, "planner 'auto' has no option 'a'"),
        ({"planner": "heft", "planner_options": {"a": "b"}}, "has no option 'a'"),
        ({"coarsening": "nonsense"}, "nonsense"),
        ({"contention": "nonsense"}, "contention is 'nonsense'"),
        ({"objective": "nonsense"}, "no objective 'nonsense'"),
        ({"pinned": {"c": "gpu0"}}, "cannot pin 'c'"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused_before_anything_is_planned(options, message, monkeypatch):
    monkeypatch.setattr(module, "make_plan", lambda *args, **kwargs: pytest.fail("planned"))
    with pytest.raises(OptionError, match=message):
        sweep(graph(), BOXES, **options)


def test_a_cluster_without_routes_is_refused():
    broken = Cluster("broken", (*box(2).devices,), ())
    with pytest.raises(ClusterError, match="no route from 'gpu0' to 'gpu1'"):
        sweep(graph(), [*BOXES, Variant("broken", broken)])


def test_a_sweep_without_any_plan_says_why():
    lines = sweep(graph(), BOXES[:1])
    with pytest.raises(InfeasibleError, match=r"no variant has a plan: .* needs"):
        require_plan(lines)


def test_progress_is_that_of_the_whole_sweep():
    seen = []
    sweep(graph(), BOXES[1:], on_progress=lambda what, done: seen.append((what, done)))
    shares = [done for _, done in seen]
    assert shares == sorted(shares)
    assert shares[0] >= 0.0 and shares[-1] <= 1.0
    assert {what.partition(":")[0] for what, _ in seen} == {"box2", "box3"}


# -- Ctrl-C --------------------------------------------------------------------------------------


def test_an_interrupt_leaves_what_is_done(monkeypatch):
    real, calls = module.make_plan, []

    def interrupted(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(module, "make_plan", interrupted)
    lines = sweep(graph(), [*BOXES[1:], BOXES[1]])
    assert [line.error for line in lines] == ["", "interrupted", "interrupted"]
    assert len(calls) == 2


def test_an_interrupt_that_a_planner_keeps_to_itself_ends_the_sweep_too(monkeypatch):
    def quiet(self, problem, *args):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return real(self, problem, *args)

    real = SingleDevice.plan
    monkeypatch.setattr(SingleDevice, "plan", quiet)
    before = signal.getsignal(signal.SIGINT)
    found = variants([load_cluster("2x3090")], [parse_count("RTX 3090=1..3")])
    lines = sweep("zoo:gpt2?layers=1", found, planner="single-device")
    assert [line.error for line in lines] == ["", "interrupted", "interrupted"]
    assert lines[0].plan is not None
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_before_there_is_anything_is_an_interrupt(monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "make_plan", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep(graph(), BOXES)


# -- prices and the front ------------------------------------------------------------------------


def test_a_price_is_that_of_all_devices_of_the_cluster():
    lines = sweep(graph(), BOXES[1:], prices={"tesla t4": 0.5})
    assert [line.price for line in lines] == [1.0, 1.5]


def test_a_device_without_a_price_and_a_price_without_a_device_are_refused():
    mixed = [Variant("mixed", load_cluster("a100+2xt4+cpu"))]
    with pytest.raises(OptionError, match=r"'A100 40GB' have no price; add --price"):
        sweep(graph(), mixed, prices={"T4": 0.5, "EPYC 7763": 0})
    with pytest.raises(OptionError, match="price for 'P4', but no device"):
        sweep(graph(), BOXES, prices={"T4": 1.0, "P4": 1.0})


def test_one_kind_has_one_price():
    with pytest.raises(OptionError, match="'T4' and 'tesla t4' are one kind of device; give one"):
        sweep(graph(), BOXES, prices={"T4": 1.0, "tesla t4": 2.0})


POINTS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1.0, 2.0, 3.0, None])), max_size=7)


@given(POINTS)
def test_the_front_is_what_no_other_beats(points):
    base = plan(graph(), box(2), planner="heft")
    lines = with_front(
        [
            SweepLine("", devices, None, None if value is None else replace(base, value=value))
            for devices, value in points
        ]
    )
    for line, (devices, value) in zip(lines, points, strict=True):
        better = [
            (d, v)
            for d, v in points
            if v is not None and value is not None
            and d <= devices and v <= value and (d < devices or v < value)
        ]  # fmt: skip
        assert line.front == (value is not None and not better)


def test_the_front_weighs_the_price_where_there_is_one():
    base = plan(graph(), box(2), planner="heft")
    cheap = SweepLine("cheap", 8, 1.0, replace(base, value=2.0))
    dear = SweepLine("dear", 2, 4.0, replace(base, value=2.0))
    assert [line.front for line in with_front([cheap, dear])] == [True, False]


# -- report --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lines():
    return sweep(graph(), BOXES, prices={"T4": 0.5})


def test_records_hold_every_variant(lines):
    records = report.sweep_records(lines)
    assert json.loads(json.dumps(records)) == records
    assert [record["variant"] for record in records] == ["box1", "box2", "box3"]
    assert records[0]["value"] is None and records[0]["error"]
    assert records[1]["price"] == 1.0
    assert records[1]["front"] and not records[0]["front"]
    assert records[1]["device_count"] == len(records[1]["devices"]) == 2


def test_a_figure_must_be_of_a_known_kind(tmp_path, lines):
    with pytest.raises(OptionError, match=r"name a file \.html or \.png"):
        figures.write_figure(lines, tmp_path / "out.jpg", "title")


@pytest.mark.parametrize("suffix", [".html", ".png"])
def test_a_figure_needs_the_extra(tmp_path, lines, suffix, monkeypatch):
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'placewright\[report\]'"):
        figures.write_figure(lines, tmp_path / f"out{suffix}", "title")
    assert not list(tmp_path.iterdir())


def test_records_say_what_is_proved_and_whose_plan_it_is(lines):
    two, three = lines[1:]
    certain = with_certainty([
        replace(two, name="slow"),
        replace(three, name="quick", plan=replace(three.plan, value=three.plan.lower_bound / 2,
                                                  lower_bound=0.0), carried="slow"),
    ])  # fmt: skip
    slow, quick = report.sweep_records(certain)
    assert (slow["better_than"], slow["than_previous"], slow["carried_from"]) == ([], None, None)
    assert quick["better_than"] == ["slow"]
    assert (quick["than_previous"], quick["carried_from"]) == ("better", "slow")
    assert "(of slow)" in shown(report.sweep_table(certain, "title"))
    legend = report.sweep_legend(certain)
    assert "better, worse: proved" in legend and "of …" in legend and "open" not in legend


def shown(table) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_the_bars_of_a_figure_go_from_the_value_to_the_bound(tmp_path, lines):
    """Of a latency downwards, of a rate upwards."""
    pytest.importorskip("plotly")
    counts = variants([load_cluster("2x3090")], [parse_count("RTX 3090=1,2")])
    rates = sweep("zoo:gpt2?layers=1", counts, objective="throughput", planner="greedy")
    for drawn, downwards in ((lines[1:], True), (rates, False)):
        dots, *_ = figures._dots(drawn)
        figures.write_figure(drawn, tmp_path / "out.html", "title")
        text = (tmp_path / "out.html").read_text("utf-8")
        bars = json.loads(re.search(r'"error_y":(\{.*?\})', text)[1])
        named = {name: decoded(bars[name]) for name in ("array", "arrayminus")}
        for k, dot in enumerate(dots):
            assert (dot.bound <= dot.y) == downwards or dot.bound == dot.y
            assert named["array"][k] == pytest.approx(max(dot.y - dot.bound, 0.0))
            assert named["arrayminus"][k] == pytest.approx(max(dot.bound - dot.y, 0.0))


def decoded(values) -> list[float]:
    """Numbers as plotly writes them: a list, or base 64 of an array."""
    if isinstance(values, list):
        return values
    return np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"]).tolist()


EVIL = "</script><script>alert(1)</script><b>$x_1$</b>"


def test_an_html_figure_escapes_names_and_needs_no_network(tmp_path, lines):
    pytest.importorskip("plotly")
    named = [replace(line, name=EVIL) for line in lines]
    figures.write_figure(named, tmp_path / "out.html", EVIL)
    text = (tmp_path / "out.html").read_text("utf-8")
    assert "alert(1)</script>" not in text
    assert "alert(1)" in text
    assert '<script src="http' not in text


def test_a_png_figure_is_a_picture_whatever_the_names(tmp_path, lines):
    pytest.importorskip("matplotlib")
    alike = [replace(line, name=EVIL + str(k), price=1.0) for k, line in enumerate(lines)]
    for name, chosen in (("apart.png", lines), ("beside.PNG", alike), ("none.png", [])):
        figures.write_figure(chosen, tmp_path / name, "$\\frac{")
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 3


def test_a_picture_that_cannot_be_written_is_said_so(tmp_path, lines):
    pytest.importorskip("matplotlib")
    with pytest.raises(FormatError, match="cannot be written"):
        figures.write_figure(lines, tmp_path / "missing" / "out.png", "title")


def test_imported_sources_are_taken_as_they_are():
    imported = load("zoo:gpt2?layers=1")
    line = sweep(imported, [Variant("it", load_cluster("2x3090"))], planner="met")[0]
    assert line.plan.source == "zoo:gpt2?layers=1"


# -- requests of a mix -----------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_requests_are_planned_as_plan_request_plans_them(objective):
    clusters = [load_cluster(name) for name in ("2x3090", "4090+3060")]
    lines = sweep(
        TINY, variants(clusters), mix=MIX, prices=PRICES, planner="greedy", objective=objective
    )
    for line, cluster in zip(lines, clusters, strict=True):
        alone = plan_request(TINY, cluster, MIX, planner="greedy", objective=objective)
        assert line.served is not None
        assert line.plan is line.served.plan
        assert verify(line.plan).ok
        assert line.served.tokens_per_second == alone.tokens_per_second
        hours = 1e6 / alone.tokens_per_second / 3600
        assert line.price_of_tokens == pytest.approx(line.price * hours)
    first, second = lines
    assert first.score == first.served.tokens_per_second
    records = report.sweep_records(lines)
    assert [each["price_of_tokens"] for each in records] == [
        first.price_of_tokens,
        second.price_of_tokens,
    ]
    assert records[0]["serving"]["tokens_per_second"] == first.served.tokens_per_second


def test_requests_on_too_little_memory_are_a_line_with_the_reason():
    lines = sweep("zoo:llama-13b", [Variant("box1", box(1))], mix=MIX, planner="greedy")
    assert lines[0].served is None
    assert lines[0].price_of_tokens is None
    assert "GiB" in lines[0].error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"training": True}, "--mix is for inference"),
        ({"objective": "batch-throughput"}, "--mix is for objectives latency and throughput"),
        ({"replicate": True, "objective": "throughput"}, "leave out --replicate"),
    ],
)
def test_what_a_mix_cannot_have_is_refused(options, message):
    with pytest.raises(OptionError, match=message):
        sweep(TINY, BOXES, mix=MIX, **options)


def test_variants_that_cost_alike_are_drawn_in_the_order_of_the_table():
    names = ["a, x0.5", "a, x1", "b, x0.5"]
    order = figures._order(names)
    assert order == {"categoryorder": "array", "categoryarray": names}
    assert figures._order([1.0, 2.0]) == {}
