"""n-gram counts of sequences as sparse rows: features of linear models.

k-mers of DNA and residues, words and word pairs of text: all are n-grams of 1 to n tokens. The
markers at both ends are part of n-grams of two and more tokens, so that starting with a token is a
feature. n-grams of a second text are other features than those of the first, and none crosses from
one text into the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.preprocessing import normalize
from torch import Tensor

from regard.errors import UsageError
from regard.layers.embeddings import Inputs

LARGEST = (1 << 63) - 1  # the largest code


def list_ngrams(
    source: Inputs, order: int, vocab_size: int, start: int, end: int, n_positions: int = 1
) -> tuple[Tensor, Tensor]:
    """Return the rows and the codes (M,) of all n-grams of 1 to `order` tokens in (B, T) sequences.

    An n-gram is a number in base V + 1 with the digits id + 1; its code is twice that number, plus
    one in the second text. Codes of fewer tokens are smaller. With `n_positions` of at least T,
    n-grams at different positions differ: the code is multiplied by that, plus the position.
    """
    ids, mask = source.ids, source.segments > 0
    base, length = vocab_size + 1, ids.size(1)
    ends = (ids == end) & mask
    text = (ends.cumsum(1) - ends.long()).clamp_max(1)  # (B, T) 1 after the first `<E>`
    marker = (ids == start) | ends
    number, inside = torch.zeros_like(ids), torch.zeros_like(mask)
    rows, codes = [], []
    for n in range(1, min(order, length) + 1):
        size = length - n + 1  # positions where n tokens start
        number = number[:, :size] * base + ids[:, n - 1 :] + 1
        inside = inside[:, :size]  # is there a marker inside the n-gram?
        if n > 2:
            inside = inside | marker[:, n - 2 : n - 2 + size]
        valid = mask[:, n - 1 :] & ~(marker if n == 1 else inside)
        rows.append(valid.nonzero()[:, 0])
        code = (2 * number + text[:, n - 1 :]) * n_positions
        if n_positions > 1:
            code = code + torch.arange(size, device=ids.device)
        codes.append(code[valid])
    return torch.cat(rows), torch.cat(codes)


def count_ngrams(rows: Tensor, codes: Tensor, known: Tensor, n_rows: int) -> Any:
    """Return a sparse matrix (n_rows, F) that counts the codes of the sorted `known` (F,), given
    the (M,) row and code of each occurrence; other codes are not counted.
    """
    if not len(known):
        return csr_matrix((n_rows, 0))
    columns = torch.searchsorted(known, codes).clamp_max_(len(known) - 1)
    hit = known[columns] == codes
    keys, counts = torch.unique(rows[hit] * len(known) + columns[hit], return_counts=True)
    starts = torch.searchsorted(keys, torch.arange(n_rows + 1, device=keys.device) * len(known))
    parts = (counts.double(), keys % len(known), starts)
    return csr_matrix(tuple(part.cpu().numpy() for part in parts), shape=(n_rows, len(known)))


class NGram(NamedTuple):
    """An n-gram: its tokens, whether it is in the second text, and the index in its row where it
    starts, or None if positions are not distinguished.
    """

    ids: tuple[int, ...]
    second: bool
    position: int | None


def decode_ngram(code: int, vocab_size: int, n_positions: int = 1) -> NGram:
    """Return the n-gram of a code of `list_ngrams`."""
    code, position = divmod(code, n_positions)
    number, second = divmod(code, 2)
    ids = []
    while number:
        number, digit = divmod(number, vocab_size + 1)
        ids.append(digit - 1)
    return NGram(tuple(reversed(ids)), bool(second), position if n_positions > 1 else None)


def code_limit(order: int, vocab_size: int, n_positions: int = 1) -> int:
    """Return a number that all codes of n-grams of at most `order` tokens are smaller than."""
    return 2 * int((vocab_size + 1) ** order) * n_positions


def check_codes(order: int, vocab_size: int, n_positions: int = 1) -> None:
    """Raise UsageError if codes of this order do not fit into 63 bits."""
    if code_limit(order, vocab_size, n_positions) > LARGEST:
        most = 1
        while code_limit(most + 1, vocab_size, n_positions) <= LARGEST:
            most += 1
        raise UsageError(
            f"model.order must be at most {most} with {vocab_size:,} different tokens, got {order}"
        )


def inverse_frequency(counts: Any) -> Tensor:
    """Return the smoothed inverse document frequency of each column, (F,):
    log((1 + R) / (1 + rows that have it)) + 1 (Salton & Buckley 1988).
    """
    indices, (rows, width) = torch.from_numpy(counts.indices), counts.shape
    frequency: Tensor = torch.bincount(indices, minlength=width)
    return ((1 + int(rows)) / (1 + frequency).double()).log() + 1


def tf_idf(counts: Any, idf: Tensor) -> Any:
    """Return (1 + log n) · idf for each count n, with rows of unit length."""
    weights = idf.cpu().numpy()[counts.indices]
    return normalize(with_values(counts, (1 + np.log(counts.data)) * weights))


def with_values(counts: Any, values: NDArray[np.float64]) -> Any:
    """Return a sparse matrix with other values at the same entries."""
    return csr_matrix((values, counts.indices, counts.indptr), shape=counts.shape)
