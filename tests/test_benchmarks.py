"""What the benchmark scripts ask of whom."""

from __future__ import annotations

import importlib.util
import sys
from itertools import combinations, pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from placewright.plan import Plan
from placewright.planning import plan
from placewright.verify import verify

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its data classes look for their annotations
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tarnawski() -> ModuleType:
    return script("tarnawski")


@pytest.fixture(scope="module")
def placements() -> ModuleType:
    return script("running_placements")


@pytest.mark.parametrize("table", ["COLUMNS_1", "COLUMNS_4"])
def test_the_default_planner_is_in_every_table_with_a_time_limit(tarnawski, table):
    limited = [column for column in getattr(tarnawski, table) if column.anytime]
    assert "auto" in [column.planner for column in limited]
    assert len({str(column.options) for column in limited}) == 1  # all asked for the same


@pytest.mark.slow
def test_the_default_planner_proves_the_optimum_of_bert_3_in_table_4(tarnawski, workloads):
    file = workloads / "tarnawski" / "latency" / "op_bert_l-3_inference.json"
    (auto,) = [column for column in tarnawski.COLUMNS_4 if column.planner == "auto"]
    cell = tarnawski.planned(file, auto, 60.0)
    assert cell["value"] == pytest.approx(408.4745, rel=1e-4)  # it ends at a gap of 1e-4
    assert cell["gap"] <= 1e-4
    assert tarnawski.TABLE_4[file.stem][auto.place] == 408.47


@pytest.fixture(scope="module")
def two_devices() -> Plan:
    return plan("zoo:gpt2?layers=1", "2x3090", planner="single-device")


def test_every_placement_that_is_ranked_is_one_that_the_judge_accepts(placements, two_devices):
    found = placements.named(two_devices, lambda _: two_devices)
    found |= placements.candidates(two_devices)
    assert len(found) == 8 + 2 * 22
    for name, each in found.items():
        report = verify(each)
        assert report.ok, (name, report.violations)
    different = {each.placement.device.tobytes() for each in found.values()}
    assert len(different) >= 20  # those by depth of a chain are those by program


def test_a_split_has_its_share_of_the_work(placements, two_devices):
    units = placements._Units(two_devices)
    time = two_devices.problem.op_time[:, 0]
    for tenth in range(11):
        device = units.placed(units.split(tenth / 10)).placement.device
        share = time[device == 0].sum() / time.sum()
        assert share <= tenth / 10 + 1e-9
        assert share == pytest.approx(tenth / 10, abs=time.max() / time.sum())


def test_no_other_choice_of_placements_is_spread_more(placements):
    draw = np.random.default_rng(0)
    for _ in range(200):
        seconds = draw.uniform(1, 2, draw.integers(2, 10)).round(1)
        predicted = {f"p{k}": float(value) for k, value in enumerate(seconds)}
        chosen = placements.spread(predicted, (4, 3), 1.1)
        ways = {count: _most_spread(predicted, count) for count in (4, 3)}
        count = next((each for each in (4, 3) if ways[each] >= 1.1), 0)
        assert len(chosen) == count
        if count:
            least = min(predicted[b] / predicted[a] for a, b in pairwise(chosen))
            assert least == pytest.approx(ways[count])


def _most_spread(predicted: dict[str, float], count: int) -> float:
    """The largest least ratio of neighbours of any so many, by trying all."""
    return max(
        (
            min(b / a for a, b in pairwise(sorted(chosen)))
            for chosen in combinations(predicted.values(), count)
        ),
        default=0.0,
    )


def test_kendalls_tau_counts_pairs(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(FOLDER))
    running = script("running")

    def row(predicted: float, measured: float, noise: float = 0.0):
        return running.Row("m", "p", predicted, measured, 0, noise, 0, True, True)

    ordered = [row(1, 10), row(2, 20), row(3, 30)]
    assert running.kendall(ordered, apart=False) == 1
    assert running.kendall([row(1, 30), row(2, 20), row(3, 10)], apart=False) == -1
    mixed = [*ordered, row(4, 25)]  # five pairs of six as predicted
    assert running.kendall(mixed, apart=False) == pytest.approx(4 / 6)
    assert running.kendall([row(1, 2), row(1, 1)], apart=False) is None
    assert running.kendall([row(1, 2, 0.2), row(1.1, 1, 0.2)], apart=True) is None
