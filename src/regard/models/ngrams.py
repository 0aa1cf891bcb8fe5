"""One sparse table with the exact counts of all n-grams up to an order, for any alphabet.

The n-grams are the nodes of a tree. Nodes 0 … V - 1 are the V symbols. A longer n-gram is the child
of its first n - 1 symbols and has the code parent · V + last symbol. The n-gram at index i of the
sorted `codes` is node V + i, so the whole tree is one sorted array, shorter n-grams first: finding
a child is one binary search, and the children of a node are contiguous.

No n-gram crosses the border between two records. Counted is how often a symbol *follows*: `<S>`
starts each record and is never predicted, so it has children but the count 0.

Counting streams over the data. Few possible keys are counted in an array, many in a growing hash
table (with numba) or by sorting chunks and merging them (without). All give the same sorted keys
and counts, in memory proportional to the number of distinct keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.shards import Shard
from regard.kernels import has_numba

Ints = NDArray[np.int64]
KeyCounts = tuple[Ints, Ints]  # sorted keys, and how often each occurs

DENSE = 1 << 20  # an array holds all keys up to this many
FIRST = 1 << 16  # slots of a new hash table
CHUNK = 1 << 20  # tokens per chunk
LARGEST = (1 << 63) - 1
UNSEEN, ABSENT = -1, -2  # instead of a node: an n-gram never counted; a context that is too short


class DenseCounter:
    """Counts keys below a small limit in an array."""

    def __init__(self, limit: int) -> None:
        self.counts = np.zeros(limit, np.int64)

    def add(self, keys: Ints) -> None:
        self.counts += np.bincount(keys, minlength=len(self.counts))

    def result(self) -> KeyCounts:
        keys = np.flatnonzero(self.counts)
        return keys, self.counts[keys]


class SortedCounter:
    """Counts keys by sorting; pending counts are merged once they outnumber the merged ones."""

    def __init__(self) -> None:
        self.parts: list[KeyCounts] = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]

    def add(self, keys: Ints) -> None:
        self.parts.append(np.unique(keys, return_counts=True))
        if sum(len(k) for k, _ in self.parts[1:]) > max(FIRST, len(self.parts[0][0])):
            self.parts = [merge_counts(self.parts)]

    def result(self) -> KeyCounts:
        return merge_counts(self.parts)


class HashedCounter:
    """Counts positive keys in a hash table with linear probing."""

    def __init__(self) -> None:
        self.table = np.zeros(2 * FIRST, np.int64)  # key, count, key, count, ...; no key is 0
        self.used = 0

    def add(self, keys: Ints) -> None:
        from regard.kernels import counting

        done = 0
        while done < len(keys):
            done, self.used = counting.insert_keys(
                keys, done, self.table, self.used, hash_shift(self.table)
            )
            if 4 * self.used >= len(self.table):  # half full
                larger = np.zeros(4 * len(self.table), np.int64)
                counting.move_keys(self.table, larger, hash_shift(larger))
                self.table = larger

    def result(self) -> KeyCounts:
        slots = np.flatnonzero(self.table[::2])
        keys = self.table[2 * slots]
        order = np.argsort(keys)
        return keys[order], self.table[2 * slots[order] + 1]


def hash_shift(table: Ints) -> int:
    """Return by how many bits a 64-bit product is shifted to give the index of a slot."""
    return 65 - (len(table) // 2).bit_length()


def make_counter(limit: int) -> DenseCounter | SortedCounter | HashedCounter:
    """Return an empty counter of positive keys below `limit`."""
    if limit <= DENSE:
        return DenseCounter(limit)
    return HashedCounter() if has_numba() else SortedCounter()


def merge_counts(parts: list[KeyCounts]) -> KeyCounts:
    """Add up counts."""
    if len(parts) == 1:
        return parts[0]
    keys = np.concatenate([keys for keys, _ in parts])
    counts = np.concatenate([counts for _, counts in parts])
    if not len(keys):
        return keys, counts
    order = np.argsort(keys)
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[first], np.add.reduceat(counts, first)


@dataclass(frozen=True, eq=False)
class NGrams:
    """Counts of all n-grams of 1 to `order` symbols: int64 tensors on one device."""

    order: int
    start: int  # the id of `<S>`; -1 if nothing was counted
    unigrams: Tensor  # (V,)
    codes: Tensor  # (N,), sorted
    counts: Tensor  # (N,)

    @property
    def vocab_size(self) -> int:
        return len(self.unigrams)

    @property
    def parents(self) -> Tensor:
        """(N,) the parent node of each longer n-gram."""
        return self.codes // self.vocab_size

    @property
    def symbols(self) -> Tensor:
        """(N,) the last symbol of each longer n-gram."""
        return self.codes % self.vocab_size

    def borders(self) -> list[int]:
        """Return the first node of n symbols, for n = 1 to order + 1."""
        borders = [0, self.vocab_size]
        while len(borders) <= self.order:
            limit = torch.tensor([borders[-1] * self.vocab_size], device=self.codes.device)
            borders.append(self.vocab_size + int(torch.searchsorted(self.codes, limit)))
        return borders

    def truncate(self, order: int) -> NGrams:
        """Return the same counts up to a smaller order."""
        end = self.borders()[order] - self.vocab_size
        return NGrams(order, self.start, self.unigrams, self.codes[:end], self.counts[:end])

    def find(self, parents: Tensor, symbols: Tensor) -> Tensor:
        """Return the children of nodes by symbols: UNSEEN if there is none, ABSENT for ABSENT."""
        if not len(self.codes):
            return parents.clamp_max(UNSEEN)
        codes = parents * self.vocab_size + symbols
        index = torch.searchsorted(self.codes, codes).clamp_max_(len(self.codes) - 1)
        hit = (self.codes[index] == codes) & (parents >= 0)
        return torch.where(hit, index + self.vocab_size, parents.clamp_max(UNSEEN))

    def contexts(self, ids: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        """Return the nodes (B, T) of the last 1, 2, … order - 1 symbols up to each position.

        A context is ABSENT if it would include an id below 0 or cross into another segment.
        """
        if self.order == 1:
            return []
        nodes = [ids.clamp_min(ABSENT).where(ids >= 0, ABSENT)]
        for _ in range(2, self.order):
            previous = torch.full_like(ids, ABSENT)
            previous[:, 1:] = nodes[-1][:, :-1]
            if segments is not None:
                previous[:, 1:][segments[:, 1:] != segments[:, :-1]] = ABSENT
            nodes.append(self.find(previous, ids).where(ids >= 0, ABSENT))
        return nodes

    def suffixes(self) -> Tensor:
        """Return the node of each longer n-gram without its first symbol, (N,)."""
        size, borders = self.vocab_size, self.borders()
        parents, symbols = self.parents, self.symbols
        suffixes = symbols.clone()  # correct for two symbols
        for low, high in pairwise(borders[2:]):
            level = slice(low - size, high - size)
            shorter = suffixes[parents[level] - size]
            codes = shorter * size + symbols[level]
            suffixes[level] = size + torch.searchsorted(self.codes, codes)
        return suffixes

    def first_symbols(self) -> Tensor:
        """Return the first symbol of every n-gram, (V + N,)."""
        size, borders = self.vocab_size, self.borders()
        first = torch.cat([torch.arange(size, device=self.codes.device), self.parents])
        for low, high in pairwise(borders[2:]):
            first[low:high] = first[first[low:high]]
        return first

    def totals(self, counts: Tensor) -> Tensor:
        """Sum a quantity (N,) of the longer n-grams over the children of each node: (V + N,)."""
        total = counts.new_zeros(self.vocab_size + len(self.codes))
        return total.index_add_(0, self.parents, counts)


def empty_table(vocab_size: int, order: int) -> NGrams:
    """Return the table of no data."""
    unigrams, none = torch.zeros(vocab_size, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    return NGrams(order, -1, unigrams, none, none.clone())


def count(shard: Shard, order: int, *, chunk: int = CHUNK) -> NGrams:
    """Count all n-grams of up to `order` symbols, in one pass over the shard, plus one for each
    order whose n-grams do not fit into 63 bits.
    """
    size = shard.vocab_size
    direct = 1
    while direct < order and (size + 1) ** (direct + 1) <= LARGEST:
        direct += 1
    if not shard.tokens:
        return empty_table(size, order)
    levels = split_by_length(*count_windows(shard, direct, chunk), direct, size + 1)
    unigrams = np.zeros(size, np.int64)
    unigrams[levels[0][0] - 1] = levels[0][1]
    codes, counts = build_tree(levels, size)
    starts = np.asarray(shard.ids[np.asarray(shard.offsets[:-1])])
    unigrams -= np.bincount(starts, minlength=size)  # the first id of a record does not follow
    tree = map(torch.from_numpy, (codes, counts)) if len(codes) else torch.zeros(2, 0).long()
    table = NGrams(direct, int(starts[0]), torch.from_numpy(unigrams), *tree)
    while table.order < order:
        table = count_longer(shard, table, direct, levels[-1][0], chunk)
    return table


def read_chunks(
    shard: Shard, overlap: int, chunk: int, worker: int = 0, workers: int = 1
) -> Iterator[tuple[NDArray[Any], Ints, int]]:
    """Yield chunks of ids, the indices at which records start in them, and how many ids at the
    front repeat the previous chunk (at most `overlap`). Several workers take turns.
    """
    offsets = np.asarray(shard.offsets)
    for first in range(worker * chunk, shard.tokens, workers * chunk):
        start = max(0, first - overlap)
        ids = np.asarray(shard.ids[start : first + chunk])
        low, high = np.searchsorted(offsets, [start, start + len(ids)])
        yield ids, offsets[low:high] - start, first - start


def count_windows(shard: Shard, order: int, chunk: int) -> KeyCounts:
    """Count the last `order` symbols before each position, or all since the record started.

    A window is a number in base V + 1 with the digits id + 1. No digit is zero, so windows of
    different lengths are different numbers, and suffixes are remainders.
    """
    base = shard.vocab_size + 1
    workers = max(1, min(torch.get_num_threads(), shard.tokens // (4 * chunk)))

    def work(worker: int) -> KeyCounts:
        counter = make_counter(base**order)
        for ids, starts, skip in read_chunks(shard, order, chunk, worker, workers):
            counter.add(encode_windows(ids, starts, skip, base, order))
        return counter.result()

    with ThreadPoolExecutor(workers) as pool:
        return merge_counts(list(pool.map(work, range(workers))))


def encode_windows(ids: NDArray[Any], starts: Ints, skip: int, base: int, order: int) -> Ints:
    """Return the code of the window that ends at each id after the first `skip`."""
    if has_numba():
        from regard.kernels import counting

        out = np.empty(len(ids), np.int64)
        counting.roll_codes(ids, starts, base, order, base ** (order - 1), out)
        return out[skip:]
    digits = ids.astype(np.int64) + 1
    codes, depth = digits.copy(), count_predecessors(len(ids), starts)
    for distance in range(1, order):
        inside = np.flatnonzero(depth >= distance)
        codes[inside] += digits[inside - distance] * base**distance
    return codes[skip:]


def count_predecessors(length: int, starts: Ints) -> Ints:
    """Return how many of `length` ids precede each one in its record, given the record starts."""
    last = np.zeros(length, np.int64)
    last[starts] = starts
    depth: Ints = np.arange(length) - np.maximum.accumulate(last)
    return depth


def split_by_length(codes: Ints, counts: Ints, order: int, base: int) -> list[KeyCounts]:
    """Turn counted windows into the counts of n-grams of 1, 2, … order symbols."""
    levels: list[KeyCounts] = []
    for length in range(order, 0, -1):
        least = base ** (length - 1)  # the smallest number of so many digits
        short = int(np.searchsorted(codes, least))
        levels.append((codes[short:], counts[short:]))
        suffixes = merge_counts([(codes[short:] % least, counts[short:]), (codes[:0], counts[:0])])
        codes, counts = merge_counts([(codes[:short], counts[:short]), suffixes])
    return levels[::-1]


def build_tree(levels: list[KeyCounts], size: int) -> KeyCounts:
    """Turn the numbers of n-grams into codes of the tree: all orders from 2 on in one array."""
    codes, border = [np.zeros(0, np.int64)], 0
    for (shorter, _), (numbers, _) in pairwise(levels):
        prefixes, last = np.divmod(numbers, size + 1)
        if len(codes) == 1:
            parents = prefixes - 1
            border = size
        else:
            parents = border + np.searchsorted(shorter, prefixes)
            border += len(shorter)
        codes.append(parents * size + last - 1)
    return np.concatenate(codes), np.concatenate([codes[0], *(counts for _, counts in levels[1:])])


def count_longer(shard: Shard, table: NGrams, direct: int, numbers: Ints, chunk: int) -> NGrams:
    """Add the n-grams of one symbol more to a table, by another pass over the data.

    `numbers` are the sorted n-grams of `direct` symbols, where the walk down the tree starts.
    """
    size, order = table.vocab_size, table.order + 1
    border = table.borders()[direct - 1]
    counter = make_counter((size + len(table.codes)) * size)
    for ids, starts, skip in read_chunks(shard, order, chunk):
        windows = encode_windows(ids, starts, 0, size + 1, direct)
        ends = np.flatnonzero(count_predecessors(len(ids), starts) >= order - 1)
        ends = ends[ends >= skip]
        first = windows[ends - (order - direct)]
        nodes = torch.from_numpy(border + np.searchsorted(numbers, first))
        for step in range(order - direct - 1, 0, -1):
            nodes = table.find(nodes, torch.from_numpy(ids[ends - step].astype(np.int64)))
        counter.add(nodes.numpy() * size + ids[ends])
    longer, counts = map(torch.from_numpy, counter.result())
    tree = torch.cat([table.codes, longer]), torch.cat([table.counts, counts])
    return NGrams(order, table.start, table.unigrams, *tree)
