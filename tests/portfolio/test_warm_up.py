"""Kernels are compiled before the time of a run starts to count, once."""

from contextlib import contextmanager

import pytest

from placewright.planning import make_problem
from placewright.portfolio import Limits, best_plan, run
from placewright.portfolio import warm_up as module
from placewright.portfolio.members import Member
from placewright.portfolio.work import Ended
from tests.cli.running import run as command


def silent(what, share):
    pass


MEMBERS = [Member("heft", "construct"), Member("annealing", "search", {}, {"iterations": "5"})]


def test_each_member_plans_something_tiny_once(tmp_path, monkeypatch):
    done = []

    def perform(problem, task, tell):
        done.append((task.member.name, task.options))
        tell(Ended())

    monkeypatch.setattr(module, "perform", perform)
    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    for _ in range(2):
        module.warm_up("latency", MEMBERS, silent, processes=1)
    assert done == [("heft", {}), ("annealing", {"iterations": "5"})]
    module.warm_up("throughput", MEMBERS[:1], silent, processes=1)
    assert len(done) == 3


def test_a_member_plans_until_nothing_is_left_to_compile(tmp_path, monkeypatch):
    """Its time may be over when it has compiled what it begins with."""
    to_compile, done = [9.0, 2.0], []

    @contextmanager
    def compiling():
        yield lambda: to_compile.pop(0) if to_compile else 0.0

    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    monkeypatch.setattr(module, "compiling", compiling)
    monkeypatch.setattr(module, "perform", lambda problem, task, tell: done.append(task))
    module.warm_up("latency", MEMBERS[:1], silent, 60.0, processes=1)
    assert len(done) == 3


def test_in_processes_all_are_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    members = [Member(name, "construct") for name in ("met", "greedy", "no-such-planner")]
    stages = []
    assert module.warm_up("latency", members, lambda *each: stages.append(each), processes=2) == []
    assert all(what.startswith("compiling ") and 0 <= share < 1 for what, share in stages)


class Inbox(list):
    """A connection that keeps what is sent to it, and is a key."""

    send = list.append
    __hash__ = object.__hash__


def test_processes_compile_what_has_least_in_common():
    """Of two that need the same kernels one waits for the other."""
    names = ["heft", "annealing", "annealing", "met", "lns"]
    latency = [("latency", Member(name, "search")) for name in names]
    cold = [*latency, ("throughput", Member("greedy", "construct"))]
    workers = [Inbox() for _ in range(4)]
    busy = {Inbox(): latency[2]}
    for worker in workers:
        module._hand_out(cold, worker, busy)
    handed_out = [(objective, member.name) for [(objective, member)] in workers]
    assert handed_out == [
        ("throughput", "greedy"),
        ("latency", "heft"),
        ("latency", "met"),  # a run needs it
        ("latency", "lns"),
    ]
    assert cold == [latency[1], latency[2]]


def test_members_of_all_objectives_are_compiled_side_by_side(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    monkeypatch.setattr(module, "perform", lambda problem, task, tell: done.append(problem))
    members = {"latency": MEMBERS, "throughput": MEMBERS[:1]}
    assert module.warm_up_all(members, silent, processes=1) == []
    assert [each.options.objective for each in done] == ["latency", "latency", "throughput"]
    left = module.warm_up_all({"invocation-latency": MEMBERS[:1]}, silent, 0.0, processes=1)
    assert left == []  # a run begins with it


def test_what_is_not_compiled_in_time_is_left_but_for_what_a_run_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    monkeypatch.setattr(module, "perform", lambda problem, task, tell: tell(Ended()))
    members = [Member("celeritas", "construct"), Member("lns", "search"), *MEMBERS]
    left = module.warm_up("latency", members, silent, seconds=0.0, processes=1)
    assert [each.name for each in left] == ["lns", "annealing", "celeritas"]
    assert module.cold_members("latency", members) == left


def test_who_is_not_compiled_sits_out_and_that_is_said(monkeypatch):
    monkeypatch.setattr(run, "warm_up", lambda objective, members, *_: members[1:])
    monkeypatch.setattr(run, "members_for", lambda *_: MEMBERS)
    problem = make_problem("zoo:gpt2?layers=1", "2x3090")[0]
    with pytest.warns(RuntimeWarning, match="does without annealing this time.*warm-up"):
        found = best_plan(problem, Limits(2.0), processes=1)
    assert found.planner_options["found_by"] == "heft"


def test_changed_kernels_are_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    before = module._marker("latency", MEMBERS[0])
    monkeypatch.setattr(module, "_kernels", lambda: "others")
    assert module._marker("latency", MEMBERS[0]) != before


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(module, "_folder", lambda: tmp_path / "file" / "below")
    module.warm_up("latency", MEMBERS, silent, processes=1)


def test_what_the_members_need_is_compiled_before_the_clock_starts(monkeypatch):
    """Or the first run on a machine ends with the first plan there is."""
    told = []

    def warm_up(objective, members, *_):
        told.extend(each.name for each in members)
        clock.now += 100.0
        return []

    clock = Clock()
    monkeypatch.setattr(run, "warm_up", warm_up)
    monkeypatch.setattr(run.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(run, "members_for", lambda *_: [*MEMBERS, Member("met", "construct")])
    problem = make_problem("zoo:gpt2?layers=1", "2x3090")[0]
    found = best_plan(problem, Limits(2.0, gap=0.9), processes=1)
    assert told == ["heft", "annealing", "met"]
    assert found.seconds < 2.0


class Clock:
    now = 1_000.0


def test_the_command_compiles_what_is_not_there_yet(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    monkeypatch.setattr(module, "perform", lambda problem, task, tell: asked.append(task.member))
    monkeypatch.setattr(module, "_warm_up_bounds", lambda member, problem: None)
    monkeypatch.setattr(module.os, "cpu_count", lambda: 1)  # in this process
    command("zoo")  # the first command that a test runs compiles what all need
    asked.clear()
    first = command("warm-up", "--objective", "batch-throughput", "--json").json
    assert first["compiled"]["batch-throughput"] == [each.title for each in asked]
    assert "heft" in first["compiled"]["batch-throughput"]
    second = command("warm-up", "--objective", "batch-throughput", "--json").json
    assert second["compiled"] == {"batch-throughput": []}
    assert command("warm-up", "--objective", "batch-throughput").out == "nothing to compile\n"
    wrong = command("warm-up", "--objective", "speed")
    assert wrong.code == 2
    assert "choose latency, throughput" in wrong.err
