"""The one interface of everything that predicts the next symbol, and what neural models share.

A count table, a recurrence and a Transformer are all `LanguageModel`s: decoding, scoring, looking
and verifying are written once, against this class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.attention import Tap
from regard.layers.cache import DecodeState

IGNORE = -1  # a target that is not scored: padding, or context seen before
CHUNK = 1 << 24  # logits held at once while scoring: 64 MB in fp32

# Forbidden transitions (decode.constraints): (N, V) logits and the (N,) ids they follow, to (N, V)
# logits with -inf.
Constrain = Callable[[Tensor, Tensor], Tensor]


class LanguageModel(nn.Module, ABC):
    """Predicts the token after each position from that position and those before it."""

    task: ClassVar[str] = "next"
    Config: ClassVar[type]  # the family's frozen dataclass
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]]  # name to (n_layers, d_model) -> Config
    sized_by_config: ClassVar[bool] = True  # are all tensor shapes known before a file is read?
    static_shapes: ClassVar[bool] = False  # with a fixed state, is every step the same operations?
    supports_packing: bool = False  # may several records share a row, kept apart by `segments`?

    def __init__(self, vocab_size: int, config: Any) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.config = config

    @abstractmethod
    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """(B, T) ids to (B, T, V) unnormalised log-probabilities: position t predicts token t + 1
        from ids up to t.

        `segments` (B, T) numbers the records that share a row, 0 being padding; no record sees
        another.
        """

    @abstractmethod
    def score(
        self,
        ids: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        *,
        constrain: Constrain | None = None,
    ) -> Tensor:
        """(B, T) natural log-probability of targets[t] after ids up to t; 0 where the target is
        IGNORE.

        Never builds (B, T, V) whole.
        """

    @abstractmethod
    def start(self, batch: int, capacity: int) -> DecodeState:
        """An empty state for `batch` rows of at most `capacity` tokens."""

    @abstractmethod
    def extend(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        """Feed (B, T) more ids into `state`, in place; return the logits (B, V) after the last of
        each row.

        Row b counts only its first lengths[b] >= 1 ids (right padding is ignored); None means all
        T. A prompt goes in at once; a decoding step is T = 1.
        """


class NeuralLanguageModel(LanguageModel):
    """A language model trained by gradients: ids to hidden vectors, and a linear head to logits."""

    head: nn.Linear

    @abstractmethod
    def hidden(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """(B, T) ids to the (B, T, D) vectors that the head projects onto the vocabulary."""

    def forward(self, ids: Tensor, segments: Tensor | None = None) -> Tensor:
        """`hidden`, as the trainer calls it: this is what is compiled."""
        return self.hidden(ids, segments)

    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """See LanguageModel."""
        logits: Tensor = self.head(self.hidden(ids, segments, tap=tap))  # (B, T, V)
        if tap is not None:
            tap("logits", logits)
        return logits

    def score(
        self,
        ids: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        *,
        constrain: Constrain | None = None,
    ) -> Tensor:
        """See LanguageModel."""
        hidden = self.hidden(ids, segments).flatten(0, 1)  # (B·T, D)
        rows = max(1, CHUNK // self.vocab_size)
        parts = []
        chunks = zip(
            hidden.split(rows),
            ids.flatten().split(rows),
            targets.flatten().split(rows),
            strict=True,
        )
        for h, previous, target in chunks:
            logits = self.head(h).float()  # (N, V)
            if constrain is not None:
                logits = constrain(logits, previous)
            parts.append(-F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="none"))
        return torch.cat(parts).view(targets.shape)  # (B, T)
