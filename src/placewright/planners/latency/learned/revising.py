"""Placeto (Addanki et al. 2019): a policy that revises a placement, one node after another.

A state is a placement and the node to revise. Messages along the edges, from the first nodes to
the last and back, give every node an embedding; what the policy sees of the node in question is
its own, and one each of all nodes before it, after it and beside it. The action is its device, the
reward by how much the placement gets better; so the policy is of no graph in particular.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from placewright.graph import Floats, Ints
from placewright.planners.latency.learned.episodes import Adam, Trial, drawn, two_layers
from placewright.planners.latency.learned.nodes import Nodes, feature_count

WIDTH, ROUNDS = 16, 8
TOGETHER = 16  # episodes between two updates
MEMORY_PENALTY = 2.0  # for a device that would need twice what it has
LEARNING_RATE, LEAST_LEARNING_RATE = 5e-3, 5e-4
ENTROPY, LEAST_ENTROPY = 0.05, 0.003
DECAY = 150  # updates after which rates and entropy are down by e
STATES = 256
"""Of those seen since the last update, drawn at random, that the next learns from."""


class Graph:
    """Edges `down` and `up`, and `before`, `after`, `beside[node, other]`: where the other is."""

    def __init__(self, nodes: Nodes) -> None:
        self.features = torch.tensor(nodes.features, dtype=torch.float32)
        self.forbidden = torch.tensor(~nodes.allowed)
        source, target = torch.tensor(nodes.source), torch.tensor(nodes.target)
        reach = torch.zeros(nodes.count, nodes.count)
        reach[source, target] = 1.0
        self.down, self.up = reach.T.to_sparse(), reach.to_sparse()
        for _ in range(max(1, nodes.count.bit_length())):  # paths twice as long each time
            reach = ((reach + reach @ reach) > 0).float()
        self.after, self.before = reach, reach.T.contiguous()
        self.beside = ((reach + reach.T) == 0).float().fill_diagonal_(0.0)
        self.scale = 1.0 / nodes.count**0.5


class Policy(nn.Module):
    """Scores of the devices for a node of a placement, on a graph of any size."""

    def __init__(self, devices: int) -> None:
        super().__init__()
        self.devices = devices
        self.embed = two_layers(feature_count(devices) + devices + 2, 2 * WIDTH, WIDTH)
        self.down, self.up = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.pool = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(3))
        self.choose = two_layers(5 * WIDTH, 2 * WIDTH, devices)

    def forward(self, graph: Graph, device: Tensor, node: Tensor) -> Tensor:
        """`[state, device]` scores for ``node[state]`` of placements ``device[node, state]``."""
        embedding = self._embeddings(graph, self._inputs(graph, device, node))
        parts = [embedding[node, torch.arange(len(node))]]
        for mask, layer in zip((graph.before, graph.after, graph.beside), self.pool, strict=True):
            seen = torch.relu(layer(embedding))
            parts.append(torch.einsum("sn,nsw->sw", mask[node], seen) * graph.scale)
        scores: Tensor = self.choose(torch.cat(parts, 1))
        return scores.masked_fill(graph.forbidden[node], -1e9)

    def _inputs(self, graph: Graph, device: Tensor, node: Tensor) -> Tensor:
        """`[node, state, feature]`: of the node, its device, whether it is next or was before."""
        every = torch.arange(len(device))[:, None]
        fixed = graph.features[:, None].expand(-1, len(node), -1)
        flags = torch.stack([every == node, every < node], 2).float()
        where = nn.functional.one_hot(device, self.devices).float()
        return torch.cat([fixed, where, flags], 2)

    def _embeddings(self, graph: Graph, inputs: Tensor) -> Tensor:
        """`[node, state, 2 · WIDTH]`: after messages down the edges, and after messages up."""
        first = self.embed(inputs)
        found = []
        for layer, edges in ((self.down, graph.down), (self.up, graph.up)):
            embedding = first
            for _ in range(ROUNDS):
                received = torch.sparse.mm(edges, torch.relu(embedding).flatten(1))
                embedding = first + layer(received.view_as(first))
            found.append(embedding)
        return torch.cat(found, 2)


@dataclass
class _Seen:
    """Steps of some episodes: `device[step, node, episode]` before, the action and its return."""

    device: Tensor
    action: Tensor
    gain: Tensor


class Revising:
    """Placeto's policy on one problem: all episodes begin with the placement `start[node]`."""

    together, most_updates = TOGETHER, math.inf

    def __init__(self, nodes: Nodes, start: Ints) -> None:
        self.graph, self.start = Graph(nodes), torch.tensor(start, dtype=torch.int64)
        self.steps = torch.tensor(np.flatnonzero(nodes.allowed.sum(axis=1) > 1))
        self.sizes = {"devices": nodes.devices}
        self.policy = Policy(nodes.devices)
        self.adam = Adam(self.policy)

    def episodes(self, trial: Trial, count: int, learn: bool) -> Floats | None:
        cost = np.full((len(self.steps) + 1, count), self._cost(trial, self.start.numpy()))
        device = self.start[:, None].repeat(1, count)
        before, actions = [], []
        for step, node in enumerate(self.steps):
            if trial.budget.left <= 0:
                return None
            with torch.no_grad():
                scores = self.policy(self.graph, device, node.expand(count))
            action = drawn(scores, not learn)
            before.append(device.clone())
            actions.append(action)
            moved = (action != device[node]).nonzero()[:, 0].tolist()
            device[node] = action
            cost[step + 1] = cost[step]
            for each in moved:
                cost[step + 1, each] = self._cost(trial, device[:, each].numpy())
        if learn:
            gain = torch.tensor(cost[:-1] - cost[-1], dtype=torch.float32)
            self._learn(_Seen(torch.stack(before), torch.stack(actions), gain))
        total: Floats = cost[-1]
        return total

    def _cost(self, trial: Trial, device: Ints) -> float:
        makespan, excess = trial.timed(device)
        return makespan + MEMORY_PENALTY * excess

    def _learn(self, seen: _Seen) -> None:
        """REINFORCE, the mean of all episodes at a step for the baseline."""
        count = seen.gain.shape[1]
        advantage = seen.gain - seen.gain.mean(1, keepdim=True)
        advantage = advantage / (advantage.std() + 1e-6)
        drawn_ones = torch.randperm(seen.gain.numel())[:STATES]
        step, episode = drawn_ones // count, drawn_ones % count
        scores = self.policy(self.graph, seen.device[step, :, episode].T, self.steps[step])
        chances = scores.log_softmax(1)
        taken = chances[torch.arange(len(step)), seen.action[step, episode]]
        entropy = -(chances.exp() * chances).sum(1).mean()
        decay = float(np.exp(-self.adam.steps / DECAY))
        loss = -(taken * advantage[step, episode]).mean()
        loss = loss - max(ENTROPY * decay, LEAST_ENTROPY) * entropy
        self.adam.descend(loss, max(LEARNING_RATE * decay, LEAST_LEARNING_RATE))
