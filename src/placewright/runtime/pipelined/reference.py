"""The same micro-batches in this process, one after the other, by the program as it was exported.

Nothing of the cutting is used: the graph is interpreted call by call, and the gradients of a
training program are those that its own backward ops compute.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Interpreter, Node

from placewright.importers.torch.programs import Executable
from placewright.runtime.pipelined.randomness import Moment, seed
from placewright.runtime.pipelined.samples import sample
from placewright.runtime.ranks.channels import OpError
from placewright.runtime.ranks.failures import compared_with
from placewright.runtime.ranks.state import STEEPEST, Optimizer


class SingleProcess:
    """The program with weights of its own, which runs and training steps change."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self._inputs = {name: executable.values.get(name) for name in executable.inputs}
        self.weights = {
            name: value.detach().clone() if isinstance(value, Tensor) else value
            for placeholder, name in executable.weights.items()
            if (value := executable.values.get(placeholder)) is not None
        }

    def results(self, micro_batches: int) -> dict[tuple[int, int], Any]:
        """The program's own outputs by ``(micro-batch, position)``."""
        return {
            (number, position): outputs[position]
            for number in range(micro_batches)
            for outputs in [self._outputs(Moment(0, number))]
            for position in self._executable.results
        }

    def gradients(self, micro_batches: int, step: int = 0) -> tuple[list[float], dict[str, Tensor]]:
        """The loss of each micro-batch, and the average of their gradients."""
        losses, sums = [], dict[str, Tensor]()
        (loss,) = self._executable.results
        for number in range(micro_batches):
            outputs = self._outputs(Moment(step, number))
            losses.append(float(outputs[loss]))
            for name, position in self._executable.gradients.items():
                sums[name] = sums[name] + outputs[position] if name in sums else outputs[position]
        return losses, {name: each / micro_batches for name, each in sums.items()}

    def train(self, micro_batches: int, steps: int, optimizer: Optimizer = STEEPEST) -> list[float]:
        """The average loss of each of the steps, the weights being those before it."""
        parameters = {name: self.weights[name] for name in self._executable.gradients}
        stepping = optimizer.over(list(parameters.values()))
        averages = []
        for step in range(1, steps + 1):
            losses, gradients = self.gradients(micro_batches, step)
            averages.append(sum(losses) / micro_batches)
            for name, gradient in gradients.items():
                parameters[name].grad = gradient
            stepping.step()
        return averages

    def _outputs(self, moment: Moment) -> list[Any]:
        inputs = sample(self._inputs, moment.micro_batch)
        values = []
        for node in self._executable.module.graph.find_nodes(op="placeholder"):
            name = self._executable.weights.get(node.name)
            values.append(inputs[node.name] if name is None else self.weights.get(name))
        with compared_with(), torch.no_grad():
            program = _Seeded(self._executable.module, moment)
            outputs = list(program.run(*values, enable_io_processing=False))
        for name, position in self._executable.updates.items():
            self.weights[name] = outputs[position]
        return outputs


class _Seeded(Interpreter):
    """What draws at random draws what it does on a rank."""

    def __init__(self, module: torch.fx.GraphModule, moment: Moment) -> None:
        super().__init__(module)
        self._moment = moment

    def run_node(self, node: Node) -> Any:
        if node.op == "call_function":
            seed(node.target, node.name, self._moment)
        try:
            return super().run_node(node)
        except Exception as error:
            raise OpError(node.name) from error
