"""Policies in files: used on other graphs, refused where they do not fit."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from placewright.planning import make_problem
from placewright.solving import solve
from placewright.verify import verify
from tests.cli.running import run

NAMES = ("hrl", "placeto")
TRAINED, OTHER = "zoo:rwnn?modules=1&ops=10", "zoo:rwnn?modules=1&ops=12&seed=5"


@pytest.fixture(scope="module", params=NAMES)
def saved(request, tmp_path_factory) -> tuple[str, Path]:
    """A planner and the file of a policy of it, for the three devices of preset diviml."""
    path = tmp_path_factory.mktemp("policies") / f"{request.param}.safetensors"
    options = {"save": str(path), "episodes": "32"}
    if request.param == "hrl":
        options["groups"] = "4"
    solve(make_problem(TRAINED, "diviml")[0], request.param, planner_options=options)
    return request.param, path


def plan_with(saved: tuple[str, Path], path: Path, source: str = OTHER, cluster: str = "diviml"):
    name, _ = saved
    words = ("plan", source, "-c", cluster, "-p", name, "-O", f"policy={path}")
    return run(*words, "-O", "episodes=0", "--json")


def refused(saved: tuple[str, Path], path: Path, *fragments: str, cluster: str = "diviml") -> None:
    done = plan_with(saved, path, cluster=cluster)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1, done.err
    for fragment in (str(path), *fragments):
        assert fragment in done.err


def changed(saved: tuple[str, Path], to: Path, **fields: object) -> Path:
    """A copy with other fields in its header."""
    with safe_open(saved[1], "pt") as file:
        document = json.loads(file.metadata()["placewright"]) | fields
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(weights, to, {"placewright": json.dumps(document)})
    return to


def test_a_policy_is_used_on_another_graph_without_training(saved):
    name, path = saved
    problem, _ = make_problem(OTHER, "diviml")
    options = {"policy": str(path), "episodes": "0"}
    lessons = []
    plan = solve(problem, name, planner_options=options, on_lesson=lessons.append)
    again = solve(problem, name, planner_options=options)
    assert verify(plan).violations == ()
    assert [lesson.episodes for lesson in lessons] == [16]
    assert again.placement.device.tobytes() == plan.placement.device.tobytes()


def test_a_policy_that_is_not_trained_is_saved_as_it_was(saved, tmp_path):
    name, path = saved
    copy = tmp_path / "copy.safetensors"
    options = {"policy": str(path), "save": str(copy), "episodes": "0"}
    solve(make_problem(OTHER, "diviml")[0], name, planner_options=options)
    assert copy.read_bytes() == path.read_bytes()


def test_training_goes_on_from_a_policy(saved, tmp_path):
    name, path = saved
    further = tmp_path / "further.safetensors"
    options = {"policy": str(path), "save": str(further), "episodes": "16"}
    solve(make_problem(OTHER, "diviml")[0], name, planner_options=options)
    assert further.read_bytes() != path.read_bytes()


def test_a_policy_for_another_number_of_devices_is_refused(saved):
    refused(saved, saved[1], "is a policy for 3 devices, here there are 2", cluster="2x3090")


def test_a_policy_of_another_planner_is_refused(saved, tmp_path):
    other = changed(saved, tmp_path / "other.safetensors", planner="chess")
    refused(saved, other, "is a policy of planner 'chess'")


def test_a_policy_of_a_later_version_is_refused(saved, tmp_path):
    later = changed(saved, tmp_path / "later.safetensors", format="placewright.policy/2")
    refused(saved, later, "update placewright")


@pytest.mark.parametrize("length", [0, 7, 100, -1])
def test_a_truncated_policy_is_refused(saved, tmp_path, length):
    path = tmp_path / "short.safetensors"
    path.write_bytes(saved[1].read_bytes()[:length])
    refused(saved, path, "is no policy file", "-O save=FILE")


def test_foreign_files_are_refused(saved, tmp_path):
    weights = tmp_path / "weights.safetensors"
    save_file({"weight": torch.zeros(2)}, weights)
    refused(saved, weights, 'format is missing; write "format": "placewright.policy/1"')
    text = tmp_path / "text.safetensors"
    text.write_text('{"format": "placewright.policy/1"}')
    refused(saved, text, "is no policy file")
    pickled = tmp_path / "pickled.pt"
    torch.save({"weight": torch.zeros(2)}, pickled)
    refused(saved, pickled, "is no policy file")
    refused(saved, tmp_path / "nowhere", "no such file")
    refused(saved, tmp_path, "is a directory")


def test_tensors_of_other_shapes_or_without_values_are_refused(saved, tmp_path):
    with safe_open(saved[1], "pt") as file:
        header = file.metadata()
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    name, first = next(iter(weights.items()))
    path = tmp_path / "odd.safetensors"
    save_file(weights | {name: torch.zeros(3, 3, 3)}, path, header)
    refused(saved, path, "its tensors are not those of a policy")
    save_file(weights | {name: first / 0.0}, path, header)
    refused(saved, path, f"tensor '{name}' is not finite")


def test_a_policy_that_cannot_be_written_is_refused_before_training(saved, tmp_path):
    name, _ = saved
    words = ("plan", OTHER, "-c", "diviml", "-p", name, "-O", f"save={tmp_path}/no/p.safetensors")
    done = run(*words, "-O", "episodes=16", "--json")
    assert done.code == 2
    assert "there is no directory" in done.err


@pytest.mark.parametrize("option", ["episodes=-1", "episodes=x", "nodes=0"])
def test_options_out_of_range_are_refused(saved, option):
    done = run("plan", OTHER, "-c", "diviml", "-p", saved[0], "-O", option)
    assert done.code == 2
    assert "give a whole number above 0" in done.err


def test_a_policy_keeps_its_number_of_groups(tmp_path):
    path = tmp_path / "policy.safetensors"
    words = ("plan", TRAINED, "-c", "diviml", "-p", "hrl", "-O", "episodes=1")
    assert run(*words, "-O", "groups=4", "-O", f"save={path}").code == 0
    assert run(*words, "-O", f"policy={path}").code == 0
    done = run(*words, "-O", f"policy={path}", "-O", "groups=5")
    assert (done.code, done.out) == (2, "")
    assert "is a policy for 4 groups, here there are 5" in done.err
    for groups in (0, 257, "many", None):
        odd = changed(("hrl", path), tmp_path / "odd.safetensors", sizes={"groups": groups})
        done = run(*words, "-O", f"policy={odd}")
        assert (done.code, done.out) == (2, "")
        assert f"{odd}: is a policy for {groups} groups" in done.err


def test_more_groups_than_a_grouper_can_have_are_refused():
    done = run("plan", OTHER, "-c", "diviml", "-p", "hrl", "-O", "groups=257")
    assert done.code == 2
    assert "groups is 257; give 256 at most" in done.err
