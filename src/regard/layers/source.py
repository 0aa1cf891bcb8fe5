"""What a model reads: of a translator the source, of what answers the records it is asked about."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Source:
    """Source sequences: (B, S) `ids`, and `segments` (B, S) that number those of a row from 1, 0
    being padding. A target in segment n of row b belongs to the source in segment n of row b.

    Where tokens are V numbers each instead of one of V ids, as of images, `ids` is (B, S, V).
    """

    ids: Tensor
    segments: Tensor

    def to(self, device: torch.device) -> Source:
        """The same on another device."""
        ids, segments = (x.to(device, non_blocking=True) for x in (self.ids, self.segments))
        return Source(ids, segments)
