"""Buffers whose sizes only a file knows: tables that grow with what was counted."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class Grown(nn.Module):
    """A module that takes the sizes of its `grown` buffers, of all where none is named, from what
    is loaded into it.
    """

    sized_by_config: ClassVar[bool] = False
    grown: ClassVar[tuple[str, ...]] = ()

    def wrong(self) -> str:
        """What is wrong with buffers that were read; "" where they fit each other."""
        return ""

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        for name in self.grown or tuple(self._buffers):
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name]))
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if wrong := self.wrong():
            rest[-1].append(wrong)
