"""Streams that are full, closed or read no more, and full disks: nothing ends in a traceback."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from placewright.cli import main
from placewright.cli.observing import observed
from placewright.errors import FormatError
from placewright.planning import plan
from placewright.portfolio.events import Event
from placewright.version import __version__

FULL = Path("/dev/full")
COMMANDS = {  # with more and with less than a buffer holds; by Typer, by rich and as JSON
    "version": ("--version",),
    "help": ("plan", "--help"),
    "table": ("cluster", "list"),
    "JSON": ("schema", "plan"),
    "short JSON": ("imports", "--json"),
}
CANNOT = "placewright: standard output: cannot be written (No space left on device)\n"

needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
each_command = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
buffering = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


def test_json_is_json_whatever_the_encoding_of_the_stream() -> None:
    program = (
        "from placewright.cli.output import print_json\n"
        "from placewright.cli.streams import open_streams\n"
        "open_streams()\n"
        "print_json('a\\u00b5')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert json.loads(done.stdout.decode("ascii")) == "a\u00b5"


def started(
    *arguments: str,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    unbuffered: str = "",
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", f"from {main.__module__} import main; main()", *arguments],
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )


@needs_full
@buffering
@each_command
def test_a_full_disk_is_said_in_one_line(command, unbuffered):
    with FULL.open("wb") as full:
        process = started(*command, stdout=full, unbuffered=unbuffered)
        _, err = process.communicate()
    assert (process.returncode, err.decode()) == (2, CANNOT)


@buffering
@each_command
def test_a_reader_that_has_seen_enough_is_no_error(command, unbuffered):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        process = started(*command, stdout=pipe, unbuffered=unbuffered)
        _, err = process.communicate()
    assert (process.returncode, err) == (0, b"")


def test_an_error_keeps_its_code_when_nobody_reads(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        process = started("verify", str(tmp_path / "no.json"), stdout=pipe, stderr=pipe)
    assert process.wait() == 2


@needs_full
@buffering
@pytest.mark.parametrize("words", [(), ("--json",)], ids=["text", "JSON"])
def test_a_wrong_plan_is_wrong_though_nobody_can_read_why(tmp_path, words, unbuffered):
    found = plan("zoo:gpt2?layers=1", "2x3090", planner="m-topo")
    path = tmp_path / "plan.json"
    replace(found, value=found.value * 2).save(path)
    with FULL.open("wb") as full:
        process = started("verify", str(path), *words, stdout=full, unbuffered=unbuffered)
        _, err = process.communicate()
    assert process.returncode == 4
    assert b"Traceback" not in err


@needs_full
def test_remarks_that_cannot_be_written_are_no_error():
    with FULL.open("wb") as full:
        process = started("info", "zoo:gpt2", "--json", stderr=full)
        out, _ = process.communicate()
        wrong = started("info", "zoo:gtp2", stderr=full)
        wrong.communicate()
    assert (process.returncode, out[:1]) == (0, b"{")
    assert wrong.returncode == 2


@pytest.mark.skipif(os.name == "nt", reason="by a shell of POSIX")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_stream_that_the_shell_closed_is_none(closed):
    code = f"from {main.__module__} import main; main()"
    process = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-c", code, "cluster", "list"],
        capture_output=True,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, b"")


@buffering
def test_what_libraries_print_is_not_in_what_a_command_prints(unbuffered):
    code = (
        "import ctypes, os, placewright.cli as cli\n"
        "opened = cli.open_streams\n"
        "def open_streams():\n"
        "    opened()\n"
        "    os.write(1, b'at once\\n')\n"
        "    ctypes.CDLL(None).puts(b'as the process ends')\n"
        "cli.open_streams = open_streams\n"
        "cli.main()\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, "imports", "--json"],
        capture_output=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        check=True,
    )
    assert json.loads(process.stdout)
    assert process.stderr == b"at once\nas the process ends\n"


def test_a_stream_in_memory_stays_what_it_is(monkeypatch):
    kept = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", kept)
    monkeypatch.setattr(sys, "argv", ["placewright", "--version"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert kept.buffer.getvalue().strip() == __version__.encode()


def test_events_that_cannot_be_written_are_a_fault_of_their_file(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "events.jsonl"
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    expected = r"events.jsonl: cannot be written \(File too large\)"
    try:
        with pytest.raises(FormatError, match=expected), observed(path, "auto") as tell:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
            tell(Event("end", 0.0, 1.0, 1.0, "time"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
