"""The documentation says what the code does: commands, planners, names, files, examples."""

import ast
import dataclasses
import inspect
import itertools
import json
import re
import runpy
import shlex
import textwrap
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import placewright
from placewright import planners
from placewright.cli.app import app
from placewright.cluster import Cluster
from placewright.coarsen import COARSENINGS
from placewright.costs.catalog import complete
from placewright.costs.clusters import presets
from placewright.costs.profiles.exchange import Profiles, profiles_document, read_profiles
from placewright.errors import PlacewrightError
from placewright.formats.schema import FORMATS, json_schema
from placewright.graph import Graph
from placewright.objectives import OBJECTIVES
from placewright.problem import LONG_ROUNDING
from placewright.system.references import referred
from tests.costs.profiles.profiles import FOUR

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "placewright"
SITE = sorted(DOCS.rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *SITE]


def identity(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


IDS = [identity(page) for page in PAGES]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
TYPER_OPTIONS = {"--help", "--install-completion", "--show-completion"}


def blocks(page: Path, language: str) -> list[str]:
    found = BLOCK.findall(page.read_text("utf-8"))
    return [textwrap.dedent(text) for _, name, text in found if name == language]


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


# -- commands --------------------------------------------------------------------------------


def registered(command=None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    """("cluster show", command) for every command of the application."""
    command = command or typer.main.get_command(app)
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from registered(inner, (*words, name))
    else:
        yield " ".join(words), command


COMMANDS = dict(registered())


def documented() -> dict[str, str]:
    """Command → its section of docs/cli.md."""
    text = (DOCS / "cli.md").read_text("utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    found = {}
    for section in sections:
        heading = re.match(r"`placewright ((?:[a-z][a-z-]* ?)+)[^`]*`", section)
        if heading:
            found[heading[1].strip()] = section
    return found


def test_the_commands_page_has_every_command_and_no_other():
    assert set(documented()) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_commands_page_has_every_option_of_a_command_and_no_other(name):
    section = documented()[name]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `-")]
    written = set(re.findall(r"`(-[^`]+)`", " ".join(rows)))
    options = [each for each in COMMANDS[name].params if each.param_type_name == "option"]
    assert (
        written
        == {flag for each in options for flag in (*each.opts, *each.secondary_opts)} - TYPER_OPTIONS
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_the_commands_page_names_every_argument(name):
    heading = documented()[name].splitlines()[0]
    arguments = [each for each in COMMANDS[name].params if each.param_type_name == "argument"]
    expected = [(each.metavar or each.name).upper() for each in arguments]
    assert re.findall(r"\b[A-Z]{2,}\b", heading) == expected


def test_the_commands_page_has_every_exit_code():
    def codes(error: type[PlacewrightError]) -> Iterator[int]:
        for inner in error.__subclasses__():
            yield inner.exit_code
            yield from codes(inner)

    table = (DOCS / "cli.md").read_text("utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    written = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    assert written == {0, 130, *codes(PlacewrightError)}


def command_lines(page: Path) -> Iterator[str]:
    for text in blocks(page, "sh"):
        for line in re.split(r"\n|&&", text.replace("\\\n", " ")):
            if line.strip().startswith("placewright "):
                yield line.partition(" > ")[0].strip()


@pytest.mark.parametrize("page", pages_with("sh"), ids=identity)
def test_command_lines_in_the_docs_parse(page):
    for line in command_lines(page):
        words = shlex.split(line, comments=True)[1:]
        if words[0].startswith("--"):
            assert words[0] in ("--version", *TYPER_OPTIONS), line
            continue
        command = typer.main.get_command(app)
        while hasattr(command, "commands"):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        command.make_context(command.name, words)  # raises for an unknown option or argument


def test_the_readme_gives_the_two_commands_of_a_fresh_machine():
    text = (ROOT / "README.md").read_text("utf-8")
    assert "pip install . && placewright plan 'zoo:llama-13b?phase=decode&context=512'" in text
    assert "pip install -e '.[test]' && pytest" in text


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_extras_in_the_docs_exist(page):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    assert set(re.findall(r"\.\[(\w+)\]'", page.read_text("utf-8"))) <= extras


# -- planners, presets, names ----------------------------------------------------------------


TABLES = runpy.run_path(str(DOCS / "tables.py"))
PLANNERS = list(dict.fromkeys(row.name for row in planners.TABLE))


@pytest.mark.parametrize("page", TABLES["pages"](), ids=identity)
def test_the_tables_of_planners_are_those_of_the_rows(page):
    written = page.read_text("utf-8")
    assert TABLES["with_tables"](page) == written  # else: python docs/tables.py
    outside = TABLES["BLOCK"].sub("", written)
    assert "| planner | what it does |" not in outside


def test_the_index_of_planners_has_a_table_for_each_objective():
    found = TABLES["BLOCK"].finditer((DOCS / "planners.md").read_text("utf-8"))
    assert [each[3] for each in found] == list(OBJECTIVES)


def test_there_is_a_page_for_each_planner_and_no_other():
    assert sorted(page.stem for page in (DOCS / "planners").glob("*.md")) == sorted(PLANNERS)


@pytest.mark.parametrize("name", PLANNERS)
def test_the_page_of_a_planner_says_how_it_works_for_each_objective_and_when_to_take_it(name):
    text = TABLES["page_of"](name).read_text("utf-8")
    sections = {each.partition("\n")[0]: each for each in re.split(r"^## ", text, flags=re.M)[1:]}
    order = ["Method", "Complexity", "When it wins, and when not", "Options", "Measured"]
    assert list(sections) == order
    assert all(section.partition("\n")[2].strip() for section in sections.values())
    assert [each[2] for each in TABLES["BLOCK"].finditer(text)] == ["facts", "options", "values"]
    objectives = [row.objective for row in TABLES["rows_of"](name)]
    if len(objectives) > 1:
        assert re.findall(r"^### (.*)$", sections["Method"], re.MULTILINE) == objectives


def test_every_planner_but_expert_has_a_value_in_every_case_of_its_objective():
    cases = json.loads((DOCS / "planners" / "values.json").read_text("utf-8"))
    for case in cases.values():
        names = {row.name for row in planners.planners_for(case["objective"])} - {"expert"}
        assert set(case["planners"]) == names


def test_no_value_of_a_case_is_below_its_bound():
    cases = json.loads((DOCS / "planners" / "values.json").read_text("utf-8"))
    for name, case in cases.items():
        values = [each["value"] for each in case["planners"].values() if each["value"] is not None]
        assert case["lower_bound"] <= min(values) * (1 + LONG_ROUNDING), name


def test_the_planners_page_has_every_coarsening():
    table = (DOCS / "planners.md").read_text("utf-8").partition("| coarsening |")[2]
    assert re.findall(r"^\| `(\w+)`", table.partition("\n\n")[0], re.MULTILINE) == list(COARSENINGS)


def test_the_clusters_page_has_every_preset():
    text = (DOCS / "clusters.md").read_text("utf-8").partition("## Presets")[2]
    for preset in presets():
        assert f"`{preset.name}`" in text


def test_all_is_complete():
    public = {
        name
        for name, value in vars(placewright).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and name != "annotations"
    }
    assert public | {"__version__"} == set(placewright.__all__)
    assert len(set(placewright.__all__)) == len(placewright.__all__)


@pytest.mark.parametrize("name", placewright.__all__)
def test_the_api_page_has_every_public_name(name):
    assert re.search(rf"`(pw\.)?{name}`", (DOCS / "api.md").read_text("utf-8"))


@pytest.mark.parametrize("page", ["cli-reference", "api-reference"])
def test_a_page_written_from_the_code_is_as_the_code_is(page):
    script = DOCS / f"{page.replace('-', '_')}.py"
    written = (DOCS / f"{page}.md").read_text("utf-8")
    assert runpy.run_path(str(script))["reference"]() == written  # else: run the script


def test_the_command_reference_has_every_variable_that_the_source_reads():
    table = runpy.run_path(str(DOCS / "cli_reference.py"))["ENVIRONMENT"]
    named = {each for names in table for each in names.split(", ")}
    text = "".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    ours = set(re.findall(r"\bPLACEWRIGHT_[A-Z_]+", text))
    assert {each for each in ours if "COMPLETE" not in each} <= named  # that is the shell's
    assert [each for each in named - {"NO_COLOR"} if f'"{each}"' not in text] == []


@pytest.mark.parametrize("name", placewright.__all__)
def test_a_public_name_says_what_it_is(name):
    value = getattr(placewright, name)
    if isinstance(value, type) or callable(value):
        assert vars(value).get("__doc__") if isinstance(value, type) else value.__doc__


@pytest.mark.parametrize(
    "name", ["plan", "load", "load_cluster", "build_problem", "solve", "compare"]
)
def test_the_api_page_names_every_parameter(name):
    text = BLOCK.sub("", (DOCS / "api.md").read_text("utf-8"))
    section = text.partition(f"\n### `{name}`\n")[2].partition("\n### ")[0]
    written = set(re.findall(r"\b\w+\b", " ".join(re.findall(r"`([^`]+)`", section))))
    assert set(inspect.signature(getattr(placewright, name)).parameters) <= written


def test_the_running_page_has_every_figure_of_a_run():
    from placewright.runtime import RunReport

    text = (DOCS / "running.md").read_text("utf-8").partition("## What is reported")[2]
    for field in dataclasses.fields(RunReport):
        assert f"`{field.name}`" in text


# -- design ----------------------------------------------------------------------------------


def imports(path: Path) -> set[str]:
    """The first part after ``placewright.`` of what a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            within = node.module == "placewright"
            names = [f"placewright.{each.name}" for each in node.names] if within else [node.module]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("placewright.")}
    return found


def test_the_judge_shares_no_code_with_what_it_judges():
    judges = set().union(*(imports(path) for path in (SOURCE / "verify").glob("*.py")))
    brought = {"system"}  # `referred`: the judge that the row of an objective names
    assert judges == {"errors", "outcome", "plan", "problem", "units", "verify", *brought}
    assert all(row.verify.startswith("verify.") for row in OBJECTIVES.values())


DATA = ["graph", "cluster", "options", "problem", "outcome", "plan"]


@pytest.mark.parametrize("name", DATA)
def test_data_modules_know_only_data(name):
    assert imports(SOURCE / f"{name}.py") <= {*DATA, "errors", "units", "stored", "objectives"}


@pytest.mark.parametrize("row", OBJECTIVES.values(), ids=OBJECTIVES)
def test_the_table_of_objectives_names_code_that_is_there(row):
    for name in ("outcome", "evaluate", "verify", "bound", "check"):
        assert callable(referred(reference)) if (reference := getattr(row, name)) else True
    assert {each.objective for each in referred(row.planners)} == {row.name}
    for words in ("value_words", "value_title", "counts", "device_columns"):
        assert callable(referred(f"{row.report}:{words}"))


def test_the_design_page_names_every_package():
    text = (DOCS / "design.md").read_text("utf-8")
    folders = [each.parent.relative_to(SOURCE).as_posix() for each in SOURCE.rglob("__init__.py")]
    files = [each.name for each in SOURCE.glob("*.py") if not each.name.startswith("__")]
    names = [*files, *(f"{each}/" for each in folders if each != ".")]
    assert [each for each in names if f"`{each}`" not in text] == []


# -- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_schema_files_are_current(name):
    """Made by: placewright schema NAME > docs/schema/NAME.json"""
    assert json.loads((DOCS / "schema" / f"{name}.json").read_text("utf-8")) == json_schema(name)


@pytest.mark.parametrize("name", FORMATS)
def test_files_we_write_fit_the_schema(name, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    plan = placewright.plan("zoo:googlenet", "tarnawski", planner="heft")
    made = {
        "graph": lambda: placewright.load("zoo:gpt2?layers=1", training=True).graph,
        "cluster": lambda: placewright.load_cluster("tarnawski"),
        "plan": lambda: plan,
    }
    if name == "profiles":
        document = profiles_document(Profiles(FOUR))
    else:
        made[name]().save(tmp_path / "file.json")
        document = json.loads((tmp_path / "file.json").read_text("utf-8"))
    jsonschema.validate(document, json_schema(name))


@pytest.mark.parametrize("page", pages_with("yaml"), ids=identity)
def test_cluster_files_in_the_docs_are_usable(page, tmp_path):
    for text in blocks(page, "yaml"):
        path = tmp_path / "cluster.yaml"
        path.write_text(text, "utf-8")
        assert complete(Cluster.load(path)).device_count > 1


@pytest.mark.parametrize("page", pages_with("json"), ids=identity)
def test_files_in_the_docs_are_valid(page):
    readers = {
        "placewright.graph/1": Graph.from_document,
        "placewright.cluster/1": lambda document: complete(Cluster.from_document(document)),
        "placewright.profiles/1": lambda document: read_profiles(document, page),
    }
    for text in blocks(page, "json"):
        document = json.loads(text)
        readers[document["format"]](document)


# -- examples and links ----------------------------------------------------------------------


@pytest.mark.parametrize("page", pages_with("python"), ids=identity)
def test_python_in_the_docs_runs(page, tmp_path, monkeypatch):
    """The blocks of a page run one after another, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "docs"}
    for number, text in enumerate(blocks(page, "python")):
        exec(compile(text, f"{page.name}, block {number + 1}", "exec"), scope)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_between_pages_lead_somewhere(page):
    text = BLOCK.sub("", page.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)#\s]*)(?:#[^)]*)?\)", text):
        if target and "://" not in target:
            assert (page.parent / target).exists(), target


def anchors(page: Path, duplicate: str, *, run_together: bool) -> set[str]:
    """The anchors of a page's headings: GitHub's, or those of the site, which joins hyphens."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text("utf-8")), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w -]", "", text).strip().replace(" ", "-")
        if run_together:
            slug = re.sub("-+", "-", slug)
        number = next(k for k in itertools.count() if _numbered(slug, duplicate, k) not in found)
        found.add(_numbered(slug, duplicate, number))
    return found


def _numbered(slug: str, duplicate: str, number: int) -> str:
    return f"{slug}{duplicate}{number}" if number else slug


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_to_headings_lead_somewhere_on_github_and_on_the_site(page):
    text = BLOCK.sub("", page.read_text("utf-8"))
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", text):
        if "://" not in target and (not target or target.endswith(".md")):
            there = page.parent / target if target else page
            assert anchor in anchors(there, "-", run_together=False), (target, anchor)
            assert anchor in anchors(there, "_", run_together=True), (target, anchor)


def test_the_site_lists_every_page():
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    listed = re.findall(r"^ +- (?:.*: )?([\w/-]+\.md)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in SITE)
