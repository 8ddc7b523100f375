"""vLLM and SGLang: how many layers each pipeline stage has.

Both read a row of counts, as many as stages, that add up to the model's layers (`get_pp_indices`);
the embedding is on the first stage, norm and head on the last, and weights that these share are
held by both. Stage k is the k-th visible GPU. On several hosts each is started by itself, with as
many stages as any other: both divide their number by that of the hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from placewright.errors import OptionError
from placewright.exporters.engines import find_engine, limits_of
from placewright.exporters.loading import without_phase
from placewright.exporters.pieces import check_one_row
from placewright.exporters.ranks import (
    PORT,
    Ranks,
    as_node,
    environments,
    hosts_document,
    ranks_of,
    shell_lines,
)
from placewright.exporters.stages import BlockPlan, block_plan
from placewright.exporters.vllm_memory import SEQUENCES_AT_ONCE, TOKENS
from placewright.formats import files
from placewright.plan import Plan
from placewright.serving.capacity import SEQUENCES, told_number


def write_vllm(path: str | Path, plan: Plan) -> list[str]:
    """Write `environment` and `arguments` of ``vllm serve``; the command on each host."""
    document = vllm_settings(plan)
    files.write_json(path, document)

    def joins(number: int, main: str) -> list[str]:
        answers = [] if number == 0 else ["--headless"]
        return ["--master-addr", main, "--master-port", str(PORT), *answers]

    return _commands(document, "vllm serve MODEL", joins)


def write_sglang(path: str | Path, plan: Plan) -> list[str]:
    """Write `environment` and `arguments` of ``sglang.launch_server``; the command on each host."""
    document = sglang_settings(plan)
    files.write_json(path, document)

    def joins(_: int, main: str) -> list[str]:
        return ["--dist-init-addr", f"{main}:{PORT}"]

    return _commands(document, "python -m sglang.launch_server --model-path MODEL", joins)


def vllm_settings(plan: Plan) -> dict[str, Any]:
    """`environment` (or `hosts`) and `arguments`; OptionError for what vLLM cannot express."""
    return _settings(
        plan,
        "vllm",
        variable="VLLM_PP_LAYER_PARTITION",
        stages="--pipeline-parallel-size",
        memory="--gpu-memory-utilization",
        served={
            "--max-num-seqs": _of_requests(plan) or SEQUENCES_AT_ONCE,
            "--max-model-len": "context",
            "--max-num-batched-tokens": TOKENS,
        },
    )


def sglang_settings(plan: Plan) -> dict[str, Any]:
    """`environment` (or `hosts`) and `arguments`; OptionError for what SGLang cannot express."""
    return _settings(
        plan,
        "sglang",
        variable="SGLANG_PP_LAYER_PARTITION",
        stages="--pp-size",
        memory="--mem-fraction-static",
        served={"--max-running-requests": _of_requests(plan), "--context-length": "context"},
    )


def _of_requests(plan: Plan) -> str:
    """What a plan for requests calls its sequences."""
    return SEQUENCES if "mix" in plan.planner_options else ""


def _settings(
    plan: Plan, engine: str, *, variable: str, stages: str, memory: str, served: Mapping[str, str]
) -> dict[str, Any]:
    """`variable` has the layers of each stage; the options `stages` and `memory` their number,
    and the share of a device's memory. `served` are options for what a plan says of itself: of how
    many sequences of how many tokens its memory is."""
    found = layer_stages(plan, engine)
    _check_makes_tokens(plan, engine, len(found.stages))
    share = limits_of(find_engine(engine)).memory_share
    requests = [
        word
        for option, fact in served.items()
        if (number := told_number(plan, fact))
        for word in (option, str(number))
    ]
    layers = {variable: ",".join(map(str, found.layers))}
    return {
        **hosts_document(equal_hosts(found, engine), engine, layers),
        "arguments": [stages, str(len(found.stages)), memory, f"{share:g}", *requests],
    }


def equal_hosts(found: BlockPlan, engine: str) -> Ranks:
    """The ranks; OptionError where hosts do not have as many stages each."""
    ranks = ranks_of(found, engine)
    if len({len(devices) for _, devices in ranks.hosts}) > 1:
        each = ", ".join(f"{len(devices)} on {host or 'this one'}" for host, devices in ranks.hosts)
        raise OptionError(
            f"{engine} has as many stages on every host, and the plan has {each}; plan for GPUs of "
            "as many on each"
        )
    return ranks


def _check_makes_tokens(plan: Plan, engine: str, stages: int) -> None:
    """OptionError for a pipeline of a model of Transformers that makes no tokens one by one."""
    keeps_cache = told_number(plan, "context") > 0  # as only those do
    if stages == 1 or keeps_cache or not plan.source.startswith("hf:"):
        return
    from placewright.importers.torch.sources import hf_kind

    kind = hf_kind(without_phase(plan.source.removeprefix("hf:")))
    if kind != "CausalLM":
        raise OptionError(
            f"{engine} runs pipelines of models that make one token after the other, and "
            f"{plan.source} is for {kind}; plan --for accelerate, or for one GPU"
        )


def _commands(
    document: Mapping[str, Any], program: str, joins: Callable[[int, str], list[str]]
) -> list[str]:
    """A line for the shell; of several hosts one each, after its name.

    `joins` are the arguments by which the host of that number meets the others at the main one.
    """
    hosts = [each["host"] for each in document.get("hosts", [{"host": ""}])]

    def words(number: int) -> list[str]:
        joined = joins(number, hosts[0]) if len(hosts) > 1 else []
        return [*program.split(), *document["arguments"], *as_node(number, len(hosts)), *joined]

    return shell_lines(hosts, environments(document), words)


def layer_stages(plan: Plan, engine: str) -> BlockPlan:
    """The stages of a plan, each of whole layers on a GPU of its own; OptionError if not.

    What precedes the layers must be on the first stage, what follows on the last.
    """
    found = block_plan(plan, engine)
    check_one_row(found.blocks, engine)
    found.check_in_a_row(engine)
    found.check_on_gpus(engine)
    for stage, layers in zip(found.stages, found.layers, strict=True):
        if not layers:
            raise OptionError(
                f"{engine} keeps what precedes the layers with the first and what follows with the "
                f"last, and the plan has {', '.join(found.names(stage))} on a stage without layers "
                f"({found.device_name(stage)}); plan with --for {engine}"
            )
    return found
