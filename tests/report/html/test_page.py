"""The page as a file: it holds all it needs, and nothing in a plan becomes a part of it."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

import placewright
from placewright.errors import FormatError, InputError, VerificationError
from placewright.objectives import OBJECTIVES
from tests.report.html.pages import Parts, names, written
from tests.report.html.plans import plan_for, with_names

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"'><svg onload='alert(1)'>",
    "<!--<script>",
    "a\u2028b\u2029c&amp;",
    "אופ ראשון \u202e gnp.exe",
    "x" * 10_000,
    "😀 one",
    "😀 two",
    "{{data}} ${1} `",
)


def digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_names_that_are_html_stay_names(tmp_path):
    plan = with_names(*HOSTILE)
    page = written(tmp_path, plan)
    plain = written(tmp_path, plan_for("latency"))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert names(page.data["models"][0]["ops"]) == list(plan.problem.op_names)
    assert page.texts["title"] == [plan.problem.name]
    assert page.data["plans"][0]["devices"]["rows"][0]["name"] == HOSTILE[0]


def test_the_policy_allows_the_style_and_the_script_of_the_page_alone(tmp_path):
    page = written(tmp_path, plan_for("latency"))
    [style], [_, script] = page.texts["style"], page.texts["script"]
    assert page.policy == (
        f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_the_policy_comes_before_what_it_governs(tmp_path):
    tags = [tag for tag, _ in written(tmp_path, plan_for("latency")).tags]
    assert tags.index("meta") < tags.index("style") < tags.index("script")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_page_refers_to_nothing_outside_it(tmp_path, objective):
    page = written(tmp_path, plan_for(objective))
    for _, attributes in page.tags:
        assert not {"src", "href", "srcset", "action"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    for text in (*page.texts["style"], page.texts["script"][1]):
        assert not re.search(r"https?:|url\(|@import|\bfetch\(|XMLHttp|\bimport\b|innerHTML", text)


def test_a_page_is_the_same_each_time(tmp_path):
    first, second = tmp_path / "first.html", tmp_path / "second.html"
    placewright.report(plan_for("latency"), first)
    placewright.report([plan_for("latency")], second)
    assert first.read_bytes() == second.read_bytes()


def test_plan_files_serve_as_well_as_plans(tmp_path):
    plan_for("latency").save(tmp_path / "plan.json")
    placewright.report(tmp_path / "plan.json", tmp_path / "page.html")
    page = Parts((tmp_path / "page.html").read_text("utf-8"))
    assert page.data["plans"][0]["answer"]["value"] == plan_for("latency").value


def test_a_page_of_a_13b_model_is_small(tmp_path):
    plan = placewright.plan(
        "zoo:llama-13b?phase=decode&context=512", "4090+3060", planner="memory-fill"
    )
    placewright.report(plan, tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 1_000_000


@pytest.mark.parametrize("count", [0, 13])
def test_no_plan_and_too_many_are_refused(tmp_path, count):
    with pytest.raises(InputError, match=f"of 1 to 12 plans, not of {count}"):
        placewright.report([plan_for("latency")] * count, tmp_path / "page.html")


def test_a_plan_that_is_wrong_is_not_shown(tmp_path):
    document = plan_for("latency").to_document()
    document["value"] /= 2
    wrong = placewright.Plan.from_document(document)
    with pytest.raises(VerificationError):
        placewright.report(wrong, tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_plan_is_named(tmp_path):
    (tmp_path / "other.json").write_text("{}", "utf-8")
    with pytest.raises(FormatError, match=r"other\.json"):
        placewright.report(tmp_path / "other.json", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
