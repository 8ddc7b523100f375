"""Plans of language models by whole blocks, or by ops: how much ten seconds leave unproved.

    python benchmarks/block_level.py [--only TEXT,...] [--clusters NAME,...] [--seconds 10]
        [--granularity block|module|op] [--sample CASES] [--json FILE]

Every language model of the zoo and some default configurations of Transformers, as one pass over a
prompt and, of decoders, one token after 2048; on every preset cluster that can hold it, least
latency, ``--granularity block`` unless told otherwise; with ``--sample`` so many cases that are
drawn of all, always the same. A line per case that fits: value, bound, gap, and the seconds that
planning took without the import. The last lines count the gaps of at most 5 % (of ops 10 %) and
name the widest.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from placewright.costs.clusters import load_cluster, preset_names
from placewright.errors import InfeasibleError, PlacewrightWarning
from placewright.importers import load
from placewright.importers.zoo.table import TABLE
from placewright.planning import make_problem, plan_problem

FAMILIES = {"gpt", "bert", "t5", "llama", "mixtral"}
DECODERS = {"gpt", "llama", "mixtral"}
TRANSFORMERS = ("hf:qwen2", "hf:mistral", "hf:gemma2", "hf:phi3")
TOKEN = "phase=decode&context=2048"
CLOSE = {"block": 0.05, "module": 0.05, "op": 0.1}
OTHER_EVERYWHERE = "this-machine"


@dataclass(frozen=True)
class Row:
    """A model on a cluster; seconds but `gap`."""

    source: str
    cluster: str
    value: float
    bound: float
    gap: float
    planning: float

    def __str__(self) -> str:
        figures = f"{self.value * 1e3:11.4f} ms {self.bound * 1e3:11.4f} ms {self.gap:7.2%}"
        return f"{self.source:45} {self.cluster:20} {figures} {self.planning:6.2f} s"


def main() -> None:
    arguments = parsed()
    warnings.simplefilter("ignore", PlacewrightWarning)
    rows: list[Row] = []
    for source, cluster in drawn(arguments):
        if arguments.sample and len(rows) == arguments.sample:
            break
        row = planned(source, cluster, arguments.granularity, arguments.seconds)
        if row is not None:
            rows.append(row)
            print(row, flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    if not rows:
        sys.exit("none of these fits")
    least = CLOSE[arguments.granularity]
    close = sum(row.gap <= least for row in rows)
    print(f"{close} of {len(rows)} have a gap of at most {least:.0%}; the widest:")
    print(*sorted(rows, key=lambda row: -row.gap)[:10], sep="\n")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="parts of names of models, with commas")
    parser.add_argument("--clusters", default="", help="names of presets, with commas (all)")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each plan (10)")
    parser.add_argument("--granularity", choices=sorted(CLOSE), default="block")
    parser.add_argument("--sample", type=int, help="so many cases that fit, drawn of all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to this file")
    return parser.parse_args()


def drawn(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """Models and clusters, in order; in a random one where some are to be drawn."""
    cases = [
        (source, cluster)
        for source in sources(arguments.only)
        for cluster in clusters(arguments.clusters)
    ]
    if arguments.sample:
        random.Random(0).shuffle(cases)
    return cases


def sources(only: str) -> Iterator[str]:
    wanted = only.split(",")
    for model in TABLE:
        if model.family in FAMILIES and any(each in model.name for each in wanted):
            yield f"zoo:{model.name}"
            if model.family in DECODERS:
                yield f"zoo:{model.name}?{TOKEN}"
    for name in TRANSFORMERS:
        if any(each in name for each in wanted):
            yield f"{name}?phase=prefill&context=2048"
            yield f"{name}?{TOKEN}"


def clusters(only: str) -> list[str]:
    return (
        only.split(",") if only else [each for each in preset_names() if each != OTHER_EVERYWHERE]
    )


def planned(source: str, cluster: str, granularity: str, seconds: float) -> Row | None:
    """None where the cluster cannot hold it."""
    options = {"objective": "latency"}
    try:
        problem, name = make_problem(
            load(source), load_cluster(cluster), options, granularity=granularity
        )
        started = time.perf_counter()
        plan = plan_problem(problem, time_limit=seconds, source=name)
    except InfeasibleError:
        return None
    took = time.perf_counter() - started
    return Row(source, cluster, plan.value, plan.lower_bound, plan.gap, took)


if __name__ == "__main__":
    main()
