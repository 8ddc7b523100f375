"""A process runs on the cores it is pinned to, and where it ran before afterwards."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from placewright.errors import InputError
from placewright.system.pinning import pinned

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system pins no process"
)
MANY = 100_000  # more than any machine has


def usable() -> list[int]:
    return sorted(os.sched_getaffinity(0))


@contextmanager
def sleeping_thread() -> Iterator[int]:
    """The number of a thread that does nothing meanwhile."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        yield thread.native_id
    finally:
        end.set()
        thread.join()


@needs_affinity
@pytest.mark.parametrize("place", [0, -1])
def test_a_process_is_on_its_cores_and_back_on_all_afterwards(place: int) -> None:
    before = usable()
    with pinned([before[place]]):
        assert usable() == [before[place]]
        with pinned(before):
            assert usable() == before
        assert usable() == [before[place]]
    assert usable() == before


@needs_affinity
def test_threads_that_run_already_or_begin_meanwhile_are_moved_too() -> None:
    before = usable()
    with sleeping_thread() as old:
        with pinned(before[:1]):
            assert os.sched_getaffinity(old) == {before[0]}
            later = sleeping_thread()
            new = later.__enter__()
            assert os.sched_getaffinity(new) == {before[0]}
        assert sorted(os.sched_getaffinity(old)) == before
        assert sorted(os.sched_getaffinity(new)) == before
        later.__exit__(None, None, None)


@needs_affinity
def test_a_thread_with_cores_of_its_own_gets_them_back() -> None:
    first, *_, last = [*usable(), usable()[-1]]
    with sleeping_thread() as other:
        os.sched_setaffinity(other, {last})
        with pinned([first]):
            assert os.sched_getaffinity(other) == {first}
        assert os.sched_getaffinity(other) == {last}


@needs_affinity
def test_an_error_inside_undoes_it_too() -> None:
    before = usable()
    with pytest.raises(KeyError), pinned(before[:1]):
        raise KeyError
    assert usable() == before


@pytest.mark.parametrize("count", [1, 2])
def test_torch_has_as_many_threads_as_cores_meanwhile(count: int) -> None:
    torch = pytest.importorskip("torch")
    cores = usable()[:count] if hasattr(os, "sched_getaffinity") else range(count)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with pinned(cores):
            assert torch.get_num_threads() == len(cores)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_torch_is_not_imported_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pinned(usable()[:1] if hasattr(os, "sched_getaffinity") else [0]):
        assert "torch" not in sys.modules


def test_where_the_system_pins_nothing_only_threads_are_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    for name in ("sched_setaffinity", "sched_getaffinity"):
        monkeypatch.delattr(os, name, raising=False)
    before = torch.get_num_threads()
    with pinned([0]):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    with pytest.raises(InputError, match=f"core {MANY} is not there"), pinned([0, MANY]):
        pass


@pytest.mark.parametrize(
    ("cores", "named"),
    [
        ([MANY], f"core {MANY} is not there"),
        ([0, MANY, MANY + 1], f"cores {MANY} and {MANY + 1} are not there"),
        ([-1], "core -1 is not there"),
        ([], "no core to run on is given"),
    ],
)
def test_cores_that_are_not_there_are_named(cores: list[int], named: str) -> None:
    with pytest.raises(InputError, match=named) as caught, pinned(cores):
        pass
    assert "\n" not in str(caught.value)


@needs_affinity
@pytest.mark.parametrize("beside", [True, False])
def test_a_core_that_the_system_leaves_out_is_named(
    beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system pins to those of the cores that there are, and says nothing of the others."""
    before = usable()
    everywhere = frozenset({*before, MANY})
    monkeypatch.setattr("placewright.system.pinning._possible", lambda: everywhere)
    cores = [*(before[:1] if beside else []), MANY]
    with pytest.raises(InputError, match=f"core {MANY} is not there"), pinned(cores):
        pass
    assert usable() == before
