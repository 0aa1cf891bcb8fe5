"""Normalization of each position's vector.

LayerNorm (Ba et al. 2016, arXiv:1607.06450) is (x - mean) / sqrt(variance + eps) · gain + bias;
RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467) drops the mean and the bias.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UsageError, did_you_mean

NORMS = ("rms", "layer", "none")


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x²) + eps) · gain, over the last axis.

    PyTorch's runs as one kernel on a GPU, but as eight operations on a CPU. There we compute
    sqrt(mean(x²) + eps) = hypot(|x|, sqrt(D · eps)) / sqrt(D), in half as many.
    """

    zero: Tensor
    floor: Tensor

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps=eps)
        self.scale = width**0.5
        self.register_buffer("zero", torch.zeros(1), persistent=False)
        self.register_buffer("floor", torch.full((1,), (width * eps) ** 0.5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalize(x, self.weight)

    def normalize(self, x: Tensor, gain: Tensor) -> Tensor:
        """Normalize x (..., D) with another gain, which broadcasts to x."""
        if x.is_cuda:
            if gain is self.weight:
                return F.rms_norm(x, self.normalized_shape, gain.to(x.dtype), self.eps)
            return F.rms_norm(x, self.normalized_shape, eps=self.eps) * gain.to(x.dtype)
        if torch.is_grad_enabled():
            return _RMSNorm.apply(x, gain, self)  # type: ignore[no-any-return, no-untyped-call]
        return self.parts(x, gain)[0]

    def parts(self, x: Tensor, gain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the result, x / length, and length = sqrt(|x|² + D · eps)."""
        length = torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), self.floor)
        unit = x / length
        return torch.addcmul(self.zero, unit, gain, value=self.scale), unit, length


class _RMSNorm(torch.autograd.Function):
    """RMSNorm with an explicit gradient, in half the passes that autograd would make.

    With u = x / length and g = dy · gain: dx = sqrt(D) / length · (g - u (g·u)).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, norm: RMSNorm) -> Tensor:
        y, unit, length = norm.parts(x, gain)
        ctx.save_for_backward(unit, length, gain)
        ctx.scale = norm.scale
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        unit, length, gain = ctx.saved_tensors
        dy = gradients[0]
        g = dy * gain
        along = (g * unit).sum(dim=-1, keepdim=True)  # g·u
        dx = torch.addcmul(g, unit, along, value=-1).mul_(ctx.scale / length)
        return dx, (dy * unit).sum_to_size(gain.shape).mul_(ctx.scale), None


class LayerNorm(nn.LayerNorm):
    """PyTorch's, with a result in the precision of x under autocast, too: the residual stream of a
    post-norm model stays in bf16.
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).to(x.dtype)


def make_norm(name: str, d_model: int, eps: float, bias: bool) -> nn.Module:
    """Return the norm with this name over the last axis; `bias` applies to LayerNorm only."""
    if name == "rms":
        return RMSNorm(d_model, eps)
    if name == "layer":
        return LayerNorm(d_model, eps=eps, bias=bias)
    if name == "none":
        return nn.Identity()
    raise UsageError(f"unknown norm {name!r}; {did_you_mean(name, list(NORMS))}")
