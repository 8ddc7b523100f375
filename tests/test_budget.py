"""A planner's budget: time, a placement to start from, and who hears on the way."""

import math
import time

from placewright.budget import Budget, Silence
from placewright.plan import Placement


class Recorder:
    """A `Listener` that keeps what it hears."""

    def __init__(self):
        self.heard = []

    def found(self, placement):
        self.heard.append(placement)

    def proved(self, lower_bound, source):
        self.heard.append((lower_bound, source))


def test_by_default_time_never_ends_nothing_is_given_and_nobody_listens():
    budget = Budget()
    assert budget.seconds == budget.left == math.inf
    assert budget.start is None
    assert isinstance(budget.listener, Silence)


def test_silence_hears_without_a_word():
    silence = Silence()
    assert silence.found(Placement([0])) is None
    assert silence.proved(1.0, "a proof") is None


def test_time_runs_from_when_the_budget_is_made():
    budget = Budget(10.0)
    before = budget.left
    time.sleep(0.02)
    assert before <= 10.0
    assert budget.left <= before - 0.02
    assert budget.seconds == 10.0


def test_what_is_left_goes_below_zero():
    budget = Budget(0.0)
    time.sleep(0.001)
    assert budget.left < 0.0


def test_every_budget_has_its_own_silence_and_its_own_clock():
    one = Budget(1.0)
    time.sleep(0.01)
    other = Budget(1.0)
    assert other.left > one.left


def test_a_part_is_as_long_as_asked_for_where_there_is_time():
    part = Budget(10.0).part(2.0)
    assert part.seconds == 2.0
    assert 1.9 < part.left <= 2.0


def test_a_part_of_no_limit_is_as_long_as_asked_for():
    assert Budget().part(3.0).seconds == 3.0
    assert Budget().part(math.inf).left == math.inf


def test_a_part_is_never_longer_than_what_is_left():
    budget = Budget(0.5)
    time.sleep(0.01)
    part = budget.part(2.0)
    assert part.seconds <= 0.49
    assert part.left <= budget.left + 1e-3


def test_a_part_of_what_is_used_up_has_no_time():
    budget = Budget(0.0)
    time.sleep(0.001)
    assert budget.part(1.0).left < 0.0


def test_a_part_begins_when_it_is_made():
    budget = Budget(10.0)
    time.sleep(0.02)
    part = budget.part(1.0)
    assert part.left > 0.99


def test_a_part_has_the_start_and_the_listener_and_so_have_its_parts():
    start, recorder = Placement([0, 1]), Recorder()
    budget = Budget(10.0, start=start, listener=recorder)
    for part in (budget.part(1.0), budget.part(5.0).part(2.0)):
        assert part.start is start
        assert part.listener is recorder
        part.listener.proved(0.5, "a proof")
    assert recorder.heard == [(0.5, "a proof")] * 2


def test_parts_do_not_shorten_the_whole():
    budget = Budget(10.0)
    part = budget.part(0.0)
    time.sleep(0.001)
    assert part.left < 0.0 < budget.left
