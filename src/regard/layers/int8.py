"""Linear layers with weights in int8, for decoding on a CPU: a quarter of the memory to read.

Every output row of a matrix has one scale, its largest weight / 127, and weights are rounded to
multiples of it; each input vector is rounded in the same way when it comes. The product is then one
of whole numbers, exact in int32, so the two roundings are the only error. The scheme is that of
Dettmers et al. 2022 (LLM.int8(), arXiv:2208.07339, section 2) without its treatment of outliers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import UsageError

STEPS = 127  # int8 without -128, so that the range is symmetric
LEAST = 1e-30  # stands for the scale of a row of zeros


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """x (N, D) as int8 and one scale (N, 1) a row: x is their product, up to half a scale."""
    scale = x.abs().amax(-1, keepdim=True).clamp_min(LEAST) / STEPS
    return (x / scale).round().to(torch.int8), scale


class Int8Linear(nn.Module):
    """x W' + b with W (O, D) in int8; takes the place of a trained `nn.Linear`."""

    weight: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight, scale = rounded(linear.weight.detach())
        self.register_buffer("weight", weight)  # (O, D)
        self.register_buffer("scale", scale.view(-1))  # (O,)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., O)."""
        rows, scale = rounded(x.reshape(-1, self.in_features))  # (N, D), (N, 1)
        y = torch._int_mm(rows, self.weight.t()).float() * scale * self.scale  # (N, O)
        if self.bias is not None:
            y = y + self.bias
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """As nn.Linear's."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


def to_int8(model: nn.Module) -> None:
    """Put an `Int8Linear` in the place of every `nn.Linear` of a model on the CPU.

    A head tied to the embedding gets a matrix of its own; embeddings, norms and the matrices inside
    recurrent cells stay as they are.
    """
    elsewhere = {p.device.type for p in model.parameters()} - {"cpu"}
    if elsewhere:
        raise UsageError(f"int8 weights are for a CPU; this model is on {', '.join(elsewhere)}")
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
    if not found:
        raise UsageError(f"{type(model).__name__} has no linear layers to hold in int8")
    for parent, name, child in found:
        setattr(parent, name, Int8Linear(child))
