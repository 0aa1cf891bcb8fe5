"""Counting loops as machine code by numba (the extra `fast`).

Their numpy twins are in `models/ngrams.py` (sorting instead of hashing) and `models/motifs.py`;
both add in the same order, so the results are bit-identical.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

MIX = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: spreads keys over the slots (Knuth 1998, 6.4)


def jit(function: Callable[..., Any]) -> Any:
    """Compile a function that releases the GIL."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder to cache the machine code in
        return numba.njit(nogil=True)(function)


@jit
def roll_codes(ids: Any, starts: Any, base: int, order: int, top: int, out: Any) -> None:
    """Encode the last `order` ids up to each position by shifting digits through one number."""
    following, depth = 0, 0
    code: Any = 0
    for i in range(len(ids)):
        if following < len(starts) and starts[following] == i:
            following, depth, code = following + 1, 0, 0
        if depth >= order:
            code -= (np.int64(ids[i - order]) + 1) * top
        code = code * base + np.int64(ids[i]) + 1
        depth += 1
        out[i] = code


@jit
def insert_keys(keys: Any, first: int, table: Any, used: int, shift: int) -> tuple[int, int]:
    """Count keys from index `first` on in a hash table with linear probing, until all are counted
    or the table is half full. Return the number of keys done and of slots used.

    The table is key, count, key, count, …; an unused slot has key 0.
    """
    mask, limit = len(table) // 2 - 1, len(table) // 4
    mix, down = np.uint64(MIX), np.uint64(shift)
    for i in range(first, len(keys)):
        key = keys[i]
        slot = np.int64((np.uint64(key) * mix) >> down)
        while True:
            stored = table[2 * slot]
            if stored == key:
                break
            if stored == 0:
                table[2 * slot] = key
                used += 1
                break
            slot = (slot + 1) & mask
        table[2 * slot + 1] += 1
        if used >= limit:
            return i + 1, used
    return len(keys), used


@jit
def move_keys(old: Any, new: Any, shift: int) -> None:
    """Move the entries of a hash table into a larger, empty one."""
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


@jit
def window_sums(table: Any, codes: Any, starts: Any) -> Any:
    """Return Σ_j table[j, codes[start + j]] for each start: (M,)."""
    total = np.empty(len(starts))
    for i in range(len(starts)):
        subtotal = 0.0
        for j in range(len(table)):
            subtotal += table[j, codes[starts[i] + j]]
        total[i] = subtotal
    return total


@jit
def window_counts(codes: Any, starts: Any, weights: Any, out: Any) -> Any:
    """Add the weight of each window to the codes at its positions: out (W, E)."""
    for i in range(len(starts)):
        for j in range(len(out)):
            out[j, codes[starts[i] + j]] += weights[i]
    return out
