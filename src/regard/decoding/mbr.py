"""Minimum Bayes risk decoding: of many candidates, the one most similar to all of them.

The most probable translation may resemble no other, while several nearly as probable ones agree in
most of their words. Minimum Bayes risk (Kumar and Byrne 2004, "Minimum Bayes-risk decoding for
statistical machine translation") chooses the candidate with the highest expected similarity to the
reference, as if that were one of the sequences a beam found. Similarity is chrF (Popović 2015).
Probabilities are flattened first (Ehling, Zens and Ney 2007): models are overconfident.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from regard.decoding.beam import Beam
from regard.decoding.engine import DecodeBatch, Generated

ORDER, BETA = 6, 2.0  # of chrF: the longest character n-grams, and the weight of recall

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MinimumBayesRisk:
    """Of the `width` most probable sequences of a beam, the one most similar to all of them.

    `text` turns ids into text for the comparison, as a tokenizer's `decode` does. The weight of a
    sequence is its probability to the power `scale`: 1 trusts the model, 0 weights all equally. The
    score is the expected chrF, from 0 to 100.
    """

    text: Callable[[Sequence[int]], str]
    width: int = 24
    scale: float = 0.25

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be at least 1, got {self.width}")
        if not 0 <= self.scale <= 10:
            raise ValueError(f"scale must be from 0 to 10, got {self.scale}")

    @property
    def rows(self) -> int:
        return self.width

    def decode(self, batch: DecodeBatch) -> list[list[Generated]]:
        beam = Beam(self.width, n_best=self.width)
        return [[self.choose(candidates)] for candidates in beam.decode(batch)]

    def choose(self, candidates: Sequence[Generated]) -> Generated:
        """Return the candidate most similar to all; of equals the more probable one."""
        logs = self.scale * np.array([sum(candidate.log_probs) for candidate in candidates])
        weights = np.exp(logs - logs.max())
        table = similarity([self.text(candidate.ids) for candidate in candidates])
        expected = table @ (weights / weights.sum())
        best = int(expected.argmax())
        return replace(candidates[best], score=float(expected[best]))


def similarity(texts: Sequence[str]) -> Floats:
    """Return the chrF (N, N) of text i with text j as its reference, from 0 to 100."""
    precision, recall = np.zeros((2, len(texts), len(texts)))
    orders = np.zeros_like(recall)  # for which both texts are long enough
    plain = ["".join(text.split()) for text in texts]
    for n in range(1, ORDER + 1):
        counts = count_ngrams(plain, n)  # (N, G)
        shared = np.stack([np.minimum(counts, row).sum(1) for row in counts])  # (N, N)
        total = counts.sum(1)
        both = (total[:, None] > 0) & (total > 0)
        orders += both
        precision += np.divide(shared, total[:, None], where=both, out=np.zeros_like(shared))
        recall += np.divide(shared, total, where=both, out=np.zeros_like(shared))
    precision, recall = (np.divide(x, orders, where=orders > 0, out=x) for x in (precision, recall))
    denominator = BETA**2 * precision + recall
    numerator = 100 * (1 + BETA**2) * precision * recall
    return np.divide(numerator, denominator, where=denominator > 0, out=np.zeros_like(denominator))


def count_ngrams(texts: Sequence[str], n: int) -> Floats:
    """Return how often (N, G) each of G character n-grams occurs in each text."""
    counters = [Counter(text[i : i + n] for i in range(len(text) - n + 1)) for text in texts]
    ngrams = dict.fromkeys(ngram for counter in counters for ngram in counter)
    columns = {ngram: i for i, ngram in enumerate(ngrams)}
    counts = np.zeros((len(texts), len(columns)))
    for row, counter in zip(counts, counters, strict=True):
        row[[columns[ngram] for ngram in counter]] = list(counter.values())
    return counts
