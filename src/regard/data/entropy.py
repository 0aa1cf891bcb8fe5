"""Entropy of texts, given the symbols before, and the sizes of alphabets.

The entropy of order k is that of a symbol after the k symbols before it, estimated from counts. A
context that occurs once has one continuation and the entropy 0, so the estimate is too low as soon
as contexts are rare; `per_context` says how often they occur on average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

import numpy as np
from numpy.typing import NDArray

ORDERS = 4  # 0 to 3 symbols of context
MOST_CHARACTERS = 1 << 20  # that contexts are counted in
RARE = 10  # occurrences of a context on average, below which its entropy is too low
SEPARATOR = 0x110000  # after the last code point: the end of a record and the start of the next
# Sizes that deck 002 lists: tokens, the least number of different ones, the greatest.
ALPHABETS = (
    ("nucleotides of DNA or RNA", 4, 4),
    ("amino acids of a protein", 21, 21),
    ("letters of a word", 100, 100),
    ("motifs of DNA or RNA", 10_000, 10_000),
    ("words of a sentence", 10_000, 1_000_000),
)


@dataclass(frozen=True)
class ContextEntropy:
    """Bits of a symbol, given the `order` symbols before it."""

    order: int
    bits: float
    per_context: float  # symbols for each different context

    @property
    def too_low(self) -> bool:
        return self.order > 0 and self.per_context < RARE


@dataclass
class CorpusSample:
    """The beginning of texts. Each is a record with an end, unless `running`."""

    running: bool = False
    texts: list[str] = field(default_factory=list)
    left: int = MOST_CHARACTERS

    def add(self, texts: Sequence[str]) -> None:
        """Add texts until the sample is full; one that is too long is cut."""
        for text in takewhile(lambda _: self.left > 0, texts):
            self.texts.append(text[: self.left])
            self.left -= len(text)

    @property
    def full(self) -> bool:
        return self.left <= 0

    def symbols(self) -> NDArray[np.int64]:
        """Return all symbols as code points, each record followed by a separator."""
        joined = "".join(self.texts).encode("utf-32-le", errors="surrogatepass")
        points = np.frombuffer(joined, "<u4").astype(np.int64)
        ends = np.cumsum([len(text) for text in self.texts], dtype=np.int64)
        return points if self.running else np.insert(points, ends, SEPARATOR)

    def entropies(self) -> tuple[ContextEntropy, ...]:
        """Return the entropy of each order."""
        return context_entropies(self.symbols())

    def words(self) -> int:
        """Return the number of different words, the parts between white space."""
        return len(set(("" if self.running else " ").join(self.texts).split()))


def context_entropies(symbols: NDArray[np.int64]) -> tuple[ContextEntropy, ...]:
    """Return the entropy of a symbol after 0 to 3 symbols, in bits. No context goes beyond a
    separator, and the first symbol follows one.
    """
    size = len(symbols)
    if not size:
        return ()
    separators = symbols == SEPARATOR
    _, ids = np.unique(symbols, return_inverse=True)
    span = int(ids.max()) + 2
    first = ids[separators][0] if separators.any() else span - 1  # before the first symbol
    context = np.zeros(size, np.int64)  # of order 0, one for all
    entropies = []
    for order in range(ORDERS):
        pairs = np.unique(context * span + ids, return_counts=True)[1]
        contexts = np.unique(context, return_counts=True)[1]
        bits = _bits_of(pairs, size) - _bits_of(contexts, size)
        entropies.append(ContextEntropy(order, max(bits, 0.0), size / len(contexts)))
        # One symbol more: what precedes the previous symbol, and that symbol.
        previous = np.concatenate([[first], ids[:-1]])
        ended = np.concatenate([[True], separators[:-1]])
        longer = np.concatenate([[0], context[:-1]]) * span + previous
        longer = np.where(ended, -1 - previous, longer)
        context = np.unique(longer, return_inverse=True)[1].astype(np.int64)
    return tuple(entropies)


def _bits_of(counts: NDArray[np.int64], total: int) -> float:
    shares = counts / total
    return -float((shares * np.log2(shares)).sum())


@dataclass(frozen=True)
class AlphabetRow:
    """An alphabet: its name, size in words, bits of a symbol if all are equally frequent, and what
    1,000 tokens take as one-hot vectors.
    """

    name: str
    size: str
    bits: str
    one_hot: str
    of_file: bool = False


def alphabet_rows(characters: int, words: int = 0) -> list[AlphabetRow]:
    """Return the alphabets of the lecture by size, with those of a file in their places."""
    sizes = [(low, high, name, False) for name, low, high in ALPHABETS]
    sizes.append((characters, characters, "characters of this file", True))
    if words:
        sizes.append((words, words, "words of this file", True))
    rows = []
    for low, high, name, of_file in sorted(sizes, key=lambda row: (row[0], row[1], row[3])):
        span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        limits = [f"{math.log2(max(1, n)):.1f}" for n in dict.fromkeys((low, high))]
        memory = [one_hot_memory(n) for n in dict.fromkeys((low, high))]
        rows.append(AlphabetRow(name, span, " to ".join(limits), " to ".join(memory), of_file))
    return rows


def one_hot_memory(size: int, tokens: int = 1000) -> str:
    """Return the memory of so many one-hot vectors in single precision, as wide as the alphabet."""
    megabytes = 4 * size * tokens / 1e6
    if megabytes >= 1000:
        return f"{megabytes / 1000:,.3g} GB"
    return f"{megabytes:.2g} MB" if megabytes < 10 else f"{megabytes:,.0f} MB"


def entropy_words(entropies: Sequence[ContextEntropy], sampled: bool) -> list[str]:
    """Return lines that describe the entropies."""
    if not entropies:
        return []
    listed = ", ".join(f"{x.bits:.3f} after {x.order}" for x in islice(entropies, 1, None))
    lines = [f"{entropies[0].bits:.3f} bits without context, {listed} symbols"]
    for x in entropies:
        if x.too_low:
            after = "1 symbol" if x.order == 1 else f"{x.order} symbols"
            lines.append(f"after {after} too low: a context occurs only {x.per_context:.1f} times")
            break
    if sampled:
        lines.append(f"counted in the first {MOST_CHARACTERS:,} characters")
    return lines
