"""Everyday models on everyday clusters: plans for engines beside what people get today.

    python benchmarks/everyday.py [--only TEXT,...] [--engines ENGINE,...] [--clusters NAME,...]
        [--json FILE] [--markdown]

For each engine, model (`everyday_models`) and cluster: what ``plan --for ENGINE`` finds, and what
the tool does by itself or people do by hand (`everyday_baselines`), all timed and judged as the
engine runs them (`exporters.timing.judged_blocks`). Language models decode one token at a context
of 4096: seconds per token, or, under ``throughput``, tokens per second of a pipeline that is kept
full. Other models make 32 images, or a step of one.

A column per baseline has how many times as long as the plan it takes (``1.00`` is as good); ``-``
where it does not fit, or the tool gives up. `gap` is what the plan leaves unproved, `seconds` what
planning took without the import. The last lines are mean ratios per engine, over all that fits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from everyday_baselines import BASELINES, BY_HAND, Baseline, NoPlaceError, Setting
from everyday_models import MODELS, Model
from rich.console import Console
from rich.table import Table

from placewright.costs.clusters import load_cluster
from placewright.costs.roofline import CostOptions
from placewright.errors import InfeasibleError, OptionError
from placewright.exporters.engines import Limits, find_engine, limits_of
from placewright.exporters.planning import counted, engine_costs, plan_for
from placewright.exporters.timing import judged_blocks
from placewright.importers import Imported, load
from placewright.planning import make_problem
from placewright.units import format_seconds

CLUSTERS = (
    "4060+cpu", "4090+cpu", "4090+3060", "2x3090", "3090+2x3060", "4x3090+cpu", "a100+2xt4+cpu",
    "mac+pc", "three-hosts", "8xA100",
)  # fmt: skip
ON_MACS = ("accelerate", "transformers", "llama-cpp")
"""Engines that are asked about `mac+pc`; Accelerate then runs on the PC alone."""
ENGINES = ("accelerate", "llama-cpp", "vllm", "sglang", "megatron", "deepspeed")
SAME = 1 + 1e-9
LONG = 1.0  # seconds of planning, which are then measured once more
Planned = tuple[float | None, float | None, float | None, str, bool]
"""Value, gap and seconds of a plan; else why there is none, and whether the engine refuses."""
Known = dict[tuple[Limits, str], Planned]
"""Engines of the same limits have the same plan."""


@dataclass
class Row:
    """A line of the table: seconds per token, per image or per step, of the plan and of others."""

    engine: str
    objective: str
    model: str
    cluster: str
    value: float | None = None
    gap: float | None = None
    seconds: float | None = None
    why: str = ""
    others: dict[str, float | None] = field(default_factory=dict)

    def ratio(self, name: str) -> float | None:
        other = self.others.get(name)
        return None if other is None or self.value is None else other / self.value

    @property
    def is_worse(self) -> bool:
        ratios = [self.ratio(name) for name in self.others]
        fits = any(other is not None for other in self.others.values())
        return (self.value is None and fits) or any(
            each is not None and each * SAME < 1 for each in ratios
        )


def main(arguments: argparse.Namespace) -> int:
    rows: list[Row] = []
    _warm_up()
    with tempfile.TemporaryDirectory() as folder:
        for model in MODELS:
            if _asked(arguments.only, model.name):
                rows += _rows(model, Path(folder), arguments)
                if arguments.json:
                    arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    console = Console(width=200)
    for engine, objective in dict.fromkeys((row.engine, row.objective) for row in rows):
        chosen = [row for row in rows if (row.engine, row.objective) == (engine, objective)]
        if arguments.markdown:
            print(markdown(chosen))
        else:
            console.print(table(chosen))
        print(summary(chosen), flush=True)
    return int(any(row.is_worse for row in rows))


def _asked(texts: list[str], name: str) -> bool:
    return not texts or any(text.lower() in name.lower() for text in texts)


def _warm_up() -> None:
    """What is compiled on the first call is."""
    for objective in ("latency", "throughput"):
        plan_for("zoo:gpt2", "4090+3060", "vllm", objective=objective, free_seconds=0)


def _rows(model: Model, folder: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    started = time.perf_counter()
    sys.path.insert(0, str(Path(__file__).parent))  # of torch: sources
    source = load(model.written(folder))
    print(
        f"{model.name}: import {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True
    )
    for cluster in CLUSTERS:
        if not _asked(arguments.clusters, cluster):
            continue
        known: Known = {}
        for name in arguments.engines:
            if cluster == "mac+pc" and name not in ON_MACS:
                continue
            for objective in limits_of(find_engine(name)).objectives:
                yield row_of(Row(name, objective, model.name, cluster), source, known)


def row_of(row: Row, source: Imported, known: Known) -> Row:
    """With the plan for its engine, and what others come to under the engine's rules."""
    engine, objective, cluster = find_engine(row.engine), row.objective, row.cluster
    limits = limits_of(engine)
    if (limits, objective) not in known:
        known[limits, objective] = _planned(source, cluster, row.engine, objective)
    row.value, row.gap, row.seconds, row.why, refused = known[limits, objective]
    if refused:
        return row
    costs, options = engine_costs(CostOptions(), engine), {"objective": objective}
    problem = make_problem(source, cluster, options, costs=costs, together=True)[0]
    problem = counted(problem, source, engine)[0]
    hosts = [device.host for device in load_cluster(cluster).devices]
    setting = Setting.of(problem, engine, hosts)
    for name, baseline in {**BASELINES[engine.name], **BY_HAND}.items():
        row.others[name] = _judged(setting, baseline)
    return row


def _planned(source: Imported, cluster: str, engine: str, objective: str) -> Planned:
    try:
        found = plan_for(source, cluster, engine, objective=objective, free_seconds=0).plan
        if found.seconds > LONG:  # or the machine was busy with something else
            again = plan_for(source, cluster, engine, objective=objective, free_seconds=0).plan
            found = min(found, again, key=lambda plan: plan.seconds)
    except InfeasibleError as error:
        return None, None, None, str(error), False
    except OptionError as error:
        return None, None, None, str(error), True
    return found.value, found.gap, found.seconds, "", False


def _judged(setting: Setting, baseline: Baseline) -> float | None:
    """The value of the first placement that fits."""
    try:
        for places in baseline(setting):
            try:
                return judged_blocks(setting.pieces, setting.engine, places).value
            except InfeasibleError:
                continue
    except NoPlaceError:
        pass
    return None


# -- what is printed -------------------------------------------------------------------------------


def cells(row: Row) -> list[str]:
    if row.value is None:
        return [row.model, row.cluster, "does not fit", "", "", *("-" for _ in row.others)]
    rate = f"{1 / row.value:,.1f}/s"
    value = rate if row.objective == "throughput" else f"{format_seconds(row.value)}, {rate}"
    ratios = [row.ratio(name) for name in row.others]
    return [
        row.model,
        row.cluster,
        value,
        f"{max(row.gap or 0.0, 0.0):.0%}" if (row.gap or 0) < 0.5e-2 else f"{row.gap:.2%}",
        f"{row.seconds:.2f}",
        *("-" if each is None else f"{each:.2f}" for each in ratios),
    ]


def _columns(rows: list[Row]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row.others))
    return ["model", "cluster", f"--for {rows[0].engine}", "gap", "seconds", *names]


def _shown(rows: list[Row]) -> list[list[str]]:
    """The lines of models that the engine takes."""
    return [cells(row) for row in rows if row.others]


def table(rows: list[Row]) -> Table:
    found = Table(title=f"{rows[0].engine}, {rows[0].objective}")
    for name in _columns(rows):
        found.add_column(name, justify="left" if name in ("model", "cluster") else "right")
    for line in _shown(rows):
        found.add_row(*line)
    return found


def markdown(rows: list[Row]) -> str:
    columns = _columns(rows)
    lines = [f"### {rows[0].engine}, {rows[0].objective}", "", columns, ["---"] * len(columns)]
    return "\n".join(
        line if isinstance(line, str) else f"| {' | '.join(line)} |"
        for line in (*lines, *_shown(rows))
    )


def summary(rows: list[Row]) -> str:
    """Mean ratios, what only the plan fits, proofs and seconds."""
    planned = [row for row in rows if row.value is not None]
    taken = [row for row in rows if row.others]
    parts = []
    for name in dict.fromkeys(name for row in taken for name in row.others):
        ratios = [each for row in planned if (each := row.ratio(name)) is not None]
        lacks = sum(row.others.get(name) is None for row in planned)
        if ratios:
            mean = (
                f"{statistics.mean(ratios):.2f} (geometric {statistics.geometric_mean(ratios):.2f})"
            )
            parts.append(f"{name} {mean} of {len(ratios)}, no room in {lacks} more")
        else:
            parts.append(f"{name} never fits")
    refused = sorted({row.model for row in rows if not row.others})
    text = f"{rows[0].engine}, {rows[0].objective}: mean ratio to the plan: {'; '.join(parts)}. "
    if planned:
        gap = max(max(row.gap or 0.0, 0.0) for row in planned)
        seconds = max(row.seconds or 0.0 for row in planned)
        text += f"{len(planned)} of {len(taken)} fit; largest gap {gap:.2%}, "
        text += f"longest planning {seconds:.2f} s; "
    text += f"worse than another: {sum(row.is_worse for row in rows)}"
    return f"{text}. Not of one row of layers: {', '.join(refused)}" if refused else text


def _split(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=_split, default=[], help="parts of the names of models")
    parser.add_argument("--engines", type=_split, default=list(ENGINES))
    parser.add_argument(
        "--clusters", type=_split, default=[], help="parts of the names of clusters"
    )
    parser.add_argument("--json", type=Path, help="write every row, in seconds")
    parser.add_argument("--markdown", action="store_true")
    sys.exit(main(parser.parse_args()))
