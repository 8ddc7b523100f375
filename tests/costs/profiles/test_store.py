"""What is put into a profile store is what comes out, by key and chosen by texts."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.costs.profiles import store as store_module
from placewright.costs.profiles.entry import Measured, ProfileKey
from placewright.costs.profiles.store import ProfileStore, default_path
from placewright.errors import ProfileError
from tests.costs.profiles.profiles import (
    FOUR,
    H200,
    LINEAR,
    OLD,
    RELU,
    TORCH,
    XEON,
    keys,
    measured,
    some_profiles,
    store_of_four,
)


@pytest.fixture
def four(tmp_path: Path) -> Path:
    return store_of_four(tmp_path / "profiles.sqlite")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that examples share, for making one takes many writes to the disk."""
    return tmp_path_factory.mktemp("shared") / "profiles.sqlite"


@given(profiles=some_profiles, others=st.lists(keys, max_size=5))
def test_what_was_put_is_got_whatever_texts_the_keys_are(
    shared: Path, profiles: dict[ProfileKey, Measured], others: list[ProfileKey]
):
    with ProfileStore(shared) as store:
        known = store.get([*profiles, *others])
        assert store.put(profiles) == len(profiles.keys() - known.keys())
    with ProfileStore(shared, writable=False) as store:
        others_there = {key: known[key] for key in others if key in known}
        assert store.get([*profiles, *others]) == others_there | profiles
        assert dict(store.entries()).items() >= profiles.items()


def test_more_keys_than_fit_into_one_query_are_got(tmp_path: Path):
    many = {ProfileKey(f"op{i}()", H200, TORCH): measured(i) for i in range(1234)}
    with ProfileStore(tmp_path / "profiles") as store:
        assert store.put(many) == 1234
        assert store.get(many) == many


def test_a_key_that_is_there_is_given_the_new_figures(four: Path):
    changed = {key: replace(each, samples=99) for key, each in FOUR.items() if key.device == XEON}
    new = {ProfileKey("new()", H200, TORCH): measured(1.0)}
    with ProfileStore(four) as store:
        assert store.put(changed | new) == 1
        assert store.get([*FOUR, *new]) == FOUR | changed | new


def test_a_put_that_fails_writes_nothing(four: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(measured: Measured, **changes: object) -> Measured:
        raise KeyboardInterrupt

    with ProfileStore(four) as store:
        monkeypatch.setattr(store_module, "replace", interrupted)  # as it fills in when that was
        with pytest.raises(KeyboardInterrupt):
            store.put({ProfileKey("new()", "another device", TORCH): measured(1.0, at="")})
        monkeypatch.undo()
        assert dict(store.entries()) == FOUR
        assert store.put({ProfileKey("new()", "another device", TORCH): measured(1.0)}) == 1


def test_the_store_says_when_it_was_measured_where_nobody_else_does(tmp_path: Path):
    key = ProfileKey(RELU, H200, TORCH)
    before = datetime.now(UTC).replace(microsecond=0)
    with ProfileStore(tmp_path / "profiles") as store:
        store.put({key: measured(1.0, at="")})
        at = datetime.fromisoformat(store.get([key])[key].measured_at)
    assert before <= at <= datetime.now(UTC)


def test_groups_are_devices_and_libraries(four: Path):
    with ProfileStore(four, writable=False) as store:
        found = [(each.device, each.library, each.ops) for each in store.groups()]
        assert found == [(XEON, TORCH, 1), (H200, TORCH, 2), (H200, OLD, 1)]
        last = store.groups()[1]
        assert (last.first, last.last) == ("2026-07-01T12:00:00Z", "2026-07-03T12:00:00Z")
        assert [each.ops for each in store.groups(op="relu")] == [1, 1]


def test_entries_come_slowest_first(four: Path):
    with ProfileStore(four, writable=False) as store:
        assert [each.seconds for _, each in store.entries()] == [2e-3, 1e-3, 5e-6, 2e-6]


CHOICES = [
    ({"device": "h200"}, lambda key: key.device == H200),
    ({"device": "H200", "library": "2.6"}, lambda key: key.library == OLD),
    ({"op": "LINEAR"}, lambda key: key.signature == LINEAR),
    ({"op": "fp32"}, lambda key: False),  # is of the arguments
    ({"device": "%"}, lambda key: False),
    ({"device": ""}, lambda key: True),
]


@pytest.mark.parametrize(("choice", "is_chosen"), CHOICES, ids=[str(each) for each, _ in CHOICES])
def test_choices_are_the_same_for_entries_groups_and_prune(four: Path, choice, is_chosen):
    chosen = {key: each for key, each in FOUR.items() if is_chosen(key)}
    with ProfileStore(four) as store:
        assert dict(store.entries(**choice)) == chosen
        assert sum(group.ops for group in store.groups(**choice)) == len(chosen)
        assert store.prune(**choice) == len(chosen)
        left = {key: each for key, each in FOUR.items() if not is_chosen(key)}
        assert dict(store.entries()) == left


def test_what_is_older_is_pruned_and_the_file_shrinks(tmp_path: Path):
    path = tmp_path / "profiles"
    old = {ProfileKey(f"op{i}()" * 20, H200, OLD): measured(1.0) for i in range(2000)}
    with ProfileStore(path) as store:
        store.put(old | {ProfileKey("new()", H200, TORCH): measured(1.0, "2026-07-02T00:00:00Z")})
    size = path.stat().st_size
    with ProfileStore(path) as store:
        assert store.prune(before=datetime(2026, 7, 2, tzinfo=UTC)) == 2000
        assert [(group.library, group.ops) for group in store.groups()] == [(TORCH, 1)]
    assert path.stat().st_size < size / 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_store_goes_on_in_a_forked_process(four: Path):
    new = {ProfileKey("new()", H200, TORCH): measured(1.0)}
    with ProfileStore(four) as store:
        child = os.fork()
        if not child:
            os._exit(0 if store.put(new) == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert store.put(new) == 0


def test_the_users_store_is_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PLACEWRIGHT_PROFILES", raising=False)
    assert default_path().name == "profiles.sqlite"
    path = tmp_path / "deep" / "down" / "mine"
    monkeypatch.setenv("PLACEWRIGHT_PROFILES", str(path))
    with ProfileStore(writable=False) as store:  # is not there, which is no fault
        assert (store.get(FOUR), store.groups(), path.exists()) == ({}, [], False)
    with ProfileStore() as store:
        store.put(FOUR)
    assert path.is_file()
    with ProfileStore(writable=False) as store:
        assert store.get(FOUR) == FOUR


def test_a_store_opened_for_reading_is_not_written(four: Path):
    for path in (four, None):
        with (
            ProfileStore(path, writable=False) as store,
            pytest.raises(ProfileError, match="opened for reading"),
        ):
            store.put(FOUR)


IMPOSSIBLE = {
    "negative": {"low": -1.0},
    "not in order": {"low": 2.0},
    "infinite": {"high": float("inf")},
    "no number": {"seconds": float("nan")},
    "no samples": {"samples": 0},
    "another method": {"method": "guessed"},
    "negative memory": {"memory": -1.0},
    "no time": {"measured_at": "yesterday"},
    "no zone": {"measured_at": "2026-07-01T12:00:00"},
    "no such day": {"measured_at": "2026-02-30T12:00:00Z"},
}


@pytest.mark.parametrize("change", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_figures_are_refused(change: dict[str, object]):
    with pytest.raises(ProfileError, match=r"^a profile .*"):
        replace(measured(1.0), **change)


def test_half_a_character_is_refused():
    with pytest.raises(ProfileError, match=r"half a character: '\\ud800'"):
        ProfileKey("op()", "\ud800", TORCH)
