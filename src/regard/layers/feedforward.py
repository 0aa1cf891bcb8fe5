"""The position-wise networks of blocks, and dropout."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UsageError, did_you_mean
from regard.layers import Layer
from regard.layers.tap import Tap, tapped

try:
    from regard.kernels.bias_activation import KINDS, bias_activation
except ImportError:  # without Triton
    bias_activation = None  # type: ignore[assignment, unused-ignore]

LEVELS = 1 << 16  # of the random numbers of dropout
MIN_POSITIONS = 1024  # from which on the kernel for bias and activation pays


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Dropout (Srivastava et al. 2014), by torch's global generator.

    On a CPU torch draws one random number per value on one thread, a sixth of a small model's step.
    Here one 64-bit number serves four values with 16 bits each; p is exact to 1 / 131,072.
    """
    if not p or not training:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p, training)
    dropped = round(p * LEVELS)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
    levels = draws.view(torch.int16)[: x.numel()].view(x.shape)  # -32,768 ... 32,767
    mask = (levels >= dropped - LEVELS // 2).to(x.dtype)
    return x * mask.mul_(LEVELS / (LEVELS - dropped))


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by its tanh approximation, as in GPT-2 (Hendrycks & Gimpel 2016, arXiv:1606.08415)."""
    if torch.compiler.is_compiling():  # the same function, faster than the tanh of a compiler
        return x * torch.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    return F.gelu(x, approximate="tanh")


def relu_squared(x: Tensor) -> Tensor:
    """ReLU² (So et al. 2021, Primer, arXiv:2109.08668)."""
    return F.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": gelu_tanh,
    "gelu_exact": F.gelu,
    "relu2": relu_squared,
}
FEEDFORWARDS = (*ACTIVATIONS, "swiglu")


class FeedForward(nn.Module):
    """down(activation(up(x))). In training in half precision on a GPU, the bias of `up` and the
    activation are one kernel.
    """

    def __init__(
        self, d_model: int, d_ff: int, activation: str, *, bias: bool, d_in: int | None = None
    ) -> None:
        super().__init__()
        self.up = nn.Linear(d_in or d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)
        self.name, self.activation = activation, ACTIVATIONS[activation]

    def forward(self, x: Tensor, tap: Tap | None = None) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        if self.training and self.up.bias is not None and self.fits_kernel(x):
            wide = F.linear(x, self.up.weight)  # (B, T, F)
            hidden = bias_activation(wide.flatten(0, -2), self.up.bias, KINDS.index(self.name))
            return self.down(hidden.view_as(wide))  # type: ignore[no-any-return]
        hidden = tapped(tap, "hidden", self.activation(self.up(x)))  # (B, T, F)
        return self.down(hidden)  # type: ignore[no-any-return]

    @staticmethod
    def fits_kernel(x: Tensor) -> bool:
        """Return whether `bias_activation` takes x (B, T, D): many positions in half precision."""
        if bias_activation is None or not x.is_cuda or x.numel() < MIN_POSITIONS * x.size(-1):
            return False
        return torch.is_autocast_enabled("cuda") or x.dtype in (torch.bfloat16, torch.float16)


class SwiGLU(Layer):
    """down(silu(gate(x)) · up(x)), gate and up as one product (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, d_model: int, d_ff: int, *, bias: bool, d_in: int | None = None) -> None:
        super().__init__()
        self.gate_up = nn.Linear(d_in or d_model, 2 * d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def fused_weights(self) -> dict[Tensor, tuple[int, ...]]:
        return {self.gate_up.weight: (self.down.in_features,) * 2}

    def forward(self, x: Tensor, tap: Tap | None = None) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)  # (B, T, F) each
        hidden = tapped(tap, "hidden", F.silu(gate) * up)
        return self.down(hidden)  # type: ignore[no-any-return]


def make_feedforward(
    name: str, d_model: int, d_ff: int, *, bias: bool, d_in: int | None = None
) -> nn.Module:
    """Return the network with this name; its input is d_in wide, or d_model."""
    if name == "swiglu":
        return SwiGLU(d_model, d_ff, bias=bias, d_in=d_in)
    if name in ACTIVATIONS:
        return FeedForward(d_model, d_ff, name, bias=bias, d_in=d_in)
    raise UsageError(f"unknown feedforward {name!r}; {did_you_mean(name, list(FEEDFORWARDS))}")
