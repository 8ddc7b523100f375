"""What the machine is taken to be changes the answer: contention and memory, side by side.

Run: python examples/machine_options.py
"""

import placewright as pw

MODEL = "zoo:gpt3-330m"
CLUSTER = "moirai-inter-server"


def main() -> None:
    graph, cluster = pw.load(MODEL).graph, pw.load_cluster(CLUSTER)
    print(f"{MODEL} on {CLUSTER}, planner heft")
    for contention in ("none", "port", "link"):
        for memory in ("resident", "peak"):
            options = pw.Options(contention=contention, memory=memory)
            problem = pw.build_problem(graph, cluster, options, pw.CostOptions())
            plan = pw.solve(problem, "heft")
            peak = max(pw.verify(plan).device_memory)
            print(
                f"  contention {contention:4}  memory {memory:8}  {plan.value * 1e3:8.3f} ms  "
                f"fullest device {peak / 2**30:.2f} GiB"
            )


if __name__ == "__main__":
    main()
