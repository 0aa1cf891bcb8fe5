"""Linear layers with int8 weights, for decoding on a CPU: a quarter of the memory to read.

Every output row of a matrix has one scale, its largest weight / 127, and weights are rounded to
multiples of it; each input vector is rounded in the same way. The product is then one of integers,
exact in int32, so that rounding is the only error. This is the scheme of Dettmers et al. 2022
(LLM.int8(), arXiv:2208.07339, section 2) without its treatment of outliers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.kernels.torch_private import int_mm

LEVELS = 127  # int8 without -128, so that the range is symmetric
MIN_SCALE = 1e-30  # for a row of zeros


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return x (N, D) in int8 and a scale (N, 1) per row; their product is x to half a scale."""
    scale = x.abs().amax(-1, keepdim=True).clamp_min(MIN_SCALE) / LEVELS
    return (x / scale).round().to(torch.int8), scale


class Int8Linear(nn.Module):
    """x W' + b with W (F, D) in int8, from a trained `nn.Linear`."""

    weight: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight, scale = quantize(linear.weight.detach())
        self.register_buffer("weight", weight)  # (F, D)
        self.register_buffer("scale", scale.view(-1))  # (F,)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., F)."""
        rows, scale = quantize(x.reshape(-1, self.in_features))  # (N, D), (N, 1)
        y = int_mm(rows, self.weight.t()).float() * scale * self.scale  # (N, F)
        if self.bias is not None:
            y = y + self.bias
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def to_int8(model: nn.Module) -> None:
    """Replace every `nn.Linear` of a model on the CPU by an `Int8Linear`.

    A head tied to the embedding gets its own matrix; embeddings, norms and the matrices inside
    recurrent cells do not change.
    """
    devices = {p.device.type for p in model.parameters()} - {"cpu"}
    if devices:
        raise UsageError(f"int8 weights are for a CPU; this model is on {', '.join(devices)}")
    layers = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
    if not layers:
        raise UsageError(f"{type(model).__name__} has no linear layers to convert to int8")
    for parent, name, child in layers:
        setattr(parent, name, Int8Linear(child))
