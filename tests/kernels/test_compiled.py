"""How kernels are compiled: what is refused, and that processes do not mix kernels up."""

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

import placewright.kernels
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.kept import stamp_of

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


def test_a_kernel_that_returns_what_it_was_lent_is_refused():
    @kernel(cache=False)
    def same(values):
        return values

    with pytest.raises(TypingError, match=r"kernel same returns an array.*allocates=True"):
        same(np.zeros(3))


def test_a_kernel_that_gets_an_array_from_another_is_refused():
    @inner(cache=False, allocates=True)
    def made(count):
        return np.ones(count)

    @kernel(cache=False)
    def total(count):
        return made(count)[0]

    with pytest.raises(TypingError, match=r"kernel total.*allocates=True"):
        total(3)


def test_one_that_says_so_is_compiled():
    @inner(cache=False, allocates=True)
    def made(count):
        return np.ones(count)

    @kernel(cache=False, allocates=True)
    def total(count):
        return made(count).sum()

    assert total(3) == 3.0


def test_what_is_kept_counts_for_the_kernels_that_a_kernel_uses(tmp_path):
    sources = {
        "inner/deep.py": "x = 1\n",
        "middle.py": "from placewright.kernels.inner.deep import x\n",
        "outer.py": "import numpy\n\nfrom placewright.kernels.middle import (\n    y,\n)\n",
        "apart.py": "y = 2\n",
    }
    (tmp_path / "inner").mkdir()

    def stamps():
        stamp_of.cache_clear()
        return {name: stamp_of(tmp_path / name, tmp_path) for name in sources}

    for name, source in sources.items():
        (tmp_path / name).write_text(source)
    before = stamps()
    assert stamps() == before
    (tmp_path / "inner" / "deep.py").write_text("x = 2\n")
    after = stamps()
    assert [name for name in sources if after[name] != before[name]] == [*sources][:3]
    stamp_of.cache_clear()


COUNT_REFERENCES = {"min", "max", "any", "all"}
"""What numba compiles in a kernel that counts none only where another kernel asked first."""


def kernels():
    for path in Path(placewright.kernels.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                yield path.name, node


def test_kernels_that_count_no_references_call_nothing_that_may():
    found = [
        (file, kernel.name, ast.unparse(call))
        for file, kernel in kernels()
        if not any("allocates=True" in ast.unparse(each) for each in kernel.decorator_list)
        for call in ast.walk(kernel)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in COUNT_REFERENCES
    ]
    assert found == []


SOURCE = """\
import sys
import time

import numpy as np

import placewright.kernels
from placewright.kernels.compiled import kernel


@kernel
def largest(values):
    found = values[0]
    for value in values:
        found = max(found, value)
    return found


types = sys.argv[1].split(",")
while time.time() < float(sys.argv[2]):  # all at the same time
    pass
for each in types:
    assert largest(np.arange(5).astype(each)) == 4
print(sum(largest.stats.cache_hits.values()))
"""


def start(folder, types, at=0.0):
    """A process that calls the kernel with each of these types, from then on."""
    return subprocess.Popen(
        [sys.executable, "largest.py", ",".join(types), str(at)],
        cwd=folder,
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder / "kept")},
        stdout=subprocess.PIPE,
        text=True,
    )


def hits_of(process):
    """How many of its types it found compiled."""
    printed = process.communicate()[0]
    assert process.returncode == 0
    return int(printed)


def test_processes_that_need_one_kernel_at_once_compile_it_once_for_each_type(tmp_path):
    (tmp_path / "largest.py").write_text(SOURCE)
    types = ["int64", "int32", "float64", "float32"]

    moment = time.time() + 8.0
    at_once = [start(tmp_path, [each], moment) for each in [*types, *types[:2]]]
    assert sum(map(hits_of, at_once)) == 2  # who came second for a type has waited for the first
    assert hits_of(start(tmp_path, types)) == len(types)


@pytest.mark.parametrize("ending", [".nbi", ".nbc"])
def test_what_was_kept_and_cannot_be_read_is_compiled_anew(tmp_path, ending):
    """Cut short, or with a type that is elsewhere since the last version."""
    (tmp_path / "largest.py").write_text(SOURCE)
    assert hits_of(start(tmp_path, ["int64"])) == 0
    (file,) = (tmp_path / "kept").rglob(f"*largest*{ending}")
    whole = file.read_bytes()
    for damaged in (whole[:-20], whole.replace(b"numba", b"nobody")):
        assert damaged != whole
        file.write_bytes(damaged)
        assert hits_of(start(tmp_path, ["int64"])) == 0
        assert hits_of(start(tmp_path, ["int64"])) == 1
