"""What a notebook shows in place of a plan."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from placewright.objectives import OBJECTIVES
from placewright.report.html.answer import sentence
from tests.report.html.plans import plan_for, with_names

NAME = "<img src=x onerror=alert(1)></script><b>&amp;\"'"


class Found(HTMLParser):
    """The tags, the text, and what is left open."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.open: list[str] = []
        self.feed(content)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open.append(tag)
        assert {name for name, _ in attrs} <= {"style", "role", "aria-label", "scope"}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_plan_shows_the_top_of_its_report(objective):
    plan = plan_for(objective)
    found = Found(plan._repr_html_())
    assert found.open == []
    said = sentence(plan)
    for text in (
        plan.problem.name,
        said[1:],
        "Lower bound",
        "Gap",
        f"lanner {plan.planner}",
        plan.bound_source,
    ):
        assert text in found.text
    assert len(plan._repr_html_()) < 20_000


def test_it_needs_no_script_and_asks_for_nothing():
    content = plan_for("latency")._repr_html_()
    tags = Found(content).tags
    assert tags <= {"div", "bdi", "p", "table", "tr", "th", "td", "b", "ul", "li"}
    assert "url(" not in content and "//" not in content


def test_names_that_hold_html_are_shown_as_text():
    found = Found(with_names(NAME)._repr_html_())
    assert NAME in found.text
    assert not found.tags & {"img", "script"}


def test_a_long_name_is_cut():
    assert "x" * 201 not in with_names("x" * 10_000)._repr_html_().split("</bdi>")[0]
