"""Models that are fitted by passes over all the data, each of which improves them, and how a pass
reads: sequences side by side, in blocks, on all cores, with sums that do not depend on how many.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.shards import Shard
from regard.models.language_model import LanguageModel

# Sequences read side by side: few enough for the numbers of a step to stay in a core's cache.
ROWS, TOKENS = 512, 1 << 15

Ints = NDArray[np.int64]
Found = TypeVar("Found")


@dataclass(frozen=True)
class Pass:
    """What one pass over the data found, of the model as it was before it."""

    log_likelihood: float  # of all the data, in nats
    log_prior: float  # of the parameters, up to a constant

    @property
    def objective(self) -> float:
        """What no pass lowers."""
        return self.log_likelihood + self.log_prior


class IteratedModel(LanguageModel):
    """A model that is fitted by passes over all the data, each of which improves it, and without
    gradients.
    """

    @abstractmethod
    def improve(self, train: Shard) -> Pass:
        """One pass; the same data and the same model give the same bits, on however many threads.

        The objective of the next pass is never lower than that of this one.
        """


@dataclass(frozen=True, eq=False)
class Block:
    """Sequences read side by side, longest first: n_t of the N have a symbol number t."""

    ids: list[Tensor]  # for each t the (n_t,) symbols
    places: Tensor  # (N,) where the first symbols stand in what they were taken from
    fresh: Tensor  # (N,) does the sequence follow `<S>`?


def cut(shard: Shard, most: int) -> Iterator[Block]:
    """The symbols after each `<S>` of a shard, in sequences of at most `most`."""
    offsets = np.asarray(shard.offsets)
    sizes = np.diff(offsets) - 1
    counts = -(-sizes // most)  # sequences of each record
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.repeat(offsets[:-1] + 1, counts) + number * most
    lengths = np.minimum(most, np.repeat(sizes, counts) - number * most)
    return blocks_of(np.asarray(shard.ids), places, lengths, number == 0, ROWS)


def blocks_of(
    ids: NDArray[Any], places: Ints, lengths: Ints, fresh: NDArray[np.bool_], rows: int
) -> Iterator[Block]:
    """Stretches of `ids`, longest first, at most `rows` of them and TOKENS symbols to a block."""
    order = np.argsort(-lengths, kind="stable")
    begin = 0
    while begin < len(order):
        longest = int(lengths[order[begin]])
        part = order[begin : begin + max(1, min(rows, TOKENS // longest))]
        alive = np.searchsorted(-lengths[part], -np.arange(longest))  # (T,) longer than t
        symbols = [
            torch.from_numpy(ids[places[part[:n]] + t].astype(np.int64))
            for t, n in enumerate(alive.tolist())
        ]
        yield Block(symbols, torch.from_numpy(places[part]), torch.from_numpy(fresh[part]))
        begin += len(part)


def each_alone(work: Callable[[Block], Found], blocks: Iterable[Block]) -> Iterator[Found]:
    """What `work` makes of every block, in their order, computed on as many threads as torch has.

    Each thread computes alone: a block is too small to be shared, and what it gives then does not
    depend on how many threads there are. Few blocks are in memory at once.
    """
    threads = torch.get_num_threads()
    ahead: deque[Future[Found]] = deque()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for block in blocks:
                ahead.append(pool.submit(work, block))
                if len(ahead) > 2 * threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
    finally:
        torch.set_num_threads(threads)  # threads to come begin with what any of them has set
