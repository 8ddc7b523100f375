"""``placewright profiles``: what was measured is listed, shown, copied and deleted."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
from pathlib import Path

import pytest

from placewright.costs.profiles.entry import DeviceFigures, ProfiledProgram
from placewright.costs.profiles.exchange import Profiles, profiles_document
from placewright.costs.profiles.store import ProfileStore
from tests.cli.running import Run, run
from tests.costs.profiles.profiles import FOUR, H200, LINEAR, OLD, RELU, TORCH, XEON, store_of_four

COMMANDS = ("list", "show", "export -o out.json", "import in.json", "prune --device H200 --yes")


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the user's store of four profiles."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACEWRIGHT_PROFILES", str(tmp_path / "mine"))
    return store_of_four(tmp_path / "mine")


def profiles(command: str, *more: object) -> Run:
    result = run("profiles", *command.split(), *more)
    assert (result.code, result.err) == (0, "")
    return result


def refused(command: str, *more: object) -> str:
    result = run("profiles", *command.split(), *more)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("placewright: ")
    assert result.err.count("\n") == 1
    return result.err


def content(path: Path) -> dict[object, object]:
    with ProfileStore(path, writable=False) as store:
        return dict(store.entries())


def test_list_has_a_row_per_device_and_library():
    out = profiles("list").out
    for text in (H200, XEON, TORCH, OLD, "2026-07-03T12:00:00Z", "mine"):
        assert text in out
    assert profiles("list --json").json[1] == {
        "device": H200,
        "library": TORCH,
        "ops": 2,
        "first": "2026-07-01T12:00:00Z",
        "last": "2026-07-03T12:00:00Z",
    }


def test_show_has_the_slowest_first():
    out = profiles("show").out
    assert out.index("2.000 ms") < out.index("1.000 ms") < out.index("5.000 µs")
    assert "500.000 µs - 2.000 ms" in out
    assert "4 of 4" in out
    assert "1 of 3" in profiles("show --device h200 --limit 1").out
    assert "3 of 3" in profiles(f"show --device h200 --limit {10**20}").out
    entries = profiles("show --op relu --json").json
    assert [(each["signature"], each["device"]) for each in entries] == [(RELU, XEON), (RELU, H200)]
    assert entries[0].keys() >= {"seconds", "low", "high", "samples", "method", "memory"}


def test_nothing_is_called_what_is_no_text():
    odd = "\udcff"  # a byte that is no UTF-8, as it comes from a shell
    assert profiles("show --json --library", odd).json == []
    assert "0 of 0" in profiles("show --op", odd).out
    assert profiles("prune --yes --json --device", odd).json["deleted"] == 0


def test_what_is_exported_is_what_is_imported_elsewhere():
    assert profiles("export -o out.json").out == "4 entries written to out.json\n"
    said = profiles("import out.json --profiles other").out
    assert said == "4 entries read: 4 new, 0 replaced in other\n"
    assert content(Path("other")) == FOUR
    again = profiles("import out.json out.json --profiles other --json").json
    assert again == {"new": 0, "replaced": 4, "store": "other"}


def test_figures_and_programs_go_with_what_is_exported(store: Path):
    figures, whole = DeviceFigures({"fp32": 6e13}, 4.8e12, False), {LINEAR: 3, RELU: 1}
    with ProfileStore(store) as mine:
        mine.put_figures(H200, figures)
        mine.put_program(ProfiledProgram("hf:bert", TORCH, whole))
    profiles("export -o all.json")
    profiles("export -o some.json --op relu")
    for name, programs in (("all", [ProfiledProgram("hf:bert", TORCH, whole)]), ("some", [])):
        profiles(f"import {name}.json --profiles {name}")
        with ProfileStore(name, writable=False) as other:
            assert other.figures() == {H200: figures}
            assert other.programs() == programs


def test_a_program_that_lacks_a_call_is_forgotten(store: Path):
    with ProfileStore(store) as mine:
        mine.put_figures(XEON, DeviceFigures({"fp32": 6e13}, 4.8e12, False))
        mine.put_program(ProfiledProgram("hf:bert", TORCH, {LINEAR: 3, RELU: 1}))
        mine.put_program(ProfiledProgram("hf:gpt2", TORCH, {LINEAR: 1}))
        mine.prune(op="relu")
        assert [each.name for each in mine.programs()] == ["hf:gpt2"]
        assert mine.figures() == {}  # nothing of the device is left


def test_an_export_may_be_of_some():
    result = profiles("export -o out.json --library 2.6 --json").json
    assert result == {"entries": 1, "file": "out.json"}
    (group,) = json.loads(Path("out.json").read_text("utf-8"))["groups"]
    assert (group["device"], group["library"], group["signature"]) == (H200, OLD, [LINEAR])


def test_an_export_does_not_replace_the_store(store: Path):
    assert "is the store itself" in refused("export -o mine")
    assert content(store) == FOUR


def test_prune_asks(store: Path, monkeypatch: pytest.MonkeyPatch):
    for answer, left in (("no\n", 4), ("\n", 4), ("y\n", 3)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        result = run("profiles", "prune", "--before", "2026-01-01")
        assert result.code == 0
        assert OLD in result.out
        assert "Delete 1 entry from" in result.err
        assert f"{4 - left} entr" in result.out
        assert len(content(store)) == left
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    result = run("profiles", "prune", "--op", "relu")
    assert result.code == 2
    assert "give --yes" in result.err
    assert len(content(store)) == 3


def test_prune_need_not_ask(store: Path):
    assert "2 entries deleted" in profiles("prune --op relu --yes").out
    assert profiles("prune --device nvidia --json").json["deleted"] == 2
    assert content(store) == {}
    assert "0 entries deleted" in profiles("prune --device nvidia").out


def test_prune_must_be_told_what():
    assert "nothing says what to delete" in refused("prune --yes")
    assert "--before is 'May'" in refused("prune --before May")


def changed(**columns: object) -> object:
    document = profiles_document(Profiles(FOUR))
    document["groups"][0] |= columns
    return document


ONE = profiles_document(Profiles(dict(list(FOUR.items())[:1])))
BAD_FILES = {
    "not JSON": ("{", "not valid JSON"),
    "another format": ({"format": "placewright.plan/1"}, "expected 'placewright.profiles/1'"),
    "a newer version": ({"format": "placewright.profiles/2"}, "update placewright"),
    "an unknown field": (changed(colour="red"), "field groups.0.colour"),
    "columns of two lengths": (changed(samples=[1]), "field groups.0.samples: has 1 entries"),
    "another method": (changed(method=["guessed", "guessed"]), "field groups.0.method.0"),
    "a median out of its range": (changed(seconds=[9.0, 9.0]), "field groups.0, entry 0: a pro"),
    "no moment": (changed(measured_at=["now", "now"]), "'now'; write the time as"),
    "a dtype nobody knows": (changed(dtype=["fp3", "fp3"]), "a profile has the dtype 'fp3'"),
    "figures of no device": (
        changed(figures={"peak_flops": {}, "memory_bandwidth": 1e9, "is_cpu": True}),
        "field groups.0.figures",
    ),
    "no calls": (
        ONE | {"programs": [{"name": "a", "library": TORCH, "calls": {RELU: 0}}]},
        "programs.0.calls",
    ),
    "an op twice": (ONE | {"groups": ONE["groups"] * 2}, "is there twice"),
}  # fmt: skip


@pytest.mark.parametrize(("document", "what"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused_and_nothing_imported(store: Path, document: object, what: str):
    Path("good.json").write_text(json.dumps(profiles_document(Profiles({}))), "utf-8")
    text = document if isinstance(document, str) else json.dumps(document)
    Path("bad.json").write_text(text, "utf-8")
    message = refused("import good.json bad.json")
    assert message.startswith("placewright: bad.json: ")
    assert what in message
    assert content(store) == FOUR


@pytest.mark.parametrize("command", COMMANDS)
def test_a_store_that_is_none_is_told_by_every_command(command: str):
    Path("in.json").write_text(json.dumps(ONE), "utf-8")
    Path("text").write_text("no store\n" * 100, "utf-8")
    assert "text: is no SQLite file" in refused(command, "--profiles", "text")
    connection = sqlite3.connect("newer")
    connection.execute("PRAGMA application_id = 0x70777072")
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    assert "newer: is a store of version 9" in refused(command, "--profiles", "newer")
    assert not Path("out.json").exists()


@pytest.mark.parametrize("command", [each for each in COMMANDS if "import" not in each])
def test_a_store_that_is_not_there_is_told_where_it_was_given(
    command: str, monkeypatch: pytest.MonkeyPatch
):
    assert "none: no such file" in refused(command, "--profiles", "none")
    monkeypatch.setenv("PLACEWRIGHT_PROFILES", "none")
    profiles(command)
    assert not Path("none").exists()
