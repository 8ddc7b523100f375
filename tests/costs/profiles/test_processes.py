"""Several processes at one store, processes that are killed, and users who may only read."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from placewright.costs.profiles.entry import ProfileKey
from placewright.costs.profiles.store import ProfileStore
from tests.costs.profiles.profiles import FOUR, store_of_four

BATCH = 5
WRITER = f"""
import sys
from placewright.costs.profiles.entry import Measured, ProfileKey
from placewright.costs.profiles.store import ProfileStore
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for number in range(count):
    with ProfileStore(path) as store:
        for part in range(3):
            batch = f"{{number}}.{{part}}"
            keys = [ProfileKey(f"{{batch}}.{{i}}", name, "library") for i in range({BATCH})]
            store.put({{key: Measured(1.0, 1.0, 1.0, 1, "context") for key in keys}})
            print(batch, flush=True)
"""
READER = """
import os, sys
from placewright.costs.profiles.store import ProfileStore
from placewright.errors import ProfileError
import tempfile, shutil
if os.getuid() == 0:
    os.setuid(65534)  # root may write everywhere
with ProfileStore(sys.argv[1], writable=False) as store:
    print(sum(group.ops for group in store.groups()))
try:
    ProfileStore(sys.argv[1])
except ProfileError as error:
    print(error)
"""


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def keys_of(batches: list[str], name: str) -> list[ProfileKey]:
    return [ProfileKey(f"{batch}.{i}", name, "library") for batch in batches for i in range(BATCH)]


def killed_at_random(path: Path, seed: int) -> None:
    process = writer(path, f"run {seed}", 10**9)
    assert process.stdout is not None
    told = [process.stdout.readline()]  # it has begun
    time.sleep(random.Random(seed).uniform(0, 0.3))
    process.kill()
    told += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    committed = [line.strip() for line in told if line.endswith("\n")]
    keys = keys_of(committed, f"run {seed}")
    with ProfileStore(path, writable=bool(seed % 2)) as store:
        assert store.get(keys).keys() == set(keys)
        found = sum(group.ops for group in store.groups(device=f"run {seed}"))
        assert found in (len(keys), len(keys) + BATCH)  # whole batches


@pytest.mark.parametrize("seed", range(3))
def test_what_a_killed_process_has_committed_is_there(tmp_path: Path, seed: int):
    killed_at_random(tmp_path / "profiles", seed)


@pytest.mark.slow
def test_a_store_bears_that_its_writers_are_killed_again_and_again(tmp_path: Path):
    for seed in range(20):
        killed_at_random(tmp_path / "profiles", seed)


def test_four_processes_that_write_at_once_lose_nothing(tmp_path: Path):
    path = tmp_path / "profiles"  # which one of them makes
    names = [f"process {number}" for number in range(4)]
    processes = [writer(path, name, 5) for name in names]
    told = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    with ProfileStore(path, writable=False) as store:
        for name, batches in zip(names, told, strict=True):
            keys = keys_of(batches, name)
            assert len(keys) == 15 * BATCH
            assert store.get(keys).keys() == set(keys)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are others there")
@pytest.mark.parametrize("left", ["no log", "a log", "a log and its index"])
def test_who_may_only_read_reads_all_that_was_committed(left: str):
    suffixes = {"no log": [""], "a log": ["", "-wal"]}.get(left, ["", "-wal", "-shm"])
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # pytest's own is for one user alone
        folder = Path(name)
        path = folder / "profiles"
        if left == "no log":
            store_of_four(path)
        else:
            with ProfileStore(folder / "from") as store:
                store.put(FOUR)
                for suffix in suffixes:
                    shutil.copyfile(f"{folder / 'from'}{suffix}", f"{path}{suffix}")
        for suffix in suffixes:
            Path(f"{path}{suffix}").chmod(0o444)
        before = sorted(folder.iterdir())
        folder.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", READER, str(path)], capture_output=True, text=True, check=False
        )
        folder.chmod(0o755)
        assert sorted(folder.iterdir()) == before
    assert (done.returncode, done.stderr) == (0, "")
    count, error = done.stdout.splitlines()
    assert count == "4"
    assert error.startswith(f"{path}: cannot be written; see that ")
