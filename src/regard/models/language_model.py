"""The interface of all models that predict the next token, and what the neural ones share.

Count tables, recurrent networks and Transformers are all `LanguageModel`s: decoding, scoring,
pages and checks are written once, against this class.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.cache import DecodeState
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap, tapped
from regard.models import Model

IGNORE = -1  # a target that is not scored: padding, or context scored before
CHUNK = 1 << 24  # logits in memory at once while scoring: 64 MB in fp32

# Forbidden transitions (decoding/constraints.py): from (N, V) logits and the (N,) ids before them
# to (N, V) logits with -inf.
Constrain = Callable[[Tensor, Tensor], Tensor]


class LanguageModel(Model):
    """Predicts the token after each position from that position and those before it."""

    task: ClassVar[str] = "next"
    reads_end = False
    exactly_causal: bool = True  # gradients of the future are 0, not only up to rounding

    @property
    def max_context(self) -> int | None:
        """The longest context in decoding; None: no limit."""
        return None

    def condition(self, source: Inputs | None) -> LanguageModel:
        """Return the model itself: it has no source (compare Seq2SeqModel.condition)."""
        return self

    @abstractmethod
    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """Return (B, T, V) unnormalised log-probabilities of the token after each of (B, T) ids.

        `segments` (B, T) numbers the records that share a row, 0 being padding; records do not
        affect each other.
        """

    def read_batch(
        self, source: Inputs, *, positions: Sequence[int] | None = None, tap: Tap | None = None
    ) -> Tensor:
        logits = self.logits(source.ids, tap=tap)  # causal: padding at the end changes nothing
        return logits if positions is None else logits[:, list(positions)]

    def predictions(self, ids: Tensor, *, tap: Tap | None = None) -> Callable[[slice], Tensor]:
        """Read one row of (1, T) ids once; return a function from some of its positions to the
        logits (n, V) of the tokens after them.
        """
        logits = self.logits(ids, tap=tap)[0]  # (T, V)
        return lambda rows: logits[rows]

    def score(
        self,
        ids: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        *,
        constrain: Constrain | None = None,
    ) -> Tensor:
        """Return (B, T) natural log-probabilities of targets[t] after ids up to t; 0 where the
        target is IGNORE.
        """
        scores = self.score_targets(ids, targets.clamp_min(0), segments, constrain)
        return scores.masked_fill(targets == IGNORE, 0.0)

    def score_targets(
        self, ids: Tensor, targets: Tensor, segments: Tensor | None, constrain: Constrain | None
    ) -> Tensor:
        """Compute `score` for targets that are all valid ids, without ever building (B, T, V)."""
        raise NotImplementedError

    def score_in_chunks(
        self,
        logits: Callable[[slice], Tensor],
        ids: Tensor,
        targets: Tensor,
        constrain: Constrain | None,
    ) -> Tensor:
        """Return (B, T) log-probabilities of targets from the logits (N, V) of slices of the B·T
        positions, at most CHUNK logits at a time.
        """
        previous, wanted, parts = ids.flatten(), targets.flatten(), []
        size = max(1, CHUNK // self.vocab_size)
        for first in range(0, max(1, len(previous)), size):
            rows = slice(first, first + size)
            chunk = logits(rows)
            if constrain is not None:
                chunk = constrain(chunk, previous[rows])
            parts.append(-F.cross_entropy(chunk, wanted[rows], reduction="none"))
        return torch.cat(parts).view(targets.shape)

    @abstractmethod
    def init_state(self, batch: int, capacity: int) -> DecodeState:
        """Return an empty state for `batch` rows of at most `capacity` tokens."""

    @abstractmethod
    def step(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        """Append (B, T) ids to `state`, in place; return the logits (B, V) after the last of each
        row.

        Only the first lengths[b] >= 1 ids of row b count (the rest is padding); None means all T.
        A prompt is one call; a decoding step has T = 1.
        """


class NeuralLanguageModel(LanguageModel):
    """A language model trained by gradients: ids to hidden vectors, and a linear head to logits."""

    loop = "gradient"
    head: nn.Linear

    @abstractmethod
    def hidden(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """Return the (B, T, D) vectors that the head projects onto the vocabulary."""

    def forward(self, ids: Tensor, segments: Tensor | None = None) -> Tensor:
        """Return `hidden`, for the trainer to call and compile."""
        return self.hidden(ids, segments)

    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        return tapped(tap, "logits", self.head(self.hidden(ids, segments, tap=tap)))  # (B, T, V)

    def read_batch(
        self, source: Inputs, *, positions: Sequence[int] | None = None, tap: Tap | None = None
    ) -> Tensor:
        if positions is None:
            return self.logits(source.ids, tap=tap)
        hidden = self.hidden(source.ids, tap=tap)[:, list(positions)]  # (B, P, D)
        return tapped(tap, "logits", self.head(hidden))

    def predictions(self, ids: Tensor, *, tap: Tap | None = None) -> Callable[[slice], Tensor]:
        hidden = self.hidden(ids, tap=tap)[0]  # (T, D): the head waits for what is asked for
        return lambda rows: self.head(hidden[rows]).float()

    def score_targets(
        self, ids: Tensor, targets: Tensor, segments: Tensor | None, constrain: Constrain | None
    ) -> Tensor:
        hidden = self.hidden(ids, segments).flatten(0, 1)  # (B·T, D)
        return self.score_in_chunks(
            lambda rows: self.head(hidden[rows]).float(), ids, targets, constrain
        )

    def advance(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        """Append (B, T) ids to the layers of `state`; return the hidden vectors (B, D) of the last
        position of each row.
        """
        raise NotImplementedError

    def step(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        state.check(ids.size(1))
        last = self.advance(ids, lengths, state)  # (B, D)
        state.advance(lengths, ids.size(1))
        return self.head(last)  # type: ignore[no-any-return]  # (B, V)
