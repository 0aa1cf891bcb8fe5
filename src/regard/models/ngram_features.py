"""Sequences as bags: which n-grams of tokens occur in each, and how often, as sparse rows.

k-mers of DNA and residues, words and word pairs of text: all are n-grams of 1 to n tokens. The
markers at both ends belong to those of two and more, so that beginning with a token is a feature
of its own. n-grams of a second text are other features than those of the first, and none reaches
from one into the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import UsageError
from regard.layers.embeddings import Inputs

LARGEST = (1 << 63) - 1  # a code that fits


@dataclass(frozen=True, eq=False)
class SparseCounts:
    """A sparse matrix (R, F) in fp64: row i holds `values` at `columns`, both (N,), from starts[i]
    to starts[i + 1]; F is `width`.
    """

    starts: Tensor
    columns: Tensor
    values: Tensor
    width: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Tensor:
        """(R,) how many entries each row has."""
        return self.starts.diff()

    @property
    def owners(self) -> Tensor:
        """(N,) the row of each entry."""
        return torch.repeat_interleave(self.lengths)

    def product(self, weights: Tensor) -> Tensor:
        """(R, O): these rows times (F, O)."""
        if not len(self.columns):
            return weights.new_zeros(len(self), weights.size(1))
        return F.embedding_bag(
            self.columns,
            weights,
            self.starts,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        )

    def transposed(self) -> SparseCounts:
        """(F, R)."""
        order = self.columns.argsort(stable=True)
        places = torch.arange(self.width + 1, device=order.device)
        starts = torch.searchsorted(self.columns[order], places)
        return SparseCounts(starts, self.owners[order], self.values[order], len(self))

    def rows(self, chosen: Tensor) -> SparseCounts:
        """Some rows, by number."""
        lengths = self.lengths[chosen]
        starts = F.pad(lengths.cumsum(0), (1, 0))
        within = torch.arange(int(starts[-1]), device=starts.device)
        at = within + torch.repeat_interleave(self.starts[chosen] - starts[:-1], lengths)
        return SparseCounts(starts, self.columns[at], self.values[at], self.width)

    def part(self, width: int, first: int = 0) -> SparseCounts:
        """`width` columns, from the first of them on."""
        kept = (self.columns >= first) & (self.columns < first + width)
        before = F.pad(kept.long().cumsum(0), (1, 0))
        return SparseCounts(
            before[self.starts], self.columns[kept] - first, self.values[kept], width
        )

    def of(self, values: Tensor) -> SparseCounts:
        """Other values at the same places."""
        return SparseCounts(self.starts, self.columns, values, self.width)


def concatenate(parts: Sequence[SparseCounts]) -> SparseCounts:
    """The rows of all, end to end."""
    starts = F.pad(torch.cat([bags.lengths for bags in parts]).cumsum(0), (1, 0))
    columns = torch.cat([bags.columns for bags in parts])
    return SparseCounts(starts, columns, torch.cat([bags.values for bags in parts]), parts[0].width)


def count_ngrams(rows: Tensor, columns: Tensor, count: int, width: int) -> SparseCounts:
    """How often each column occurs in each of `count` rows, from the (M,) rows and columns of its
    occurrences.
    """
    keys, times = torch.unique(rows * max(1, width) + columns, return_counts=True)
    places = torch.arange(count + 1, device=keys.device) * max(1, width)
    return SparseCounts(
        torch.searchsorted(keys, places), keys % max(1, width), times.to(torch.float64), width
    )


def ngrams_of(
    source: Inputs, order: int, vocab_size: int, start: int, end: int, places: int = 1
) -> tuple[Tensor, Tensor]:
    """The rows and the codes (M,) of all n-grams of 1 to `order` tokens in (B, T) sequences.

    An n-gram is a number in base V + 1 with the digits id + 1, twice that in the first text and one
    more in the second: numbers of fewer tokens are smaller. With several `places`, at least T, one
    that begins elsewhere is another: its number is so many times that, and where it begins.
    """
    ids, there = source.ids, source.segments > 0
    base, length = vocab_size + 1, ids.size(1)
    ends = (ids == end) & there
    text = (ends.cumsum(1) - ends.long()).clamp_max(1)  # (B, T) 1 after the first `<E>`
    marker = (ids == start) | ends
    number, inside = torch.zeros_like(ids), torch.zeros_like(there)
    rows, codes = [], []
    for n in range(1, min(order, length) + 1):
        many = length - n + 1  # places where n tokens begin
        number = number[:, :many] * base + ids[:, n - 1 :] + 1
        inside = inside[:, :many]
        if n > 2:
            inside = inside | marker[:, n - 2 : n - 2 + many]
        kept = there[:, n - 1 :] & ~(marker if n == 1 else inside)
        rows.append(kept.nonzero()[:, 0])
        code = (2 * number + text[:, n - 1 :]) * places
        if places > 1:
            code = code + torch.arange(many, device=ids.device)
        codes.append(code[kept])
    return torch.cat(rows), torch.cat(codes)


class NGram(NamedTuple):
    """What a code of `grams` stands for: its tokens, whether they stand in the second text, and the
    index in its row where the n-gram begins, or None where places are not told apart.
    """

    ids: tuple[int, ...]
    second: bool
    place: int | None


def ngram(code: int, vocab_size: int, places: int = 1) -> NGram:
    """The n-gram of a code that `grams` made with as many `places`."""
    code, place = divmod(code, places)
    number, second = divmod(code, 2)
    ids = []
    while number:
        number, digit = divmod(number, vocab_size + 1)
        ids.append(digit - 1)
    return NGram(tuple(reversed(ids)), bool(second), place if places > 1 else None)


def first_of(order: int, vocab_size: int, places: int = 1) -> int:
    """Codes of n-grams of at most `order` tokens are smaller than this."""
    return 2 * int((vocab_size + 1) ** order) * places


def check_codes(order: int, vocab_size: int, places: int = 1) -> None:
    """Raise where n-grams have more codes than there are numbers."""
    if first_of(order, vocab_size, places) > LARGEST:
        most = 1
        while first_of(most + 1, vocab_size, places) <= LARGEST:
            most += 1
        raise UsageError(
            f"model.order must be at most {most} with {vocab_size:,} different tokens, got {order}"
        )


def found(codes: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Which of some codes (M,) are `known` (F,), sorted, and the place of each there."""
    if not len(known):
        return torch.zeros_like(codes, dtype=torch.bool), torch.zeros_like(codes)
    at = torch.searchsorted(known, codes).clamp_max_(len(known) - 1)
    return known[at] == codes, at


def rarity(bags: SparseCounts) -> Tensor:
    """(F,) log((1 + R) / (1 + rows that have it)) + 1 (Salton & Buckley 1988), smoothed so that
    nothing is divided by 0.
    """
    having = torch.bincount(bags.columns, minlength=bags.width)
    return ((1 + len(bags)) / (1 + having).double()).log() + 1


def of_unit_length(bags: SparseCounts, rarity: Tensor) -> SparseCounts:
    """Counts as tf–idf, (1 + log n) · rarity, each row of length 1."""
    values = (1 + bags.values.log()) * rarity[bags.columns]
    squares = values.new_zeros(len(bags)).index_add_(0, bags.owners, values.square())
    return bags.of(values / squares.sqrt()[bags.owners])
