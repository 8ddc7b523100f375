"""Weights of this process, and in shared memory for a child of it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import weakref
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from placewright.errors import ExecutionError, InputError

torch = pytest.importorskip("torch")

from placewright.runtime.weights import (  # noqa: E402
    HeldWeights,
    from_document,
    hand_over,
    share,
)

CHILD = """
import json, sys
import torch
from placewright.runtime.weights import from_document
weights = from_document(json.loads(sys.argv[1]))
tensors = weights.load(json.loads(sys.argv[2]))
for tensor in tensors.values():
    if tensor.dtype == torch.float32:
        tensor.add_(1)  # into a copy of its own
print(json.dumps({name: [str(each.dtype), list(each.shape), list(each.stride()),
      each.data_ptr() % 64, each.double().sum().item() if each.dtype == torch.float32 else 0.0]
      for name, each in tensors.items()}))
"""


def many() -> dict[str, Any]:
    """A tensor of each sort of type, and of shapes and strides that are easily lost."""
    torch.manual_seed(0)
    types = (torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float64)
    types += (torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2)
    tensors = {str(each): (torch.rand(3, 5) * 4).to(each) for each in types}
    whole = torch.rand(6, 7)
    return tensors | {
        "turned": torch.rand(4, 6).t(),
        "expanded": torch.rand(5).expand(3, 5),
        "none": torch.empty(0, 3),
        "number": torch.tensor(2.5),
        "middle": whole[2:4],
        "column": whole[:, 3],
        "parameter": torch.nn.Parameter(torch.rand(2, 2)),
        "conjugate": torch.rand(3, dtype=torch.complex64).conj(),
        "channels": torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last),
    }


def same(found: Any, expected: Any) -> bool:
    bits = [each.detach().resolve_conj().contiguous().view(-1) for each in (found, expected)]
    return found.dtype == expected.dtype and torch.equal(
        *(each.view(torch.uint8) if each.numel() else each.float() for each in bits)
    )


def test_every_type_shape_and_stride_survives() -> None:
    tensors = many()
    found = share(HeldWeights(tensors), tensors).load(tensors.keys())
    assert [name for name in tensors if not same(found[name], tensors[name])] == []
    strides = {name for name in tensors if found[name].stride() != tensors[name].stride()}
    assert strides == {"column"}  # other memory lies between its elements
    assert {each.data_ptr() % 64 for each in found.values()} == {0}


def test_tied_tensors_are_shared_once() -> None:
    one = torch.rand(1000)
    held = HeldWeights({"a": one, "b": one, "c": one[:500]})
    with share(held, ["a", "b", "c"]) as shared:
        document = shared.to_document()["tensors"]
        assert document["a"]["offset"] == document["b"]["offset"]
        assert os.fstat(shared.descriptor).st_size < 6100


def test_what_had_the_same_memory_one_after_the_other_is_not_taken_for_tied() -> None:
    class OneAtATime(HeldWeights):
        """Makes tensors that are let go of, whose memory the next may have."""

        def load(self, names: Collection[str]) -> dict[str, Any]:
            return {name: each.clone() for name, each in super().load(names).items()}

    tensors = {str(number): torch.full((64,), float(number)) for number in range(50)}
    found = share(OneAtATime(tensors), tensors).load(tensors.keys())
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_at_most_one_tensor_is_held_beside_the_shared_memory() -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most = []

    class Counted(HeldWeights):
        def load(self, names: Collection[str]) -> dict[str, Any]:
            most.append(len(alive))
            made = {name: each.clone() for name, each in super().load(names).items()}
            for each in made.values():
                alive.add(each)
            return made

    tensors = {str(number): torch.rand(10) for number in range(5)}
    share(Counted(tensors), tensors)
    assert most == [0] * 5


def child(document: Any, descriptors: Any, names: list[str]) -> Any:
    arguments = [json.dumps(document), json.dumps(names)]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments],
        pass_fds=descriptors,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_child_maps_what_it_inherits_and_writes_into_a_copy_of_its_own() -> None:
    tensors = {"a": torch.ones(2, 3).t(), "b": torch.zeros(4, dtype=torch.bfloat16)}
    with hand_over(HeldWeights(tensors), ["a", "b"]) as handed:
        first = child(handed.document, handed.descriptors, ["a", "b"])
        second = child(handed.document, handed.descriptors, ["a", "b"])
    assert (
        first
        == second
        == {
            "a": ["torch.float32", [3, 2], [1, 3], 0, 12.0],
            "b": ["torch.bfloat16", [4], [1], 0, 0.0],
        }
    )
    assert torch.equal(tensors["a"], torch.ones(3, 2))


def test_a_rank_is_handed_its_own_weights_only() -> None:
    held = HeldWeights({"a": torch.zeros(1000), "b": torch.zeros(10)})
    with hand_over(held, ["b"]) as handed:
        assert os.fstat(handed.descriptors[0]).st_size == 40
        with pytest.raises(InputError, match="no weight 'a'"):
            from_document(handed.document).load(["a"])


def test_closed_memory_is_gone() -> None:
    with hand_over(HeldWeights({"a": torch.zeros(10)}), ["a"]) as handed:
        descriptor = handed.descriptors[0]
    with pytest.raises(OSError):
        os.fstat(descriptor)
    with pytest.raises(ExecutionError, match="was not inherited"):
        from_document(handed.document)


def test_no_memory_is_kept_when_sharing_fails() -> None:
    before = open_files()
    with pytest.raises(InputError, match="no weight 'b'"):
        share(HeldWeights({"a": torch.zeros(10)}), ["a", "b"])
    assert open_files() == before


def open_files() -> int:
    folder = Path("/proc/self/fd")  # of Linux
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def test_full_memory_is_one_sentence() -> None:
    held = HeldWeights({"a": torch.zeros(1 << 16), "b": torch.zeros(1 << 18)})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, limits[1]))  # of shared memory too
    try:
        with pytest.raises(ExecutionError, match=r"1\.2 MiB of weights for a rank do not fit"):
            share(held, ["a", "b"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_an_unknown_weight_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"no weight 'wieght'.*did you mean 'weight'\?"):
        HeldWeights({"weight": torch.zeros(1)}).load(["wieght"])


def test_what_is_no_plain_tensor_is_refused() -> None:
    with pytest.raises(InputError, match="'a' is a int, not a tensor"):
        HeldWeights({"a": 3})
    sparse = torch.eye(3).to_sparse()
    with pytest.raises(InputError, match=r"'a' is a torch\.sparse_coo tensor"):
        HeldWeights({"a": sparse})


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is a file without a name")
def test_nothing_is_left_when_the_process_is_killed(temporary: Path) -> None:
    code = (
        "import os, signal, torch\n"
        "from placewright.runtime.weights import HeldWeights, hand_over\n"
        "handed = hand_over(HeldWeights({'a': torch.ones(1 << 20)}), ['a'])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    before = set(Path("/dev/shm").iterdir())
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == -9
    left = set(Path("/dev/shm").iterdir()) - before
    assert [each for each in left if "placewright" in each.name] == []
    assert list(temporary.iterdir()) == []
