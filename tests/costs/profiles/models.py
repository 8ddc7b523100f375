"""Small torch models to measure: factories for ``torch:`` sources."""

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
