"""The mean of the weights at the last validations of a run (Vaswani et al. 2017, section 6.1).

Steps near the end go to and fro around a place that is better than each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.run import weights

COUNT = "count"  # among the tensors of a checkpoint, beside the sums


class Average:
    """Sums of weights, over the last `last` validations of a run that are known beforehand."""

    def __init__(self, last: int) -> None:
        self.last, self.count = last, 0
        self.sums: dict[str, Tensor] = {}

    def wants(self, left: int, every: int) -> bool:
        """Does a validation with so many steps left count, where there is one `every` so many?"""
        return self.last > 1 and left < self.last * every

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Count the weights as they are."""
        for name, value in weights(model).items():
            if name in self.sums:
                self.sums[name] += value
            else:
                self.sums[name] = value.double()
        self.count += 1

    @contextmanager
    def inside(self, model: nn.Module) -> Iterator[None]:
        """The model has the mean of what was added for weights, and its own again afterwards."""
        own = {name: value.clone() for name, value in weights(model).items()}
        model.load_state_dict({n: x / self.count for n, x in self.sums.items()}, strict=False)
        try:
            yield
        finally:
            model.load_state_dict(own, strict=False)

    def tensors(self) -> dict[str, Tensor]:
        """All of it, for a checkpoint."""
        return {**self.sums, COUNT: torch.tensor(self.count)}

    def load(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        """Take back what `tensors` gave."""
        self.count = int(tensors[COUNT])
        self.sums = {n: x.to(device) for n, x in tensors.items() if n != COUNT}
