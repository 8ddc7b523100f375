"""Every example runs, in a process of its own, as a user would run it."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_prints_something(path):
    if "import torch" in path.read_text("utf-8"):
        pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", path.name],
        cwd=FOLDER, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not done.stderr.strip()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_says_how_to_run_it(path):
    assert f"Run: python examples/{path.name}" in path.read_text("utf-8")
