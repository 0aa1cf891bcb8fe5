"""The minimum of Σ cost(x W + b, y) + strength / 2 · |W|², found by L-BFGS (Liu & Nocedal 1989):
logistic or ridge regression of rows of numbers, without scikit-learn.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def solve(
    task: str, x: Tensor, y: Tensor, strength: float, rounds: int, outputs: int
) -> tuple[Tensor, Tensor]:
    """Coefficients (F, O) and biases (O,) from rows (R, F) and what is asked of them."""
    weights = torch.zeros(x.size(1), outputs, requires_grad=True)
    bias = torch.zeros(outputs)
    if task == "value":
        there = ~y.isnan()
        bias = y.nan_to_num().sum(0) / there.sum(0).clamp_min(1)
    bias = bias.float().requires_grad_()
    search = torch.optim.LBFGS(
        [weights, bias], max_iter=rounds, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        search.zero_grad()
        found = cost(task, x @ weights + bias, y) + strength / 2 * weights.square().sum()
        mean: Tensor = found / len(x)
        mean.backward()
        return mean

    with torch.enable_grad():
        search.step(closure)
    return weights.detach(), bias.detach()


def cost(task: str, found: Tensor, targets: Tensor) -> Tensor:
    """What answers (R, O) cost beside their targets, gaps left out, summed."""
    if task == "value":
        gap = found - targets.nan_to_num().to(found.dtype)
        return (gap.square() / 2).where(~targets.isnan(), 0).sum()
    if task == "labels":
        wanted = targets.clamp_min(0).to(found.dtype)
        each = F.binary_cross_entropy_with_logits(found, wanted, reduction="none")
        return each.where(targets >= 0, 0).sum()
    return F.cross_entropy(found, targets, ignore_index=-1, reduction="sum")
