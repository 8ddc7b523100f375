"""Tensors between devices: none is read before it is written, no memory used again too soon."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from placewright.system.accelerators.handing import hand, taken  # noqa: E402
from placewright.system.accelerators.places import CudaPlace  # noqa: E402
from tests.system.accelerators.standin import StandIn  # noqa: E402

BYTES = 24


@pytest.fixture
def driver():
    made = StandIn(gpus=2)
    yield made
    assert made.faults == []


def made_on(place):
    if place is None:
        return torch.arange(6.0)
    with place.entered():
        return torch.arange(6.0) + 0.0


def flat_of(value, place):
    def flat():
        if place is None:
            return value.view(torch.uint8)
        with place.entered():
            return value.view(torch.uint8)

    return flat


def read_by(driver, place, value):
    if place is None:
        driver.read_by_host(value)
        return value
    with place.entered():
        return value + 0


PAIRS: dict[str, tuple[int | None, int | None]] = {
    "cpu to gpu": (None, 0),
    "gpu to cpu": (0, None),
    "gpu to gpu": (0, 1),
    "streams of one gpu": (0, 0),
    "cpu to cpu": (None, None),
}


def ends(driver, pair):
    return [None if gpu is None else CudaPlace(driver, gpu) for gpu in PAIRS[pair]]


@pytest.mark.parametrize("pair", list(PAIRS))
def test_what_arrives_is_what_was_sent_and_nobody_reads_it_before(driver, pair):
    source, target = ends(driver, pair)
    value = made_on(source)
    handed = hand(value, flat_of(value, source), source, target)
    found = taken(handed, target)
    read_by(driver, target, found)
    assert torch.equal(found.view(torch.float32), value)
    assert handed.is_flat == (pair in ("cpu to gpu", "gpu to cpu", "gpu to gpu"))


@pytest.mark.parametrize("pair", ["cpu to gpu", "gpu to cpu", "gpu to gpu", "streams of one gpu"])
def test_who_does_not_wait_is_found_by_the_stand_in(pair):
    driver = StandIn(gpus=2)
    source, target = ends(driver, pair)
    value = made_on(source)
    handed = hand(value, flat_of(value, source), source, target)
    read_by(driver, target, handed.value)
    assert any("has not written yet" in fault for fault in driver.faults)


def test_memory_of_the_host_between_a_cpu_and_a_gpu_is_pinned(driver):
    place = CudaPlace(driver, 0)
    for source, target in ((None, place), (place, None)):
        before, value = driver.pinned_bytes, made_on(source)
        hand(value, flat_of(value, source), source, target)
        assert driver.pinned_bytes - before == BYTES


def test_a_sender_may_write_to_its_tensor_when_it_has_sent_it_to_a_gpu(driver):
    place, value = CudaPlace(driver, 0), torch.arange(6.0)
    handed = hand(value, flat_of(value, None), None, place)
    value.zero_()
    assert taken(handed, place).view(torch.float32).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_sender_waits_for_nothing_and_copies_beside_its_computing(driver):
    source, target = CudaPlace(driver, 0), CudaPlace(driver, 1)
    for to in (target, None):
        driver.log.clear()
        value = made_on(source)
        hand(value, flat_of(value, source), source, to)
        asked = [each[0] for each in driver.log]
        assert asked == ["record", "wait", "copy", "record"]
        assert driver.log[2] == ("copy", source.copying.name)


def test_an_event_that_has_not_passed_has_no_time(driver):
    place = CudaPlace(driver, 0)
    moments = place.moments()
    with place.entered():
        moments.mark()
        torch.zeros(2).add(1)
        moments.mark()
    [seconds] = moments.intervals()
    assert seconds > 0
    moments._events[0].record(place.computing)
    moments._events[0].elapsed_time(moments._events[1])
    assert driver.faults.pop() == "the time of an event that may not have passed is read"


# -- with a GPU --------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU here")
@pytest.mark.parametrize("pair", ["cpu to gpu", "gpu to cpu", "streams of one gpu"])
def test_a_gpu_itself_brings_tensors_over_while_it_computes(pair):
    from placewright.system.accelerators.cuda import Cuda

    source, target = ends(Cuda(), pair)
    for repeat in range(20):
        if source is None:
            value = torch.full((1 << 20,), float(repeat))
        else:
            with source.entered():
                square = torch.ones(1024, 1024, device=source.device)
                for _ in range(10):  # what is sent is not there yet when it is
                    square = square @ square / 1024
                value = torch.full((1 << 20,), float(repeat), device=source.device) * square[0, 0]
        handed = hand(value, flat_of(value, source), source, target)
        found = taken(handed, target)
        if target is None:
            assert bool((found.view(torch.float32) == repeat).all())
        else:
            with target.entered():
                assert bool((found.view(torch.float32) == repeat).all().item())
