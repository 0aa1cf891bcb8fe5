"""Records and what each of their symbols cost, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.data.shards import Shard
from regard.evaluate.material import shard_of
from regard.models.language_model import Constrain, LanguageModel
from regard.models.translator import Translator
from regard.tokens import Tokenizer
from regard.train.validation import log_probs

AT_ONCE = 1024  # records of a file scored together


@dataclass(frozen=True)
class ScoredRecord:
    """A record, its tokens (without `<S>`, with `<E>`) and their natural log-probabilities."""

    text: str
    tokens: list[str]
    log_probs: list[float]

    @property
    def total(self) -> float:
        """The log-probability of the whole record in nats."""
        return float(sum(self.log_probs))

    def to_json(self) -> dict[str, Any]:
        """An entry of `regard score --json`; what is impossible is null."""
        finite = [x if np.isfinite(x) else None for x in self.log_probs]
        total = None if None in finite else self.total
        return {"tokens": self.tokens, "log_probs": finite, "total": total}


def score(
    model: LanguageModel | Translator,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    constrain: Constrain | None = None,
    sources: Shard | None = None,
) -> list[ScoredRecord]:
    """Score texts as records; those of a translator answer `sources`."""
    if not texts:
        return []
    shard = shard_of(texts, tokenizer)
    shard = shard if sources is None else shard.paired(sources)
    values, _ = log_probs(model, shard, tokenizer, constrain=constrain)
    found = []
    for i, text in enumerate(texts):
        span = slice(int(shard.offsets[i]) + 1, int(shard.offsets[i + 1]))
        names = [tokenizer.text(int(t)) for t in shard.ids[span]]
        found.append(ScoredRecord(text, names, values[span].tolist()))
    return found
