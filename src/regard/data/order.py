"""The order of the data as a keyed bijection: nothing is shuffled or stored, every position is
one call away.

The stream of samples is endless. Epoch e is a pseudo-random permutation of the items, keyed by
(seed, e): a Feistel network over an even power of two, with values that fall outside [0, n) sent
through again until they fall inside ("cycle walking": Black and Rogaway 2002, "Ciphers with
arbitrary finite domains"). A Feistel network is a bijection whatever its round function (Luby and
Rackoff 1988, "How to construct pseudorandom permutations from pseudorandom functions"); ours is
built from the finaliser of splitmix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom
number generators").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, the increment of splitmix64
MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # the multipliers of splitmix64's finaliser
WORD = 0xFFFFFFFFFFFFFFFF
ROUNDS = 6  # Luby and Rackoff ask for 4; two more since the halves of small domains have few bits
HALF = 3  # bits at least in each half: with fewer, not all permutations of 4 or 5 items are likely
BLOCK = 1 << 14  # positions worked on at once: all temporaries stay in the processor's cache


def _mix(words: Words) -> Words:
    """The finaliser of splitmix64, a bijection of 64-bit words; overwrites its argument."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(MIX[0])
    words ^= words >> np.uint64(27)
    words *= np.uint64(MIX[1])
    words ^= words >> np.uint64(31)
    return words


def draw(seed: int, counters: Ints, *, stream: int = 0) -> Words:
    """Pseudo-random 64-bit words of the shape of `counters`: a pure function of all arguments.

    Different streams of one seed have nothing to do with each other.
    """
    key = np.array([seed & WORD], dtype=np.uint64)
    key = _mix(_mix(key + np.uint64(GOLDEN)) + np.uint64((stream * GOLDEN) & WORD))
    return _mix(counters.astype(np.uint64) * np.uint64(GOLDEN) + key)


class Order:
    """Position p >= 0 in the endless stream of samples -> item in [0, n); epoch p // n permutes."""

    def __init__(self, n: int, seed: int) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        self.n = n
        self.seed = seed
        self.half = max(HALF, ((n - 1).bit_length() + 1) // 2)  # bits in each half of the network

    def __call__(self, positions: Ints) -> Ints:
        """Items at these positions, of the same shape."""
        positions = np.asarray(positions, dtype=np.int64)
        if positions.size and positions.min() < 0:
            raise ValueError(f"positions must be at least 0, got {positions.min()}")
        flat = positions.ravel()
        items = np.empty_like(flat)
        for start in range(0, flat.size, BLOCK):
            items[start : start + BLOCK] = self._block(flat[start : start + BLOCK])
        return items.reshape(positions.shape)

    def _block(self, positions: Ints) -> Ints:
        epochs = positions // self.n
        values = (positions - epochs * self.n).astype(np.uint64)
        first = int(epochs[0])
        if np.all(epochs == first):  # one key for all: numpy broadcasts it for free
            epochs = np.array([first], dtype=np.int64)
        keys = draw(self.seed, epochs)
        values = self._feistel(values, keys)
        outside = np.flatnonzero(values >= np.uint64(self.n))
        while outside.size:  # each time a quarter of them or more come home: the domain is < 4n
            walked = self._feistel(values[outside], keys if keys.size == 1 else keys[outside])
            values[outside] = walked
            outside = outside[walked >= np.uint64(self.n)]
        return values.astype(np.int64)

    def _feistel(self, values: Words, keys: Words) -> Words:
        """A keyed permutation of [0, 4^half)."""
        half = np.uint64(self.half)
        top = np.uint64(64 - self.half)
        left, right = values >> half, values & np.uint64((1 << self.half) - 1)
        for number in range(ROUNDS):
            word = right ^ (keys + np.uint64((number * GOLDEN) & WORD))
            word *= np.uint64(MIX[0])
            word ^= word >> np.uint64(32)
            word *= np.uint64(MIX[1])
            word >>= top
            word ^= left
            left, right = right, word
        return (left << half) | right
