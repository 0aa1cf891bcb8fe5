"""Vectors of a model that can be drawn as points: those of records, of words, or of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.tokenizers import Tokenizer

Vectors = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class VectorSet:
    """Vectors (N, D), what each belongs to, and columns to colour them by.

    `records` (N,) are numbers of held-out records, where the vectors are theirs.
    """

    names: Sequence[str]
    vectors: Vectors
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    records: NDArray[np.int64] | None = None


def token_table(model: nn.Module, tokenizer: Tokenizer) -> Callable[[int], VectorSet] | None:
    """Return a function that makes the embeddings of the first tokens of a vocabulary, but for its
    markers; None for a model that has no table of them.
    """
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    fitting = [table for table in tables if table.num_embeddings >= tokenizer.vocab_size]
    if not tokenizer.reads_text or not fitting:
        return None

    def make(most: int) -> VectorSet:
        ids = [i for i in range(tokenizer.vocab_size) if i not in tokenizer.names][:most]
        vectors = fitting[0].weight.detach().float().cpu().numpy()[ids]
        names = [tokenizer.text(i) for i in ids]
        return VectorSet(names, vectors, {"first character": [character_class(n) for n in names]})

    return make


def character_class(token: str) -> str:
    """Return what a token begins with, marks of spaces aside."""
    first = token.strip("·▁ Ġ")[:1]
    if not first:
        return "space"
    if first.isdigit():
        return "digit"
    if not first.isalpha():
        return "sign"
    return "capital" if first.isupper() else "small letter"
