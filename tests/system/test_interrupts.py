"""Interrupts are noticed by the innermost that listens, and those around it know of them after."""

import signal

import pytest

from placewright.system.interrupts import noticed_interrupts, prints_when_interrupted


def test_the_outer_knows_in_the_end_what_came_to_the_inner():
    before = signal.getsignal(signal.SIGINT)
    with noticed_interrupts() as outer:
        with noticed_interrupts(raising=False) as inner:
            signal.raise_signal(signal.SIGINT)
            assert (inner.came, outer.came) == (True, False)
        assert outer.came
    assert signal.getsignal(signal.SIGINT) is before


def test_what_came_to_the_outer_alone_is_not_the_next_inners():
    with noticed_interrupts() as outer:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with noticed_interrupts() as inner:
            pass
    assert (outer.came, inner.came) == (True, False)


def test_who_is_told_to_terminate_does_when_the_outermost_has_ended():
    before = signal.getsignal(signal.SIGTERM)
    steps = []
    with pytest.raises(SystemExit) as stop, noticed_interrupts(raising=False):
        with noticed_interrupts(raising=False):
            signal.raise_signal(signal.SIGTERM)
            steps.append("inner")
        steps.append("outer")
    assert stop.value.code == 128 + signal.SIGTERM
    assert steps == ["inner", "outer"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_command_prints_what_it_has():
    with prints_when_interrupted(), noticed_interrupts(raising=False) as interrupts:
        signal.raise_signal(signal.SIGTERM)
    assert interrupts.came


def test_a_handler_of_the_callers_stays_in_force():
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with noticed_interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]
    assert not interrupts.came
