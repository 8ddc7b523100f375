"""What loading half of a model takes, measured in a process whose memory is limited."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

MIB = 1 << 20
LAYERS, WIDTH = 100, 1024  # of 4 MiB each
CODE = """
import resource, sys
import torch
from tests.runtime.weights.models import weights
torch.set_num_threads(1)
weights, names = weights("torch:tests.runtime.weights.test_memory:on_meta", sys.argv[1])
names = names[: int(sys.argv[2])]
weights.load(names[:1])  # what is taken once
with open("/proc/self/status") as status:
    data = next(int(line.split()[1]) for line in status if line.startswith("VmData")) * 1024
limit = data + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
loaded = weights.load(names)
assert sum(each.nbytes for each in loaded.values()) == int(sys.argv[4])
try:
    more = torch.ones(int(sys.argv[3]), dtype=torch.uint8)
except RuntimeError:
    print("loaded")
"""


def on_meta() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    with torch.device("meta"):
        layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
        return torch.nn.Sequential(*layers), (torch.zeros(1, WIDTH),)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of memory that counts")
@pytest.mark.parametrize("kind", ["safetensors", "state_dict", "fresh"])
def test_half_a_model_fits_into_little_more_than_half_its_memory(kind: str, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    given = "fresh"
    state = {f"{n}.weight": torch.zeros(WIDTH, WIDTH) for n in range(LAYERS)}
    if kind == "safetensors":
        given = str(tmp_path / "a.safetensors")
        save_file(state, given)
    elif kind == "state_dict":
        given = str(tmp_path / "a.pt")
        torch.save(state, given)
    del state
    half = LAYERS // 2 * WIDTH * WIDTH * 4
    done = subprocess.run(
        [sys.executable, "-c", CODE, given, str(LAYERS // 2), str(half * 12 // 10), str(half)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout) == (0, "loaded\n"), done.stderr
