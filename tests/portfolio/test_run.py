"""The default planner: as good as any planner it asks, in time, and the same again."""

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright.errors import (
    InfeasibleError,
    OptionError,
    ProvedInfeasibleError,
    VerificationError,
)
from placewright.formulations import fit
from placewright.plan import Placement, Plan
from placewright.planning import make_problem, plan, plan_problem
from placewright.portfolio import Limits, best_plan, run
from placewright.portfolio.members import Member
from placewright.portfolio.scheduler import Scheduler
from placewright.portfolio.workers import Processes
from placewright.solving import compare
from placewright.verify import verify
from tests.builders import chain
from tests.naive import shortest_makespan
from tests.strategies import problems
from tests.strategies.batch import batch_problems
from tests.strategies.invocation import invocation_problems
from tests.strategies.throughput import throughput_problems

PROBLEMS = {
    "latency": problems(),
    "throughput": throughput_problems(),
    "invocation-latency": invocation_problems(),
    "batch-throughput": batch_problems(),
}
# A member that fails must not go unnoticed behind the others.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

BRIEF = settings(  # examples take up to a second: shrinking would take minutes
    max_examples=10,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.data_too_large],
)


def gpt2(objective: str = "latency", layers: int = 2):
    return make_problem(f"zoo:gpt2?layers={layers}", "2x3090", {"objective": objective})[0]


@pytest.mark.parametrize("objective", PROBLEMS)
@BRIEF
@given(data=st.data())
def test_no_quick_planner_beats_it_and_the_judge_agrees(objective, data):
    problem = data.draw(PROBLEMS[objective])
    try:
        others = [line.plan.value for line in compare(problem) if line.plan is not None]
    except InfeasibleError:  # as arithmetic shows
        others = []
    try:
        found = best_plan(problem, Limits(iterations=1), processes=1)
    except InfeasibleError:
        assert not others
        return
    assert verify(found).violations == ()
    assert found.value <= min(others, default=found.value) * (1 + 1e-9)
    assert found.lower_bound <= found.value


def packing():
    """Three ops of 2 bytes on two devices of 3: room for all bytes, and not for three ops."""
    return chain([2.0, 2.0, 2.0], [3.0, 3.0])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_without_a_plan_ends_at_its_limit(seconds, processes, monkeypatch):
    """Also where nobody may begin anything any more and nothing is proved."""
    monkeypatch.setattr(run, "members_for", lambda *_: [Member("heft", "construct")])
    monkeypatch.setattr(fit, "unit_fit", lambda *_: None)  # as where that search takes too long
    monkeypatch.setattr(run, "warm_up", lambda *_: [])
    monkeypatch.setattr(run, "SHORT_SECONDS", 1.0)
    began = time.monotonic()
    with pytest.raises(InfeasibleError, match="no planner found a plan"):
        best_plan(packing(), Limits(seconds), processes=processes)
    assert time.monotonic() - began < seconds + 20.0  # workers start, on a busy machine


def test_members_that_take_a_moment_are_asked_though_the_bound_took_all_the_time(monkeypatch):
    """The first of them that finds a plan here, `greedy`, is not the best."""
    monkeypatch.setattr(run, "GRACE", 30.0)  # machines differ
    problem, _ = make_problem("zoo:gpt2?layers=4", "2x3090")
    tight = problem.with_device_memory(np.full(2, 0.7 * problem.op_memory.sum()))
    quick = compare(tight, ["greedy", "memory-fill", "heft"])
    values = [line.plan.value for line in quick if line.plan is not None]
    assert plan_problem(tight, time_limit=0).value <= min(values) < values[0]


def test_a_proof_that_there_is_no_plan_ends_the_run():
    with pytest.raises(ProvedInfeasibleError, match="proved"):
        best_plan(packing(), Limits(60.0), processes=1)


def test_contiguous_pipelines_are_proved():
    problem = make_problem("zoo:bert-base?layers=4", "2x3090", {"objective": "throughput"})[0]
    found = best_plan(problem, Limits(60.0), processes=1)
    assert found.gap <= 1e-4
    assert found.bound_source == "dynamic programming over ideals"


@BRIEF
@given(problems(max_ops=5, max_devices=3))
def test_tiny_problems_are_solved_to_the_optimum(problem):
    try:
        found = best_plan(problem, Limits(5.0), processes=1)
    except InfeasibleError:
        return
    if problem.options.memory == "resident":  # with a peak, orders matter that nobody proves
        best = shortest_makespan(problem)
        assert found.value == pytest.approx(best, rel=2e-4)
        assert found.lower_bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("objective", PROBLEMS)
def test_the_same_seed_and_iterations_give_the_same_file_with_any_number_of_processes(
    objective, tmp_path
):
    problem = gpt2(objective, layers=1)
    for processes in (1, 2):
        limits = Limits(iterations=3, gap=0.0)
        found = best_plan(problem, limits, seed=7, processes=processes)
        found.save(tmp_path / f"{processes}.json")
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "2.json").read_bytes()


def test_worker_processes_keep_the_time_limit():
    problem = make_problem("zoo:gpt2?layers=24", "8xA100", {})[0]
    best_plan(problem, Limits(0.1), processes=1)  # compiles
    started = time.monotonic()
    found = best_plan(problem, Limits(3.0), processes=2)
    assert time.monotonic() - started < 3.0 + 25.0  # it would go on for minutes
    assert verify(found).ok


def test_workers_that_are_lost_count_no_longer(monkeypatch):
    asked, events = [], []
    given = Scheduler.next

    class OneDies(Processes):
        def __init__(self, problem, count):
            super().__init__(problem, count)
            self._workers[1].process.kill()

    def noted(self, incumbent, left, workers, widest=None):
        asked.append(workers)
        return given(self, incumbent, left, workers, widest)

    monkeypatch.setattr(run, "Processes", OneDies)
    monkeypatch.setattr(Scheduler, "next", noted)
    best_plan(gpt2(), Limits(4.0, gap=0.0), processes=2, on_event=events.append)
    assert "failure" not in {event.kind for event in events}  # it had no task to lose
    assert asked[-1] == 1


def test_progress_says_value_bound_and_gap_and_who_is_at_work():
    seen = []
    found = best_plan(
        gpt2(layers=4),
        Limits(3.0, gap=0.0),
        processes=2,
        on_progress=lambda what, _: seen.append(what),
    )
    state = re.compile(r"[\d.]+ .?s \([\w -]+\), bound [\d.]+ .?s, gap [\d.]+%")
    firsts = [what.partition("\n")[0] for what in seen]
    assert any(state.fullmatch(first) for first in firsts)
    assert any("\nat work: " in what for what in seen)
    assert f"gap {found.gap:.2%}" in firsts[-1]


def test_events_tell_of_ever_better_plans_and_bounds():
    events = []
    found = best_plan(gpt2(), Limits(1.0), processes=1, on_event=events.append)
    values = [event.value for event in events if event.value is not None]
    bounds = [event.lower_bound for event in events]
    assert values == sorted(values, reverse=True)
    assert bounds == sorted(bounds)
    assert events[-1].kind == "end"
    assert (events[-1].value, events[-1].lower_bound) == (found.value, found.lower_bound)
    assert {event.kind for event in events} <= {"plan", "bound", "end"}
    assert json.loads(json.dumps(events[-1].to_document()))["gap"] == found.gap


def test_it_stops_at_the_gap_that_was_asked_for():
    events = []
    found = best_plan(gpt2(), Limits(60.0, gap=0.9), processes=1, on_event=events.append)
    assert found.gap <= 0.9
    assert events[-1].source == "proved"
    assert events[-1].seconds < 30


def test_it_is_never_worse_than_its_start():
    problem = gpt2()
    start = best_plan(problem, Limits(1.0), processes=1)
    again = plan_problem(
        problem, warm_start=start, planner_options={"iterations": "1", "processes": "1"}
    )
    assert again.value <= start.value


def test_a_start_that_does_not_hold_is_refused():
    problem = gpt2()
    small = problem.with_device_memory(problem.device_memory * [1.0, 0.0])
    everything_there = Placement([1] * problem.op_count)
    with pytest.raises(VerificationError, match="the plan is wrong"):
        best_plan(small, Limits(1.0), processes=1, start=everything_there)


def test_where_nothing_is_found_the_reasons_are_given(monkeypatch):
    monkeypatch.setattr(fit, "unit_fit", lambda *_: None)  # as where that search takes too long
    heuristics = [Member(name, "construct") for name in ("heft", "m-topo", "memory-fill")]
    monkeypatch.setattr(run, "members_for", lambda *_: heuristics)
    with pytest.raises(InfeasibleError) as caught:
        best_plan(packing(), Limits(2.0), processes=1)
    assert re.match(r"none of \d+ planners found a plan: found no device for", str(caught.value))
    assert str(caught.value).count("found no device for") == 1  # not once for each of them


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"iterations": 0}, "iterations is 0"),
        ({"gap": 1.5}, "the gap is 1.5"),
        ({"seconds": float("nan")}, "the time limit is nan"),
    ],
)
def test_limits_that_make_no_sense_are_refused(given, message):
    with pytest.raises(OptionError, match=message):
        Limits(**given)


def test_a_coarser_problem_is_planned_and_its_plan_expanded():
    found = plan("zoo:gpt2", "2x3090", coarsening="layers", time_limit=1.0)
    assert verify(found).ok
    assert found.planner == "auto"


def test_a_tiny_problem_in_iterations_starts_no_workers(monkeypatch):
    def no_processes(problem, count):
        raise AssertionError("a process was started")

    monkeypatch.setattr(run, "Processes", no_processes)
    found = best_plan(chain([1.0] * 5, [10.0, 10.0]), Limits(iterations=1, gap=0.0), processes=2)
    assert verify(found).ok


# -- interrupts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_ends_the_run_and_keeps_the_best_plan(number, tmp_path):
    path, events = tmp_path / "plan.json", tmp_path / "events.jsonl"
    command = [
        *(sys.executable, "-m", "placewright", "plan", "zoo:gpt2?layers=12", "-c", "8xA100"),
        *("--time-limit", "100", "--gap", "0", "-o", str(path), "--events", str(events)),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(path)
        time.sleep(1.0)
        process.send_signal(number)
        _, error = process.communicate(timeout=30)
    assert process.returncode == 0, error
    last = json.loads(events.read_text().splitlines()[-1])
    assert (last["kind"], last["source"]) == ("end", "interrupted")
    found = Plan.load(path)
    assert verify(found).ok
    assert found.value == last["value"]


def test_a_program_that_is_told_to_terminate_plans_no_more(tmp_path):
    path = tmp_path / "plan.json"
    program = (
        "import placewright\n"
        "for layers in (12, 11, 10):\n"
        f"    placewright.plan(f'zoo:gpt2?layers={{layers}}', '8xA100', time_limit=100.0,\n"
        f"                     planner_options={{'gap': '0'}}, checkpoint={str(path)!r})\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process:
        wait_for(path)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert b"Traceback" not in error
    assert verify(Plan.load(path)).ok


def test_an_interrupt_that_a_compiler_loses_ends_the_warm_up(monkeypatch):
    compiled = []

    def warm_up(objective, members, on_progress, *_):
        for member in members:
            on_progress(f"compiling {member.title}", 0.0)
            compiled.append(member)
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(run, "warm_up", warm_up)
    with pytest.raises(KeyboardInterrupt):
        best_plan(gpt2(), Limits(100.0, gap=0.0), processes=1)
    assert len(compiled) == 1


def test_an_interrupt_before_there_is_a_plan_ends_the_run(monkeypatch):
    monkeypatch.setattr(run, "warm_up", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        best_plan(gpt2(), Limits(100.0, gap=0.0), processes=1)


def wait_for(path, seconds=100.0):
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, "no plan was written"
        time.sleep(0.02)
