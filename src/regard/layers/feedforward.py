"""Dropout (Srivastava et al. 2014): with probability p a value is 0, else it grows by 1 / (1 - p).

On a CPU torch draws one random number per value, on one thread, which is a sixth of a small model's
step. Here one 64-bit draw serves four values, 16 bits each; p is met to within 1 / 131,072.

The position-wise network of a block: widen, bend, narrow (Vaswani et al. 2017, section 3.3).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UsageError, did_you_mean

LEVELS = 1 << 16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """x with values dropped while training; torch's global generator decides which."""
    if not p or not training:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p, training)
    dropped = round(p * LEVELS)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
    levels = draws.view(torch.int16)[: x.numel()].view(x.shape)  # -32,768 ... 32,767
    kept = (levels >= dropped - LEVELS // 2).to(x.dtype)
    return x * kept.mul_(LEVELS / (LEVELS - dropped))


try:
    from regard.kernels.bias_activation import BENT
    from regard.kernels.bias_activation import bias_activation as bend_rows
except ImportError:  # no Triton here
    bend_rows = None  # type: ignore[assignment, unused-ignore]


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by its tanh approximation, as in GPT-2 (Hendrycks & Gimpel 2016, arXiv:1606.08415)."""
    if torch.compiler.is_compiling():  # the same, and faster than the tanh a compiler writes
        return x * torch.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    return F.gelu(x, approximate="tanh")


def relu_squared(x: Tensor) -> Tensor:
    """ReLU² (So et al. 2021, Primer, arXiv:2109.08668)."""
    return F.relu(x).square()


BENDS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": gelu_tanh,
    "gelu_exact": F.gelu,
    "relu2": relu_squared,
}
FEEDFORWARDS = (*BENDS, "swiglu")
MANY = 1024  # positions, from which on a kernel of our own is worth being called


class FeedForward(nn.Module):
    """down(bend(up(x))). In half precision, in training on a GPU, the bias of `up` and the bend are
    one kernel.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        bend: str,
        *,
        bias: bool,
        d_in: int | None = None,
    ) -> None:
        super().__init__()
        self.up = nn.Linear(d_in or d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)
        self.name, self.bend = bend, BENDS[bend]

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        if self.training and self.up.bias is not None and self.kernels_fit(x):
            wide = F.linear(x, self.up.weight)  # (B, T, F)
            bent = bend_rows(wide.flatten(0, -2), self.up.bias, BENT.index(self.name))
            return self.down(bent.view_as(wide))  # type: ignore[no-any-return]
        return self.down(self.bend(self.up(x)))  # type: ignore[no-any-return]  # (B, T, F) inside

    @staticmethod
    def kernels_fit(x: Tensor) -> bool:
        """Are there kernels, and enough of x (B, T, D), in half precision?"""
        if bend_rows is None or not x.is_cuda or x.numel() < MANY * x.size(-1):
            return False
        return torch.is_autocast_enabled("cuda") or x.dtype in (torch.bfloat16, torch.float16)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) · up(x)), gate and up as one product (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, d_model: int, d_ff: int, *, bias: bool, d_in: int | None = None) -> None:
        super().__init__()
        self.gate_up = nn.Linear(d_in or d_model, 2 * d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)  # (B, T, F) each
        return self.down(F.silu(gate) * up)  # type: ignore[no-any-return]


def make_feedforward(
    name: str, d_model: int, d_ff: int, *, bias: bool, d_in: int | None = None
) -> nn.Module:
    """The network of that name; what it reads is d_in wide, or as wide as what it gives."""
    if name == "swiglu":
        return SwiGLU(d_model, d_ff, bias=bias, d_in=d_in)
    if name in BENDS:
        return FeedForward(d_model, d_ff, name, bias=bias, d_in=d_in)
    raise UsageError(f"unknown feedforward {name!r}; {did_you_mean(name, list(FEEDFORWARDS))}")
