"""Plan a PyTorch module for two CPU ranks of this machine, and run it there (extra `torch`).

The cluster takes each rank for half of this machine's CPU; the link between them is what gloo on
the loopback interface roughly does. Two towers are independent until they meet, so two ranks can
share the work. What is measured depends on the machine, and on what else it is doing.

Run: python examples/run_on_ranks.py
"""

from dataclasses import replace

import torch
from torch import nn

import placewright as pw
from placewright.runtime import RunOptions, run_plan


class TwoTowers(nn.Module):
    def __init__(self, width: int = 512, layers: int = 6) -> None:
        super().__init__()
        self.left = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
        self.right = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
        self.head = nn.Linear(2 * width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([self.left(x), self.right(x)], dim=-1))


def factory() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return TwoTowers(), (torch.randn(256, 512),)


def two_ranks() -> pw.Cluster:
    cpu = next(each for each in pw.load_cluster("this-machine").devices if each.name == "cpu")
    half = replace(
        cpu,
        memory=cpu.memory / 2,
        peak_flops={dtype: peak / 2 for dtype, peak in cpu.peak_flops.items()},
        memory_bandwidth=cpu.memory_bandwidth / 2,
        run=None,
    )
    return pw.Cluster(
        "two ranks",
        devices=(replace(half, name="rank0"), replace(half, name="rank1")),
        links=(pw.Link("rank0", "rank1", bandwidth=1e9, latency=1e-4),),
    )


def main() -> None:
    plan = pw.plan("torch:run_on_ranks:factory", two_ranks(), planner="heft")
    print(f"{plan.problem.op_count} ops, {len(plan.schedule.transfers)} transfers")
    report = run_plan(plan, options=RunOptions(repeats=3))
    print(f"predicted {report.predicted * 1e3:.2f} ms, measured {report.measured * 1e3:.2f} ms")
    print(f"in one process {report.single_process_seconds * 1e3:.2f} ms")
    print(f"largest difference of an output {report.max_abs_difference:.3g}")
    assert report.max_abs_difference < 1e-4


if __name__ == "__main__":
    main()
