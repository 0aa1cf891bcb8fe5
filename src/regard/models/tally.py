"""Counting integer keys: how often each occurs in a stream too long to hold.

Keys are positive. Few possible keys are counted in an array; many in a hash table that grows (with
numba), or by sorting a chunk at a time and merging (without). Both give the same sorted keys and
counts, and take memory in proportion to the number of distinct keys.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


class Dense:
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


class Sorted:
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


class Hashed:
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


def tally(limit: int) -> Dense | Sorted | Hashed:
    """An empty count of keys below `limit`."""
    if limit <= DENSE:
        return Dense(limit)
    return Hashed() if has_numba() else Sorted()


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
