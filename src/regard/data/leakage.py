"""Duplicates and leaks: records that occur more than once, or in training and in held-out data.

Records are compared in a canonical form. Exact copies are found by 64-bit hashes. Two records are
near duplicates if the Jaccard index of their sets of k-mers is at least NEAR: candidates come from
MinHash signatures cut into bands (Broder 1997; Leskovec, Rajaraman & Ullman, Mining of Massive
Datasets, section 3.4), and each is checked exactly. A near pair shares no band once in five
thousand times; if many training records share a band, two of them are checked. Time and memory are
bounded: at most BUDGET symbols of either split are compared, evenly spread, and the counts say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from regard.data.splits import Hashes, hashes
from regard.tokenizers.smiles import canonical_smiles
from regard.tokenizers.tokenizer import Canonical

MAX_SLOW_BYTES = 1 << 25  # of texts that are compared in a slow form, which takes minutes
EXAMPLES = 5  # records shown; all of them are counted
PENDING = 1 << 20  # hashes collected before they are merged with the others
NEAR = 0.8  # Jaccard index from which two records are near duplicates
BANDS, ROWS = 16, 4  # a pair at 0.8 shares a band with probability 1 - (1 - 0.8⁴)¹⁶ = 0.9998
CANDIDATE = 0.6  # share of equal hashes, which estimates the index to within 0.05
BUDGET = 20_000_000  # symbols of training, and as many of another split, that are compared
BLOCK = 50_000  # symbols processed at once, in the processor's cache
SMALL_ALPHABET = 6  # letters that make up nearly all of DNA, with those for unknown bases
GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ over the golden ratio, odd


class Augmentation(Protocol):
    """What makes several views of one record."""

    def canonical(self, form: Canonical) -> Canonical:
        """Return a form under which all views of a record are equal."""


Words = NDArray[np.uint64]  # hashes of k-mers
Indices = NDArray[np.int64]


def canonical_form(
    form: Canonical, augmentation: Augmentation | None, format: str, size: int
) -> Canonical:
    """Return the form in which records of `format`, `size` bytes in all, are compared.

    `form` is that of the modality: texts that its tokenizer does not tell apart are the same
    record. So are all views of a record that an augmentation makes.
    """
    if format == "smi":
        form = canonical_smiles()
    if augmentation is not None:
        form = augmentation.canonical(form)
    if form.slow and size > MAX_SLOW_BYTES:
        return Canonical(
            note=f"spellings of one molecule were not compared: the data is larger than "
            f"{MAX_SLOW_BYTES >> 20} MB"
        )
    return form


class TextCounts:
    """How often each text occurs, by hash: 16 bytes a distinct text, whatever its length."""

    def __init__(self) -> None:
        self.total = 0
        self._values: Hashes = np.empty(0, np.uint64)
        self._counts: NDArray[np.int64] = np.empty(0, np.int64)
        self._pending: list[Hashes] = []
        self._n_pending = 0

    def add(self, texts: Sequence[str]) -> None:
        """Count these texts."""
        self._pending.append(hashes(texts))
        self._n_pending += len(texts)
        self.total += len(texts)
        if self._n_pending >= max(PENDING, len(self._values) // 2):  # keeps sorting at n log n
            self._merge()

    def _merge(self) -> None:
        new, times = np.unique(np.concatenate(self._pending), return_counts=True)
        self._pending, self._n_pending = [], 0
        index = np.searchsorted(self._values, new)
        known = _contains(self._values, new, index)
        self._counts[index[known]] += times[known]
        self._values = np.insert(self._values, index[~known], new[~known])
        self._counts = np.insert(self._counts, index[~known], times[~known])

    def result(self) -> tuple[Hashes, NDArray[np.int64]]:
        """Return the distinct hashes in ascending order, and how often each occurs."""
        if self._pending:
            self._merge()
        return self._values, self._counts


def _contains(ascending: Hashes, values: Hashes, index: Indices) -> NDArray[np.bool_]:
    """Return which values are in an ascending array; `index` is that of np.searchsorted."""
    known = index < len(ascending)
    known[known] = ascending[index[known]] == values[known]
    return known


@dataclass(frozen=True)
class Leak:
    """The records of a split that also occur in training."""

    records: int  # every copy counted
    distinct: int
    total: int  # records of the split, leaked or not
    examples: tuple[str, ...]


def distinct(batches: Iterable[Sequence[str]]) -> Hashes:
    """Return the distinct hashes of all texts in ascending order, for `overlap`."""
    counts = TextCounts()
    for texts in batches:
        counts.add(texts)
    return counts.result()[0]


def overlap(known: Hashes, other: Iterable[Sequence[str]]) -> Leak:
    """Return the records of `other` whose hash is in `known`, the result of `distinct`.

    Matches are not verified: at 64 bits a false one is less likely than a memory fault.
    """
    records = total = 0
    counts = TextCounts()
    examples: dict[str, None] = {}
    for texts in other:
        total += len(texts)
        values = hashes(texts)
        matches = _contains(known, values, np.searchsorted(known, values))
        leaked = [texts[i] for i in np.flatnonzero(matches).tolist()]
        records += len(leaked)
        counts.add(leaked)
        if len(examples) < EXAMPLES:
            examples |= dict.fromkeys(leaked[:1000])
    return Leak(records, len(counts.result()[0]), total, tuple(examples)[:EXAMPLES])


def leaks(train: Iterable[Sequence[str]], other: Iterable[Sequence[str]]) -> Leak:
    """Return the records of `other` that also occur in `train`, of which 8 bytes each are kept."""
    return overlap(distinct(train), other)


def find(batches: Iterable[Sequence[str]], wanted: Sequence[int]) -> dict[int, str]:
    """Return the first text of every hash in `wanted`, reading no further than needed."""
    targets = np.array(wanted, np.uint64)
    texts_by_hash: dict[int, str] = {}
    for texts in batches:
        values = hashes(texts)
        for i in np.flatnonzero(np.isin(values, targets)).tolist():
            texts_by_hash.setdefault(int(values[i]), texts[i])
        if len(texts_by_hash) == len(targets):
            break
    return texts_by_hash


@dataclass(frozen=True)
class NearDuplicates:
    """The number of records of a split that are near duplicates of training records, how many were
    compared with how many, and examples with what they are near to.
    """

    records: int
    compared: int
    training: int
    examples: tuple[tuple[str, str], ...]


def word_length(texts: Sequence[str]) -> int:
    """Return a k for which k-mers are rarely shared by chance: 8 for a small alphabet, else 5."""
    counts = np.zeros(256, np.int64)
    for text in texts[:1000]:
        raw = np.frombuffer(text[:2000].encode("latin-1", errors="replace"), np.uint8)
        counts += np.bincount(raw, minlength=256)
    largest = np.sort(counts)[::-1]
    return 8 if largest[:SMALL_ALPHABET].sum() >= 0.99 * max(1, counts.sum()) else 5


def near_duplicates(train: Sequence[str], other: Sequence[str]) -> NearDuplicates:
    """Count the records of `other` that are near duplicates of `train`, without exact copies."""
    train, other = _sample(train), _sample(other)
    if not train or not other:
        return NearDuplicates(0, len(other), len(train), ())
    k, exact = word_length(train), set(train)
    train_sets, other_sets = _KmerSets(train, k), _KmerSets(other, k)
    nearest: dict[int, int] = {}
    for train_rows, other_rows in _candidates(train_sets.signatures, other_sets.signatures):
        for i, j in zip(train_rows.tolist(), other_rows.tolist(), strict=True):
            if j not in nearest and _jaccard(train_sets[i], other_sets[j]) >= NEAR:
                nearest[j] = i
    rows = [j for j in sorted(nearest) if other[j] not in exact]
    examples = tuple((other[j], train[nearest[j]]) for j in rows[:EXAMPLES])
    return NearDuplicates(len(rows), len(other), len(train), examples)


def _sample(texts: Sequence[str]) -> list[str]:
    """Return the distinct texts, or an evenly spread part of them that is within the budget."""
    texts = list(dict.fromkeys(texts))
    total = sum(map(len, texts))
    if total <= BUDGET:
        return texts
    count = max(1, int(len(texts) * BUDGET / total))
    return [texts[i] for i in np.linspace(0, len(texts) - 1, count).astype(int).tolist()]


class _KmerSets:
    """The set of k-mers of every text, as sorted hashes, and its MinHash signature."""

    def __init__(self, texts: Sequence[str], k: int) -> None:
        words: list[Words] = []
        sizes: list[Indices] = []
        signatures: list[Words] = []
        for block in _blocks(texts):
            block_words, block_sizes = _kmers(block, k)
            words.append(block_words)
            sizes.append(block_sizes)
            signatures.append(_signatures(block_words, block_sizes))
        self.words = np.concatenate(words)
        self.ends = np.cumsum(np.concatenate(sizes))
        self.signatures = np.concatenate(signatures)  # (records, BANDS · ROWS)

    def __getitem__(self, i: int) -> Words:
        return self.words[self.ends[i - 1] if i else 0 : self.ends[i]]


def _blocks(texts: Sequence[str]) -> Iterator[list[str]]:
    block: list[str] = []
    size = 0
    for text in texts:
        block.append(text)
        size += len(text)
        if size > BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _kmers(texts: list[str], k: int) -> tuple[Words, Indices]:
    """Return the distinct k-mers of all texts, one after the other, and how many each text has.

    A text shorter than k is one k-mer.
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
    inside = offset <= spans[record] - k  # k-mers that do not cross into the next record
    values, record = values[inside], record[inside]
    order = np.lexsort((values, record))
    values, record = values[order], record[order]
    first = np.ones(len(values), bool)
    first[1:] = (values[1:] != values[:-1]) | (record[1:] != record[:-1])
    return values[first], np.bincount(record[first], minlength=len(texts))


def _signatures(words: Words, sizes: Indices) -> Words:
    """Return (records, BANDS · ROWS): each record's smallest k-mer under as many hash functions."""
    starts = np.cumsum(sizes) - sizes
    signatures = np.empty((len(sizes), BANDS * ROWS), np.uint64)
    functions = np.random.default_rng(0).integers(0, 2**63, (BANDS * ROWS, 2), np.uint64)
    mixed = np.empty_like(words)
    for i, (factor, shift) in enumerate(functions):
        np.multiply(words, factor | np.uint64(1), out=mixed)
        mixed += shift
        signatures[:, i] = np.minimum.reduceat(mixed, starts)
    return signatures


def _candidates(train: Words, other: Words) -> Iterator[tuple[Indices, Indices]]:
    """Yield, band by band, a training record for every other record with the same band.

    Of many, the first and the last are taken, so that the work grows with `other` only.
    """
    for band in range(BANDS):
        columns = slice(band * ROWS, (band + 1) * ROWS)
        train_band, other_band = _fold(train[:, columns]), _fold(other[:, columns])
        order = np.argsort(train_band, kind="stable")
        ascending = train_band[order]
        low = np.searchsorted(ascending, other_band, side="left")
        high = np.searchsorted(ascending, other_band, side="right")
        rows = np.flatnonzero(high > low)
        for candidates in (order[low[rows]], order[high[rows] - 1]):
            similar = (train[candidates] == other[rows]).mean(axis=1) >= CANDIDATE
            yield candidates[similar], rows[similar]


def _fold(rows: Words) -> Words:
    value = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        value = (value ^ column) * GAMMA
        value ^= value >> np.uint64(31)
    return value


def _jaccard(one: Words, two: Words) -> float:
    shared = len(np.intersect1d(one, two, assume_unique=True))
    return shared / (len(one) + len(two) - shared)
