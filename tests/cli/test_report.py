"""``placewright report``: what it writes, and the code it ends with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placewright.plan import Plan
from placewright.report.figures import writing
from placewright.solving import solve
from tests.builders import chain
from tests.cli.running import run
from tests.report.html.pages import Parts


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    solve(chain([1.0, 1.0], [10.0, 10.0]), "heft").save(path)
    return path


def test_it_writes_a_page_and_says_where(plan_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run("report", plan_file, "-o", page)
    assert (done.code, done.out) == (0, f"written to {page}\n")
    assert page.read_text("utf-8").startswith("<!doctype html>")


def test_a_wrong_plan_ends_with_4_and_leaves_no_page(plan_file: Path, tmp_path: Path) -> None:
    document = Plan.load(plan_file).to_document()
    plan_file.write_text(json.dumps(document | {"value": 0.5}), "utf-8")
    done = run("report", plan_file, "-o", tmp_path / "page.html")
    assert done.code == 4
    assert list(tmp_path.iterdir()) == [plan_file]


@pytest.mark.parametrize("missing", ["plan", "run", "folder"])
def test_what_is_not_there_is_named_and_ends_with_2(
    plan_file: Path, tmp_path: Path, missing: str
) -> None:
    plan = tmp_path / "none.json" if missing == "plan" else plan_file
    beside = ["--run", tmp_path / "none.json"] if missing == "run" else []
    folder = tmp_path / "none" if missing == "folder" else tmp_path
    done = run("report", plan, *beside, "-o", folder / "page.html")
    assert done.code == 2
    assert "none" in done.err
    assert list(tmp_path.iterdir()) == [plan_file]


def test_what_if_says_what_other_hardware_would_do(plan_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run("report", plan_file, "--what-if", 0.5, "-o", page)
    assert done.code == 0
    rows = Parts(page.read_text("utf-8")).data["plans"][0]["sensitivities"]["rows"]
    assert {row["kind"] for row in rows} >= {"memory", "device"}
    for row in rows:
        assert row["value"] is None or row["bound"] <= row["value"]


def test_what_if_without_time_ends_with_2_and_leaves_no_page(plan_file: Path, tmp_path: Path):
    done = run("report", plan_file, "--what-if", 0, "-o", tmp_path / "page.html")
    assert done.code == 2
    assert "seconds above 0" in done.err
    assert list(tmp_path.iterdir()) == [plan_file]


def test_with_neither_a_page_nor_figures_it_ends_with_2(plan_file: Path) -> None:
    done = run("report", plan_file)
    assert done.code == 2
    assert "--figures DIR" in done.err


def test_figures_without_matplotlib_end_with_2_and_name_the_extra(
    plan_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "find_spec", lambda name: None)
    done = run("report", plan_file, "--figures", tmp_path / "new", "-o", tmp_path / "page.html")
    assert done.code == 2
    assert "[figures]" in done.err
    assert list(tmp_path.iterdir()) == [plan_file]
