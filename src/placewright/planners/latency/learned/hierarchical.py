"""Hierarchical device placement (Mirhoseini et al. 2018): a grouper and a placer, trained together.

The grouper, a feed-forward network, gives every node to a group. The placer reads the groups with
a bidirectional LSTM and writes a device for each with another, which attends to what was read and
knows the device before. The reward is that of the whole placement, for both.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from placewright.graph import Floats
from placewright.planners.latency.learned.episodes import Adam, Trial, drawn, two_layers
from placewright.planners.latency.learned.nodes import TYPES, Nodes, feature_count

GROUPER_WIDTH, PLACER_WIDTH = 64, 64
TOGETHER, PLACEMENTS = 64, 4  # episodes between two updates, at least; for each grouping
MOST_UPDATES = 400  # after more of them it would have settled on a plan long before the end
FAILED = -10.0  # reward where memory overflows
LEARNING_RATE = 1e-2
ENTROPY = 0.2  # what that of a placement counts at first; nothing at the end
BASELINE_DECAY = 0.9
PLACES = 8  # waves by which a node's place in the order is told


class Policy(nn.Module):
    """The grouper of `groups` groups and the placer on so many `devices`."""

    def __init__(self, devices: int, groups: int) -> None:
        super().__init__()
        self.groups = groups
        features, width = feature_count(devices), PLACER_WIDTH
        self.group = two_layers(features + TYPES + 6 * PLACES, GROUPER_WIDTH, groups)
        self.read = nn.LSTM(features + TYPES + 2 * groups, width // 2, bidirectional=True)
        self.device = nn.Embedding(devices + 1, width)  # the last one: none yet
        self.write = nn.LSTMCell(2 * width, width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.attend = nn.Linear(width, 1, bias=False)
        self.choose = nn.Linear(2 * width, devices)

    def placer(self, groups: Tensor, given: Tensor | None, greedy: bool) -> tuple[Tensor, Tensor]:
        """`(device, scores)`, ``[group, episode]`` and ``[group, episode, device]``.

        Of ``groups[group, episode, feature]``; devices are drawn, or `given`.
        """
        memory, _ = self.read(groups)
        keys = self.key(memory)
        episodes = groups.shape[1]
        last = torch.full((episodes,), self.device.num_embeddings - 1)
        state = memory[-1], torch.zeros_like(memory[-1])
        seen = memory.mean(0)
        devices, all_scores = [], []
        for group in range(self.groups):
            state = self.write(torch.cat([self.device(last), seen + memory[group]], 1), state)
            weight = self.attend(torch.tanh(keys + self.query(state[0]))).softmax(0)
            seen = (weight * memory).sum(0)
            scores = self.choose(torch.cat([state[0], seen], 1))
            last = drawn(scores.detach(), greedy) if given is None else given[group]
            devices.append(last)
            all_scores.append(scores)
        return torch.stack(devices), torch.stack(all_scores)


class Hierarchical:
    """The two networks on one problem.

    A node goes with its group, or to where it is fastest if it cannot be there.
    """

    together, most_updates = TOGETHER, float(MOST_UPDATES)

    def __init__(self, nodes: Nodes, groups: int) -> None:
        self.nodes = nodes
        fixed = torch.tensor(nodes.features, dtype=torch.float32)
        kinds = nn.functional.one_hot(torch.tensor(nodes.kind), TYPES).float()
        self.features = torch.cat([fixed, kinds], 1)
        self.grouped_by = torch.cat([self.features, _waves(fixed[:, -3:])], 1)
        self.source, self.target = torch.tensor(nodes.source), torch.tensor(nodes.target)
        time = np.where(nodes.allowed, nodes.problem.unit_time[nodes.unit], np.inf)
        self.fastest = time.argmin(axis=1)
        self.sizes = {"devices": nodes.devices, "groups": groups}
        self.policy = Policy(nodes.devices, groups)
        self.adam = Adam(self.policy)
        self.baseline: float | None = None
        self.variance = 0.0

    def episodes(self, trial: Trial, count: int, learn: bool) -> Floats | None:
        groupings = -(-count // PLACEMENTS)
        with torch.set_grad_enabled(learn):
            group_scores = self.policy.group(self.grouped_by)
            scores = group_scores.detach()[:, None].expand(-1, groupings, -1)
            group = drawn(scores, not learn)
            described = self._groups(group).repeat_interleave(PLACEMENTS, 1)[:, :count]
            device, device_scores = self.policy.placer(described, None, not learn)
        group = group.repeat_interleave(PLACEMENTS, 1)[:, :count]
        reward, cost = np.empty(count), np.empty(count)
        for each in range(count):
            if trial.budget.left <= 0:
                return None
            reward[each], cost[each] = self._tried(trial, device[:, each][group[:, each]].numpy())
        if learn:
            loss = self._loss(group_scores, group, device_scores, device, reward)
            loss = loss - (1.0 - trial.progress) * ENTROPY * _entropy(device_scores)
            self.adam.descend(loss, LEARNING_RATE)
        return cost

    def _tried(self, trial: Trial, device: Floats) -> tuple[float, float]:
        """The reward of ``device[node]`` and what it costs."""
        allowed = self.nodes.allowed[np.arange(len(device)), device]
        makespan, excess = trial.timed(np.where(allowed, device, self.fastest))
        return (-(makespan**0.5) if excess <= 0 else FAILED), makespan

    def _groups(self, group: Tensor) -> Tensor:
        """`[group, grouping, feature]`: means of the nodes' features, and which groups it meets.

        Of ``group[node, grouping]``.
        """
        groups, groupings = self.policy.groups, group.shape[1]
        chosen = nn.functional.one_hot(group, groups).float()
        total = torch.einsum("nmg,nf->gmf", chosen, self.features)
        mean = total / chosen.sum(0).T.clamp(min=1.0)[:, :, None]
        meets = torch.zeros(groups * groups, groupings)
        pair = group[self.source] * groups + group[self.target]
        meets = meets.scatter(0, pair, 1.0).reshape(groups, groups, groupings)
        return torch.cat([mean, meets.transpose(1, 2), meets.permute(1, 2, 0)], 2)

    def _loss(
        self,
        group_scores: Tensor,
        group: Tensor,
        device_scores: Tensor,
        device: Tensor,
        reward: Floats,
    ) -> Tensor:
        """REINFORCE, an exponential moving average of rewards for the baseline."""
        advantage = torch.tensor(self._advantage(reward), dtype=torch.float32)
        grouping = group_scores.log_softmax(1).gather(1, group).sum(0)
        placing = device_scores.log_softmax(2).gather(2, device[:, :, None]).sum((0, 2))
        return -(advantage * (grouping + placing)).mean()

    def _advantage(self, reward: Floats) -> Floats:
        if self.baseline is None:
            self.baseline, self.variance = float(reward.mean()), float(reward.var())
        off: Floats = reward - self.baseline
        advantage: Floats = off / (self.variance**0.5 + 1e-6)
        kept, fresh = BASELINE_DECAY, 1.0 - BASELINE_DECAY
        self.variance = kept * self.variance + fresh * float((off**2).mean())
        self.baseline = kept * self.baseline + fresh * float(reward.mean())
        return advantage


def _entropy(scores: Tensor) -> Tensor:
    """Of a placement, given its groups: of what is drawn by ``scores[group, episode, device]``.

    That of the grouper is left as it is: held up, groups stay random, and then the best that the
    placer finds is one device for all.
    """
    log_chance = scores.log_softmax(2)
    return -(log_chance.exp() * log_chance).sum((0, 2)).mean()


def _waves(place: Tensor) -> Tensor:
    """`[node, wave]`: places in 0 … 1 as sines and cosines of rising frequency."""
    angle = place[:, :, None] * np.pi * 2.0 ** torch.arange(PLACES)
    return torch.cat([angle.sin(), angle.cos()], 2).flatten(1)
