"""Where models run today: what tools do by themselves, and what people do by hand.

Each is a function of a `Setting` that says the device of each block, or raises `NoPlaceError` where
the tool gives up. GPUs are taken in the order of the cluster, as tools take them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from placewright.analysis.shared_weights import held_weights, units_across
from placewright.coarsen.blocks import Blocks
from placewright.exporters.engines import Engine, limits_of
from placewright.exporters.pieces import Pieces, pieces_for
from placewright.exporters.sharing import NO_RETURN
from placewright.problem import Problem

Places = list[int]
"""The device of each block."""


SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)
"""Of GPUs' memory, tried in turn until what tools do not count has room: a KV cache, say."""


class NoPlaceError(Exception):
    """The tool says itself that the model does not fit."""


@dataclass(frozen=True, eq=False)
class Setting:
    """A model on a cluster for an engine, the devices of one host where the engine is for one."""

    problem: Problem
    engine: Engine
    pieces: Pieces
    gpus: Places
    cpu: int | None

    @classmethod
    def of(cls, problem: Problem, engine: Engine, hosts: Sequence[str]) -> Setting:
        gpus = np.flatnonzero(~problem.is_cpu).tolist()
        cpus = np.flatnonzero(problem.is_cpu).tolist()
        if limits_of(engine).one_host:
            room = dict.fromkeys(hosts, 0.0)
            for gpu in gpus:
                room[hosts[gpu]] += float(problem.device_memory[gpu])
            largest = max(room, key=lambda name: room[name])
            gpus, cpus = (
                [each for each in some if hosts[each] == largest] for some in (gpus, cpus)
            )
        return cls(problem, engine, pieces_for(problem, engine), gpus, cpus[0] if cpus else None)

    @property
    def blocks(self) -> Blocks:
        return self.pieces.blocks

    @property
    def layers(self) -> int:
        return int(self.blocks.repeated.sum())

    def room(self, device: int) -> float:
        return float(self.pieces.problem.device_memory[device])

    def by_piece(self, device: Sequence[int]) -> Places:
        """The device of each block, of each piece's; shared weights are with the first of them."""
        pieces, found = self.pieces, list(device)
        if pieces.returns != NO_RETURN:
            found[: pieces.held + 1] = [found[0]] * (pieces.held + 1)
            found[pieces.returns :] = [found[0]] * (pieces.count - pieces.returns)
        of_block = np.zeros(self.blocks.count, dtype=np.int32)
        of_block[self.blocks.op_block] = np.array(found)[pieces.op_piece]
        places: Places = of_block.tolist()
        return places

    def by_layers(self, counts: Sequence[int]) -> Places:
        """The device of each block, of how many layers each GPU has; ends go with their layers."""
        of_layer = [gpu for gpu, count in zip(self.gpus, counts, strict=True) for _ in range(count)]
        number = np.clip(np.cumsum(self.blocks.repeated) - 1, 0, self.layers - 1)
        return [of_layer[each] for each in number.tolist()]


# -- by hand ---------------------------------------------------------------------------------------


def even(setting: Setting) -> Iterator[Places]:
    """As many blocks on each GPU."""
    parts = np.array_split(np.arange(setting.pieces.count), len(setting.gpus))
    device = [gpu for gpu, part in zip(setting.gpus, parts, strict=True) for _ in part]
    yield setting.by_piece(_with_input_on_cpu(setting, device))


def memory_fill(setting: Setting) -> Iterator[Places]:
    """Each GPU filled before the next; what is left over on the CPU, if the engine has one."""
    for share in SHARES if limits_of(setting.engine).offloads else (1.0,):
        yield setting.by_piece(_filled(setting, share))


def _filled(setting: Setting, share: float) -> list[int]:
    memory = np.bincount(setting.pieces.op_piece, setting.pieces.problem.op_memory)
    waiting, device = list(setting.gpus), []
    spills = limits_of(setting.engine).offloads and setting.cpu is not None
    left = share * setting.room(waiting[0])
    for piece, size in enumerate(memory.tolist()):
        if piece == 0 and _input_is_apart(setting):
            device.append(setting.cpu)
            continue
        while waiting and size > left:
            waiting.pop(0)
            left = share * setting.room(waiting[0]) if waiting else 0.0
        if not waiting and not spills:
            raise NoPlaceError("the GPUs are full")
        device.append(waiting[0] if waiting else setting.cpu)
        left -= size
    return device


def _input_is_apart(setting: Setting) -> bool:
    is_slots, cpu = limits_of(setting.engine).cuts == "slots", setting.cpu
    return is_slots and cpu is not None and not setting.blocks.repeated[0]


def _with_input_on_cpu(setting: Setting, device: list[int]) -> list[int]:
    return [setting.cpu, *device[1:]] if _input_is_apart(setting) else device


# -- llama.cpp -------------------------------------------------------------------------------------


def llama_default(setting: Setting) -> Iterator[Places]:
    """All layers on GPUs, in proportion to their free memory; else as many as fit (``-ngl``)."""
    shares = list(accumulate(setting.room(gpu) for gpu in setting.gpus))
    slots = setting.layers + 1
    lowest = slots if setting.cpu is None else 0
    for on_gpu in range(slots, lowest - 1, -1):
        yield setting.by_piece(_split(setting, shares, slots, on_gpu))


def _split(setting: Setting, shares: list[float], slots: int, on_gpu: int) -> list[int]:
    """As `load_tensors` does: slot t of the GPUs' is on the first whose share is above t / n."""
    first = slots - on_gpu
    device: list[int] = []
    for slot in range(slots):
        if slot < first:
            assert setting.cpu is not None
            device.append(setting.cpu)
        else:
            place = bisect_right(shares, (slot - first) / on_gpu * shares[-1])
            device.append(setting.gpus[min(place, len(shares) - 1)])
    return [setting.cpu, *device] if _input_is_apart(setting) else device


# -- pipelines -------------------------------------------------------------------------------------


def vllm_even(setting: Setting) -> Iterator[Places]:
    """`get_pp_indices` of vLLM: layers that are left go to stages before the last, from behind."""
    counts = _equal(setting)
    for k in range(setting.layers % len(counts)):
        counts[-2 - k] += 1
    yield setting.by_layers(counts)


def sglang_even(setting: Setting) -> Iterator[Places]:
    """`get_pp_indices` of SGLang: layers that are left go to the last stages."""
    counts = _equal(setting)
    for k in range(setting.layers % len(counts)):
        counts[-1 - k] += 1
    yield setting.by_layers(counts)


def _equal(setting: Setting) -> list[int]:
    return [setting.layers // len(setting.gpus)] * len(setting.gpus)


def megatron_even(setting: Setting) -> Iterator[Places]:
    """Megatron-LM takes equal stages only, where no layout is given."""
    if setting.layers % len(setting.gpus):
        raise NoPlaceError(f"{setting.layers} layers are not divisible by {len(setting.gpus)}")
    yield setting.by_layers(_equal(setting))


def by_parameters(setting: Setting) -> Iterator[Places]:
    """DeepSpeed's `partition_method` parameters: the largest stage has the fewest of them."""
    weights = np.bincount(setting.pieces.op_piece, held_weights(setting.pieces.problem))
    total = np.cumsum(weights)
    low, high = float(weights.max()), float(total[-1])
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if len(_cuts(total, middle)) <= len(setting.gpus) else (middle, high)
        )
    ends = _cuts(total, high)
    device = [
        setting.gpus[min(k, len(setting.gpus) - 1)]
        for k, (first, end) in enumerate(zip([0, *ends], ends, strict=False))
        for _ in range(end - first)
    ]
    yield setting.by_piece(device)


def _cuts(total: np.ndarray[Any, Any], largest: float) -> list[int]:
    """Where stages of at most `largest` end, each as long as it can be."""
    ends, done = [], 0.0
    while not ends or ends[-1] < len(total):
        end = int(np.searchsorted(total, done + largest * (1 + 1e-12), side="right"))
        if ends and end <= ends[-1]:
            return [*ends, *range(len(total) + 1, 2 * len(total) + 2)]  # a piece is too large
        ends.append(end)
        done = float(total[end - 1])
    return ends


# -- Accelerate ------------------------------------------------------------------------------------


def accelerate_balanced(setting: Setting) -> Iterator[Places]:
    """``device_map="auto"`` and ``"balanced"``, by Accelerate itself."""
    for share in SHARES:
        yield _by_accelerate(setting, True, share)


def accelerate_sequential(setting: Setting) -> Iterator[Places]:
    """``device_map="sequential"``, by Accelerate itself."""
    for share in SHARES:
        yield _by_accelerate(setting, False, share)


def _by_accelerate(setting: Setting, balanced: bool, share: float) -> Places:
    import logging

    from accelerate import infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    logging.getLogger("accelerate.utils.modeling").setLevel(logging.ERROR)  # it has no such GPUs
    model = _meta_model(setting)
    most: dict[int | str, int] = {
        number: int(share * setting.room(gpu)) for number, gpu in enumerate(setting.gpus)
    }
    if setting.cpu is not None:
        most["cpu"] = int(setting.room(setting.cpu))
    if balanced:
        most = get_balanced_memory(model, most, no_split_module_classes=["Block"])
    found = infer_auto_device_map(model, most, no_split_module_classes=["Block"])
    return [_device_of(setting, found, name) for name in _module_names(setting.blocks)]


def _device_of(setting: Setting, found: Mapping[str, int | str], name: str) -> int:
    key = next(key for key in found if not key or name == key or name.startswith(f"{key}."))
    if found[key] == "disk":
        raise NoPlaceError("Accelerate leaves blocks on the disk")
    return int(setting.cpu or 0) if found[key] == "cpu" else setting.gpus[int(found[key])]


def _module_names(blocks: Blocks) -> list[str]:
    return [f"{name}.only" if _is_parent(name, blocks.names) else name for name in blocks.names]


def _is_parent(name: str, names: Sequence[str]) -> bool:
    return any(each.startswith(f"{name}.") for each in names)


def _meta_model(setting: Setting) -> Any:
    """The model's blocks as modules on the meta device, a byte a number; what is tied is one."""
    import torch
    from torch import nn

    class Block(nn.Module):
        pass

    problem, blocks = setting.problem, setting.blocks
    size = np.bincount(blocks.op_block, held_weights(problem), blocks.count)
    shared: dict[int, list[Any]] = {}
    for unit in units_across(problem, blocks.op_block):
        weights = float(held_weights(problem)[unit].max())
        holder = int(blocks.op_block[unit[np.argmax(held_weights(problem)[unit])]])
        size[holder] -= weights
        parameter = nn.Parameter(_bytes(torch, weights), requires_grad=False)
        for block in np.unique(blocks.op_block[unit]).tolist():
            shared.setdefault(block, []).append(parameter)
    model = nn.Module()
    for block, name in enumerate(_module_names(blocks)):
        *path, last = name.split(".")
        at = model
        for part in path:
            if not hasattr(at, part):
                at.add_module(part, nn.Module())
            at = getattr(at, part)
        module = Block()
        module.weight = nn.Parameter(_bytes(torch, max(size[block], 0.0)), requires_grad=False)
        for k, parameter in enumerate(shared.get(block, [])):
            module.register_parameter(f"shared{k}", parameter)
        at.add_module(last, module)
    return model


def _bytes(torch: Any, size: float) -> Any:
    return torch.empty(int(size), dtype=torch.uint8, device="meta")


Baseline = Callable[[Setting], Iterator[Places]]
BASELINES: Mapping[str, Mapping[str, Baseline]] = {
    "accelerate": {"auto": accelerate_balanced, "sequential": accelerate_sequential},
    "transformers": {"auto": accelerate_balanced, "sequential": accelerate_sequential},
    "llama-cpp": {"default": llama_default},
    "vllm": {"default": vllm_even},
    "sglang": {"default": sglang_even},
    "megatron": {"default": megatron_even},
    "deepspeed": {"parameters": by_parameters},
    "torch-pipelining": {},
}
BY_HAND: Mapping[str, Baseline] = {"even": even, "fill": memory_fill}
