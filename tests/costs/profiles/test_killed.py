"""A profile that is killed at any moment goes on where it was."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from placewright.costs.profiles.profiling import profile
from placewright.costs.profiles.store import ProfileStore
from tests.costs.profiles.test_profiling import HERE, cluster

SOURCE = f"{HERE}:many_sizes"
KILLS = 20


def started(where: Path, profiles: Path, method: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "placewright", "profile", SOURCE, "-c", str(where)]
    command += ["--profiles", str(profiles), "--method", method, "--json"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("method", ["context", "isolated"])
def test_a_profile_that_is_killed_keeps_what_it_had_and_measures_the_rest(
    tmp_path: Path, method: str
):
    where, moments = tmp_path / "cluster.yaml", random.Random(method)
    cluster().save(where)
    begun = time.perf_counter()
    assert started(where, tmp_path / "whole", method).wait() == 0
    longest = time.perf_counter() - begun
    with ProfileStore(tmp_path / "whole") as store:
        every = {key for key, _ in store.entries()}
    partial = 0
    for kill in range(KILLS // 2):
        path = tmp_path / f"{kill}"
        process = started(where, path, method)
        time.sleep(moments.uniform(0, longest))
        process.kill()
        process.wait()
        with ProfileStore(path) as store:
            before = dict(store.entries())
            [rest] = profile(SOURCE, cluster(), store, method=method)  # type: ignore[arg-type]
            after = dict(store.entries())
        assert (rest.known, rest.measured) == (len(before), len(every) - len(before))
        assert after.keys() == every and before.items() <= after.items()
        partial += 0 < len(before) < len(every)
    if method == "isolated":
        assert partial, f"none of {KILLS // 2} kills came while calls were being measured"
