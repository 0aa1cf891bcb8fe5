"""The form in which the records of a recipe are compared: see tokens.canonical.

Records of other sides that are almost those of training: most of their k-mers are the same.

Two records are near each other when the Jaccard index of their sets of k-mers is at least NEAR.
Candidates come from MinHash signatures cut into bands (Broder 1997; Leskovec, Rajaraman & Ullman,
Mining of Massive Datasets, section 3.4) and each is checked exactly, so what is counted is near. A
pair so near shares no band once in five thousand times; where many of training are alike in a band,
two of them are checked. Time and memory are bounded: at most BUDGET symbols of either part are
looked at, evenly spread, and the counts say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.recipe import DataRecipe, TokensRecipe
from regard.tokenizers.tokenizer import PLAIN, Canonical, molecules

LARGE = 1 << 25  # bytes up to which texts are compared in a slow way, which takes minutes


def canonical_form(
    data: DataRecipe, tokens: TokensRecipe | None, format: str, size: int, start: str = ""
) -> Canonical:
    """How records of `format`, `size` bytes in all, are compared.

    `tokens` decide what a model reads alike; a pretrained tokenizer is that of the run `start`.
    Views of a record that data.augment names are the same record.
    """
    found = PLAIN
    if tokens is not None:
        found = _as_read(tokens, start)
    if format == "smi" or data.augment == "smiles":
        found = molecules()
    if data.augment == "strands":
        from regard.tokenizers.biology import either_strand

        found = found.then(either_strand, "strand")
    if found.slow and size > LARGE:
        return Canonical(
            note=f"spellings of one molecule were not compared: the data is larger than "
            f"{LARGE >> 20} MB"
        )
    return found


def _as_read(tokens: TokensRecipe, start: str) -> Canonical:
    """What a tokenizer makes of texts before it cuts them."""
    from regard.run import TOKENIZER
    from regard.tokenizers import LEARNED, Pretrained

    if tokens.kind in LEARNED:
        return LEARNED[tokens.kind].canonical(**tokens.options)
    path = Path(start) / TOKENIZER
    if tokens.kind == "pretrained" and start and path.exists():
        return Canonical(Pretrained.from_file(path).normalized, ("what its normalizer changes",))
    return PLAIN


NEAR = 0.8  # Jaccard index from which two records are near
BANDS, ROWS = 16, 4  # a pair at 0.8 shares a band with probability 1 - (1 - 0.8⁴)¹⁶ = 0.9998
LIKELY = 0.6  # share of equal hashes, an estimate of the index good to 0.05, that is looked into
BUDGET = 20_000_000  # symbols of training, and as many of another part, that are compared
BLOCK = 50_000  # symbols worked on at once, in the processor's cache
EXAMPLES = 5
SMALL_ALPHABET = 6  # letters that make up nearly all: bases and what stands for an unknown one
GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ over the golden ratio, odd

Words = NDArray[np.uint64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class NearDuplicates:
    """Records of a part that are near one of training: how many, of how many compared with how
    many, and a few of them with what they are near to.
    """

    records: int
    compared: int
    training: int
    examples: tuple[tuple[str, str], ...]


def word_length(texts: Sequence[str]) -> int:
    """k: long enough that k-mers shared by chance are rare. Eight over a few letters, else five."""
    counts = np.zeros(256, np.int64)
    for text in texts[:1000]:
        raw = np.frombuffer(text[:2000].encode("latin-1", errors="replace"), np.uint8)
        counts += np.bincount(raw, minlength=256)
    largest = np.sort(counts)[::-1]
    return 8 if largest[:SMALL_ALPHABET].sum() >= 0.99 * max(1, counts.sum()) else 5


def near_duplicates(train: Sequence[str], other: Sequence[str]) -> NearDuplicates:
    """The records of `other` that are near one of `train`; those that are in it are not counted."""
    train, other = _spread(train), _spread(other)
    if not train or not other:
        return NearDuplicates(0, len(other), len(train), ())
    k, equal = word_length(train), set(train)
    known = _Sets(train, k)
    asked = _Sets(other, k)
    best: dict[int, int] = {}
    for candidates, rows in _matches(known.signatures, asked.signatures):
        for one, two in zip(candidates.tolist(), rows.tolist(), strict=True):
            if two not in best and _jaccard(known[one], asked[two]) >= NEAR:
                best[two] = one
    chosen = [i for i in sorted(best) if other[i] not in equal]
    examples = tuple((other[i], train[best[i]]) for i in chosen[:EXAMPLES])
    return NearDuplicates(len(chosen), len(other), len(train), examples)


def _spread(texts: Sequence[str]) -> list[str]:
    """The distinct texts, or as many of them, evenly spread, as the budget allows."""
    texts = list(dict.fromkeys(texts))
    total = sum(map(len, texts))
    if total <= BUDGET:
        return texts
    keep = max(1, int(len(texts) * BUDGET / total))
    return [texts[i] for i in np.linspace(0, len(texts) - 1, keep).astype(int).tolist()]


class _Sets:
    """The set of k-mers of every text, as sorted hashes, and its signature."""

    def __init__(self, texts: Sequence[str], k: int) -> None:
        words: list[Words] = []
        sizes: list[Indices] = []
        found = [np.empty((0, BANDS * ROWS), np.uint64)]
        for block in _blocks(texts):
            distinct, size = _kmers(block, k)
            words.append(distinct)
            sizes.append(size)
            found.append(_signatures(distinct, size))
        self.words = np.concatenate(words)
        self.ends = np.cumsum(np.concatenate(sizes))
        self.signatures = np.concatenate(found)  # (records, BANDS · ROWS)

    def __getitem__(self, i: int) -> Words:
        return self.words[self.ends[i - 1] if i else 0 : self.ends[i]]


def _blocks(texts: Sequence[str]) -> Iterator[list[str]]:
    held: list[str] = []
    size = 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size > BLOCK:
            yield held
            held, size = [], 0
    if held:
        yield held


def _kmers(texts: list[str], k: int) -> tuple[Words, Indices]:
    """The distinct k-mers of every text end to end, and how many each has; one at least, the whole
    of a text shorter than k.
    """
    lengths = np.array([len(text) for text in texts])
    padded = "".join(text + "\0" * max(0, k - len(text)) for text in texts)
    points = np.frombuffer(padded.encode("utf-32-le", errors="surrogatepass"), "<u4")
    spans = np.maximum(lengths, k)
    values = np.zeros(len(points) - k + 1, np.uint64)
    for i in range(k):
        values = values * GAMMA + points[i : len(points) - k + 1 + i]
    values = (values ^ (values >> np.uint64(29))) * GAMMA
    record = np.repeat(np.arange(len(texts)), spans)[: len(values)]
    offset = np.arange(len(values)) - (np.cumsum(spans) - spans)[record]
    inside = offset <= spans[record] - k  # no word of two records
    values, record = values[inside], record[inside]
    order = np.lexsort((values, record))
    values, record = values[order], record[order]
    fresh = np.ones(len(values), bool)
    fresh[1:] = (values[1:] != values[:-1]) | (record[1:] != record[:-1])
    return values[fresh], np.bincount(record[fresh], minlength=len(texts))


def _signatures(words: Words, sizes: Indices) -> Words:
    """(records, BANDS · ROWS): the least of every record's words under as many hash functions."""
    starts = np.cumsum(sizes) - sizes
    found = np.empty((len(sizes), BANDS * ROWS), np.uint64)
    state = np.random.default_rng(0).integers(0, 2**63, (BANDS * ROWS, 2), np.uint64)
    mixed = np.empty_like(words)
    for i, (factor, shift) in enumerate(state):
        np.multiply(words, factor | np.uint64(1), out=mixed)
        mixed += shift
        found[:, i] = np.minimum.reduceat(mixed, starts)
    return found


def _matches(known: Words, asked: Words) -> Iterator[tuple[Indices, Indices]]:
    """Band by band, a record of `known` for every one of `asked` that has its band alike.

    Of many alike, the first and the last are taken, so that work grows with `asked` alone.
    """
    for band in range(BANDS):
        columns = slice(band * ROWS, (band + 1) * ROWS)
        one, two = (_folded(part[:, columns]) for part in (known, asked))
        order = np.argsort(one, kind="stable")
        ranked = one[order]
        low = np.searchsorted(ranked, two, side="left")
        high = np.searchsorted(ranked, two, side="right")
        rows = np.flatnonzero(high > low)
        for found in (order[low[rows]], order[high[rows] - 1]):
            alike = (known[found] == asked[rows]).mean(axis=1) >= LIKELY
            yield found[alike], rows[alike]


def _folded(rows: Words) -> Words:
    value = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        value = (value ^ column) * GAMMA
        value ^= value >> np.uint64(31)
    return value


def _jaccard(one: Words, two: Words) -> float:
    shared = len(np.intersect1d(one, two, assume_unique=True))
    return shared / (len(one) + len(two) - shared)
