"""``cluster detect --measure``: what is asked for, refused and printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from placewright.cluster import Cluster, Device, Link, LinkMeasurement
from placewright.runtime import links
from tests.cli.running import Run, run

FOUND = Cluster(
    "this-machine",
    (Device("cpu0", "x", memory=1e9), Device("cpu1", "x", memory=1e9)),
    (
        Link("cpu0", "cpu1", 2e9, latency=3e-5, measured=LinkMeasurement("gloo", 0.04, 0.3)),
        Link("cpu0", "cpu1", 1e9),
    ),
    description="As told.",
)


def detect(*arguments: object) -> Run:
    return run("cluster", "detect", *arguments)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for work in ("measure_links", "measure_hosts"):
        monkeypatch.setattr(links, work, lambda *_, **__: pytest.fail("it worked"))
    monkeypatch.setattr("placewright.costs.detect.detect", lambda *_: pytest.fail("it worked"))


def test_links_are_measured_as_asked_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(links, "measure_links", lambda *a, **k: asked.append((a, k)) or FOUND)
    result = detect("--measure", "--split-cpu", 2, "--transport", "copy", "--timeout", 9, "-o", "m")
    assert result.code == 0
    [(given, named)] = asked
    assert given == (2, "copy") and named["timeout"] == 9
    assert Cluster.load("m") == FOUND


def test_the_errors_of_measured_links_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "measure_links", lambda *_, **__: FOUND)
    (row,) = [line for line in detect("--measure").out.splitlines() if "gloo" in line]
    for text in ("cpu0 – cpu1", "30.000 µs", "2.0 GB/s", "4.0%", "30.0%"):
        assert text in row
    document = detect("--measure", "--json").json
    assert document["links"][0]["measured"] == {
        "transport": "gloo",
        "median_error": 0.04,
        "largest_error": 0.3,
    }
    assert "measured" not in document["links"][1]
    FOUND.save("mine.yaml")
    assert "measured links" in run("cluster", "show", "mine.yaml").out


@pytest.mark.parametrize("node", [0, 1])
def test_node_0_alone_writes_what_all_hosts_found(
    monkeypatch: pytest.MonkeyPatch, node: int
) -> None:
    asked = []
    monkeypatch.setattr(links, "measure_hosts", lambda *a, **k: asked.append((a, k)) or FOUND)
    result = detect(
        *("--measure", "--rendezvous", "localhost:29500", "--nodes", 2, "--node", node),
        *("-o", "both.yaml", "--json"),
    )
    assert result.code == 0
    [((meeting, split), _)] = asked
    assert (meeting.address, meeting.port, meeting.nodes, meeting.node) == (
        "localhost",
        29500,
        2,
        node,
    )
    assert split is None
    assert Path("both.yaml").exists() == bool(result.out) == (node == 0)
    assert ("node 0 of 2 writes the cluster" in result.err) == (node == 1)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--transport copy", "--transport is for measuring links; add --measure"),
        ("--rendezvous localhost:1", "--rendezvous is for measuring links; add --measure"),
        ("--timeout 3", "--timeout is for measuring links; add --measure"),
        ("--measure --nodes 2", "--nodes is for hosts that meet; add --rendezvous"),
        ("--measure --interface lo", "--interface is for hosts that meet; add --rendezvous"),
        (
            "--measure --transport pigeon",
            "--transport is 'pigeon'; choose shared, gloo, thread, copy",
        ),
        ("--measure --timeout 0", "--timeout is 0; it must be above 0"),
        ("--measure --timeout nan", "--timeout is nan; it must be above 0"),
        (
            "--measure --transport copy --rendezvous localhost:1 --nodes 2 --node 0",
            "hosts share no memory; leave --transport copy out",
        ),
        ("--measure --rendezvous localhost:1", "a rendezvous needs --nodes"),
        ("--measure --rendezvous localhost --nodes 2 --node 0", "write HOST:PORT, or torchrun"),
    ],
)
def test_what_does_not_go_together_is_refused_before_any_work(options: str, complaint: str) -> None:
    result = detect(*options.split())
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("placewright: ") and complaint in result.err
    assert result.err.count("\n") == 1
