"""The shape of the package: what its parts may import, and what importing it costs."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path

import pytest

import placewright

PACKAGE = Path(placewright.__file__).parent
REPOSITORY = PACKAGE.parents[1]
HEAVY = ("numba", "torch", "pydantic", "onnx", "onnxruntime", "rich", "yaml", "transformers",
         "typer", "ortools", "highspy", "rustworkx", "scipy")  # fmt: skip


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse(FILES[name].read_text("utf-8"))


@cache
def imported(name: str, *, at_import: bool = False) -> frozenset[str]:
    """The modules that module `name` imports, anywhere in it or (`at_import`) as it is imported.

    ``from package import thing`` counts as package.thing where that is a module of ours.
    Imports for type checkers alone do not count.
    """
    found = set()
    package = name if FILES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in _statements(tree_of(name), at_import):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in FILES else base)
    return frozenset(found)


def _statements(tree: ast.AST, at_import: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        yield node
        yield from _statements(node, at_import)


def reachable(name: str) -> set[str]:
    """Every module of ours that importing `name` imports."""
    found, pending = set(), [name]
    while pending:
        current = pending.pop()
        if current in found or current not in FILES:
            continue
        found.add(current)
        pending += imported(current, at_import=True)
    return found


@cache
def reachable_roots(name: str) -> frozenset[str]:
    """The first names of all that importing module `name` imports."""
    every = [imported(each, at_import=True) for each in reachable(name)]
    return frozenset(each.partition(".")[0] for some in every for each in some)


def inside(name: str, *places: str) -> bool:
    """Whether module `name` is, or is in, one of the `places` of the package."""
    return any(f"{name}.".startswith(f"placewright.{place}.") for place in places)


def in_folder(*places: str) -> list[str]:
    return [name for name in FILES if inside(name, *places)]


def in_a_process(code: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return process.stdout.strip()


# -- the public names ------------------------------------------------------------------------------


def test_the_public_names_are_sorted_and_there():
    assert placewright.__all__ == sorted(placewright.__all__)
    assert len(set(placewright.__all__)) == len(placewright.__all__)
    for name in placewright.__all__:
        assert getattr(placewright, name) is not None


def test_every_name_that_the_package_imports_is_public():
    tree = tree_of("placewright")
    names = {alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom)
             for alias in node.names}  # fmt: skip
    assert names | {"__version__"} == set(placewright.__all__)


def test_every_error_is_public():
    module = importlib.import_module("placewright.errors")
    errors = [value for value in vars(module).values() if isinstance(value, type)]
    assert {error.__name__ for error in errors} <= set(placewright.__all__)


def test_every_public_class_and_function_says_what_it_is():
    errors = vars(importlib.import_module("placewright.errors")).values()
    for name in placewright.__all__:
        value = getattr(placewright, name)
        if callable(value) and value not in errors:
            assert value.__doc__, name
            assert not value.__doc__.startswith(f"{name}("), f"{name} has no docstring of its own"


def test_the_package_says_it_is_typed():
    assert resources.files(placewright).joinpath("py.typed").is_file()


def test_the_version_is_that_of_the_distribution():
    metadata = importlib.import_module("importlib.metadata")
    assert placewright.__version__ == metadata.version("placewright")


# -- what imports cost -----------------------------------------------------------------------------


def test_importing_the_package_imports_nothing_heavy():
    code = f"import sys, placewright; print(*(n for n in {HEAVY} if n in sys.modules))"
    assert in_a_process(code) == ""


def test_asking_for_help_imports_neither_kernels_nor_frameworks():
    code = (
        "import sys\nsys.argv = ['placewright', '--help']\n"
        "from contextlib import redirect_stdout\nimport io\n"
        "from placewright.cli import main\n"
        "with redirect_stdout(io.StringIO()):\n"
        "    try: main()\n    except SystemExit as stop: assert not stop.code\n"
        "print(*(n for n in ('numba', 'torch', 'onnx', 'transformers') if n in sys.modules))"
    )
    assert in_a_process(code) == ""


def test_planning_from_the_zoo_imports_no_framework():
    code = (
        "import sys, placewright\n"
        "placewright.plan('zoo:gpt2?layers=1', '2x3090', planner='heft')\n"
        "print(*(n for n in ('torch', 'onnx', 'transformers') if n in sys.modules))"
    )
    assert in_a_process(code) == ""


@pytest.mark.parametrize("name", in_folder("cli"))
def test_what_a_command_imports_can_be_imported_without_any_extra(name):
    """What needs an extra is imported where its absence is told in a sentence."""
    extras = {"torch", "onnx", "onnxruntime", "transformers", "safetensors", "plotly", "matplotlib",
              "ray", "pymetis", "pyscotch"}  # fmt: skip
    needing = {each for each in imported(name) if extras & reachable_roots(each)}
    assert needing == set()


def test_planning_with_one_planner_imports_neither_the_portfolio_nor_what_varying_costs_need():
    code = (
        "import sys\nsys.argv = 'placewright plan zoo:gpt2?layers=1 -c 2x3090 -p met'.split()\n"
        "from placewright.cli import main\n"
        "try: main()\nexcept SystemExit as stop: assert not stop.code\n"
        "names = 'portfolio', 'whatif.robustness', 'report.whatif'\n"
        "print(*(n for n in names if f'placewright.{n}' in sys.modules))"
    )
    assert in_a_process(code).splitlines()[1:] == []


# -- who may import whom ---------------------------------------------------------------------------


def test_the_judge_shares_no_code_with_what_it_judges():
    banned = ("kernels", "planners", "simulate", "bounds", "coarsen", "solving", "planning")
    assert [name for name in reachable("placewright.verify") if inside(name, *banned)] == []
    assert [name for name in imported("placewright.verify") if inside(name, *banned)] == []


@pytest.mark.parametrize("name", in_folder("planners", "kernels", "simulate", "bounds", "coarsen"))
def test_what_plans_knows_no_file_no_framework_and_no_command_line(name):
    banned = ("cli", "importers", "costs", "exporters", "runtime", "report")
    assert [each for each in imported(name) if inside(each, *banned)] == []
    roots = {each.partition(".")[0] for each in imported(name)}
    if inside(name, "planners.latency.learned"):
        assert "torch" not in reachable_roots("placewright.planners.latency.learned.planners")
        roots -= {"torch"}
    assert roots.isdisjoint({"torch", "onnx", "transformers", "typer", "rich"})


DATA = (
    "graph", "cluster", "options", "problem", "outcome", "plan", "stored", "units", "errors",
    "objectives",
)  # fmt: skip


@pytest.mark.parametrize("name", DATA)
def test_data_modules_import_data_modules_only(name):
    ours = {each for each in imported(f"placewright.{name}") if each.startswith("placewright")}
    assert [each for each in ours if not inside(each, *DATA)] == []


def test_nothing_imports_the_command_line_but_itself():
    for name in FILES:
        if not inside(name, "cli") and name != "placewright.__main__":
            assert [each for each in imported(name) if inside(each, "cli")] == [], name


def test_compiled_functions_are_in_kernels_alone():
    for name, path in FILES.items():
        if not inside(name, "kernels"):
            roots = {each.partition(".")[0] for each in imported(name)}
            assert "numba" not in roots, name
            assert not re.search(r"@(numba\.)?n?jit\b", path.read_text("utf-8")), name


def test_kernels_without_an_entry_from_python_are_called_by_kernels_alone():
    """A name of a kernel that begins with an underscore; see `kernels.compiled`."""
    private = re.compile(r"^def (_\w+)", re.MULTILINE)
    kernels = [path for name, path in FILES.items() if inside(name, "kernels")]
    names = {each for path in kernels for each in private.findall(path.read_text("utf-8"))}
    assert names
    others = [path for name, path in FILES.items() if not inside(name, "kernels")]
    for path in [*others, *Path(__file__).parent.rglob("*.py")]:
        text = path.read_text("utf-8")
        if "kernels" not in text:
            continue
        from_kernels: set[str] = set()
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and "kernels" in (node.module or "").split("."):
                from_kernels |= {each.asname or each.name for each in node.names}
        called = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in from_kernels
        }
        assert not (from_kernels | called) & names, path


@pytest.mark.parametrize("name", FILES)
def test_every_module_begins_with_what_it_is(name):
    tree = tree_of(name)
    assert ast.get_docstring(tree) or not tree.body


# -- what the repository says ----------------------------------------------------------------------

HOSTS = ("pypi" + ".org", "python" + "hosted.org", "anaconda" + ".org", "npm" + "js.org",
         "download.py" + "torch.org", "crates" + ".io", "proxy.go" + "lang.org")  # fmt: skip


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file that belongs to the project, where this is a checkout of it."""
    suffixes = {".py", ".md", ".toml", ".yaml", ".yml", ".json", ".txt", ".sh", ".cfg"}
    for path in sorted(REPOSITORY.iterdir()):
        if path.name in ("src", "tests", "docs", "examples", "benchmarks") and path.is_dir():
            inner = (each for each in sorted(path.rglob("*")) if each.suffix in suffixes)
            yield from ((each, each.read_text("utf-8")) for each in inner if each.is_file())
        elif path.suffix in suffixes and path.is_file():
            yield path, path.read_text("utf-8")


@pytest.mark.skipif(not (REPOSITORY / "pyproject.toml").is_file(), reason="not a checkout")
def test_no_file_names_the_host_of_a_registry():
    assert [(path, host) for path, text in texts() for host in HOSTS if host in text] == []


@pytest.mark.skipif(not (REPOSITORY / "pyproject.toml").is_file(), reason="not a checkout")
def test_only_the_settings_of_the_tests_know_of_files_beside_the_checkout():
    beside = "shared" + "/"
    found = {path.relative_to(REPOSITORY).as_posix() for path, text in texts() if beside in text}
    assert found <= {"tests/conftest.py"}
