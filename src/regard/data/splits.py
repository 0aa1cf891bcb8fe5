"""Which records are for training, which for choosing, which for the last judgement.

A record's side depends on its text alone, through a hash, so that copies of one record never stand
on both sides, and adding data moves no old record. Running text is cut: its beginning trains.

Hashes are the first 64 bits of BLAKE2b (RFC 7693). Two different texts out of n share one with a
chance of about n²/2⁶⁵: one in three thousand for a hundred million records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from regard.errors import UsageError

EXAMPLES = 5  # leaked records shown; all of them are counted
PENDING = 1 << 20  # hashes collected before they are sorted in with the others

Hashes = NDArray[np.uint64]


def hashes(texts: Sequence[str], seed: int = 0) -> Hashes:
    """One 64-bit hash a text, the same on every machine and in every process."""
    salt = seed.to_bytes(16, "little", signed=True)
    digests = [
        blake2b(text.encode(errors="surrogatepass"), digest_size=8, salt=salt).digest()
        for text in texts
    ]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64, copy=False)


def _fractions(values: Hashes) -> NDArray[np.float64]:
    return (values >> np.uint64(11)).astype(np.float64) / 2.0**53  # exact, and never 1


def bucket(text: str, seed: int = 0) -> float:
    """A number from 0 up to but not 1 that depends on the text (and seed) alone, evenly spread."""
    return float(_fractions(hashes([text], seed))[0])


def assign(
    texts: Sequence[str], valid_fraction: float, test_fraction: float, seed: int = 0
) -> NDArray[np.uint8]:
    """The side of every text: 0 train, 1 valid, 2 test. Equal texts get equal sides."""
    return sides_of(hashes(texts, seed), valid_fraction, test_fraction)


def sides_of(values: Hashes, valid_fraction: float, test_fraction: float) -> NDArray[np.uint8]:
    """What `assign` says of the texts with these hashes."""
    _check(valid_fraction, test_fraction)
    place = _fractions(values)
    sides = (place < test_fraction + valid_fraction).astype(np.uint8)
    sides[place < test_fraction] = 2
    return sides


def cut_points(total: int, valid_fraction: float, test_fraction: float) -> tuple[int, int]:
    """Where running text is cut: [0, a) trains, [a, b) is valid, [b, total) is test."""
    _check(valid_fraction, test_fraction)
    b = total - round(total * test_fraction)
    return max(0, b - round(total * valid_fraction)), b


def _check(valid_fraction: float, test_fraction: float) -> None:
    for name, value in (("valid_fraction", valid_fraction), ("test_fraction", test_fraction)):
        if not 0 <= value < 1:
            raise UsageError(f"data.{name} must be at least 0 and below 1, got {value}")
    if valid_fraction + test_fraction >= 1:
        raise UsageError(
            "data.valid_fraction and data.test_fraction must leave something to train on, got "
            f"{valid_fraction} and {test_fraction}"
        )


class Counts:
    """How often each text came, by hash: 16 bytes a distinct text, whatever its length."""

    def __init__(self) -> None:
        self.total = 0
        self._values: Hashes = np.empty(0, np.uint64)
        self._counts: NDArray[np.int64] = np.empty(0, np.int64)
        self._pending: list[Hashes] = []
        self._waiting = 0

    def add(self, texts: Sequence[str]) -> None:
        """Count these texts."""
        self._pending.append(hashes(texts))
        self._waiting += len(texts)
        self.total += len(texts)
        if self._waiting >= max(PENDING, len(self._values) // 2):  # so that sorting stays n log n
            self._merge()

    def _merge(self) -> None:
        new, times = np.unique(np.concatenate(self._pending), return_counts=True)
        self._pending, self._waiting = [], 0
        place = np.searchsorted(self._values, new)
        known = np.zeros(len(new), np.bool_)
        inside = place < len(self._values)
        known[inside] = self._values[place[inside]] == new[inside]
        self._counts[place[known]] += times[known]
        fresh = ~known
        self._values = np.insert(self._values, place[fresh], new[fresh])
        self._counts = np.insert(self._counts, place[fresh], times[fresh])

    def result(self) -> tuple[Hashes, NDArray[np.int64]]:
        """The distinct hashes in rising order, and how often each came."""
        if self._pending:
            self._merge()
        return self._values, self._counts


@dataclass(frozen=True)
class Leak:
    """What of another set was already seen in training."""

    records: int  # of the other set, every copy counted
    distinct: int
    total: int  # records of the other set, leaked or not
    examples: tuple[str, ...]


def distinct(batches: Iterable[Sequence[str]]) -> Hashes:
    """The hashes of all texts, each once, in rising order: what `overlap` looks up."""
    counts = Counts()
    for texts in batches:
        counts.add(texts)
    return counts.result()[0]


def overlap(known: Hashes, other: Iterable[Sequence[str]]) -> Leak:
    """The records of `other` whose hash is in `known`, a rising array from `distinct`."""
    records = total = 0
    found = Counts()
    examples: dict[str, None] = {}
    for texts in other:
        total += len(texts)
        values = hashes(texts)
        place = np.searchsorted(known, values)
        inside = place < len(known)
        inside[inside] = known[place[inside]] == values[inside]
        leaked = [texts[i] for i in np.flatnonzero(inside).tolist()]
        records += len(leaked)
        found.add(leaked)
        if len(examples) < EXAMPLES:
            examples |= dict.fromkeys(leaked[:1000])
    return Leak(records, len(found.result()[0]), total, tuple(examples)[:EXAMPLES])


def leaks(train: Iterable[Sequence[str]], other: Iterable[Sequence[str]]) -> Leak:
    """How many records of `other` also occur in `train`, exactly as they are, counted exactly.

    Only hashes of `train` are kept, 8 bytes each once sorted. A match is not looked at again: at 64
    bits a false one is less likely than a memory fault.
    """
    return overlap(distinct(train), other)


def find(batches: Iterable[Sequence[str]], wanted: Sequence[int]) -> dict[int, str]:
    """The first text of every hash in `wanted`, all different; stops reading once all are found."""
    left = np.array(wanted, np.uint64)
    found: dict[int, str] = {}
    for texts in batches:
        values = hashes(texts)
        for i in np.flatnonzero(np.isin(values, left)).tolist():
            found.setdefault(int(values[i]), texts[i])
        if len(found) == len(left):
            break
    return found
