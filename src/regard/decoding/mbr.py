"""Consensus: of many translations, the one most like all of them.

The likeliest translation may be like no other, while several that are nearly as likely agree in
most of their words. Minimum Bayes risk (Kumar and Byrne 2004, "Minimum Bayes-risk decoding for
statistical machine translation") takes the one whose expected likeness to the right one is highest,
as if the right one were among those a beam found. Likeness is chrF (Popović 2015). Probabilities
are flattened first (as by Ehling, Zens and Ney 2007): models are far too sure of their favourites,
most of all of those they have by heart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from regard.decoding.beam import Beam
from regard.decoding.engine import DecodeBatch, Generated

ORDER, BETA = 6, 2.0  # of chrF: the longest runs of letters, and how much more recall weighs

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MinimumBayesRisk:
    """Of the `width` likeliest sequences that a beam finds, the one most like all of them.

    `text` turns ids into what is compared, as a tokenizer's `decode` does. A sequence has a say in
    proportion to its probability to the power `scale`: 1 believes the model, 0 gives all the same.
    The score is the expected chrF, from 0 to 100.
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
        """See Strategy."""
        return self.width

    def decode(self, batch: DecodeBatch) -> list[list[Generated]]:
        """See Strategy."""
        return [[self.agreed(found)] for found in Beam(self.width, n_best=self.width).decode(batch)]

    def agreed(self, found: Sequence[Generated]) -> Generated:
        """The one of some sequences that is most like all of them; the likelier of equals."""
        logs = self.scale * np.array([sum(one.log_probs) for one in found])
        shares = np.exp(logs - logs.max())
        expected = similarity([self.text(one.ids) for one in found]) @ (shares / shares.sum())
        best = int(expected.argmax())
        return replace(found[best], score=float(expected[best]))


def similarity(texts: Sequence[str]) -> Floats:
    """(N, N) chrF of text i, from 0 to 100, if text j were the right one."""
    precision, recall = np.zeros((2, len(texts), len(texts)))
    orders = np.zeros_like(recall)  # of those that both texts are long enough for
    plain = ["".join(text.split()) for text in texts]
    for n in range(1, ORDER + 1):
        counts = runs(plain, n)  # (N, G)
        shared = np.stack([np.minimum(counts, own).sum(1) for own in counts])  # (N, N)
        total = counts.sum(1)
        both = (total[:, None] > 0) & (total > 0)
        orders += both
        precision += np.divide(shared, total[:, None], where=both, out=np.zeros_like(shared))
        recall += np.divide(shared, total, where=both, out=np.zeros_like(shared))
    precision, recall = (np.divide(x, orders, where=orders > 0, out=x) for x in (precision, recall))
    below = BETA**2 * precision + recall
    above = 100 * (1 + BETA**2) * precision * recall
    return np.divide(above, below, where=below > 0, out=np.zeros_like(below))


def runs(texts: Sequence[str], n: int) -> Floats:
    """(N, G) how often each of G runs of n letters is in each text."""
    each = [Counter(text[i : i + n] for i in range(len(text) - n + 1)) for text in texts]
    places = {run: i for i, run in enumerate(dict.fromkeys(run for own in each for run in own))}
    counts = np.zeros((len(texts), len(places)))
    for row, own in zip(counts, each, strict=True):
        row[[places[run] for run in own]] = list(own.values())
    return counts
