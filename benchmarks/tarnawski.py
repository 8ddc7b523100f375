"""Tarnawski et al. (NeurIPS 2020), Tables 1 to 4, beside ours: every workload file of a folder.

    python benchmarks/tarnawski.py DIR [--time-limit 60] [--tables 1,2,3,4] [--only NAME] [--json]

DIR holds the published files in ``throughput/``, ``latency/`` and ``experts/`` (any subset). Values
are milliseconds: the time per sample (Tables 1 and 3), throughput over the best contiguous split
(Table 2), latency of one sample (Table 4). `auto` is the default planner, beside the paper's
methods; the paper's figure, where it has one, stands beside ours, and beside `auto` its
best. Bounds are proved here; seconds are of planning alone, kernels warm, on this machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from placewright.errors import PlacewrightError
from placewright.plan import Plan
from placewright.planning import AUTO, make_problem, plan_problem
from placewright.problem import Problem

CONTIGUOUS = {"objective": "throughput", "contiguous": True}
FREE = {"objective": "throughput", "contiguous": False}
LATENCY = {"objective": "invocation-latency"}

# Milliseconds. Table 1: DP (contiguous), best non-contiguous (IP), DPL, expert, local search,
# PipeDream, Scotch. Keys are stems of the published files, in lower case.
TABLE_1: dict[str, tuple[float | None, ...]] = {
    "op_bert_l-3_inference": (27.92, 21.91, 27.92, None, 24.32, None, 35.94),
    "op_bert_l-6_inference": (29.58, 28.33, 29.58, None, 42.52, None, 49.80),
    "op_bert_l-12_inference": (147.48, 130.03, 147.48, None, 257.38, None, 230.12),
    "op_resnet50_inference": (124.35, 124.35, 124.35, None, 250.08, None, 197.84),
    "op_bert_l-3_training": (65.30, 54.21, 65.30, None, 66.17, None, 416.97),
    "op_bert_l-6_training": (72.86, 71.64, 79.50, None, 94.86, None, 130.20),
    "op_bert_l-12_training": (438.00, 373.42, 438.00, None, 737.99, None, 800.79),
    "op_resnet50_training": (255.19, 255.19, 255.19, None, 530.95, None, 379.21),
    "layer_bert24_inference": (17.79, 17.71, 17.79, 20.08, 17.80, 17.79, 18.03),
    "layer_resnet50_inference": (33.77, 33.31, 33.77, 43.92, 35.63, 39.38, 34.50),
    "layer_inceptionv3_inference": (51.55, 51.52, 51.55, 102.48, 54.03, 60.42, 54.01),
    "layer_gnmt_inference": (32.91, 31.68, 32.91, 46.21, 31.75, 33.03, 34.92),
    "layer_bert24_training": (41.75, 39.79, 41.75, 49.40, 39.93, 41.75, 42.01),
    "layer_resnet50_training": (78.63, 76.65, 78.65, 112.11, 81.32, 83.67, 80.10),
    "layer_inceptionv3_training": (122.76, 117.72, 123.93, 213.65, 122.80, 128.32, 128.32),
    "layer_gnmt_training": (107.00, 88.47, 107.00, 137.15, 91.52, 107.35, 107.00),
}
# Table 3: DP on the graph of contracted layers.
TABLE_3 = {
    "op_bert_l-3_inference": 27.92,
    "op_bert_l-6_inference": 29.58,
    "op_bert_l-12_inference": 159.43,
    "op_resnet50_inference": 129.15,
    "op_bert_l-3_training": 65.30,
    "op_bert_l-6_training": 72.86,
    "op_bert_l-12_training": 465.41,
    "op_resnet50_training": 269.63,
}
# Table 4: greedy, max-load DP, Scotch, expert, IP.
TABLE_4: dict[str, tuple[float | None, ...]] = {
    "op_bert_l-3_inference": (416.20, 415.90, 497.75, None, 408.47),
    "op_bert_l-6_inference": (494.13, 445.48, 564.61, None, 438.06),
    "op_bert_l-12_inference": (867.84, 1327.03, 1755.41, None, 729.56),
    "op_resnet50_inference": (839.54, 1123.65, 857.73, None, 672.06),
    "layer_bert24_inference": (100.22, 108.03, 108.03, 111.94, 100.22),
    "layer_resnet50_inference": (4197.06, 1443.79, 3610.87, None, 1191.02),
    "layer_inceptionv3_inference": (2485.24, 1621.74, 3068.00, None, 1318.08),
    "layer_gnmt_inference": (268.50, 244.33, 636.91, 293.40, 225.6),
}


@dataclass(frozen=True)
class Column:
    """A planner's column: how it is asked, and where the paper's figure stands in its table."""

    title: str
    planner: str
    options: dict[str, Any]
    place: int | None
    anytime: bool = False
    expert: bool = False


COLUMNS_1 = (
    Column("contiguous", "ideal-dp", CONTIGUOUS, 0),
    Column("auto, non-contiguous", AUTO, FREE, 1, anytime=True),
    Column("IP, non-contiguous", "max-load-ip", FREE, 1, anytime=True),
    Column("linear", "linear-dp", CONTIGUOUS, 2),
    Column("expert", "expert", FREE, 3, expert=True),
    Column("local search", "local-search", FREE, 4),
    Column("PipeDream", "pipedream", CONTIGUOUS, 5),
    Column("Scotch", "scotch", FREE, 6),
    Column("one accelerator", "single-device", FREE, None),
)
COLUMNS_4 = (
    Column("greedy", "greedy", LATENCY, 0),
    Column("max-load DP", "max-load-dp", LATENCY, 1),
    Column("Scotch", "scotch", LATENCY, 2),
    Column("expert", "expert", LATENCY, 3, expert=True),
    Column("IP", "invocation-ip", LATENCY, 4, anytime=True),
    Column("auto", AUTO, LATENCY, 4, anytime=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the published workloads")
    parser.add_argument(
        "--time-limit", type=float, default=60.0, help="seconds of anytime planners"
    )
    parser.add_argument("--tables", default="1,2,3,4", help="which tables, parted by commas")
    parser.add_argument("--only", default="", help="files whose name has this in it")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    arguments = parser.parse_args()
    chosen = set(arguments.tables.split(","))
    cells: dict[str, list[dict[str, Any]]] = {}
    if chosen & {"1", "2"}:
        files = files_in(arguments.folder / "throughput", arguments.only)
        warm_up(files, COLUMNS_1)
        cells["1"] = [row(file, COLUMNS_1, TABLE_1, arguments) for file in files]
    if "3" in chosen:
        files = files_in(arguments.folder / "throughput", arguments.only)
        cells["3"] = [cell for file in files if (cell := layers(file))]
    if "4" in chosen:
        files = files_in(arguments.folder / "latency", arguments.only)
        warm_up(files, COLUMNS_4)
        cells["4"] = [row(file, COLUMNS_4, TABLE_4, arguments) for file in files]
    if arguments.json:
        json.dump(cells, sys.stdout, indent=2)
        return
    console = Console(width=220)
    if "1" in chosen:
        console.print(value_table("Table 1: time per sample in ms", cells["1"], COLUMNS_1))
    if "2" in chosen:
        console.print(ratio_table(cells["1"]))
    if "3" in chosen:
        console.print(layer_table(cells["3"]))
    if "4" in chosen:
        console.print(value_table("Table 4: latency in ms", cells["4"], COLUMNS_4))


def files_in(folder: Path, only: str) -> list[Path]:
    return [file for file in sorted(folder.glob("*.json")) if only in file.name]


def warm_up(files: list[Path], columns: tuple[Column, ...]) -> None:
    """Compile what is not compiled yet, on the smallest file, so that no figure counts it."""
    if files:
        smallest = min(files, key=lambda file: file.stat().st_size)
        for column in columns:
            planned(smallest, column, 2.0)


def row(
    file: Path,
    columns: tuple[Column, ...],
    paper: dict[str, tuple[float | None, ...]],
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    figures = paper.get(file.stem.lower(), ())
    found: dict[str, Any] = {"workload": file.stem}
    for column in columns:
        cell = planned(file, column, arguments.time_limit)
        place = column.place
        cell["paper"] = figures[place] if place is not None and place < len(figures) else None
        found[column.title] = cell
    return found


def planned(file: Path, column: Column, seconds: float) -> dict[str, Any]:
    """One plan: value, bound and gap in milliseconds, seconds of planning; or why there is none."""
    try:
        plan = plan_problem(
            problem_of(file, column.options),
            planner=column.planner,
            planner_options=expert_options(file) if column.expert else None,
            time_limit=seconds if column.anytime else float("inf"),
        )
    except PlacewrightError as error:
        return {"error": str(error)}
    return cell_of(plan)


def cell_of(plan: Plan) -> dict[str, Any]:
    return {
        "value": plan.value * 1e3,
        "bound": plan.lower_bound * 1e3,
        "gap": plan.gap,
        "bound_source": plan.bound_source,
        "seconds": plan.seconds,
    }


def problem_of(file: Path, options: dict[str, Any]) -> Problem:
    return make_problem(file, None, options)[0]


def expert_options(file: Path) -> dict[str, str]:
    name = file.stem.removeprefix("layer_").removeprefix("op_").lower()
    expert = file.parent.parent / "experts" / f"{name}_expert.json"
    return {"file": str(expert), "workload": str(file)}


def layers(file: Path) -> dict[str, Any] | None:
    """Table 3: the best contiguous split of ops and of whole layers, if the file names layers."""
    problem = problem_of(file, CONTIGUOUS)
    if not any(problem.op_modules) or not file.stem.startswith("op_"):
        return None
    found: dict[str, Any] = {"workload": file.stem, "paper": TABLE_3.get(file.stem.lower())}
    for title, coarsening in (("ops", "none"), ("layers", "layers")):
        found[title] = cell_of(plan_problem(problem, planner="ideal-dp", coarsening=coarsening))
    return found


# -- tables ----------------------------------------------------------------------------------


def value_table(title: str, rows: list[dict[str, Any]], columns: tuple[Column, ...]) -> Table:
    table = Table(title=f"{title}: ours / the paper's (bound, gap, seconds where it is proved)")
    table.add_column("workload")
    for column in columns:
        table.add_column(column.title, justify="right")
    for each in rows:
        table.add_row(each["workload"], *(value_text(each[column.title]) for column in columns))
    return table


def value_text(cell: dict[str, Any]) -> str:
    paper = "-" if cell["paper"] is None else f"{cell['paper']:.2f}"
    if "error" in cell:
        return f"- / {paper}"
    gap = "optimal" if cell["gap"] <= 1e-4 else f"≥ {cell['bound']:.2f}, {cell['gap']:.1%}"
    return f"{cell['value']:.4f} / {paper}\n{gap}, {cell['seconds']:.3f} s"


def ratio_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Table 2: throughput over that of the best contiguous split")
    table.add_column("workload")
    for column in COLUMNS_1:
        table.add_column(column.title, justify="right")
    for each in rows:
        best = each["contiguous"].get("value")
        cells = [
            f"{best / each[column.title]['value']:.2f}×"
            if best and "value" in each[column.title]
            else "-"
            for column in COLUMNS_1
        ]
        table.add_row(each["workload"], *cells)
    return table


def layer_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Table 3: best contiguous split of ops and of layers, time per sample in ms"
    )
    for column in ("workload", "ops", "layers", "paper, layers", "gain"):
        table.add_column(column, justify="left" if column == "workload" else "right")
    for each in rows:
        ops, whole = each["ops"]["value"], each["layers"]["value"]
        paper = "-" if each["paper"] is None else f"{each['paper']:.2f}"
        table.add_row(
            each["workload"], f"{ops:.2f}", f"{whole:.2f}", paper, f"{whole / ops - 1:.0%}"
        )
    return table


if __name__ == "__main__":
    main()
