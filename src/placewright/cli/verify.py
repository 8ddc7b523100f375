"""``placewright verify``: judge a plan file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placewright.cli import options as o


def command(
    plan: Annotated[Path, typer.Argument(help="A plan file.", metavar="PLAN")],
    json: o.Json = False,
) -> None:
    """Judge a plan: recompute every claim from its problem. Exit code 4 if one is wrong."""
    from placewright.cli.output import console, print_json
    from placewright.plan import Plan
    from placewright.report.words import value_words
    from placewright.units import format_bytes, format_seconds
    from placewright.verify import verify

    loaded = Plan.load(plan)
    report = verify(loaded)
    if json:
        print_json(
            {
                "plan": str(plan),
                "ok": report.ok,
                "violations": list(report.violations),
                "value": loaded.value,
                "lower_bound": loaded.lower_bound,
                "gap": loaded.gap,
                "status": loaded.status,
                "checks": list(report.checks),
            }
        )
    elif report.ok:
        out = console()
        for check in report.checks:
            out.print(f"  ok  {check}", markup=False)
        memory = ", ".join(
            f"{name} {format_bytes(used)}"
            for name, used in zip(loaded.problem.device_names, report.device_memory, strict=True)
        )
        out.print(
            f"{plan}: holds; {value_words(loaded.problem)} {format_seconds(report.value)}, "
            f"lower bound {format_seconds(loaded.lower_bound)}, gap {loaded.gap:.1%}; {memory}",
            markup=False,
        )
    else:
        for violation in report.violations:
            console().print(f"  wrong  {violation}", markup=False)
    report.raise_if_failed()
