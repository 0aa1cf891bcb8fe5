"""One vector for a whole sequence, from those of its positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import UsageError, did_you_mean
from regard.layers.attention import softmax

POOLINGS = ("mean", "first", "attention")


class Pooling(nn.Module):
    """The mean of all positions, the first (`<S>`, BERT's [CLS]), or a mean whose weights are
    learned: a softmax of one score a position (Yang et al. 2016, "Hierarchical attention networks
    for document classification").
    """

    def __init__(self, name: str, d_model: int) -> None:
        super().__init__()
        if name not in POOLINGS:
            raise UsageError(f"unknown pooling {name!r}; {did_you_mean(name, list(POOLINGS))}")
        self.name = name
        self.score = nn.Linear(d_model, 1, bias=False) if name == "attention" else None

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """(B, T, D), of which (B, T) `there` is no padding, to (B, D); nothing gives zeros."""
        if self.name == "first":
            return x[:, 0] * there[:, :1]
        return torch.einsum("bt,btd->bd", self.weights(x, there).to(x.dtype), x)

    def weights(self, x: Tensor, there: Tensor) -> Tensor:
        """(B, T): how much each position counts."""
        if self.name == "first":
            first = torch.zeros_like(there)
            first[:, 0] = there[:, 0]
            return first.to(x.dtype)
        scores = x.new_zeros(there.shape) if self.score is None else self.score(x).squeeze(-1)
        return softmax(scores.masked_fill(~there, -torch.inf))
