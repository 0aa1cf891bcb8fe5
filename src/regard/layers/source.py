"""What a translator reads before it speaks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Source:
    """Source sequences: (B, S) `ids`, and `segments` (B, S) that number those of a row from 1, 0
    being padding. A target in segment n of row b belongs to the source in segment n of row b.
    `types` (B, S) tells kinds of sentence apart, from 0, where there are several.
    """

    ids: Tensor
    segments: Tensor
    types: Tensor | None = None

    def to(self, device: torch.device) -> Source:
        """The same on another device."""
        ids, segments = (x.to(device, non_blocking=True) for x in (self.ids, self.segments))
        types = None if self.types is None else self.types.to(device, non_blocking=True)
        return Source(ids, segments, types)
