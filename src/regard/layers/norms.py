"""Normalisation of each position's vector: LayerNorm (Ba et al. 2016, arXiv:1607.06450) and
RMSNorm.

LayerNorm is (x - mean) / sqrt(variance + eps) · gain + bias; RMSNorm (Zhang & Sennrich 2019,
arXiv:1910.07467) drops the mean and the bias. Where they stand, before each part (pre) or after the
sum (post), is the block's business.
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
            if gain is self.weight:
                return F.rms_norm(x, self.normalized_shape, gain.to(x.dtype), self.eps)
            return F.rms_norm(x, self.normalized_shape, eps=self.eps) * gain.to(x.dtype)
        if torch.is_grad_enabled():
            return _Normalise.apply(x, gain, self)  # type: ignore[no-any-return, no-untyped-call]
        return self.parts(x, gain)[0]

    def parts(self, x: Tensor, gain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The result, x / length and length, where length is sqrt(|x|² + D · eps)."""
        length = torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), self.floor)
        unit = x / length
        return torch.addcmul(self.zero, unit, gain, value=self.scale), unit, length


class _Normalise(torch.autograd.Function):
    """RMSNorm with the gradient worked out by hand, in half the passes that autograd would make.

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
    """torch's, whose result has the precision of x under autocast too: a post-norm residual stream
    stays in bf16.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        return super().forward(x).to(x.dtype)


def make_norm(name: str, d_model: int, eps: float, bias: bool) -> nn.Module:
    """The norm of that name over the last axis, or none; `bias` applies to LayerNorm only."""
    if name == "rms":
        return RMSNorm(d_model, eps)
    if name == "layer":
        return LayerNorm(d_model, eps=eps, bias=bias)
    if name == "none":
        return nn.Identity()
    raise UsageError(f"unknown norm {name!r}; {did_you_mean(name, list(NORMS))}")
