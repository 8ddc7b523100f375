"""Placements by numbers of layers: llama.cpp's ``--tensor-split``, and layers per pipeline stage.

Layers are the repeated blocks of the model (`coarsen.blocks`), along the data; what is before the
first is the input, what is behind the last the output.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from placewright.coarsen.blocks import find_blocks
from placewright.errors import OptionError
from placewright.graph import Ints
from placewright.problem import Problem
from placewright.serving.capacity import GPU_MEMORY_UTILIZATION
from placewright.units import parse_whole
from placewright.whatif.judging.filling import filled

INPUT = -1  # the layer of what comes before all layers


def ops_of_tensor_split(
    problem: Problem, text: str, gpu_layers: int | None = None
) -> tuple[Problem, Ints, list[str]]:
    """`[op]` its device under llama.cpp's ``-ts`` (shares such as ``3,1``) and ``-ngl``.

    And the problem: without the bytes of the token embedding where the cluster names no CPU, whose
    memory it is in.

    As llama.cpp has it since December 2025 (`load_tensors` of ``src/llama-model.cpp``): the layers
    and the output are slots in a row, of which the last `gpu_layers` are on the accelerators, in
    single precision by their shares; the others and the token embedding are on the CPU.
    """
    accelerators = np.flatnonzero(~problem.is_cpu).tolist()
    shares = _shares(text, len(accelerators))
    layer_of, count = _layers(problem)
    on_gpu = min(count + 1 if gpu_layers is None else gpu_layers, count + 1)
    cpu, remarks = _cpu(problem, accelerators, needed=on_gpu < count + 1)
    if not problem.is_cpu[cpu]:
        memory = np.where(layer_of == INPUT, 0.0, problem.op_memory)
        problem = replace(problem, op_memory=memory)
    first = count + 1 - on_gpu
    ends = np.cumsum(np.array(shares, dtype=np.float32), dtype=np.float32)
    ends /= ends[-1]

    def device_of(slot: int) -> int:
        if slot < first:
            return cpu
        place = np.float32(slot - first) / np.float32(on_gpu)
        return int(accelerators[min(bisect_right(ends.tolist(), float(place)), len(shares) - 1)])

    by_slot = np.array([cpu, *(device_of(slot) for slot in range(count + 1))], dtype=np.int32)
    device, told = filled(problem, by_slot[layer_of + 1], _nobody(problem), f"-ts {text}")
    return problem, device, remarks + told


def ops_of_partition(problem: Problem, text: str) -> tuple[Problem, Ints, list[str]]:
    """`[op]` its device where accelerator i has the next ``text[i]`` layers, as in ``20,28``.

    So vLLM has it (``VLLM_PP_LAYER_PARTITION``): the embedding is with the first, the head with the
    last. And the problem with the memory of accelerators that vLLM takes.
    """
    accelerators = np.flatnonzero(~problem.is_cpu).tolist()
    parts = [part.strip() for part in text.split(",")]
    counts = [number for part in parts if (number := parse_whole(part)) is not None]
    if len(counts) < len(parts):
        raise OptionError(f"--layer-partition {text}: write the layers of each device, as in 20,28")
    if len(counts) > len(accelerators):
        raise OptionError(
            f"--layer-partition {text}: is for {len(counts)} devices; the cluster has "
            f"{len(accelerators)} accelerators"
        )
    layer_of, count = _layers(problem)
    if sum(counts) != count:
        raise OptionError(
            f"--layer-partition {text}: has {sum(counts)} layers; the model has {count}"
        )
    used = accelerators[: len(counts)]
    by_layer = np.repeat(used, counts)
    by_slot = np.array([used[0], *by_layer, used[-1]], dtype=np.int32)
    taken = np.where(problem.is_cpu, 1.0, GPU_MEMORY_UTILIZATION) * problem.device_memory
    device, told = filled(
        problem, by_slot[layer_of + 1], _nobody(problem), f"--layer-partition {text}"
    )
    share = f"vLLM takes {GPU_MEMORY_UTILIZATION:.0%} of a GPU's memory (--gpu-memory-utilization)"
    return problem.with_device_memory(taken), device, [share, *told]


def _layers(problem: Problem) -> tuple[Ints, int]:
    """`[op]` its layer, -1 for the input, their number for the output; and their number.

    What joins layers is with the one before.
    """
    blocks = find_blocks(problem)
    number = np.cumsum(blocks.repeated) - 1
    last = int(np.flatnonzero(blocks.repeated)[-1])
    count = int(blocks.repeated.sum())
    by_block = np.where(np.arange(blocks.count) > last, count, number).astype(np.int32)
    return by_block[blocks.op_block], count


def _shares(text: str, devices: int) -> list[float]:
    """Numbers parted by commas or slashes, one for each device; those left out are 0."""
    try:
        shares = [float(part) for part in re.split(r"[,/]+", text)]
    except ValueError:
        raise OptionError(f"-ts {text}: write a share for each device, as in 3,1") from None
    if not all(0 <= share < np.inf for share in shares) or not any(shares):
        raise OptionError(f"-ts {text}: shares must be 0 or more, and one of them above 0")
    if len(shares) > devices:
        raise OptionError(
            f"-ts {text}: has {len(shares)} shares; the cluster has {devices} accelerators"
        )
    return shares + [0.0] * (devices - len(shares))


def _cpu(problem: Problem, accelerators: Sequence[int], needed: bool) -> tuple[int, list[str]]:
    """Where the token embedding is: the first CPU, or without one the first accelerator."""
    cpus = np.flatnonzero(problem.is_cpu)
    if cpus.size:
        return int(cpus[0]), []
    if needed:
        raise OptionError("-ngl leaves layers on the CPU, and the cluster has none; add one")
    name = problem.device_names[accelerators[0]]
    return accelerators[0], [
        f"llama.cpp keeps the token embedding in host memory; the cluster has no CPU, so its bytes "
        f"are not counted, and its time is on {name}"
    ]


def _nobody(problem: Problem) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.zeros(problem.op_count, dtype=np.bool_)
