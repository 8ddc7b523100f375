"""Passes count that run while the machine is as fast as it has been."""

from __future__ import annotations

import math

import pytest

from placewright.costs.profiles.program import (
    FEWEST,
    MOST,
    PASS_SECONDS,
    WARM_UPS,
    samples_of,
    share_done,
)
from placewright.costs.profiles.steady import (
    LEAST_SHARE,
    LONG_SECONDS,
    MOST_SECONDS,
    MOST_TIMES,
    PART_SECONDS,
    STEADY_ENOUGH,
    Passes,
    Watch,
)
from tests.costs.profiles.machines import READING, Machine


def measured(machine: Machine, seconds: float, watch: Watch | None = None):
    """Passes of so many seconds, as long as they are asked for: what each took, and which count."""
    passes, took = Passes(watch or machine.watch(), share_done), []
    while passes.share < 1.0:
        took.append(machine.work(seconds))
        passes.passed()
    return took, passes


def slow_between(start: float, end: float, speed: float = 0.5):
    return lambda now: speed if start <= now < end else 1.0


@pytest.mark.parametrize("seconds", [1e-4, 1e-2, 0.1, 1.0])
def test_on_a_quiet_machine_all_passes_count_and_none_is_repeated(seconds):
    machine = Machine()
    took, passes = measured(machine, seconds)
    assert passes.counted == passes.steady == list(range(passes.ran))
    assert passes.ran == min(max(FEWEST, int(PASS_SECONDS / seconds)), MOST)
    assert took == [pytest.approx(seconds)] * passes.ran


@pytest.mark.parametrize("seconds", [2e-3, 1e-2, 0.1, 1.0])
def test_the_reference_takes_less_than_a_tenth_of_the_passes(seconds):
    machine = Machine()
    watch = machine.watch()
    before = machine.readings
    took, _ = measured(machine, seconds, watch)
    assert (machine.readings - before - 1) * READING < 0.1 * sum(took)


def test_passes_while_the_machine_is_slow_are_repeated_and_do_not_count():
    machine = Machine(slow_between(0.5, 1.5))
    took, passes = measured(machine, 0.05)
    assert all(took[number] == pytest.approx(0.05) for number in passes.counted)
    assert passes.counted == passes.steady and 0 < passes.ran - len(passes.steady) < 15
    assert sum(took[number] for number in passes.steady) >= PASS_SECONDS


def test_a_machine_that_is_slow_at_first_is_found_out_when_it_is_fast():
    machine = Machine(slow_between(0.0, 1.0))
    took, passes = measured(machine, 0.05)
    assert took[0] == pytest.approx(0.1)
    assert all(took[number] == pytest.approx(0.05) for number in passes.counted)


def test_what_lies_between_a_fast_and_a_slow_reading_is_not_steady():
    machine = Machine()
    watch = machine.watch()
    passes = Passes(watch, lambda count, spent: count / 3)
    for speed in (1.0, 0.5, 1.0):
        machine.work(1.0)
        machine.speed = lambda now, speed=speed: speed
        passes.passed()
    assert passes.steady == [0]


@pytest.mark.parametrize("seconds", [1e-3, 0.1, 2.0])
def test_waiting_for_a_steady_machine_has_an_end_and_then_all_passes_count(seconds):
    machine = Machine()
    watch = machine.watch()
    machine.speed = lambda now: 0.5
    began = machine.now
    took, passes = measured(machine, seconds, watch)
    normal = min(max(FEWEST * 2 * seconds, PASS_SECONDS), MOST * 2 * seconds)
    most = min(MOST_TIMES * normal, normal + MOST_SECONDS)
    assert passes.steady == [] and passes.counted == list(range(passes.ran))
    assert most * 0.95 <= machine.now - began <= most * 1.2 + 2 * took[0]


def test_a_few_steady_passes_count_alone():
    machine = Machine()
    watch = machine.watch()
    machine.speed = lambda now: 1.0 if now < 0.45 else 0.5
    took, passes = measured(machine, 0.12, watch)
    assert passes.counted == passes.steady == list(range(STEADY_ENOUGH))
    assert len(took) > 10


def test_where_few_are_steady_the_next_steadiest_count_if_they_are_not_much_slower():
    machine = Machine()
    watch = machine.watch()
    machine.speed = lambda now: 1.0 if now < 0.45 else 0.9 if now < 2.5 else 0.5
    took, passes = measured(machine, 0.12, watch)
    assert passes.steady == [0, 1, 2]
    assert len(passes.counted) == math.ceil(LEAST_SHARE * len(took)) > STEADY_ENOUGH
    assert max(took[number] for number in passes.counted) == pytest.approx(0.12 / 0.9)


def test_no_pass_is_begun_in_vain_once_there_are_as_many_as_without():
    machine = Machine(slow_between(0.5, 5.0))
    took, _ = measured(machine, 0.05)
    late = [each for each in took[30:] if each > 0.06]
    assert len(took) > 30 and not late


def test_calls_are_watched_in_batches_and_their_numbers_go_on():
    machine, numbers = Machine(slow_between(0.02, 0.06)), []

    def call(number: int) -> None:
        numbers.append(number)
        machine.work(1e-3)

    watch = machine.watch()
    before = machine.readings
    samples = samples_of(call, watch)
    assert samples == [pytest.approx(1e-3)] * len(samples) and len(samples) >= FEWEST
    assert numbers == list(range(len(numbers))) and len(numbers) > WARM_UPS + len(samples)
    assert machine.readings - before < len(numbers) / 8


@pytest.mark.parametrize("readings", [(1.0, 1.4), (1.07, 1.0), (1.07, 1.49)])
def test_each_part_of_a_reference_has_a_tolerance_of_its_own(readings):
    watch = Watch(lambda: (1.0, 1.0), (0.08, 0.5), burst=1, clock=lambda: 0.0)
    assert watch.is_steady(readings)
    assert not watch.is_steady((readings[0] + 0.1, readings[1]))
    assert not watch.is_steady((readings[0], readings[1] + 0.6))


def test_a_part_is_repeated_until_it_can_be_timed():
    machine = Machine()
    short, long = PART_SECONDS / 9.5, PART_SECONDS * 5
    assert machine.reference(short, long)() == pytest.approx((10 * short, long))


def test_a_reading_on_a_busy_machine_is_cut_short():
    machine = Machine()
    reference = machine.reference(2 * PART_SECONDS)
    machine.speed = lambda now: PART_SECONDS / LONG_SECONDS
    before = machine.now
    assert reference() == pytest.approx((2 * LONG_SECONDS,))
    assert machine.now - before == pytest.approx(2 * LONG_SECONDS)
