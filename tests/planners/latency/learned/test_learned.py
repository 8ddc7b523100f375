"""`hrl` and `placeto`: they learn, keep the best, stop, and are the same again."""

import json
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from placewright import planners
from placewright.budget import Budget, no_progress
from placewright.errors import MissingExtraError
from placewright.planners.latency.learned import planners as learned
from placewright.planners.latency.learned.episodes import Trial
from placewright.planners.latency.learned.nodes import Nodes
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.simulate.latency import time_placement
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import plain
from tests.cli.running import run
from tests.planners.judging import judged, judged_twice
from tests.planners.test_contract import Recorder
from tests.strategies import problems, tight

NAMES = ("hrl", "placeto")
LITTLE = {"hrl": {"episodes": "8", "groups": "4"}, "placeto": {"episodes": "8"}}
TOGETHER = {"hrl": 64, "placeto": 16}
"""Episodes between two updates, and so between two points of the curve."""
WIRING = "zoo:rwnn?modules=1&ops=10"


@pytest.fixture(scope="module")
def wiring():
    return make_problem(WIRING, "diviml")[0]


def two_chains(length: int = 4):
    """Two chains of ops that share nothing, on two equal devices, begun on one each."""
    columns = plain(2 * length, 2)
    columns["op_pinned"][0], columns["op_pinned"][length] = 0, 1
    producers = [op for op in range(2 * length) if op % length < length - 1]
    return Problem(
        **columns,
        op_time=np.ones((2 * length, 2)),
        tensor_producer=producers,
        tensor_bytes=[1.0] * len(producers),
        consumer_offsets=np.arange(len(producers) + 1),
        consumers=[op + 1 for op in producers],
        link_latency=[[0.0, 0.2], [0.2, 0.0]],
        link_seconds_per_byte=[[0.0, 0.1], [0.1, 0.0]],
    )


def curve_of(problem, name, episodes, seed=0):
    lessons = []
    options = {"episodes": str(episodes)}
    plan = solve(problem, name, planner_options=options, seed=seed, on_lesson=lessons.append)
    assert verify(plan).violations == ()
    together = TOGETHER[name]
    assert [lesson.episodes for lesson in lessons] == list(range(together, episodes + 1, together))
    return plan, lessons


@pytest.mark.parametrize(("name", "episodes"), [("hrl", 6400), ("placeto", 1440)])
def test_it_learns_to_run_what_is_independent_side_by_side(name, episodes):
    plan, lessons = curve_of(two_chains(), name, episodes)
    assert plan.value == 4.0
    first, last = lessons[: len(lessons) // 10], lessons[-len(lessons) // 10 :]
    before = np.mean([lesson.mean for lesson in first])
    after = np.mean([lesson.mean for lesson in last])
    assert after < before - max(lesson.spread for lesson in first + last)
    assert min(lesson.value for lesson in lessons) == plan.value


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5)
@given(problem=problems(max_ops=8) | tight(problems(8)))
def test_its_plan_passes_the_judge_or_nothing_fits(name, problem):
    judged(problem, planners.create(name, LITTLE[name]))


@pytest.mark.parametrize("name", NAMES)
def test_it_gives_the_same_plan_again(name, wiring):
    judged_twice(wiring, planners.create(name, {"episodes": "32"}), 1)


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_tries_other_placements(name, wiring):
    curves = [[each.mean for each in curve_of(wiring, name, 128, seed)[1]] for seed in (0, 0, 1)]
    assert curves[0] == curves[1] != curves[2]


@pytest.mark.parametrize(
    ("name", "limit", "together"),
    [("hrl", 6_400, 64), ("hrl", 25_600, 64), ("hrl", 200_000, 500), ("placeto", 200_000, 16)],
)
def test_updates_of_hrl_have_more_episodes_where_there_are_many(name, limit, together, wiring):
    nodes = Nodes(wiring, wiring.unit_count)
    start = solve(wiring, "single-device").placement
    trial = Trial(wiring, nodes, start, Budget(), limit)
    learner = planners.create(name).learner(nodes, nodes.start(start))
    assert trial.together(learner) == learner.together
    trial.learnt(np.ones(learner.together))
    assert trial.together(learner) == together


@pytest.mark.parametrize("name", NAMES)
def test_torch_is_left_as_it_was(name, wiring):
    threads = torch.get_num_threads()
    state = torch.get_rng_state()
    planners.create(name, LITTLE[name]).plan(wiring, Budget(), 0, no_progress)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", NAMES)
def test_with_no_time_its_answer_is_its_start(name, wiring):
    start = solve(wiring, "heft").placement
    before = time_placement(wiring, start).makespan
    found = planners.create(name).plan(wiring, Budget(0.0, start), 0, no_progress).placement
    assert time_placement(wiring, found).makespan <= before
    assert found.device.tobytes() == start.device.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_its_limit_may_end_while_torch_is_imported(name, wiring, monkeypatch):
    imported = threading.Event()
    monkeypatch.setattr(learned, "_import_torch", lambda: imported.wait(60.0))
    start, began = solve(wiring, "heft").placement, time.perf_counter()
    found = planners.create(name).plan(wiring, Budget(0.2, start), 0, no_progress).placement
    assert 0.2 <= time.perf_counter() - began < 30.0
    assert found is start
    imported.set()


@pytest.mark.parametrize("name", NAMES)
def test_an_interrupt_ends_the_training_with_the_best_plan_and_the_policy(name, wiring, tmp_path):
    recorder, path = Recorder(), tmp_path / "policy.safetensors"

    def stop(lesson):
        if lesson.episodes >= 64:
            raise KeyboardInterrupt

    planner = planners.create(name, {"save": str(path)})
    budget = Budget(60.0, None, recorder, stop)
    found = planner.plan(wiring, budget, 0, no_progress).placement
    assert path.exists()
    told = [time_placement(wiring, each).makespan for each in recorder.placements]
    assert time_placement(wiring, found).makespan <= min(told, default=np.inf)


@pytest.mark.parametrize("name", NAMES)
def test_where_no_op_has_a_choice_nothing_is_tried(name, wiring):
    everything = wiring.with_pins(dict.fromkeys(range(wiring.unit_count), 0))
    lessons = []
    plan = solve(everything, name, on_lesson=lessons.append)
    assert (plan.placement.device == 0).all()
    assert lessons == []


@pytest.mark.parametrize("name", NAMES)
def test_without_torch_it_says_what_to_install(name, wiring, monkeypatch):
    monkeypatch.setattr(learned, "find_spec", lambda module: None)
    with pytest.raises(MissingExtraError, match=f"planner '{name}' needs the extra 'torch'"):
        solve(wiring, name)


@pytest.mark.parametrize("name", NAMES)
def test_its_learning_curve_is_written_as_it_comes(name, tmp_path):
    events = tmp_path / "curve.jsonl"
    episodes, together = 150, TOGETHER[name]
    options = ("-O", f"episodes={episodes}", "--events", events)
    words = ("plan", WIRING, "-c", "diviml", "-p", name, *options)
    done = run(*words, "--json")
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    assert [line["episodes"] for line in lines] == [*range(together, episodes, together), episodes]
    assert {line["kind"] for line in lines} == {"episodes"}
    assert {line["source"] for line in lines} == {name}
    values = [line["value"] for line in lines]
    assert values == sorted(values, reverse=True)
    assert json.loads(done.out)["value"] == pytest.approx(values[-1])
    assert all(line["mean"] >= values[-1] and line["spread"] >= 0 for line in lines)
