"""``placewright verify``: judge a plan file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placewright.cli import options as o

if TYPE_CHECKING:
    from placewright.plan import Plan
    from placewright.verify import Report


def command(
    plan: Annotated[Path, typer.Argument(help="A plan file.", metavar="PLAN")],
    json: o.Json = False,
) -> None:
    """Judge a plan: recompute every claim from its problem. Exit code 4 if one is wrong."""
    from placewright.cli.output import print_json
    from placewright.plan import Plan
    from placewright.verify import verify

    loaded = Plan.load(plan)
    report = verify(loaded)
    try:
        if json:
            print_json(_record(plan, loaded, report))
        else:
            _print(plan, loaded, report)
    finally:  # the verdict stands though nobody reads what led to it
        report.raise_if_failed()


def _record(path: Path, plan: Plan, report: Report) -> dict[str, object]:
    return {
        "plan": str(path),
        "ok": report.ok,
        "violations": list(report.violations),
        "value": plan.value,
        "lower_bound": plan.lower_bound,
        "gap": plan.gap,
        "status": plan.status,
        "checks": list(report.checks),
    }


def _print(path: Path, plan: Plan, report: Report) -> None:
    """What was checked and what the plan comes to, or what is wrong."""
    from placewright.cli.output import console
    from placewright.report.words import value_words
    from placewright.units import format_bytes, format_seconds

    out = console()
    for violation in report.violations:
        out.print(f"  wrong  {violation}", markup=False)
    if not report.ok:
        return
    for check in report.checks:
        out.print(f"  ok  {check}", markup=False)
    memory = ", ".join(
        f"{name} {format_bytes(used)}"
        for name, used in zip(plan.problem.device_names, report.device_memory, strict=True)
    )
    out.print(
        f"{path}: holds; {value_words(plan.problem)} {format_seconds(report.value)}, "
        f"lower bound {format_seconds(plan.lower_bound)}, gap {plan.gap:.1%}; {memory}",
        markup=False,
    )
