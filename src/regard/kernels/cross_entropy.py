"""Cross-entropy and its gradient in one Triton kernel, which reads the logits from memory once and
writes their gradient over them.

The PyTorch twin, which takes three passes, is `training.objectives.cross_entropy`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096  # columns at a time


@triton.jit
def _cross_entropy(logits, targets, loss, nats, size, width, smoothing, ignore,
                   SMOOTH: tl.constexpr, C: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row)
    x = logits + row * width
    if target == ignore:
        for first in range(0, width, C):
            columns = first + tl.arange(0, C)
            zeros = tl.zeros((C,), logits.dtype.element_ty)
            tl.store(x + columns, zeros, mask=columns < width)
        tl.store(loss + row, 0.0)
        tl.store(nats + row, 0.0)
    else:
        top = tl.full((), float("-inf"), tl.float32)
        sums = tl.zeros((C,), tl.float32)
        plain = tl.zeros((C,), tl.float32)
        for first in range(0, size, C):
            columns = first + tl.arange(0, C)
            inside = columns < size
            value = tl.load(x + columns, mask=inside, other=float("-inf")).to(tl.float32)
            higher = tl.maximum(top, tl.max(value, 0))
            sums = sums * tl.exp(top - higher) + tl.exp(value - higher)
            top = higher
            if SMOOTH:
                plain += tl.where(inside, value, 0.0)
        lse = top + tl.log(tl.sum(sums, 0))
        nat = lse - tl.load(x + target).to(tl.float32)
        uniform = lse - tl.sum(plain, 0) / size
        tl.store(nats + row, nat)
        tl.store(loss + row, (1 - smoothing) * nat + smoothing * uniform)
        share = smoothing / size
        tl.debug_barrier()  # the target's logit has been read: now the row may be overwritten
        for first in range(0, width, C):
            columns = first + tl.arange(0, C)
            inside = columns < size
            value = tl.load(x + columns, mask=inside, other=float("-inf")).to(tl.float32)
            gradient = tl.where(inside, tl.exp(value - lse) - share, 0.0)
            gradient = tl.where(columns == target, gradient - (1 - smoothing), gradient)
            tl.store(x + columns, gradient.to(logits.dtype.element_ty), mask=columns < width)


def cross_entropy_(
    logits: Tensor, targets: Tensor, label_smoothing: float, size: int, ignore: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return smoothed and plain cross-entropy, summed, and the gradient in the logits' memory.

    Columns from `size` on are padding; their gradient is zero. Rows whose target is `ignore` are
    not scored.
    """
    rows, width = logits.shape
    loss, nats = torch.empty((2, rows), device=logits.device, dtype=torch.float32)
    block = min(BLOCK, triton.next_power_of_2(size))
    _cross_entropy[(rows,)](
        logits, targets, loss, nats, size, width, label_smoothing, ignore,
        label_smoothing > 0, block, num_warps=8,
    )  # fmt: skip
    return loss.sum(), nats.sum(), logits
