"""Words by their place: translators that count, whose words depend on the source, on the place in
the target and, through a bigram, on the word before.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from regard.layers.source import Source
from regard.layers.state import ContextWindow, State
from regard.layers.tap import Tap
from regard.models.counts import Counting
from regard.models.grown import Grown
from regard.models.kneser_ney import KneserNey, KneserNeyConfig
from regard.models.language_model import CHUNK, IGNORE, Constrain
from regard.models.ngrams import ABSENT
from regard.models.translator import Given, Translator


class ByPlace(Grown, Translator, Counting):
    """What it has counted of places, and a bigram of targets."""

    def __init__(self, vocab_size: int, config: Any) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        self.bigram = KneserNey(vocab_size, KneserNeyConfig(order=2))

    def after(self, ids: Tensor) -> Tensor:
        """(B, T, V) the bigram's P of all words after ids (B, T), in fp64."""
        nodes = [node.flatten() for node in self.bigram.table.contexts(ids)]
        logs = self.bigram.log_rows(nodes, ids.numel())
        return logs.double().exp_().view(*ids.shape, self.vocab_size)


class GivenByPlace(Given):
    """Such a translator that has read its sources."""

    translator: ByPlace

    def __init__(self, translator: ByPlace, source: Source) -> None:
        super().__init__(translator)
        self.translator = translator
        self.read(source)

    def read(self, source: Source, *, tap: Tap | None = None) -> None:
        """See Given."""
        self.sources, self.device = len(source.ids), source.ids.device

    @abstractmethod
    def rows(self, ids: Tensor, places: Tensor) -> Tensor:
        """(B·W, T, V) log P of all words after ids (B·W, T), at places (B, T) of their targets."""

    def places(self, ids: Tensor) -> Tensor:
        """(B, T): the places that follow (B·W, T) ids, the first after `<S>`."""
        return torch.arange(ids.size(1), device=ids.device).expand(self.sources, -1)

    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """See LanguageModel."""
        alone(segments)
        logits = self.rows(ids, self.places(ids))
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
        alone(segments)
        width = max(1, CHUNK // (len(ids) * self.vocab_size))
        columns = (ids, self.places(ids), targets.clamp_min(0))
        parts = []
        for i, place, target in zip(*(x.split(width, 1) for x in columns), strict=True):
            logs = self.rows(i, place).flatten(0, 1)
            if constrain is not None:
                logs = constrain(logs, i.flatten()).log_softmax(-1)
            parts.append(logs.gather(1, target.reshape(-1, 1)).view(i.shape))
        return torch.where(targets == IGNORE, 0.0, torch.cat(parts, dim=1))

    def start(self, batch: int, capacity: int) -> State:
        """See LanguageModel."""
        empty = torch.full((batch, 1), ABSENT, device=self.device)
        return State([ContextWindow(empty)], batch, capacity)

    def extend(self, ids: Tensor, lengths: Tensor | None, state: State) -> Tensor:
        """See LanguageModel."""
        state.check(ids.size(1))
        memory = state.layers[0]
        assert isinstance(memory, ContextWindow)
        memory.push(ids, lengths)
        state.advance(lengths, ids.size(1))
        beams, seen = len(ids) // self.sources, state.length
        if isinstance(seen, int):
            at = torch.full((self.sources, 1), seen - 1, device=ids.device)
            return self.rows(memory.ids, at)[:, 0]  # (B·W, V)
        each = seen.view(-1, beams)  # (B, W)
        if bool((each == each[:, :1]).all()):  # as beams have
            return self.rows(memory.ids, each[:, :1] - 1)[:, 0]
        parts = [self.rows(memory.ids[w::beams], each[:, w, None] - 1) for w in range(beams)]
        return torch.cat(parts, dim=1).flatten(0, 1)


def alone(segments: Tensor | None) -> None:
    """Refuse rows that targets share."""
    if segments is not None:
        raise ValueError("a translator by places reads one pair to a row; use length buckets")


def repeated(x: Tensor, rows: int) -> Tensor:
    """What is true of B sources, for `rows` targets: B·W, the W of a source side by side."""
    return x if len(x) == rows else x.repeat_interleave(rows // len(x), 0)
