"""Buffers whose sizes only a file knows: tables that grow with what was counted.

Counting integer keys: how often each occurs in a stream too long to hold.

Keys are positive. Few possible keys are counted in an array; many in a hash table that grows (with
numba), or by sorting a chunk at a time and merging (without). Both give the same sorted keys and
counts, and take memory in proportion to the number of distinct keys.

One sparse table of n-gram counts for all orders up to n: exact, for any alphabet, streaming.

The n-grams are the nodes of a tree. The V symbols are the nodes 0 … V - 1; a longer n-gram is the
child of its first n - 1 symbols, and its code is parent · V + last symbol. Sorted by code, the
n-gram at place i of `codes` is node V + i, so that the whole tree is one sorted array, shorter
n-grams first: looking a child up is one binary search, and the children of a node lie together.

No n-gram crosses a border between records. What is counted is how often a symbol *follows*: `<S>`,
which begins each record and is never predicted, is a node with children but has the count 0.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.shards import Shard


class VariableBuffers(nn.Module):
    """A module that takes the sizes of its `grown` buffers, of all where none is named, from what
    is loaded into it.
    """

    sized_by_config: ClassVar[bool] = False
    grown: ClassVar[tuple[str, ...]] = ()

    def wrong(self) -> str:
        """What is wrong with buffers that were read; "" where they fit each other."""
        return ""

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        for name in self.grown or tuple(self._buffers):
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name]))
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if wrong := self.wrong():
            rest[-1].append(wrong)


Ints = NDArray[np.int64]
Counted = tuple[Ints, Ints]  # sorted keys and how often each occurs

DENSE = 1 << 20  # possible keys up to which an array holds all of them
FIRST = 1 << 16  # slots of a new hash table
MIX = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: spreads keys over the slots (Knuth 1998, 6.4)


@cache
def has_numba() -> bool:
    """Is numba, the extra `fast`, installed?"""
    return importlib.util.find_spec("numba") is not None


@cache
def compiled(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel of this package as machine code, which lets other threads run meanwhile."""
    import numba

    try:
        return numba.njit(nogil=True, cache=True)(kernel)
    except RuntimeError:  # no folder that the machine code could be kept in
        return numba.njit(nogil=True)(kernel)


class DenseCounter:
    """Counts of keys below a small limit."""

    def __init__(self, limit: int) -> None:
        self.counts = np.zeros(limit, np.int64)

    def add(self, keys: Ints) -> None:
        """Count these keys too."""
        self.counts += np.bincount(keys, minlength=len(self.counts))

    def result(self) -> Counted:
        """All keys seen, sorted, and their counts."""
        keys = np.flatnonzero(self.counts)
        return keys, self.counts[keys]


class SortedCounter:
    """Counts of any keys, by sorting: what is pending is merged once it outgrows what is there."""

    def __init__(self) -> None:
        self.found: list[Counted] = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]

    def add(self, keys: Ints) -> None:
        """Count these keys too."""
        self.found.append(np.unique(keys, return_counts=True))
        if sum(len(k) for k, _ in self.found[1:]) > max(FIRST, len(self.found[0][0])):
            self.found = [merged(self.found)]

    def result(self) -> Counted:
        """All keys seen, sorted, and their counts."""
        return merged(self.found)


class HashedCounter:
    """Counts of any keys in a hash table with linear probing, each key beside its count."""

    def __init__(self) -> None:
        self.table = np.zeros(2 * FIRST, np.int64)  # key, count, key, count, ...; no key is 0
        self.used = 0

    def add(self, keys: Ints) -> None:
        """Count these keys too."""
        done = 0
        while done < len(keys):
            done, self.used = compiled(insert)(keys, done, self.table, self.used, shift(self.table))
            if 4 * self.used >= len(self.table):  # half full
                larger = np.zeros(4 * len(self.table), np.int64)
                compiled(move)(self.table, larger, shift(larger))
                self.table = larger

    def result(self) -> Counted:
        """All keys seen, sorted, and their counts."""
        slots = np.flatnonzero(self.table[::2])
        keys = self.table[2 * slots]
        order = np.argsort(keys)
        return keys[order], self.table[2 * slots[order] + 1]


def shift(table: Ints) -> int:
    """What is left of a product of 64 bits, shifted by so many, is the number of a slot."""
    return 65 - (len(table) // 2).bit_length()


def tally(limit: int) -> DenseCounter | SortedCounter | HashedCounter:
    """An empty count of keys below `limit`."""
    if limit <= DENSE:
        return DenseCounter(limit)
    return HashedCounter() if has_numba() else SortedCounter()


def merged(parts: list[Counted]) -> Counted:
    """Several counts as one."""
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


def insert(keys: Any, begin: int, table: Any, used: int, shift: int) -> tuple[int, int]:
    """Count keys from `begin` on, until all are counted or the table is half full (for numba).

    Returns how many keys are done and how many slots are used.
    """
    mask, limit = len(table) // 2 - 1, len(table) // 4
    mix, down = np.uint64(MIX), np.uint64(shift)
    for i in range(begin, len(keys)):
        key = keys[i]
        slot = np.int64((np.uint64(key) * mix) >> down)
        while True:
            held = table[2 * slot]
            if held == key:
                break
            if held == 0:
                table[2 * slot] = key
                used += 1
                break
            slot = (slot + 1) & mask
        table[2 * slot + 1] += 1
        if used >= limit:
            return i + 1, used
    return len(keys), used


def move(old: Any, new: Any, shift: int) -> None:
    """Put what is in an old table into a larger, empty one (for numba)."""
    mask = len(new) // 2 - 1
    mix, down = np.uint64(MIX), np.uint64(shift)
    for i in range(0, len(old), 2):
        key = old[i]
        if key == 0:
            continue
        slot = np.int64((np.uint64(key) * mix) >> down)
        while new[2 * slot] != 0:
            slot = (slot + 1) & mask
        new[2 * slot] = key
        new[2 * slot + 1] = old[i + 1]


CHUNK = 1 << 20  # tokens worked on at once
LARGEST = (1 << 63) - 1
UNSEEN, ABSENT = -1, -2  # in place of a node: an n-gram never counted; a past that is too short


@dataclass(frozen=True, eq=False)
class NGrams:
    """Counts of all n-grams of 1 to `order` symbols: tensors on one device.

    `unigrams` (V,), `codes` (N,) sorted and `counts` (N,) are int64; `start` is the id of `<S>`, or
    -1 where nothing was counted.
    """

    order: int
    start: int
    unigrams: Tensor
    codes: Tensor
    counts: Tensor

    @property
    def vocab_size(self) -> int:
        """V."""
        return len(self.unigrams)

    @property
    def parents(self) -> Tensor:
        """(N,) the node each longer n-gram continues."""
        return self.codes // self.vocab_size

    @property
    def symbols(self) -> Tensor:
        """(N,) the last symbol of each longer n-gram."""
        return self.codes % self.vocab_size

    def borders(self) -> list[int]:
        """Nodes before those of n symbols, for n = 1 to order + 1."""
        found = [0, self.vocab_size]
        while len(found) <= self.order:
            limit = torch.tensor([found[-1] * self.vocab_size], device=self.codes.device)
            found.append(self.vocab_size + int(torch.searchsorted(self.codes, limit)))
        return found

    def cut(self, order: int) -> NGrams:
        """The same counts up to a smaller order."""
        end = self.borders()[order] - self.vocab_size
        return NGrams(order, self.start, self.unigrams, self.codes[:end], self.counts[:end])

    def find(self, parents: Tensor, symbols: Tensor) -> Tensor:
        """The children of nodes by these symbols; UNSEEN where there is none, ABSENT of ABSENT."""
        if not len(self.codes):
            return parents.clamp_max(UNSEEN)
        codes = parents * self.vocab_size + symbols
        at = torch.searchsorted(self.codes, codes).clamp_max_(len(self.codes) - 1)
        hit = (self.codes[at] == codes) & (parents >= 0)
        return torch.where(hit, at + self.vocab_size, parents.clamp_max(UNSEEN))

    def contexts(self, ids: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        """For each of (B, T) positions the node of the last 1, 2, … order - 1 symbols there.

        An id below 0 is no symbol: what reaches back to it is ABSENT, as is what begins in another
        segment.
        """
        if self.order == 1:
            return []
        nodes = [ids.clamp_min(ABSENT).where(ids >= 0, ABSENT)]
        for _ in range(2, self.order):
            before = torch.full_like(ids, ABSENT)
            before[:, 1:] = nodes[-1][:, :-1]
            if segments is not None:
                before[:, 1:][segments[:, 1:] != segments[:, :-1]] = ABSENT
            nodes.append(self.find(before, ids).where(ids >= 0, ABSENT))
        return nodes

    def suffixes(self) -> Tensor:
        """(N,) the node of each longer n-gram without its first symbol."""
        size, borders = self.vocab_size, self.borders()
        parents, symbols = self.parents, self.symbols
        found = symbols.clone()  # of two symbols, the second is left
        for low, high in pairwise(borders[2:]):
            part = slice(low - size, high - size)
            shorter = found[parents[part] - size]
            found[part] = size + torch.searchsorted(self.codes, shorter * size + symbols[part])
        return found

    def firsts(self) -> Tensor:
        """(V + N,) the first symbol of every n-gram."""
        size, borders = self.vocab_size, self.borders()
        found = torch.cat([torch.arange(size, device=self.codes.device), self.parents])
        for low, high in pairwise(borders[2:]):
            found[low:high] = found[found[low:high]]
        return found

    def totals(self, counts: Tensor) -> Tensor:
        """(V + N,) the sum over the children of each node of a quantity (N,) of theirs."""
        total = counts.new_zeros(self.vocab_size + len(self.codes))
        return total.index_add_(0, self.parents, counts)


def empty(vocab_size: int, order: int) -> NGrams:
    """The table of no data."""
    unigrams, none = torch.zeros(vocab_size, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    return NGrams(order, -1, unigrams, none, none.clone())


def count(shard: Shard, order: int, *, chunk: int = CHUNK) -> NGrams:
    """Count all n-grams of up to `order` symbols in one pass, or one more for each order whose
    n-grams do not fit into 63 bits.
    """
    size = shard.vocab_size
    direct = 1
    while direct < order and (size + 1) ** (direct + 1) <= LARGEST:
        direct += 1
    if not shard.tokens:
        return empty(size, order)
    levels = shorter(*windows(shard, direct, chunk), direct, size + 1)
    unigrams = np.zeros(size, np.int64)
    unigrams[levels[0][0] - 1] = levels[0][1]
    codes, counts = tree(levels, size)
    begins = np.asarray(shard.ids[np.asarray(shard.offsets[:-1])])
    unigrams -= np.bincount(begins, minlength=size)  # what begins a record does not follow
    parts = map(torch.from_numpy, (codes, counts)) if len(codes) else torch.zeros(2, 0).long()
    found = NGrams(direct, int(begins[0]), torch.from_numpy(unigrams), *parts)
    while found.order < order:
        found = longer(shard, found, direct, levels[-1][0], chunk)
    return found


def pieces(
    shard: Shard, back: int, chunk: int, worker: int = 0, workers: int = 1
) -> Iterator[tuple[NDArray[Any], Ints, int]]:
    """Stretches of ids, where records begin in them, and how many ids are only there to look back
    on: at most `back`. Of several workers each takes its turns.
    """
    offsets = np.asarray(shard.offsets)
    for first in range(worker * chunk, shard.tokens, workers * chunk):
        begin = max(0, first - back)
        ids = np.asarray(shard.ids[begin : first + chunk])
        low, high = np.searchsorted(offsets, [begin, begin + len(ids)])
        yield ids, offsets[low:high] - begin, first - begin


def windows(shard: Shard, order: int, chunk: int) -> Counted:
    """Every position's last `order` symbols, or all since the record began, as numbers.

    A window is written in base V + 1 with the digits id + 1: without zeros, so that windows of
    different lengths are different numbers, and suffixes are remainders.
    """
    base = shard.vocab_size + 1
    workers = max(1, min(torch.get_num_threads(), shard.tokens // (4 * chunk)))

    def work(worker: int) -> Counted:
        table = tally(base**order)
        for piece in pieces(shard, order, chunk, worker, workers):
            table.add(window_codes(*piece, base, order))
        return table.result()

    with ThreadPoolExecutor(workers) as pool:
        return merged(list(pool.map(work, range(workers))))


def window_codes(ids: NDArray[Any], begins: Ints, skip: int, base: int, order: int) -> Ints:
    """The window that ends at each id after the first `skip`."""
    if has_numba():
        out = np.empty(len(ids), np.int64)
        compiled(roll)(ids, begins, base, order, base ** (order - 1), out)
        return out[skip:]
    digits = ids.astype(np.int64) + 1
    codes, depth = digits.copy(), depths(len(ids), begins)
    for back in range(1, order):
        inside = np.flatnonzero(depth >= back)
        codes[inside] += digits[inside - back] * base**back
    return codes[skip:]


def depths(length: int, begins: Ints) -> Ints:
    """How many ids of the same record stand before each of `length` ids, as far as is known."""
    places = np.arange(length)
    last = np.zeros(length, np.int64)
    last[begins] = begins
    depth: Ints = places - np.maximum.accumulate(last)
    return depth


def roll(ids: Any, begins: Any, base: int, order: int, top: int, out: Any) -> None:
    """`window_codes` of all ids, by shifting digits through one number (for numba)."""
    following, depth, code = 0, 0, 0
    for i in range(len(ids)):
        if following < len(begins) and begins[following] == i:
            following, depth, code = following + 1, 0, 0
        if depth >= order:
            code -= (np.int64(ids[i - order]) + 1) * top  # type: ignore[assignment]
        code = code * base + np.int64(ids[i]) + 1  # type: ignore[assignment]
        depth += 1
        out[i] = code


def shorter(codes: Ints, counts: Ints, order: int, base: int) -> list[Counted]:
    """From counted windows, the n-grams of 1, 2, … order symbols as sorted numbers in that base."""
    levels: list[Counted] = []
    for length in range(order, 0, -1):
        least = base ** (length - 1)  # the smallest number of so many digits
        short = int(np.searchsorted(codes, least))
        levels.append((codes[short:], counts[short:]))
        suffixes = merged([(codes[short:] % least, counts[short:]), (codes[:0], counts[:0])])
        codes, counts = merged([(codes[:short], counts[:short]), suffixes])
    return levels[::-1]


def tree(levels: list[Counted], size: int) -> Counted:
    """n-grams as numbers in base V + 1 to codes of the tree, all orders from 2 on in one array."""
    codes, border = [np.zeros(0, np.int64)], 0
    for (before, _), (numbers, _) in pairwise(levels):
        prefixes, last = np.divmod(numbers, size + 1)
        if len(codes) == 1:
            parents = prefixes - 1
            border = size
        else:
            parents = border + np.searchsorted(before, prefixes)
            border += len(before)
        codes.append(parents * size + last - 1)
    return np.concatenate(codes), np.concatenate([codes[0], *(counts for _, counts in levels[1:])])


def longer(shard: Shard, known: NGrams, direct: int, numbers: Ints, chunk: int) -> NGrams:
    """The table with n-grams of one symbol more, by another pass over the data.

    `numbers` are the sorted n-grams of `direct` symbols, from which the tree is entered.
    """
    size, order = known.vocab_size, known.order + 1
    border = known.borders()[direct - 1]
    table = tally((size + len(known.codes)) * size)
    for ids, begins, skip in pieces(shard, order, chunk):
        codes = window_codes(ids, begins, 0, size + 1, direct)
        ends = np.flatnonzero(depths(len(ids), begins) >= order - 1)  # with enough of a past
        ends = ends[ends >= skip]
        at = ends - (order - direct)
        nodes = torch.from_numpy(border + np.searchsorted(numbers, codes[at]))
        for step in range(order - direct - 1, 0, -1):
            nodes = known.find(nodes, torch.from_numpy(ids[ends - step].astype(np.int64)))
        table.add(nodes.numpy() * size + ids[ends])
    more, counts = map(torch.from_numpy, table.result())
    codes_counts = torch.cat([known.codes, more]), torch.cat([known.counts, counts])
    return NGrams(order, known.start, known.unigrams, *codes_counts)
