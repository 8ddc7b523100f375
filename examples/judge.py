"""The judge at work: what it says of a plan that has been tampered with.

Run: python examples/judge.py
"""

from dataclasses import replace

import numpy as np

import placewright as pw


def main() -> None:
    plan = pw.plan("zoo:gpt2?layers=2", cluster="2x3090", planner="m-topo")
    assert pw.verify(plan).ok

    faster = replace(plan, value=plan.value / 2)
    print("half the value: ", pw.verify(faster).violations[0])

    start, finish = plan.schedule.op_start.copy(), plan.schedule.op_finish.copy()
    last = int(finish.argmax())
    start[last], finish[last] = 0.0, finish[last] - start[last]
    earlier = replace(plan, outcome=replace(plan.schedule, op_start=start, op_finish=finish))
    print("last op first:  ", pw.verify(earlier).violations[0])

    device = np.array(plan.placement.device)
    device[plan.problem.op_names.index("blocks.0.mlp.fc1")] ^= 1
    moved = replace(plan, placement=pw.Placement(device))
    print("one op moved:   ", pw.verify(moved).violations[0])

    assert not any(pw.verify(wrong).ok for wrong in (faster, earlier, moved))


if __name__ == "__main__":
    main()
