"""A planner of the user's own, named by module and class: judged as any other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import placewright as pw
from placewright import planners
from placewright.errors import InfeasibleError, OptionError
from tests.cli.running import run

CODE = '''
import numpy as np
from placewright.errors import InfeasibleError
from placewright.plan import Placement
from placewright.planners.base import LatencyPlanner, Proposal


class OneDevice(LatencyPlanner):
    """All on one device."""

    name = "one-device"

    def __init__(self, number="0"):
        self.number = int(number)

    def plan(self, problem, budget, seed, on_progress):
        return Proposal(Placement(np.full(problem.op_count, self.number)))


class TooFew(OneDevice):
    def plan(self, problem, budget, seed, on_progress):
        return Proposal(Placement(np.zeros(3)))


class Nothing(OneDevice):
    def plan(self, problem, budget, seed, on_progress):
        return None


class Raises(OneDevice):
    def plan(self, problem, budget, seed, on_progress):
        return [][7]


class Gives(OneDevice):
    def plan(self, problem, budget, seed, on_progress):
        raise InfeasibleError("no room here")


class Refuses(OneDevice):
    def supports(self, problem):
        return "it is Monday"


class Throughput(OneDevice):
    objective = "thruput"


class NoPlanner:
    objective = "latency"


value = 3
'''
MODULE = "planners_of_a_test"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / f"{MODULE}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return MODULE


def plan(name: str, **options: str) -> pw.Plan:
    return pw.plan("zoo:gpt2?layers=2", "2x3090", planner=name, planner_options=options)


def test_its_plan_is_judged_and_says_who_made_it(module: str) -> None:
    found = plan(f"{module}:OneDevice", number="1")
    assert set(found.placement.device.tolist()) == {1}
    assert found.planner == "one-device"
    assert pw.verify(found).ok
    assert found.lower_bound <= found.value


def test_the_commands_take_it(module: str, tmp_path: Path) -> None:
    source = ("zoo:gpt2?layers=2", "-c", "2x3090")
    assert run("plan", *source, "-p", f"{module}:OneDevice", "-O", "number=1").code == 0
    compared = run("compare", *source, "--planners", f"heft,{module}:OneDevice")
    assert compared.code == 0
    assert "one-device" in compared.out or "OneDevice" in compared.out
    failed = run("plan", *source, "-p", f"{module}:Raises")
    assert failed.code == 2
    assert "Traceback" not in failed.err


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Nothing", "returned a NoneType; return Proposal"),
        ("TooFew", "placed 3 ops of "),
        ("Raises", r"failed: IndexError: list index out of range \(planners_of_a_test.py, line 3"),
        ("Refuses", "cannot take this problem: it is Monday"),
        ("Throughput", "its objective is 'thruput'; set it to one of latency"),
        ("NoPlanner", "has no method 'supports'"),
        ("value", "it is a int, not a class"),
        ("OneDevise", "has no 'OneDevise'; did you mean 'OneDevice'"),
        ("", "names no class"),
    ],
)
def test_its_faults_are_told(module: str, name: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        plan(f"{module}:{name}")


def test_a_device_that_there_is_not_is_told_with_the_op(module: str) -> None:
    with pytest.raises(OptionError, match=r"'.*' on device 7; devices go from 0 to 1"):
        plan(f"{module}:OneDevice", number="7")


def test_options_it_does_not_take_are_told(module: str) -> None:
    with pytest.raises(OptionError, match=r"cannot be made with -O speed: TypeError: .*'speed'"):
        plan(f"{module}:OneDevice", speed="7")


def test_a_module_that_there_is_not_is_told() -> None:
    with pytest.raises(OptionError, match="there is no module 'no_such_module'"):
        planners.create("no_such_module:Planner")
    with pytest.raises(OptionError, match=r"is a file, not a module; write mine:Planner$"):
        planners.create("mine.py:Planner")


def test_what_it_says_of_the_problem_is_said(module: str) -> None:
    with pytest.raises(InfeasibleError, match="no room here"):
        plan(f"{module}:Gives")
