"""What the shell offers at TAB is what commands take, and comes at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args
from unittest import mock

import pytest
import typer

from placewright import options, planners
from placewright.cli.app import app
from placewright.cli.bash import DONE, mend_words
from placewright.coarsen import COARSENINGS, check_name
from placewright.costs.clusters import preset_names, presets
from placewright.costs.roofline import Optimizer
from placewright.formats.schema import FORMATS
from placewright.importers import zoo
from placewright.objectives import OBJECTIVES
from tests.cli.running import run

ZOO = [f"zoo:{entry.name}" for entry in zoo.entries()]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offered(*words: str) -> list[str]:
    """What is offered for the last of the words behind ``placewright``, as bash parts them."""
    environment = {
        "_PLACEWRIGHT_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(["placewright", *words]),
        "COMP_CWORD": str(len(words)),
    }
    with mock.patch.dict(os.environ, environment):
        result = run()
    assert (result.code, result.err) == (0, "")
    return result.out.split()


def names_of(objective: str) -> list[str]:
    return [row.name for row in planners.planners_for(objective)]


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("command", ["plan", "sweep"])
def test_planners_are_those_of_the_objective_given(command: str, objective: str):
    assert offered(command, "m", "--objective", objective, "-p", "") == names_of(objective)
    assert offered(command, "m", "--objective", objective, "--planner", "he") == [
        name for name in names_of(objective) if name.startswith("he")
    ]


@pytest.mark.parametrize("command", ["plan", "improve", "sweep", "replan"])
def test_without_an_objective_there_are_the_planners_of_all(command: str):
    assert set(offered(command, "m", "-p", "")) == {row.name for row in planners.TABLE}


def test_what_implies_an_objective_chooses_its_planners():
    assert offered("sweep", "m", "--batches", "1,2", "-p", "") == names_of("batch-throughput")


def test_planners_in_a_row_are_offered_once():
    assert offered("compare", "m", "--planners", "he") == ["heft"]
    assert offered("compare", "m", "--planners", "heft,me,he") == []
    row = offered("compare", "m", "--objective", "latency", "--planners", "heft,met,m")
    rest = {name for name in names_of("latency") if name[0] == "m"} - {"met"}
    assert row == [f"heft,met,{name}" for name in names_of("latency") if name in rest]


@pytest.mark.parametrize(
    "words", [("plan", "m", "-c"), ("replan", "p", "--cluster"), ("cluster", "show")]
)
def test_clusters_are_the_presets_and_files(words: tuple[str, ...]):
    for name in ("2x.yaml", "2x.txt", "mine.json", ".hidden.json"):
        Path(name).touch()
    Path("boxes").mkdir()
    files = ["2x.yaml", "boxes/", "mine.json"]
    assert offered(*words, "") == [*(each.name for each in presets()), *files]
    assert offered(*words, "2x") == ["2x3090", "2x.yaml"]


def test_clusters_in_a_row_are_offered_once():
    assert offered("sweep", "m", "--clusters", "2x3090,8xA100,8xH") == [
        "2x3090,8xA100,8xH100",
        "2x3090,8xA100,8xH200",
    ]
    assert offered("sweep", "m", "--clusters", "mine.yaml,this") == ["mine.yaml,this-machine"]


def test_names_of_presets_are_those_of_the_list():
    assert list(preset_names()) == [each.name for each in presets()]


@pytest.mark.parametrize("command", ["plan", "compare", "sweep", "info"])
def test_sources_are_models_of_the_zoo_and_files(command: str):
    for name in ("zoom.onnx", "zoo.txt", "a.pt2"):
        Path(name).touch()
    assert offered(command, "") == [*ZOO, "a.pt2", "zoom.onnx"]
    assert offered(command, "zoo") == [*ZOO, "zoom.onnx"]


@pytest.mark.parametrize("words", [("plan", "mo"), ("plan", "m", "-c", "mi"), ("verify", "mo")])
def test_where_no_name_fits_files_are_left_to_the_shell(words: tuple[str, ...]):
    for name in ("model.onnx", "mine.yaml"):
        Path(name).touch()
    assert offered(*words) == []


CHOICES = {
    "--objective": tuple(OBJECTIVES),
    "--transfer-unit": get_args(options.TransferUnit),
    "--contention": get_args(options.Contention),
    "--memory": get_args(options.Memory),
    "--load": get_args(options.Load),
    "--schedule": get_args(options.PipelineSchedule),
    "--optimizer": get_args(Optimizer),
    "--coarsen": tuple(COARSENINGS),
}


@pytest.mark.parametrize("option", CHOICES)
@pytest.mark.parametrize("command", ["plan", "compare", "sweep"])
def test_options_of_few_words_offer_these(command: str, option: str):
    assert offered(command, "m", option, "") == list(CHOICES[option])
    first = CHOICES[option][0]
    assert first in offered(command, "m", option, first[:2])
    assert offered(command, "m", option, "there-is-none") == []


def test_coarsenings_follow_one_another_each_once():
    assert offered("plan", "m", "--coarsen", "repeats+f") == ["repeats+fusion"]
    rows = offered("plan", "m", "--coarsen", "repeats+fusion+")
    assert rows == [
        f"repeats+fusion+{name}" for name in ("sequential", "modules", "layers", "units")
    ]
    for row in rows:
        check_name(row)
    assert offered("plan", "m", "--coarsen", "none+") == []


def test_formats_are_offered():
    assert offered("schema", "") == list(FORMATS)


def test_commands_and_options_are_offered():
    assert offered("pla") == ["plan", "planners"]
    assert offered("plan", "--contig") == ["--contiguous"]


def test_every_option_of_a_name_or_few_words_offers_some():
    named = {*CHOICES, "--planner", "--planners", "--cluster", "--clusters"}
    asked = set()
    for command, flag in options_of_all_commands():
        if flag in named:
            asked.add(flag)
            assert offered(*command.split(), "x", flag, ""), (command, flag)
    assert asked == named


def options_of_all_commands() -> list[tuple[str, str]]:
    group = typer.main.get_command(app)
    return [
        (name, flag)
        for name, command in group.commands.items()
        for parameter in command.params
        for flag in parameter.opts
    ]


def test_a_value_that_a_command_would_refuse_does_not_disturb():
    words = ("plan", "m", "-o", "/nowhere/plan.json", "--seed", "many", "-p", "get")
    assert offered(*words) == ["getf"]


# -- words as bash parts them ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("plan", "zoo", ":", "bert-l"), ["bert-large"]),
        (("plan", "zoo", ":"), [name.removeprefix("zoo:") for name in ZOO]),
        (("plan", "zoo:bert-l"), ["zoo:bert-large"]),
        (("plan", "'zoo:bert-l"), ["zoo:bert-large"]),
        (("plan", "zoo", ":", "gpt2", "-p", "get"), ["getf"]),
        (("plan", "zoo", ":", "gpt2?layers", "=", "2", "-p", "get"), ["getf"]),
        (("plan", "m", "--objective", "=", "thr"), ["throughput"]),
        (("plan", "m", "--objective", "="), list(OBJECTIVES)),
        (("plan", "m", "-O", "iterations", "=", "3", "-p", "get"), ["getf"]),
        (("plan", "torch", ":", "a.b", ":", "f"), []),
    ],
    ids=" ".join,
)
def test_words_that_bash_parts_are_one(words: tuple[str, ...], expected: list[str]):
    assert offered(*words) == expected


def test_words_of_other_shells_stay_as_they_are():
    environment = {"_PLACEWRIGHT_COMPLETE": "complete_zsh", "COMP_WORDS": "a\nb\n:", DONE: "b:"}
    mend_words(environment)
    assert environment == {"_PLACEWRIGHT_COMPLETE": "complete_zsh", "COMP_WORDS": "a\nb\n:"}


# -- shells ----------------------------------------------------------------------------------------


@pytest.fixture
def command(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``placewright`` on the PATH, and a home of its own."""
    (here / "bin").mkdir()
    script = here / "bin" / "placewright"
    script.write_text(
        f"#!{sys.executable}\nimport sys; sys.argv[0] = 'placewright'\n"
        "from placewright.cli import main; main()\n"
    )
    script.chmod(0o755)
    source = str(Path(sys.modules["placewright"].__file__ or "").parents[1])
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", source)
    monkeypatch.setenv("HOME", str(here))
    return script


def in_bash(text: str) -> str:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    done = subprocess.run([bash, "-c", text], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_the_script_for_bash_completes_there(command: Path):
    asked = (
        'eval "$(placewright --show-completion)"\n'
        "COMP_WORDS=(placewright plan zoo : bert-) COMP_CWORD=4\n"
        "_placewright_completion placewright\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    assert in_bash(asked).split() == ["bert-base", "bert-large"]


def test_completion_is_installed_for_bash(command: Path, here: Path):
    assert "bash completion installed" in in_bash("placewright --install-completion; true")
    (installed,) = (here / ".bash_completions").iterdir()
    assert str(installed) in (here / ".bashrc").read_text()
    asked = f"source {installed}; complete -p placewright"
    assert "_placewright_completion placewright" in in_bash(asked)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_told_the_models(shell: str):
    environment = {
        "_PLACEWRIGHT_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "placewright\nplan\nzoo\n:\nbert-l",
        "COMP_CWORD": "4",
        "_TYPER_COMPLETE_ARGS": "placewright plan zoo:bert-l",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    with mock.patch.dict(os.environ, environment):
        result = run()
    assert result.code == 0
    assert "bert-large" in result.out
    assert "bert-base" not in result.out


def test_completing_loads_nothing_heavy():
    script = (
        "import io, os, sys\n"
        "from contextlib import redirect_stdout\n"
        "sys.argv[0] = 'placewright'\n"
        "from placewright.cli import main\n"
        "for last in ('plan zoo:g', 'plan x -c 2x', 'plan x -p he', 'plan x --coarsen f'):\n"
        "    words = ['placewright', *last.split()]\n"
        "    os.environ.update(_PLACEWRIGHT_COMPLETE='complete_bash',\n"
        "        COMP_WORDS='\\n'.join(words), COMP_CWORD=str(len(words) - 1))\n"
        "    with redirect_stdout(io.StringIO()) as out:\n"
        "        try: main()\n"
        "        except SystemExit as stop: assert not stop.code\n"
        "    assert out.getvalue().strip(), last\n"
        "heavy = ('numba', 'torch', 'onnx', 'transformers', 'yaml', 'ortools', 'rustworkx',\n"
        "         'scipy', 'placewright.formats.schema')\n"
        "print(*(name for name in heavy if name in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
