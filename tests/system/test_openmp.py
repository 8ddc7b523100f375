"""A thread's team of GNU's OpenMP ends when it is told to, and the thread can go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from placewright.system import openmp

SCRIPT = """
import os, torch
from placewright.system import openmp

def threads():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(4)
matrix = torch.ones(512, 512)
torch.relu(matrix @ matrix)
with_team = threads()
openmp.release_team()
without = threads()
again = torch.relu(matrix @ matrix)
print(with_team - without, threads() - with_team, float(again[0, 0]))
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux tells what is loaded")
def test_the_threads_of_a_team_end_and_the_next_op_makes_new_ones() -> None:
    import torch

    if "OpenMP" not in torch.__config__.parallel_info() or not openmp._libraries():
        pytest.skip("torch computes with another OpenMP than GNU's here")
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    ended, new, value = done.stdout.split()
    assert (int(ended), int(new), float(value)) == (3, 0, 512.0)


def test_where_nobody_tells_what_is_loaded_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(openmp, "_LOADED", tmp_path / "not there")
    openmp.release_team()
    assert openmp._libraries() == set()


def test_a_library_that_is_gone_or_cannot_be_asked_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 00000000 08:01 12 /lib/libgomp gone.so.1 (deleted)\n")
    monkeypatch.setattr(openmp, "_LOADED", maps)
    openmp.release_team()
    assert openmp._libraries() == set()
