"""Pages in a browser: they draw, answer to pointer and keyboard, ask for nothing, read aloud.

Skipped without playwright (``pip install playwright``) or Chromium; the checks of accessibility
also without axe-core, whose ``axe.min.js`` the variable AXE_CORE names.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placewright
from placewright.objectives import OBJECTIVES
from placewright.plan import History
from placewright.solving import solve
from tests.builders import chain
from tests.report.html.plans import plan_for, plan_for_steps, with_names

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("there is no chromium on this machine", allow_module_level=True)
AXE = os.environ.get("AXE_CORE", "")
CANVASES = "[...document.querySelectorAll('main canvas')].map((each) => each.clientWidth)"
WIDE, NARROW = {"width": 1360, "height": 900}, {"width": 400, "height": 850}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--headless"]
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def shown(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """`shown(*plans, …)` opens their page; afterwards nothing was logged, nothing asked for."""
    said: list[str] = []
    asked: list[str] = []
    contexts = []

    def open_page(
        *plans: placewright.Plan, scheme: str = "light", size: Any = WIDE, what_if: Any = None
    ) -> Any:
        path = tmp_path / "page.html"
        placewright.report(plans, path, what_if=what_if)
        context = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=bool(AXE))
        context.set_offline(True)
        contexts.append(context)
        context.on("request", lambda request: asked.append(request.url))
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        assert asked == [path.as_uri()]
        return page

    yield open_page
    assert said == []
    assert set(asked) <= {(tmp_path / "page.html").as_uri()}
    for context in contexts:
        context.close()


def at(page: Any, plan: placewright.Plan, op: int) -> dict[str, float]:
    """The middle of an op on a timeline that shows all: pixels from the corner of the stage."""
    box = page.locator(".stage").bounding_box()
    schedule = plan.schedule
    middle = (schedule.op_start[op] + schedule.op_finish[op]) / 2 / plan.value
    labels = page.locator(".tracks .label").all_inner_texts()
    name = plan.problem.device_names[plan.placement.device[op]]
    row = [each.strip() for each in labels].index(name)
    return {"x": box["width"] * middle, "y": 26 * row + 12}


def longest_op(plan: placewright.Plan) -> int:
    return int((plan.schedule.op_finish - plan.schedule.op_start).argmax())


def grave_violations(page: Any) -> list[tuple[str, str]]:
    """What axe-core finds that is serious or critical: the rule, and the first place."""
    page.add_script_tag(content=Path(AXE).read_text("utf-8"))
    found = page.evaluate("axe.run().then((found) => found.violations)")
    grave = [each for each in found if each["impact"] in ("serious", "critical")]
    return [(each["id"], each["nodes"][0]["html"][:200]) for each in grave]


def shown_span(page: Any) -> str:
    """The overview, on which the stretch in sight is drawn."""
    page.wait_for_timeout(100)
    text: str = page.evaluate("document.querySelector('.overview').toDataURL()")
    return text


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_page_of_any_objective_draws_all_its_parts(shown, objective):
    page = shown(plan_for(objective))
    parts = [each.get_attribute("id") for each in page.locator("main > section").all()]
    own = {
        "latency": ["timeline", "devices", "memory"],
        "throughput": ["loads", "devices"],
        "invocation-latency": ["timeline", "subgraphs", "devices"],
        "batch-throughput": ["timeline", "devices"],
    }[objective]
    assert parts == ["answer", *own, "model"]


def test_a_step_has_a_timeline_whose_passes_say_what_they_are(shown):
    plan = plan_for_steps()
    page = shown(plan)
    parts = [each.get_attribute("id") for each in page.locator("main > section").all()]
    assert parts == ["answer", "timeline", "loads", "devices", "model"]
    assert "their numbers are micro-batches" in page.locator("#timeline").inner_text()
    page.locator(".stage").focus()
    page.keyboard.press("n")
    told = page.locator("#timeline [role=status]").inner_text()
    device = plan.problem.device_names[plan.placement.row[0]]
    assert told.startswith(f"forward pass of micro-batch 1, device {device}, start 0")
    op = plan.problem.op_names[plan.device_ops[plan.placement.row[-1]][0]]
    page.locator("input[type=search]").fill(op)
    page.keyboard.press("Enter")
    told = page.locator("#timeline [role=status]").inner_text()
    assert plan.problem.device_names[plan.placement.row[-1]] in told


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_how_planning_went_and_what_other_hardware_would_do_are_drawn(shown, size):
    plan = solve(chain([6.0, 6.0], [6.0, 80.0], tensor_bytes=1.0), "heft")
    history = History([0.01, 0.1, 2.0], [np.inf, 9.0, plan.value], [0.5, 0.5, 1.0])
    page = shown(replace(plan, history=history), size=size, what_if=0.4)
    parts = [each.get_attribute("id") for each in page.locator("main > section").all()]
    assert parts[3:6] == ["memory", "convergence", "sensitivities"]
    page.locator("#convergence canvas").hover()
    assert "9.000 s" in page.locator("#convergence .tip").inner_text()
    rows = page.locator("#sensitivities tbody tr").all_inner_texts()
    assert rows[0].startswith("1 GiB more on x")
    assert any("needs 12 B" in row for row in rows)
    assert page.evaluate("document.documentElement.scrollWidth") == size["width"]


def test_hovering_an_op_shows_its_name_device_and_times(shown):
    plan = plan_for("latency")
    page = shown(plan)
    op = longest_op(plan)
    page.locator(".stage").hover(position=at(page, plan, op))
    text = page.locator(".timeline .tip").inner_text()
    problem = plan.problem
    assert problem.op_names[op] in text
    assert problem.device_names[plan.placement.device[op]] in text
    for what in ("start", "end", "takes"):
        assert what in text


def test_a_search_finds_an_op_and_shows_it(shown):
    plan = plan_for("latency")
    page = shown(plan)
    name = plan.problem.op_names[-1]
    page.get_by_label("Find an op by name").fill(name.upper())
    assert page.locator(".hits li").first.inner_text() == name
    page.keyboard.press("Enter")
    assert name in page.locator(".timeline .tip").inner_text()
    assert "1 of" in page.locator(".search-count").inner_text()


def test_the_wheel_zooms_and_all_shows_all_again(shown):
    plan = plan_for("latency")
    page = shown(plan)
    whole = shown_span(page)
    page.locator(".stage").hover(position=at(page, plan, longest_op(plan)))
    page.mouse.wheel(0, -400)
    assert shown_span(page) != whole
    page.get_by_label("Show all of it").click()
    assert shown_span(page) == whole


def test_the_keyboard_zooms_moves_and_selects(shown):
    plan = plan_for("latency")
    page = shown(plan)
    whole = shown_span(page)
    page.locator(".stage").focus()
    page.keyboard.press("+")
    closer = shown_span(page)
    page.keyboard.press("ArrowRight")
    assert len({whole, closer, shown_span(page)}) == 3
    page.keyboard.press("0")
    page.keyboard.press("n")
    assert plan.problem.op_names[0] in page.locator(".timeline [role=status]").inner_text()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"


def test_a_block_opens_into_modules_and_ops_and_closes(shown):
    page = shown(plan_for("latency"))
    block = page.locator("details.block").filter(has_text="blocks.0").first
    block.locator("> summary").click()
    module = block.locator("details.module").first
    module.wait_for(state="visible")
    assert block.locator("details.module").count() > 1
    module.locator("> summary").press("Enter")
    module.locator(".op").first.wait_for(state="visible")
    block.locator("> summary").click()
    module.wait_for(state="hidden")


def test_an_op_of_a_block_leads_to_the_timeline(shown):
    page = shown(plan_for("latency"))
    block = page.locator("details.block").last
    block.locator("> summary").click()
    for module in block.locator("details.module > summary").all():
        module.click()
    button = block.locator(".op button").first
    name = button.locator("bdi").get_attribute("title")
    button.click()
    assert name in page.locator(".timeline .tip").inner_text()


def test_names_that_are_html_are_shown_as_text(shown):
    name = "<img src=x onerror=alert(1)></script><b>"
    page = shown(with_names(name, "x" * 10_000, "אופ \u202e"))
    assert page.locator("main img, main b").count() == 0
    assert name in page.locator("h1").inner_text()


@pytest.mark.parametrize(
    "name", ["x" * 10_000, "<img src=x onerror=alert(1)></script>" * 3, "אופ" * 90]
)
def test_long_names_fit_a_narrow_window(shown, name):
    page = shown(with_names(name), size=NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]


def test_several_plans_are_compared_and_each_can_be_shown(shown):
    one = solve(plan_for("latency").problem, "single-device")
    page = shown(one, solve(one.problem, "heft"), one, plan_for("throughput"))
    assert page.locator("#comparison tbody").first.locator("tr").count() == 4
    page.locator(".tab").nth(3).click()
    assert page.locator("main #loads").count() == 1
    page.locator(".tab").nth(0).click()
    assert page.locator("main #timeline").count() == 1


def test_plans_that_are_equally_good_are_all_the_best(shown):
    one = solve(plan_for("latency").problem, "single-device")
    worse = solve(one.problem, "m-etf")
    rounded = replace(one, value=one.value * (1 + 1e-12))
    page = shown(one, rounded, worse)
    best = page.locator("#comparison tr.best")
    assert best.count() == 2


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_page_fits_a_narrow_window(shown, objective):
    page = shown(plan_for(objective), size=NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]


def test_the_button_goes_from_light_to_dark_and_back(shown):
    page = shown(plan_for("latency"))
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(ground) != light
    page.get_by_role("button", name="Light").click()
    assert page.evaluate(ground) == light


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_printed_light_and_no_wider_than_the_sheet(shown, scheme):
    plan = plan_for("latency")
    history = History([0.01, 2.0], [np.inf, plan.value], [0.5, plan.lower_bound])
    page = shown(replace(plan, history=history), scheme=scheme)
    before = page.evaluate(CANVASES)
    page.emulate_media(media="print", color_scheme=scheme)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    printed = page.evaluate(CANVASES)
    assert len(printed) == len(before) > 4
    assert max(printed) <= 700 < max(before)
    ink = page.evaluate("getComputedStyle(document.querySelector('.sentence')).color")
    assert ink == "rgb(20, 24, 31)"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen", color_scheme=scheme)
    page.wait_for_timeout(200)
    assert page.evaluate(CANVASES) == before
    assert page.evaluate("document.documentElement.dataset.theme") is None


def test_what_crosses_is_told_with_its_bytes(shown):
    plan = plan_for("latency")
    page = shown(plan)
    sender = page.locator("details.block").filter(has_text="out ").first
    name = sender.locator("> summary .name").first.get_attribute("title")
    blocks = page.locator("details.block > summary > .name").all()
    number = [each.get_attribute("title") for each in blocks].index(name)
    canvas = page.locator(".map-canvas")
    width = canvas.bounding_box()["width"]
    told = ""
    for row in range(len(plan.used_devices)):
        place = {"x": width * (number + 0.5) / len(blocks), "y": 30 * row + 15}
        canvas.hover(position=place)
        told += page.locator(".map .tip").inner_text()
    assert name in told
    assert "to " in told
    assert any(f" {unit}" in told for unit in ("KiB", "MiB"))


def test_what_a_screen_reader_says_has_the_answer_the_slices_and_the_figures(shown):
    plan = plan_for("latency")
    page = shown(plan)
    read = page.locator("body").aria_snapshot()
    assert f'heading "{plan.problem.name}" [level=1]' in read
    assert "lower bound" in read
    assert "slices on" in read
    assert 'table "Devices"' in read
    assert "takes" in read
    assert "keeps" in read
    heads = page.locator("h1, h2").evaluate_all("all => all.map((each) => each.tagName)")
    assert heads[0] == "H1"


@pytest.mark.skipif(not AXE, reason="AXE_CORE names no axe.min.js")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_page_is_accessible(shown, objective, scheme):
    plan = plan_for(objective)
    page = shown(plan, plan, scheme=scheme)
    for each in page.locator("main details > summary").all()[:4]:
        each.click()
    assert grave_violations(page) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "cluster", "training", "least_ops", "seconds", "bytes_at_most"),
    [
        ("zoo:gpt3-13b", "4090+3060", False, 19_000, 3.0, 5e6),
        ("zoo:gpt3-2.7b?granularity=head&layers=51&batch=2", "8xA100", True, 50_000, 6.0, 6e6),
    ],
    ids=["13B", "50,000 ops"],
)
def test_a_large_page_answers_soon(
    shown, tmp_path, source, cluster, training, least_ops, seconds, bytes_at_most
):
    plan = placewright.plan(source, cluster, planner="heft", training=training)
    assert plan.problem.op_count > least_ops
    page = shown(plan)
    assert (tmp_path / "page.html").stat().st_size <= bytes_at_most
    began = time.monotonic()
    page.reload()
    page.wait_for_selector("html[data-ready]")
    page.locator(".stage").hover(position=at(page, plan, longest_op(plan)))
    assert page.locator(".timeline .tip").is_visible()
    took = time.monotonic() - began
    print(f"{plan.problem.name}: answers after {took:.2f} s")
    assert took <= seconds
    page.get_by_label("Find an op by name").fill(plan.problem.op_names[-1])
    assert page.locator(".hits li").count() >= 1
    if AXE:
        assert grave_violations(page) == []
