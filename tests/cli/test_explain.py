"""``placewright explain``: what it prints, and the code it ends with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from placewright.plan import Plan
from placewright.report.explain import move_words
from placewright.solving import solve
from placewright.whatif.explain.moved import Move
from tests.builders import chain
from tests.cli.running import run
from tests.report.html.plans import QUICK, plan_for, with_names


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    solve(chain([6.0, 6.0], [6.0, 8.0], tensor_bytes=1.0), "heft").save(path)
    return path


def test_it_says_where_an_op_is_what_forbids_other_places_and_what_it_waits_for(plan_file):
    done = run("explain", plan_file, "o1")
    assert done.code == 0
    assert "op o1 is on" in done.out
    assert "on the critical path" in done.out
    assert "lacks 4 B" in done.out or "lacks 6 B" in done.out
    assert "transfer of o0" in done.out


def test_of_a_device_it_says_load_memory_and_life_without_it(plan_file):
    done = run("explain", plan_file, "y")
    assert done.code == 0
    for words in ("1 op, busy", "memory 6 B of 8 B", "without y"):
        assert words in done.out


@pytest.mark.parametrize(
    ("change", "computing", "transferring", "words"),
    [
        (-0.1, -1e-12, -0.2, "better: transfers take 200.000 ms less"),
        (-0.1, -1e-12, 0.0, "better; 'improve' looks for more"),
        (0.1, -0.2, 1e-12, "ops wait for y"),
        (0.1, 0.2, 1e-12, "computing takes 200.000 ms more"),
    ],
)
def test_rounding_is_no_reason(change, computing, transferring, words):
    plan = replace(solve(chain([1.0], [8.0, 8.0]), "heft"), value=1.0)
    move = Move("o0", np.array([0]), 1, None, 1 + change, change, computing, transferring)
    assert move_words(plan, move) == words


@pytest.mark.parametrize("objective", QUICK)
def test_its_json_has_the_same_keys_for_every_objective(objective, tmp_path):
    plan = plan_for(objective)
    plan.save(tmp_path / "plan.json")
    place = run("explain", tmp_path / "plan.json", plan.problem.op_names[0], "--json").json
    assert set(place) == {
        "kind", "name", "objective", "value", "ops", "together", "devices", "critical", "busiest",
        "moves", "parted", "ties", "chain",
    }  # fmt: skip
    device = run("explain", tmp_path / "plan.json", plan.problem.device_names[0], "--json").json
    assert {"load", "idle", "waits", "memory", "capacity", "without", "leaving"} <= set(device)
    text = run("explain", tmp_path / "plan.json", plan.problem.op_names[0])
    assert ("no one schedule" in text.out) == (objective != "latency")


def test_names_that_would_command_a_terminal_are_escaped(tmp_path):
    plan = with_names("a\x1b[31m[bold]", "b")
    plan.save(tmp_path / "plan.json")
    done = run("explain", tmp_path / "plan.json", "device:a\x1b[31m[bold]")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "[bold]" in done.out


def test_names_of_ops_do_not_break_lines(tmp_path):
    problem = replace(chain([6.0, 6.0], [6.0, 8.0], tensor_bytes=1.0), op_names=("a\nb", "c\td"))
    solve(problem, "heft").save(tmp_path / "plan.json")
    text = run("explain", tmp_path / "plan.json", "c\td").out
    assert r"op c\td is on" in text
    assert r"c\td elsewhere" in text
    assert r"transfer of a\nb, " in text


def test_a_name_that_there_is_not_ends_with_2_and_a_wrong_plan_with_4(plan_file):
    done = run("explain", plan_file, "o7")
    assert done.code == 2
    assert "no op, block, module or device 'o7'" in done.err
    document = Plan.load(plan_file).to_document()
    plan_file.write_text(json.dumps(document | {"value": 0.5}), "utf-8")
    assert run("explain", plan_file, "o1").code == 4
