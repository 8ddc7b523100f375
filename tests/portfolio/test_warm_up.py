"""Kernels are compiled before the time of a run starts to count, once."""

from placewright.planning import make_problem
from placewright.portfolio import Limits, best_plan, run
from placewright.portfolio import warm_up as module
from placewright.portfolio.members import Member
from placewright.portfolio.work import Ended
from tests.cli.running import run as command

MEMBERS = [Member("heft", "construct"), Member("annealing", "search", {}, {"iterations": "5"})]


def test_each_member_plans_something_tiny_once(tmp_path, monkeypatch):
    done = []

    def perform(problem, task, tell):
        done.append((task.member.name, task.options))
        tell(Ended())

    monkeypatch.setattr(module, "perform", perform)
    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    for _ in range(2):
        module.warm_up("latency", MEMBERS, lambda what, share: None)
    assert done == [("heft", {}), ("annealing", {"iterations": "5"})]
    module.warm_up("throughput", MEMBERS[:1], lambda what, share: None)
    assert len(done) == 3


def test_changed_kernels_are_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    before = module._marker("latency", MEMBERS[0])
    monkeypatch.setattr(module, "_kernels", lambda: "others")
    assert module._marker("latency", MEMBERS[0]) != before


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(module, "_folder", lambda: tmp_path / "file" / "below")
    module.warm_up("latency", MEMBERS, lambda what, share: None)


def test_what_is_done_at_once_is_compiled_before_the_clock_starts(monkeypatch):
    """Or the first run on a machine ends with the first plan there is."""
    told = []

    def warm_up(objective, members, on_progress):
        told.append([each.name for each in members])
        clock.now += 100.0

    clock = Clock()
    monkeypatch.setattr(run, "warm_up", warm_up)
    monkeypatch.setattr(run.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(run, "members_for", lambda *_: [*MEMBERS, Member("met", "construct")])
    problem = make_problem("zoo:gpt2?layers=1", "2x3090")[0]
    found = best_plan(problem, Limits(2.0, gap=0.9), processes=1)
    assert told[0] == ["heft", "met"]
    assert found.seconds < 2.0


class Clock:
    now = 1_000.0


def test_the_command_compiles_what_is_not_there_yet(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    monkeypatch.setattr(module, "perform", lambda problem, task, tell: asked.append(task.member))
    monkeypatch.setattr(module, "_rehearse", lambda member, problem: None)
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
    assert "choose latency, invocation-latency" in wrong.err
