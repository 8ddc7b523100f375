"""What the benchmark scripts ask of whom."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def tarnawski() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_tarnawski", FOLDER / "tarnawski.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its data classes look for their annotations
    spec.loader.exec_module(module)
    return module


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
