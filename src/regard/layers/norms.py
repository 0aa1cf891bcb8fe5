"""Normalisation of each position's vector: LayerNorm (Ba et al. 2016, arXiv:1607.06450) and RMSNorm.

LayerNorm is (x - mean) / sqrt(variance + eps) · gain + bias; RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467) drops
the mean and the bias. Where they stand, before each part (pre) or after the sum (post), is the block's business.
"""

from __future__ import annotations

from torch import nn

from regard.errors import UsageError, did_you_mean

NORMS = ("rms", "layer")


def make_norm(name: str, d_model: int, eps: float, bias: bool) -> nn.Module:
    """The norm of that name over the last axis; `bias` applies to LayerNorm only."""
    if name == "rms":
        return nn.RMSNorm(d_model, eps=eps)
    if name == "layer":
        return nn.LayerNorm(d_model, eps=eps, bias=bias)
    raise UsageError(f"unknown norm {name!r}; {did_you_mean(name, list(NORMS))}")
