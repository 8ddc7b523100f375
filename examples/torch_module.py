"""A PyTorch module of your own (extra `torch`): inference, and a training step.

On the command line, from this directory: placewright plan torch:torch_module:factory -c 2x3090

Run: python examples/torch_module.py
"""

import torch
from torch import nn

import placewright as pw


class Classifier(nn.Module):
    def __init__(self, width: int = 256, layers: int = 4, classes: int = 10) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU()))
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        scores = self.head(self.layers(x))
        return scores if labels is None else nn.functional.cross_entropy(scores, labels)


def factory() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The module and example inputs for one inference."""
    return Classifier(), (torch.zeros(64, 256),)


def training_factory() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """For training the module must return a loss."""
    return Classifier(), (torch.zeros(64, 256), torch.zeros(64, dtype=torch.long))


def main() -> None:
    for source, training in (
        ("torch:torch_module:factory", False),
        ("torch:torch_module:training_factory", True),
    ):
        plan = pw.plan(source, cluster="2x3090", training=training)
        ops = plan.problem.op_count
        print(f"{source}: {ops} ops, {plan.value * 1e6:.1f} µs with {plan.planner}")


if __name__ == "__main__":
    main()
