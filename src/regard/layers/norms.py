"""Normalisation of each position's vector: LayerNorm (Ba et al. 2016, arXiv:1607.06450) and
RMSNorm.

LayerNorm is (x - mean) / sqrt(variance + eps) · gain + bias; RMSNorm (Zhang & Sennrich 2019,
arXiv:1910.07467) drops the mean and the bias. Where they stand, before each part (pre) or after the
sum (post), is the block's business.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UsageError, did_you_mean

NORMS = ("rms", "layer")


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x²) + eps) · gain, over the last axis.

    torch's own runs as one kernel on a GPU but as eight operations on a CPU. There the root is
    taken of one norm, sqrt(mean(x²) + eps) = hypot(|x|, sqrt(D · eps)) / sqrt(D), in half of them.
    """

    zero: Tensor
    floor: Tensor

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps=eps)
        self.scale = width**0.5
        self.register_buffer("zero", torch.zeros(1), persistent=False)
        self.register_buffer("floor", torch.full((1,), (width * eps) ** 0.5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        return self.normalise(x, self.weight)

    def normalise(self, x: Tensor, gain: Tensor) -> Tensor:
        """The same with another gain, one that broadcasts to x: several heads at once, say."""
        if x.is_cuda:
            return F.rms_norm(x, self.normalized_shape, eps=self.eps) * gain
        length = torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), self.floor)
        return torch.addcmul(self.zero, x / length, gain, value=self.scale)


def make_norm(name: str, d_model: int, eps: float, bias: bool) -> nn.Module:
    """The norm of that name over the last axis; `bias` applies to LayerNorm only."""
    if name == "rms":
        return RMSNorm(d_model, eps)
    if name == "layer":
        return nn.LayerNorm(d_model, eps=eps, bias=bias)
    raise UsageError(f"unknown norm {name!r}; {did_you_mean(name, list(NORMS))}")
