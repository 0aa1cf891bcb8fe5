"""Dropout (Srivastava et al. 2014): with probability p a value is 0, else it grows by 1 / (1 - p).

On a CPU torch draws one random number per value, on one thread, which is a sixth of a small model's
step. Here one 64-bit draw serves four values, 16 bits each; p is met to within 1 / 131,072.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

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
