"""Which attention the kernels for short rows take over from PyTorch's: training on short or packed
records, each so little work that kernels made for long rows wait more than they compute.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    from regard.layers.kernels import short_attention
except ImportError:  # no Triton here: PyTorch's own kernels
    short_attention = None  # type: ignore[assignment, unused-ignore]

__all__ = ["fits", "short_attention"]

FEWEST = 16  # queries; fewer are decoding, which has its own kernels
MOST = 128  # queries or keys: one tile holds all scores, and more do not fit into the registers
LARGEST = 128 * 64  # numbers in a tile of keys: more do not fit into every GPU's shared memory
WIDTHS = (16, 32, 64, 128)  # of a head


def fits(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> bool:
    """May `short_attention` take q (B, H, T, K), k and v (B, G, S, K) and a boolean mask?

    It wants half precision on a GPU, G = H, one mask for all heads, and short rows.
    """
    t, s, d = q.size(2), k.size(2), q.size(3)
    return (
        short_attention is not None
        and q.is_cuda
        and q.dtype in (torch.bfloat16, torch.float16)
        and q.dtype == k.dtype == v.dtype
        and q.shape[:2] == k.shape[:2]
        and FEWEST <= t <= MOST
        and s <= MOST
        and d in WIDTHS
        and max(t, s) * d <= LARGEST
        and (mask is None or mask.size(1) == 1)
    )
