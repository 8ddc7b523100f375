"""Small torch models to measure: factories for ``torch:`` sources."""

from itertools import pairwise

import torch


class Layers(torch.nn.Module):
    """Equal layers, and one matrix that is read transposed."""

    def __init__(self, count):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(count))
        self.last = torch.nn.Parameter(torch.randn(16, 16))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x @ self.last.t()


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(7, 4)

    def forward(self, ids):
        return self.table(ids).sum()


def two_layers():
    return Layers(2), (torch.randn(3, 16),)


def five_layers():
    return Layers(5), (torch.randn(3, 16),)


def words():
    return Words(), (torch.tensor([[1, 2, 6]]),)


def words_out_of_range():
    """Exported with ids on meta, it runs with made-up ones; with these it cannot."""
    return Words(), (torch.tensor([[1, 2, 70]]),)


class Sizes(torch.nn.Module):
    """A product of every size, which no two have the same."""

    def __init__(self, count):
        super().__init__()
        sizes = [8 * (number + 1) for number in range(count + 1)]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def many_sizes():
    return Sizes(120), (torch.randn(3, 8),)


def batched(batch=16):
    return Layers(3), (torch.randn(batch, 16),)


class Heavy(torch.nn.Module):
    """Weights of 3 KiB in each of three layers."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(28, 28) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.sum()


def heavy(batch=64):
    return Heavy(), (torch.randn(batch, 28),)


class TwoWays(Heavy):
    def forward(self, x):
        return super().forward(x) if x.shape[0] > 1 else x.cos()


def batched_in_two_ways(batch=4):
    return TwoWays(), (torch.randn(batch, 28),)


def batched_loss(batch=8):
    return Heavy(), (torch.randn(batch, 28),)
