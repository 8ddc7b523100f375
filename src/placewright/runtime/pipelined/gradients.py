"""Adding up gradients of weights that several ranks have: replicas, or copies that stages share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from placewright.importers.torch.programs import Executable
from placewright.runtime.pipelined.cutting import Chain
from placewright.runtime.ranks.joining import channel_errors

Ranks = tuple[int, ...]


def ranks_with(executable: Executable, chain: Chain) -> dict[str, list[int]]:
    """By name, the ranks that train a weight, where these are several."""
    groups = chain.groups
    found = {}
    for name in executable.gradients:
        having = {stage.group for stage in chain.stages if name in stage.weights.values()}
        ranks = sorted(rank for group in having for rank in groups.ranks(group))
        if len(ranks) > 1:
            found[name] = ranks
    return found


class Sums:
    """A rank's part in adding up gradients over all ranks that train a weight.

    `ranks_of` is that of `ranks_with`, the same on every rank.
    """

    def __init__(self, ranks_of: Mapping[str, Sequence[int]], rank: int) -> None:
        sets = dict.fromkeys(tuple(ranks) for ranks in ranks_of.values())
        with channel_errors():  # every rank makes the groups of all
            groups = {ranks: dist.new_group(list(ranks)) for ranks in sets}
        own = {name: tuple(ranks) for name, ranks in ranks_of.items() if rank in ranks}
        self._groups = {name: groups[ranks] for name, ranks in own.items()}

    def add_up(self, state: Mapping[str, Tensor]) -> None:
        """Make the gradients of weights, by name, those of all ranks that train them."""
        works = []
        with channel_errors():
            for name, group in self._groups.items():
                weight = state[name]
                if weight.grad is None:  # it has had no turn
                    weight.grad = torch.zeros_like(weight)
                weight.grad = weight.grad.contiguous()
                works.append(dist.all_reduce(weight.grad, group=group, async_op=True))
            for work in works:
                work.wait()
