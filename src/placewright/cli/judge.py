"""``placewright judge``: value a placement that people have already."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placewright.cli import options as o
from placewright.cli.groups import grouped


@grouped
def command(
    source: o.Source,
    *,
    cluster: o.Cluster = None,
    placement: Annotated[
        Path | None,
        typer.Option(
            help="A device map (JSON: module to 0, 1, cpu or a device's name), a placement file or "
            "a plan.",
            metavar="FILE",
        ),
    ] = None,
    tensor_split: Annotated[
        str | None,
        typer.Option(
            "--tensor-split", "-ts", help="As llama.cpp has it: shares of the accelerators, 3,1."
        ),
    ] = None,
    gpu_layers: Annotated[
        int | None,
        typer.Option(
            "--n-gpu-layers", "-ngl", help="With -ts: layers that are not on the CPU.", min=0
        ),
    ] = None,
    layer_partition: Annotated[
        str | None,
        typer.Option(help="As vLLM has it: the layers of each accelerator, 20,28."),
    ] = None,
    problem: o.Problem,
    output: o.Output = None,
    wide: o.Wide = False,
    json: o.Json = False,
) -> None:
    """Value a placement of SOURCE that a tool or a person has made, as if it were a plan."""
    from placewright.cli.output import announce_compilation, print_json, print_plan, remark
    from placewright.report.records import plan_record
    from placewright.whatif.judging.judge import Given, judge

    o.keep_inputs("--output", output, source, cluster, placement, problem.profiles)
    announce_compilation()
    found = judge(
        source,
        cluster,
        Given(placement, tensor_split, gpu_layers, layer_partition),
        options=problem.options,
        training=problem.training,
        costs=problem.costs,
        pinned=problem.pinned,
    )
    if output is not None:
        found.plan.save(output)
    if json:
        record = plan_record(found.plan, output)
        print_json({**record, "remarks": [*found.remarks, *record["remarks"]]})
        return
    print_plan(found.plan, output, json=False, wide=wide)
    for text in found.remarks:
        remark(f"placewright: {text}")
