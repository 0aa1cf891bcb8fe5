"""One vector for a whole sequence, from those of its positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import UsageError, did_you_mean
from regard.layers.attention import softmax

POOLINGS = ("mean", "first", "attention", "max")


class Pooling(nn.Module):
    """The mean of all positions, the first (`<S>`, BERT's [CLS]), a mean whose weights are learned:
    a softmax of one score a position (Yang et al. 2016, "Hierarchical attention networks for
    document classification"), or each feature where it is largest (Collobert et al. 2011).
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
        if self.name == "max":
            highest = x.masked_fill(~there[..., None], -torch.inf).amax(1)
            return highest.masked_fill(~there.any(1, keepdim=True), 0)
        return torch.einsum("bt,btd->bd", self.weights(x, there).to(x.dtype), x)

    def weights(self, x: Tensor, there: Tensor) -> Tensor:
        """(B, T): how much each position counts; of "max", the share of features it gives."""
        if self.name == "max":
            where = x.masked_fill(~there[..., None], -torch.inf).argmax(1)  # (B, D)
            given = torch.zeros_like(x[..., 0]).scatter_add_(1, where, torch.ones_like(x[:, 0]))
            return given / x.size(-1) * there.any(1, keepdim=True)
        if self.name == "first":
            first = torch.zeros_like(there)
            first[:, 0] = there[:, 0]
            return first.to(x.dtype)
        scores = x.new_zeros(there.shape) if self.score is None else self.score(x).squeeze(-1)
        return softmax(scores.masked_fill(~there, -torch.inf))
