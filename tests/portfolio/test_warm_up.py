"""Kernels are compiled before the time of a run starts to count, once."""

from placewright.portfolio import warm_up as module
from placewright.portfolio.members import Member
from placewright.portfolio.work import Ended

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
