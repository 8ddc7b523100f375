"""Incumbent, scheduler, workers and checkpoint, each by itself."""

import math
import os
import signal
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from placewright.errors import VerificationError
from placewright.graph import GraphBuilder
from placewright.plan import Placement, Plan
from placewright.planning import make_problem
from placewright.portfolio.checkpoint import Checkpoint
from placewright.portfolio.incumbent import Incumbent, Origin
from placewright.portfolio.members import (
    CHAIN,
    MODULES,
    WHOLE,
    Member,
    members_for,
    shape_of,
)
from placewright.portfolio.members.member import MANY, memory_of
from placewright.portfolio.scheduler import Scheduler
from placewright.portfolio.work import Ended, Found, Task, perform
from placewright.portfolio.workers import Alone, Processes
from placewright.verify import verify


@pytest.fixture(scope="module")
def problem():
    return make_problem("zoo:gpt2?layers=1", "2x3090", {})[0]


def task(name: str, **fields) -> Task:
    member = Member(name, "search", **fields)
    return Task(1, member, dict(member.options), 5.0, 0, None, math.inf)


def everything_on(problem, device: int) -> Placement:
    return Placement([device] * problem.op_count)


# -- incumbent -----------------------------------------------------------------------------------


def test_a_plan_counts_only_if_it_is_better(problem):
    incumbent = Incumbent(problem, Origin())
    assert incumbent.offer(everything_on(problem, 0), "one")
    assert not incumbent.offer(everything_on(problem, 1), "other")
    assert incumbent.found_by == "one"
    assert verify(incumbent.plan()).ok


def test_a_plan_that_does_not_hold_does_not_count(problem):
    incumbent = Incumbent(problem.with_device_memory([0.0, 1e12]), Origin())
    with pytest.raises(VerificationError, match="the plan is wrong"):
        incumbent.offer(everything_on(problem, 0), "one")
    assert incumbent.plan() is None


def test_a_bound_above_a_plan_is_a_wrong_proof(problem):
    incumbent = Incumbent(problem, Origin())
    incumbent.offer(everything_on(problem, 0), "one")
    before = incumbent.bound
    with pytest.raises(VerificationError, match="above the plan"):
        incumbent.prove(incumbent.value * 1.01, "nonsense")
    assert incumbent.bound == before


def test_a_plan_below_a_bound_shows_a_wrong_proof(problem):
    incumbent = Incumbent(problem, Origin())
    incumbent.prove(1e9, "nonsense")
    with pytest.raises(VerificationError, match="'nonsense' has proved"):
        incumbent.offer(everything_on(problem, 0), "one")


# -- scheduler -----------------------------------------------------------------------------------


def test_members_come_by_role_and_a_prover_beside_the_searches(problem):
    members = [
        Member("a", "search"), Member("b", "search"), Member("c", "prove"),
        Member("d", "construct"),
    ]  # fmt: skip
    scheduler, incumbent = Scheduler(members, 0, False), Incumbent(problem, Origin())
    names = [scheduler.next(incumbent, 100.0, workers=5).member.name for _ in range(5)]
    assert names == ["d", "c", "a", "b", "a"]


def test_constructive_members_go_on_until_there_is_a_plan(problem):
    members = [Member(name, "construct") for name in "abc"] + [Member("s", "search")]
    scheduler, incumbent = Scheduler(members, 0, False), Incumbent(problem, Origin())
    for expected in "ab":  # slow, and in vain
        turn = scheduler.next(incumbent, 100.0, workers=1)
        assert turn.member.name == expected
        scheduler.learn(turn, 0.0, 20.0, useless=True)
    incumbent.offer(everything_on(problem, 0), "b")
    assert scheduler.next(incumbent, 100.0, workers=1).member.name == "s"


def test_who_made_plans_better_is_asked_more_often(problem):
    scheduler = Scheduler([Member("a", "search"), Member("b", "search")], 0, False)
    incumbent = Incumbent(problem, Origin())
    asked = []
    for _ in range(20):
        turn = scheduler.next(incumbent, 100.0, workers=1)
        asked.append(turn.member.name)
        scheduler.learn(turn, 0.01 if turn.member.name == "b" else 0.001, 1.0, useless=False)
    assert asked.count("b") > 2 * asked.count("a")
    assert asked.count("a") >= 1


def test_each_search_has_a_turn_before_any_has_a_second(problem):
    members = [Member(name, "search") for name in "abc"]
    scheduler, incumbent = Scheduler(members, 0, False), Incumbent(problem, Origin())
    incumbent.offer(everything_on(problem, 0), "one")
    # What the first gains from a simple plan is no merit of its own.
    scheduler.learn(scheduler.meanwhile(incumbent, 100.0), 0.5, 0.4, useless=False)
    asked = []
    for gain in (0.01, 0.0, 0.0, 0.0):
        turn = scheduler.next(incumbent, 100.0, workers=1)
        asked.append(turn.member.name)
        scheduler.learn(turn, gain, turn.seconds, useless=False)
    assert asked == ["a", "b", "c", "a"]


def test_a_first_turn_that_takes_much_of_the_time_is_for_its_merit(problem):
    members = [Member("a", "search"), Member("b", "search", shortest=5.0)]
    scheduler, incumbent = Scheduler(members, 0, False), Incumbent(problem, Origin())
    for _ in range(2):
        turn = scheduler.next(incumbent, 12.0, workers=1)
        assert turn.member.name == "a"
        scheduler.learn(turn, 0.01, turn.seconds, useless=False)


def test_what_starts_afresh_has_twice_as_long_each_time_while_there_is_time(problem):
    members = [Member("a", "search"), Member("b", "search", afresh=True)]
    scheduler, incumbent = Scheduler(members, 0, False), Incumbent(problem, Origin())
    turns, left = [], 80.0
    while left > 1.0:
        turn = scheduler.next(incumbent, left, workers=1)
        left -= turn.seconds
        turns.append((turn.member.name, turn.seconds))
        gain = 0.01 if turn.member.afresh else 0.0
        scheduler.learn(turn, gain, turn.seconds, useless=False)
    afresh = [seconds for name, seconds in turns if name == "b"]
    assert len(afresh) >= 2
    assert all(later >= 2 * sooner for sooner, later in pairwise(afresh))
    assert sum(afresh) < 80.0


def test_a_first_turn_may_be_long_at_once(problem):
    members = [Member("a", "search"), Member("b", "search", afresh=True, first_share=0.5)]
    scheduler, incumbent = Scheduler(members, 0, False), Incumbent(problem, Origin())
    left, asked = 40.0, []
    while left > 1.0:
        turn = scheduler.next(incumbent, left, workers=1)
        asked.append((turn.member.name, turn.seconds / left))
        scheduler.learn(turn, 0.01, turn.seconds, useless=False)
        left -= turn.seconds
    # Once, and early; a second one, for which less is left, would find less.
    assert [share for name, share in asked if name == "b"] == [0.5]
    assert asked.index(("b", 0.5)) < 3


def test_a_search_in_vain_has_longer_turns_until_it_gains_again(problem):
    scheduler = Scheduler([Member("a", "search")], 0, False)
    incumbent, seconds = Incumbent(problem, Origin()), []
    for gain in (0.0, 0.0, 0.001, 0.0):
        turn = scheduler.next(incumbent, 1000.0, workers=1)
        seconds.append(turn.seconds)
        scheduler.learn(turn, gain, turn.seconds, useless=False)
    assert seconds == [10.0, 20.0, 40.0, 10.0]


def test_a_search_that_had_no_time_to_get_going_is_asked_again_first(problem):
    members = [Member("a", "search", shortest=5.0), Member("b", "search")]
    scheduler, incumbent = Scheduler(members, 0, False), Incumbent(problem, Origin())
    incumbent.offer(everything_on(problem, 0), "one")
    scheduler.learn(scheduler.meanwhile(incumbent, 100.0), 0.0, 0.4, useless=False)
    turn = scheduler.next(incumbent, 100.0, workers=1)
    assert turn.member.name == "a"
    scheduler.learn(turn, 0.0, turn.seconds, useless=False)
    assert scheduler.next(incumbent, 100.0, workers=1).member.name == "b"


def test_while_workers_start_the_first_search_goes_on_for_a_moment(problem):
    members = [Member("c", "prove"), Member("a", "search"), Member("b", "search")]
    scheduler, incumbent = Scheduler(members, 0, False), Incumbent(problem, Origin())
    assert scheduler.meanwhile(incumbent, 100.0) is None  # from which plan?
    incumbent.offer(everything_on(problem, 0), "one")
    task = scheduler.meanwhile(incumbent, 100.0)
    assert task.member.name == "a"
    assert task.seconds <= 1.0
    assert scheduler.meanwhile(incumbent, 0.1) is None
    assert scheduler.next(incumbent, 100.0, workers=2).member.name == "c"


def test_who_is_useless_is_not_asked_again(problem):
    scheduler, incumbent = (
        Scheduler([Member("a", "search")], 0, False),
        Incumbent(problem, Origin()),
    )
    scheduler.learn(scheduler.next(incumbent, 100.0, 1), 0.0, 1.0, useless=True)
    assert scheduler.next(incumbent, 100.0, 1) is None


def test_a_member_for_few_units_takes_no_part_where_ops_stand_alone(problem):
    member = Member("a", "search", most_units=0.25)
    assert not member.takes(problem, "whole")
    blocks, _ = make_problem("zoo:gpt2?layers=2", "2x3090", granularity="block")
    assert member.takes(blocks, "whole")


def test_memory_is_short_where_many_ops_do_not_fit_the_quickest_device():
    large, _ = make_problem("zoo:gpt2?layers=24", "4060+cpu", {"objective": "latency"})
    gpu = large.device_names.index("rtx4060")
    kept = large.op_memory.sum()
    tight = large.with_device_memory(
        np.where(np.arange(large.device_count) == gpu, 0.9 * kept, np.inf)
    )
    assert memory_of(large) == "enough"
    assert memory_of(tight) == "short"
    short, enough = (Member("a", "prove", memory=[each]) for each in ("short", "enough"))
    assert short.takes(tight, "whole") and not short.takes(large, "whole")
    assert enough.takes(large, "whole") and not enough.takes(tight, "whole")
    leaders = [[each for each in members_for(p, False) if each.cores] for p in (large, tight)]
    assert len(leaders[1]) <= len(leaders[0])
    first = next(each for each in members_for(tight, False) if each.role == "prove")
    assert (first.name, first.afresh) == ("annealing", True)
    by_options = {"resident": {"overfull": "priced"}, "peak": {}}  # a peak has no price
    for memory, expected in by_options.items():
        counted = replace(tight, options=replace(tight.options, memory=memory))
        own = [each for each in members_for(counted, False) if each.afresh]
        annealings = [dict(each.options) for each in own if each.name == "annealing"]
        assert len(annealings) == 2
        assert all(each.items() >= expected.items() for each in annealings)
        assert all(("overfull" in each) == bool(expected) for each in annealings)


def test_full_devices_are_searched_for_long_where_ops_are_fewer_too():
    def of(layers, devices):
        found, _ = make_problem(f"zoo:gpt2?layers={layers}", devices, {"objective": "latency"})
        assert found.op_count < MANY
        return found.with_device_memory(
            np.full(found.device_count, 0.7 * float(found.op_memory.sum()))
        )

    def long_searches(problem):
        provers = [each for each in members_for(problem, False) if each.role == "prove"]
        return [each.name for each in provers if list(each.memory) == ["full"]]

    few, many = of(2, "3090+2x3060"), of(6, "8xA100")
    assert memory_of(few) == "enough"
    assert memory_of(many) == "full"
    assert long_searches(few) == []
    assert long_searches(many) == ["annealing", "module-annealing", "milp-split"]


def test_fewer_ops_are_decided_where_their_inputs_can_be_split():
    def deciders(ops, **options):
        graph = GraphBuilder("row")
        for number in range(ops):
            graph.add_op(f"op{number}", "op", flops=1e9)
        problem = make_problem(graph.build(), "2x3090", options)[0]
        return [each.name for each in members_for(problem, False) if each.role == "decide"]

    assert deciders(40, objective="latency") == ["cp-sat"]
    batches = {"objective": "batch-throughput", "batch": 8}  # in quarters
    assert deciders(12, **batches) == ["diviml-milp", "diviml-milp"]
    assert deciders(40, **batches) == []


def test_without_a_plan_who_can_prove_that_there_is_none_comes_first(problem):
    members = [Member("a", "prove", cores="processes"), Member("b", "prove", decides=True)]
    scheduler, incumbent = Scheduler(members, 0, False), Incumbent(problem, Origin())
    task = scheduler.next(incumbent, 100.0, workers=2)
    assert (task.member.name, task.seconds) == ("b", 100.0)
    scheduler = Scheduler(members, 0, False)
    incumbent.offer(everything_on(problem, 0), "b")
    assert scheduler.next(incumbent, 100.0, workers=2).member.name == "a"


def test_nobody_works_beside_a_member_that_uses_all_cores(problem):
    scheduler = Scheduler([Member("a", "search"), Member("b", "prove", alone=True)], 0, False)
    incumbent = Incumbent(problem, Origin())
    turn = scheduler.next(incumbent, 100.0, workers=2)
    assert turn.member.name == "b"
    assert scheduler.next(incumbent, 100.0, workers=2) is None
    scheduler.learn(turn, 0.0, 1.0, useless=False)
    assert scheduler.next(incumbent, 100.0, workers=2).member.name == "a"


def test_a_member_for_several_cores_comes_first_and_has_them_to_itself(problem):
    wide = Member("a", "prove", cores="processes", most_cores=8)
    scheduler = Scheduler([Member("b", "search"), Member("c", "construct"), wide], 0, False)
    incumbent = Incumbent(problem, Origin())
    turn = scheduler.next(incumbent, 100.0, workers=3)
    assert (turn.member.name, turn.options) == ("a", {"processes": "3"})
    assert scheduler.next(incumbent, 100.0, workers=3) is None
    scheduler.learn(turn, 0.0, 1.0, useless=False)
    assert scheduler.next(incumbent, 100.0, workers=3).member.name == "c"


def test_cores_that_such_a_member_does_not_use_go_to_others(problem):
    wide = Member("a", "prove", cores="processes", most_cores=2)
    scheduler, incumbent = (
        Scheduler([Member("b", "search"), wide], 0, False),
        Incumbent(problem, Origin()),
    )
    turns = [scheduler.next(incumbent, 100.0, workers=3) for _ in range(3)]
    assert turns[0].options == {"processes": "2"}
    assert turns[1].member.name == "b"
    assert turns[2] is None


@pytest.mark.parametrize(("widest", "share"), [(1, 0.5), (2, 0.9)])
def test_the_only_worker_keeps_time_for_the_others_unless_it_has_more_cores(problem, widest, share):
    wide = Member("a", "prove", share=0.9, cores="processes", most_cores=8)
    scheduler, incumbent = Scheduler([wide], 0, False), Incumbent(problem, Origin())
    turn = scheduler.next(incumbent, 100.0, workers=1, widest=widest)
    assert turn.options == {"processes": str(widest)}
    assert turn.seconds == pytest.approx(100.0 * share)


def test_a_member_for_half_of_the_cores_leaves_the_others_to_a_prover_and_searches(problem):
    wide = Member("a", "prove", cores="processes", most_cores=8, core_share=0.5)
    prover = Member("c", "prove")
    scheduler = Scheduler([Member("b", "search"), wide, prover], 0, False)
    incumbent = Incumbent(problem, Origin())
    turns = [scheduler.next(incumbent, 100.0, workers=4) for _ in range(4)]
    assert turns[0].options == {"processes": "2"}
    assert [turn.member.name for turn in turns[1:3]] == ["c", "b"]
    assert turns[3] is None


@pytest.mark.parametrize(
    ("source", "cluster", "shape"),
    [
        ("zoo:rwnn?modules=3&ops=20", "diviml", CHAIN),
        ("zoo:rwnn?modules=8&ops=60", "diviml", MODULES),
        ("zoo:gpt2?layers=6", "2x3090", MODULES),  # though its first and last op share weights
        ("zoo:rwnn?modules=3&ops=10&channels=2", "diviml", WHOLE),
    ],
)
def test_what_shape_a_problem_is_of(source, cluster, shape):
    assert shape_of(make_problem(source, cluster, {})[0]) == shape


def test_large_modules_are_annealed_a_second_time_when_nothing_is_left_to_prove():
    problem = make_problem("zoo:gpt2?layers=6", "2x3090", {})[0]
    scheduler = Scheduler(members_for(problem, False), 0, False)
    names = [each.prover or each.name for each in scheduler.provers]
    assert names[0] == names[-1] == "module-annealing"
    assert "latency.relaxation:prove" in names[1:-1]


def test_even_a_graph_of_one_module_is_annealed_with_its_ends_held_elsewhere():
    problem = make_problem("zoo:rwnn?modules=3&ops=10&channels=2", "diviml", {})[0]
    names = [each.name for each in members_for(problem, False) if each.role == "prove"]
    assert names.index("module-annealing") < names.index("milp-split")


def test_searches_have_time_before_a_member_that_uses_all_cores():
    options = {"objective": "throughput", "contiguous": False}
    problem = make_problem("zoo:gpt2?layers=2", "4090+3060", options)[0]
    names = [each.name for each in members_for(problem, False) if each.role == "prove"]
    assert names == ["annealing", "max-load-ip"]


def test_a_member_that_uses_all_cores_waits_for_those_that_construct(problem):
    members = [Member("a", "construct"), Member("b", "construct"), Member("s", "search")]
    scheduler = Scheduler([*members, Member("p", "prove", alone=True)], 0, False)
    incumbent = Incumbent(problem, Origin())
    incumbent.offer(everything_on(problem, 0), "a start")
    first, beside = (scheduler.next(incumbent, 100.0, workers=2) for _ in range(2))
    assert [turn.member.name for turn in (first, beside)] == ["a", "s"]
    scheduler.learn(first, 0.0, 0.1, useless=False)
    second = scheduler.next(incumbent, 100.0, workers=2)
    assert second.member.name == "b"
    scheduler.learn(second, 0.0, 0.1, useless=False)
    assert scheduler.next(incumbent, 100.0, workers=2).member.name == "p"


def test_no_task_starts_when_time_is_up(problem):
    scheduler = Scheduler([Member("a", "search")], 0, False)
    assert scheduler.next(Incumbent(problem, Origin()), 0.01, 1) is None


def test_a_run_in_iterations_has_only_members_that_count(problem):
    timed, counted = members_for(problem, False), members_for(problem, True)
    assert {each.name for each in counted} <= {each.name for each in timed}
    assert all(each.effort is not None for each in counted)


@pytest.mark.parametrize(
    ("query", "cores"), [("zoo:rwnn?modules=3&ops=10", "processes"), ("zoo:gpt2?layers=1", "")]
)
def test_the_program_of_modules_comes_first_where_they_follow_one_another(query, cores):
    members = members_for(make_problem(query, "diviml", {})[0], False)
    split = [each for each in members if each.name == "milp-split"]
    assert [each.cores for each in split] == [cores]


# -- work and workers ----------------------------------------------------------------------------


def test_a_member_that_does_not_take_the_problem_says_why(problem):
    told = []
    perform(problem, task("expert"), told.append)
    assert isinstance(told[-1], Ended)
    assert "file" in told[-1].refusal


def test_what_should_not_happen_in_a_member_is_an_error_of_its_own(problem):
    told = []
    perform(problem, task("none", prover="latency:nothing"), told.append)
    assert told[-1].error.startswith("AttributeError")


def test_processes_do_tasks_and_say_when_they_are_idle(problem):
    workers = Processes(problem, 1)
    try:
        told = until(workers, lambda: workers.idle())
        workers.give(0, task("heft"))
        assert workers.idle() == []
        told += until(workers, lambda: workers.idle())
        assert isinstance(told[0][1], Found)
        assert told[-1] == (0, Ended())
    finally:
        workers.end()


def test_a_killed_process_ends_its_task_and_the_last_one_is_an_error(problem):
    workers = Processes(problem, 2)
    try:
        until(workers, lambda: len(workers.idle()) == 2)
        workers.give(0, task("annealing"))
        os.kill(workers._workers[0].process.pid, signal.SIGKILL)
        told = until(workers, lambda: False, first=True)
        assert told[0][0] == 0
        assert "was killed" in told[-1][1].error
        assert workers.idle() == [1]
        os.kill(workers._workers[1].process.pid, signal.SIGKILL)
        until(workers, lambda: False, first=True)
        with pytest.raises(ChildProcessError, match="every worker process was killed"):
            workers.hear(1.0)
    finally:
        workers.end()


def until(workers, condition, first=False):
    told, end = [], time.monotonic() + 60
    while not condition() and not (first and told):
        assert time.monotonic() < end
        told += workers.hear(0.1)
    return told


def test_what_is_found_in_this_process_is_told_at_once_and_its_end_heard_afterwards(problem):
    told = []
    workers = Alone(problem, told.append)
    workers.give(0, task("annealing", options={"iterations": "200"}))
    assert told and all(isinstance(message, Found) for message in told)
    assert [type(message) for _, message in workers.hear(0.0)] == [Ended]
    assert workers.hear(0.0) == []


# -- checkpoint ----------------------------------------------------------------------------------


def test_the_best_plan_is_kept_in_a_file_and_not_written_twice(problem, tmp_path):
    path, incumbent = tmp_path / "plan.json", Incumbent(problem, Origin())
    checkpoint = Checkpoint(path)
    checkpoint.tick(incumbent)
    assert not path.exists()
    incumbent.offer(everything_on(problem, 0), "one")
    checkpoint.tick(incumbent)
    assert Plan.load(path).value == incumbent.value
    path.unlink()
    checkpoint.tick(incumbent)
    assert not path.exists()
