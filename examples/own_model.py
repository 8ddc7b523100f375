"""A model and a machine described by hand, with measured times for one kind of device.

Two towers, one for images and one for text, meet in a score. The accelerator is of no kind the
catalog knows: its times are measured, and it cannot run the text tower at all.

Run: python examples/own_model.py
"""

import math

import placewright as pw


def two_towers() -> pw.Graph:
    builder = pw.GraphBuilder("two towers")
    features = []
    for tower, flops in (("image", 4e10), ("text", 3e10)):
        tensor: int | None = None
        for layer in range(3):
            op = builder.add_op(
                f"{tower}.{layer}",
                "matmul",
                inputs=() if tensor is None else (tensor,),
                flops=flops,
                bytes_read=9e7,
                bytes_written=8e6,
                parameter_bytes=8e7,
                dtype="fp16",
            )
            tensor = builder.add_tensor(op, 8e6)
        features.append(tensor)
    builder.add_op("score", "matmul", inputs=features, flops=1e8, bytes_read=1.6e7, dtype="fp16")
    image, text, score = [1.2e-3] * 3, [math.inf] * 3, [math.inf]
    builder.times["image accelerator"] = [*image, *text, *score]
    return builder.build()


def workstation() -> pw.Cluster:
    return pw.Cluster(
        "workstation",
        devices=(
            pw.Device("gpu", "RTX 3060"),
            pw.Device("npu", "image accelerator", memory=1e9),
            pw.Device("cpu", "EPYC 7763", memory=64e9),
        ),
        links=(
            pw.Link("gpu", "cpu", bandwidth=12e9, latency=1e-5),
            pw.Link("npu", "cpu", bandwidth=6e9, latency=2e-5),
        ),
    )


def main() -> None:
    graph, cluster = two_towers(), workstation()
    plan = pw.plan(graph, cluster)
    print(f"{plan.planner}: {plan.value * 1e3:.3f} ms, gap {plan.gap:.1%}")
    start, finish = plan.schedule.op_start, plan.schedule.op_finish
    for op, device in plan.device_of().items():
        number = graph.op_index[op]
        print(f"  {start[number] * 1e3:7.3f} – {finish[number] * 1e3:7.3f} ms  {device:4} {op}")

    alone = pw.plan(graph, cluster, pinned=dict.fromkeys(graph.op_names, "gpu"))
    print(f"all on the gpu: {alone.value * 1e3:.3f} ms")
    assert plan.value <= alone.value


if __name__ == "__main__":
    main()
