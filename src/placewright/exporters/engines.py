"""The table of engines and formats that plans are exported to; a row each.

An engine's `Limits` say which plans it can run; `exporters.planning` plans inside them. Formats
have none: they take any plan.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from difflib import get_close_matches
from typing import Literal

from placewright.errors import OptionError
from placewright.options import check_kind
from placewright.serving.capacity import GPU_MEMORY_UTILIZATION

Cuts = Literal["blocks", "layers", "slots"]
Tied = Literal["together", "copied"]


@dataclass(frozen=True)
class Limits:
    """What an engine can express, and how it executes and counts.

    - `objectives`: what a plan for it may minimise, its own first: ``latency`` where one request
      goes through all devices, ``throughput`` where stages work on several at once;
    - `cuts`: where stages may begin: at any ``blocks``; before ``layers`` only (what precedes the
      first stays with it, what follows the last with that one); or in ``slots`` of llama.cpp:
      before layers and before the output, with the input embedding in host memory;
    - `tied`: layers that share weights are on one device (the last stage returns to the first for
      them), or each has a `copied` tensor;
    - `cpu_computes`: CPUs are stages too, before all others; else they are used only where a
      cluster has nothing else;
    - `offloads`: a CPU keeps weights that a GPU fetches and computes with (`analysis.offloading`);
    - `cuda`: its GPUs are those of CUDA and ROCm, so that an Apple chip's or Intel's is not used;
    - `one_host`: all devices are of one host;
    - `serves`: it makes tokens for requests of language models;
    - `schedules`: of steps of micro-batches that it runs, as option `schedule` calls them: 1F1B is
      ``pipedream``. `fills_first`: for 1F1B it needs as many micro-batches as stages;
    - `data_parallel`: several pipelines of equal stages share the micro-batches of a step;
    - `gradients`: the type in which it keeps those of bf16 (`costs.roofline.CostOptions`);
    - `recomputes`: it can run blocks again in the backward pass (`coarsen.recompute`), any of them
      or, `recomputes_evenly`, as many in each stage, its first;
    - `quantised`: weights that it computes with as they are: a file of ``gguf``, or those of a
      checkpoint in ``int4``, ``int8``, ``fp8``;
    - `memory_share`: of a device's memory, what the engine takes;
    - `fuses`: it runs several ops as one kernel (`costs.fused_kernels`); else as PyTorch runs them;
    - `caches_alike`: it makes the KV caches of all stages of one size (`exporters.caches_alike`);
    - `most_devices`: how many it takes at most, beside the CPU that it runs on; 0 where any.

    Stages are in a row, a device each, of unequal lengths; the devices' order is free.
    """

    objectives: tuple[str, ...]
    cuts: Cuts
    tied: Tied
    cpu_computes: bool = False
    offloads: bool = False
    cuda: bool = False
    one_host: bool = False
    serves: bool = False
    schedules: tuple[str, ...] = ()
    fills_first: bool = False
    data_parallel: bool = False
    gradients: Literal["own", "fp32"] = "own"
    recomputes: bool = False
    recomputes_evenly: bool = False
    quantised: tuple[str, ...] = ()
    memory_share: float = 1.0
    fuses: bool = False
    caches_alike: bool = False
    most_devices: int = 0


@dataclass(frozen=True)
class Engine:
    """One row: `write` is the function of the module that exports to it, `checked` against what.

    What it writes is a file, or a new `folder`. `options` are the names of what `write` takes
    besides. `count` is the function that counts memory as the engine does, for a problem and the
    graph it was made of; without one memory is weights and KV cache. `ranks` is the function that
    numbers a plan's stages on their hosts, where the engine starts a process for each: OptionError
    for hosts that it cannot be started on.
    """

    name: str
    summary: str
    checked: str
    limits: Limits | None = None
    _: KW_ONLY
    write: str
    folder: bool = False
    options: tuple[str, ...] = ()
    count: str = ""
    ranks: str = ""


_DEVICE_MAP = Limits(("latency",), "blocks", "together", offloads=True, one_host=True, serves=True)
"""Of Accelerate and Transformers, which read the same map."""

_PIPELINE_SERVER = Limits(
    ("throughput", "latency"),
    "layers",
    "copied",
    cuda=True,
    serves=True,
    quantised=("gguf", "int4", "int8", "fp8"),
    memory_share=GPU_MEMORY_UTILIZATION,
    fuses=True,
)
"""Of vLLM and SGLang, which read a row of counts of layers alike."""

ENGINES: dict[str, Engine] = {
    row.name: row
    for row in (
        Engine(
            "accelerate",
            "Hugging Face Accelerate: a device_map, as JSON",
            "accelerate 1.15.0, utils/modeling.py (check_device_map) and big_modeling.py "
            "(dispatch_model)",
            _DEVICE_MAP,
            write="exporters.accelerate:write_device_map",
        ),
        Engine(
            "transformers",
            "Transformers: a script that loads a model with the device_map",
            "transformers 5.23, modeling_utils.py (from_pretrained, device_map)",
            _DEVICE_MAP,
            write="exporters.accelerate:write_load_script",
        ),
        Engine(
            "vllm",
            "vLLM: the layers of each pipeline stage, by environment and arguments",
            "vLLM 0.33.0, vllm/distributed/utils.py (get_pp_indices: VLLM_PP_LAYER_PARTITION), "
            "v1/worker/gpu_worker.py (determine_available_memory), "
            "v1/sample/ops/topk_topp_sampler.py",
            _PIPELINE_SERVER,
            write="exporters.serving_engines:write_vllm",
            ranks="exporters.serving_engines:equal_hosts",
            count="exporters.vllm_memory:counted",
        ),
        Engine(
            "sglang",
            "SGLang: the layers of each pipeline stage, by environment and arguments",
            "SGLang 0.5.23, python/sglang/srt/distributed/utils.py (get_pp_indices: "
            "SGLANG_PP_LAYER_PARTITION), mem_cache/kv_cache_configurator.py "
            "(_profile_available_bytes)",
            replace(_PIPELINE_SERVER, caches_alike=True),
            write="exporters.serving_engines:write_sglang",
            ranks="exporters.serving_engines:equal_hosts",
            count="exporters.sglang_memory:counted",
        ),
        Engine(
            "llama-cpp",
            "llama.cpp: -ts, -ngl, -ot, RPC servers and the order of devices",
            "llama.cpp as in llama-cpp-python 0.3.36, src/llama-model.cpp (load_tensors: "
            "i_gpu_start, act_gpu_layers, splits), llama-context.cpp (sched_reserve), arg.cpp "
            "(--tensor-split: fewer than llama_max_devices)",
            Limits(
                ("latency",),
                "slots",
                "copied",
                cpu_computes=True,
                serves=True,
                quantised=("gguf", "int4", "int8"),
                fuses=True,
                most_devices=15,
            ),
            write="exporters.llama_cpp.arguments:write_arguments",
            options=("rpc-port", "main-host", "backend"),
            count="exporters.llama_cpp.memory:counted",
        ),
        Engine(
            "megatron",
            "Megatron-LM: --pipeline-model-parallel-layout",
            "Megatron-Core 0.20.0, megatron/core/transformer/pipeline_parallel_layer_layout.py "
            "(parse_str_to_list, validate_layer_layout), schedules.py (1F1B), "
            "megatron/training/arguments.py (--micro-batch-size, --global-batch-size, "
            "--recompute-granularity), transformer_block.py (_checkpointed_forward)",
            Limits(
                ("throughput",),
                "layers",
                "copied",
                schedules=("pipedream",),
                data_parallel=True,
                gradients="fp32",
                recomputes=True,
                recomputes_evenly=True,
            ),
            write="exporters.training_engines:write_megatron",
            ranks="exporters.ranks:ranks_of",
            options=("samples",),
        ),
        Engine(
            "deepspeed",
            "DeepSpeed: the parts of a PipelineModule",
            "DeepSpeed 0.19.6, deepspeed/runtime/pipe/module.py (_partition_layers: parts, "
            "_is_checkpointable), schedule.py (TrainSchedule: num_pipe_buffers), runtime/config.py",
            Limits(
                ("throughput",),
                "blocks",
                "copied",
                schedules=("pipedream",),
                data_parallel=True,
                gradients="fp32",
                recomputes=True,
            ),
            write="exporters.training_engines:write_deepspeed",
            ranks="exporters.ranks:ranks_of",
            options=("samples",),
        ),
        Engine(
            "torch-pipelining",
            "torch.distributed.pipelining: the modules of each stage, and a script that runs them",
            "torch 2.13, torch/distributed/pipelining (_IR.py: pipeline, SplitPoint; stage.py; "
            "schedules.py), torch/utils/checkpoint.py",
            Limits(
                ("throughput",),
                "blocks",
                "copied",
                cuda=True,
                schedules=("pipedream", "gpipe"),
                fills_first=True,
                recomputes=True,
            ),
            write="exporters.torch_pipelining:write_pipeline",
            ranks="exporters.ranks:ranks_of",
            folder=True,
        ),
        Engine(
            "onnxruntime",
            "ONNX Runtime: a sub-model per stage, a script that runs them, layer annotations",
            "onnxruntime 1.32, I/O binding and session.layer_assignment_settings "
            "(core/framework/layering_annotations.cc)",
            write="exporters.onnx_runtime:write_sessions",
            folder=True,
        ),
        Engine(
            "onnx",
            "ONNX: the model with device configurations of the IR, and pipeline stages",
            "onnx 1.23, onnx.proto (DeviceConfigurationProto, NodeDeviceConfigurationProto; IR "
            "version 11)",
            write="exporters.onnx_annotations:write_device_configurations",
        ),
        Engine(
            "csv",
            "a line per op: its module, type, device, seconds and bytes",
            "RFC 4180",
            write="exporters.tables:write_csv",
        ),
        Engine(
            "dot",
            "a Graphviz graph, an op a node, in the colour of its device",
            "Graphviz 12, the DOT language",
            write="exporters.tables:write_dot",
        ),
        Engine(
            "model-explorer",
            "Model Explorer: the graph, and per node its device and its seconds",
            "ai-edge-model-explorer 0.1.34, graph_builder.py, node_data_builder.py",
            write="exporters.model_explorer:write_model_explorer",
            folder=True,
        ),
        Engine(
            "perfetto",
            "a trace for ui.perfetto.dev",
            "Perfetto 52: its trace processor, on the trace-event format of Chrome",
            write="exporters.perfetto:write_trace",
        ),
    )
}


def find_engine(name: str) -> Engine:
    """The row of that name; OptionError with the nearest, or all."""
    check_kind(name, str, "engine", "the name of one, such as 'vllm'")
    if name not in ENGINES:
        close = get_close_matches(name.casefold(), ENGINES, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(ENGINES)}"
        raise OptionError(f"no engine '{name}'; {hint}")
    return ENGINES[name]


def limits_of(engine: Engine) -> Limits:
    """What it can express; OptionError for a format, which takes any plan."""
    if engine.limits is None:
        able = ", ".join(name for name, row in ENGINES.items() if row.limits)
        raise OptionError(
            f"--for {engine.name}: it takes any plan, so leave out --for, and export --to "
            f"{engine.name}; plans are made for {able}"
        )
    return engine.limits
