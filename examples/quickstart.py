"""Plan GPT-2 on two GPUs, look at the answer, have it judged, keep it.

Run: python examples/quickstart.py
"""

import tempfile
from pathlib import Path

import placewright as pw


def main() -> None:
    plan = pw.plan("zoo:gpt2", cluster="2x3090")
    print(f"planner {plan.planner}: {plan.value * 1e3:.3f} ms")
    print(f"no plan is below {plan.lower_bound * 1e3:.3f} ms ({plan.bound_source})")
    for name, load, memory in zip(
        plan.problem.device_names, plan.device_load, plan.device_memory, strict=True
    ):
        print(f"  {name}: computes {load * 1e3:.3f} ms, keeps {memory / 2**20:.1f} MiB")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        plan.save(path)
        report = pw.verify(pw.Plan.load(path))
    for check in report.checks:
        print(f"  ok: {check}")
    report.raise_if_failed()


if __name__ == "__main__":
    main()
