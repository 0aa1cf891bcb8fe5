"""Counting models: exact tables, no gradients.

`Bigram` is the first-order Markov chain by maximum likelihood, P(b | a) = n(a, b) / n(a): zeros
stay zeros, so a transition never seen is impossible and says so (an infinite figure), which is the
defect that priors repair. Counts are kept sparse, so the alphabet may be large; nothing of size V ×
V is ever built.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.layers.state import LastToken, State
from regard.layers.tap import Tap
from regard.models.language_model import CHUNK, IGNORE, Constrain, LanguageModel


@dataclass(frozen=True, kw_only=True)
class BigramConfig:
    """A bigram has nothing to choose. `max_len` is only how much is scored at once."""

    max_len: int = 256

    def __post_init__(self) -> None:
        if self.max_len < 1:
            raise ValueError(f"max_len must be at least 1, got {self.max_len}")


class CountingModel(LanguageModel):
    """A model that is fitted by one pass of counting instead of gradient steps."""

    sized_by_config = False

    @abstractmethod
    def count(self, chunks: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Fit to (previous, next) id arrays, streamed; replaces what was counted before."""


class Bigram(CountingModel):
    """Transition counts n(a, b), stored as the sorted codes a · V + b and their counts."""

    Config = BigramConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "exact": lambda n_layers, d_model: BigramConfig()
    }
    codes: Tensor
    counts: Tensor
    totals: Tensor

    def __init__(self, vocab_size: int, config: BigramConfig) -> None:
        super().__init__(vocab_size, config)
        self.register_buffer("codes", torch.zeros(0, dtype=torch.int64))  # (P,) pairs seen
        self.register_buffer("counts", torch.zeros(0, dtype=torch.int64))  # (P,)
        self.register_buffer("totals", torch.zeros(vocab_size, dtype=torch.int64))  # (V,) n(a)

    def count(self, chunks: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """See CountingModel."""
        size = self.vocab_size
        codes, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        table = np.zeros(size * size, np.int64) if size <= 4096 else None
        for previous, following in chunks:
            pairs = previous.astype(np.int64) * size + following
            if table is not None:
                table += np.bincount(pairs, minlength=size * size)
                continue
            new, new_counts = np.unique(pairs, return_counts=True)
            merged = np.concatenate([codes, new])
            codes, where = np.unique(merged, return_inverse=True)
            counts = np.bincount(where, np.concatenate([counts, new_counts]), len(codes)).astype(
                np.int64
            )
        if table is not None:
            codes = np.flatnonzero(table)
            counts = table[codes]
        self.codes, self.counts = torch.from_numpy(codes), torch.from_numpy(counts)
        totals = np.zeros(size, np.int64)
        np.add.at(totals, codes // size, counts)
        self.totals = torch.from_numpy(totals)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Only the file knows the number of pairs: take its size before the usual checks."""
        for name in ("codes", "counts"):
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name]))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def log_rows(self, ids: Tensor) -> Tensor:
        """log P(· | a) for each of (N,) ids: (N, V) in fp64 precision rounded to fp32; a never
        followed: uniform.
        """
        size = self.vocab_size
        begin = torch.searchsorted(self.codes, ids * size)  # (N,)
        many = torch.searchsorted(self.codes, (ids + 1) * size) - begin
        rows = torch.repeat_interleave(torch.arange(len(ids), device=ids.device), many)
        offset = torch.arange(len(rows), device=ids.device) - torch.repeat_interleave(
            many.cumsum(0) - many, many
        )
        pairs = begin[rows] + offset
        logs = torch.full((len(ids), size), -torch.inf, device=ids.device)
        totals = self.totals[ids].double()
        logs[rows, self.codes[pairs] % size] = (self.counts[pairs] / totals[rows]).log().float()
        logs[totals == 0] = -float(np.log(size))
        return logs

    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """See LanguageModel. Records never meet in one row's prediction: only the last symbol
        counts.
        """
        logits = self.log_rows(ids.flatten()).view(*ids.shape, self.vocab_size)
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
        flat, wanted = ids.flatten(), targets.flatten()
        if constrain is not None:
            return self._constrained(flat, wanted, constrain).view(targets.shape)
        if not len(self.codes):
            return torch.where(targets == IGNORE, 0.0, -float(np.log(self.vocab_size)))
        codes = flat * self.vocab_size + wanted.clamp_min(0)
        at = torch.searchsorted(self.codes, codes).clamp_max(len(self.codes) - 1)
        seen = torch.where(self.codes[at] == codes, self.counts[at], 0).double()
        totals = self.totals[flat].double()
        scores = torch.where(totals > 0, (seen / totals).log(), -float(np.log(self.vocab_size)))
        return torch.where(wanted == IGNORE, 0.0, scores).float().view(targets.shape)

    def _constrained(self, ids: Tensor, targets: Tensor, constrain: Constrain) -> Tensor:
        rows = max(1, CHUNK // self.vocab_size)
        parts = []
        for previous, wanted in zip(ids.split(rows), targets.split(rows), strict=True):
            logs = constrain(self.log_rows(previous), previous).log_softmax(dim=-1)
            found = logs.gather(1, wanted.clamp_min(0)[:, None]).squeeze(1)
            parts.append(torch.where(wanted == IGNORE, 0.0, found))
        return torch.cat(parts)

    def start(self, batch: int, capacity: int) -> State:
        """See LanguageModel."""
        return State([LastToken(torch.zeros(batch, dtype=torch.int64))], batch, capacity)

    def extend(self, ids: Tensor, lengths: Tensor | None, state: State) -> Tensor:
        """See LanguageModel."""
        state.check(ids.size(1))
        memory = state.layers[0]
        assert isinstance(memory, LastToken)
        memory.ids = ids[:, -1] if lengths is None else ids.gather(1, lengths[:, None] - 1)[:, 0]
        state.advance(lengths, ids.size(1))
        return self.log_rows(memory.ids)  # (B, V)
