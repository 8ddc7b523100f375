"""The planner `diviml-milp` for one input: DiviML's exact method (§IV-A), without contention."""

from __future__ import annotations

from typing import ClassVar

from placewright.analysis.precedence import Precedence
from placewright.budget import Budget
from placewright.formulations.latency.diviml_program import DivimlProgram
from placewright.formulations.latency.instance import Instance
from placewright.formulations.latency.peak import order_variables
from placewright.formulations.latency.program import LatencyProgram
from placewright.planners.latency.exact.outline import MilpPlanner
from placewright.problem import Problem


class DivimlMilp(MilpPlanner):
    """Exact latency without contention: DiviML's program, with a start per op and device.

    Under memory option ``peak`` transfers and what is alive are added (`transport`, `peak`).
    """

    name: ClassVar[str] = "diviml-milp"

    def supports(self, problem: Problem) -> str | None:
        if problem.options.contention != "none":
            return (
                f"DiviML's program knows no contention and this problem has "
                f"'{problem.options.contention}'; set contention none or use moirai-milp"
            )
        return super().supports(problem)

    def binaries(self, problem: Problem) -> int:
        pairs = Precedence(problem).unordered_pairs()
        return problem.unit_count * problem.device_count + pairs + order_variables(problem)

    def formulate(self, instance: Instance, limit: Budget) -> LatencyProgram:
        return DivimlProgram(instance, limit)
