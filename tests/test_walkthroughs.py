"""The tutorial and the how-to pages do what they say: their commands are run as they are typed.

Files that a page shows begin with a comment that is their name. By default the quick commands run,
and plans are made by ``heft`` or without a search; marked slow is every command of every section.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.test_docs import DOCS, blocks

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

if (os.cpu_count() or 1) < 2:
    pytest.skip("the pages split a CPU of two cores or more", allow_module_level=True)

NAMED = re.compile(r"# ([\w.]+\.(?:py|yaml))\n")
PAGES = [DOCS / "tutorial.md", DOCS / "howto.md"]
LONG = {"run", "profile", "tune"}


def sections() -> dict[str, list[str]]:
    """Heading → its command lines; the tutorial is one section."""
    commands = {"Tutorial": lines_of((DOCS / "tutorial.md").read_text("utf-8"))}
    text = (DOCS / "howto.md").read_text("utf-8")
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        commands[section.partition("\n")[0]] = lines_of(section)
    return commands


def lines_of(text: str) -> list[str]:
    shown = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line for each in shown for line in each.splitlines()]


SECTIONS = sections()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory with the files that the pages show."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for page in PAGES:
        for text in (*blocks(page, "python"), *blocks(page, "yaml")):
            if named := NAMED.match(text):
                (tmp_path / named[1]).write_text(text, "utf-8")
    yield tmp_path
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


def typed(line: str, *, quick: bool) -> None:
    """What a line of a page does; a command that ends with another code than 0 fails the test."""
    command, _, redirected = line.partition(" > ")
    words = shlex.split(command)
    if words[0] == "python" and "/" not in words[1]:
        runpy.run_path(words[1], run_name="__main__")
    if words[0] != "placewright":
        return
    done = run(*words[1:], *(quickly(words) if quick else ()))
    assert done.code == 0, f"{line}\n{done.err}"
    if redirected:
        Path(redirected).write_text(done.out, "utf-8")
    for option in ("-o", "--trace"):
        if option in words:
            assert Path(words[words.index(option) + 1]).exists(), line


def quickly(words: list[str]) -> tuple[str, ...]:
    """What makes a command of planning quick."""
    if words[1] != "plan" or "-p" in words:
        return ()
    return ("--time-limit", "0") if "--for" in words else ("-p", "heft")


def is_quick(line: str) -> bool:
    words = line.split()
    measured = {"--measure", "costs.db", "ranks.yaml", "run.json"}
    return not (measured & set(words) or (words[0] == "placewright" and words[1] in LONG))


def test_the_quick_commands_of_the_walkthroughs_do_what_the_pages_say(here):
    lines = [line for name in SECTIONS if "this machine" not in name for line in SECTIONS[name]]
    quick = [line for line in lines if is_quick(line)]
    assert len(quick) > 15
    for line in quick:
        typed(line, quick=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", SECTIONS)
def test_every_command_of_a_section_does_what_the_page_says(here, name):
    for line in SECTIONS[name]:
        typed(line, quick=False)
