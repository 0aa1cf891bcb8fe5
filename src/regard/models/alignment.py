"""Which word comes from which: IBM model 1 (Brown et al. 1993, section 4.1).

Each word of a target comes from one word of its source, or from NULL, all of them being equally
probable; t(f | e) is how probable f is then. Expectation–maximisation finds t: a pass shares every
f out among the words of its source in proportion to t, and what each e got of f, divided by all it
got, is the new t. No pass lowers the likelihood, which is concave in t: from equal t it climbs to
the highest there is. Markers are not words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.shards import Shard
from regard.models.budget import Budget
from regard.models.tally import Ints, tally

NULL = -1  # in place of a source position: from no word of the source
CELLS = 1 << 22  # pairs of positions worked on at once,
KEPT = 1 << 27  # and those whose places in the table are remembered: 512 MB


@dataclass(frozen=True, eq=False)
class Lexicon:
    """t(target | source) of all words that met in a pair; that of others is 0.

    `keys` (N,) are source · V + target, sorted, V being the `vocab_size` of targets; the source
    after the last word is NULL. `t` (N,) is fp64 and sums to one for each source.
    """

    vocab_size: int
    source_vocab: int
    keys: Tensor
    t: Tensor

    def probability(self, sources: Tensor, targets: Tensor) -> Tensor:
        """t of words, given as tensors that broadcast."""
        wanted = sources * self.vocab_size + targets
        if not len(self.keys):
            return torch.zeros_like(wanted, dtype=self.t.dtype)
        at = torch.searchsorted(self.keys, wanted).clamp_max_(len(self.keys) - 1)
        return self.t[at].where(self.keys[at] == wanted, 0.0)

    def translations(self, sources: Tensor) -> tuple[Tensor, Tensor]:
        """Of (N,) words: where in the table each one's targets begin and how many there are."""
        begin = torch.searchsorted(self.keys, sources * self.vocab_size)
        end = torch.searchsorted(self.keys, (sources + 1) * self.vocab_size)
        return begin, end - begin

    def links(self, source: Sequence[int], target: Sequence[int]) -> list[int]:
        """For each target position the source position it most probably comes from, or NULL.

        Of equals the first, and any before NULL; a word that never met any of them is NULL's.
        """
        if not source:
            return [NULL] * len(target)
        words = torch.tensor([self.source_vocab, *source])
        p = self.probability(words, torch.tensor(target).view(-1, 1))  # (T, 1 + S)
        best, places = p[:, 1:].max(dim=1)
        real = (best >= p[:, 0]) & (best > 0)
        return torch.where(real, places, NULL).tolist()


def estimate(
    pairs: Shard,
    source_vocab: int,
    iterations: int,
    *,
    longest: int = 1 << 12,
    told: Callable[[float], object] = bool,
    budget: Budget | None = None,
) -> Lexicon:
    """The table after so many passes over pairs with at most `longest` words on a side.

    `told` hears the log-likelihood before each pass, in nats: the sum over all target words f of
    log(Σ_j t(f | e_j) / (S + 1)). Passes that no longer fit into the budget are left out, but for
    the first.
    """
    size, total = pairs.vocab_size, 0
    table = tally((source_vocab + 1) * size + 1)
    for found, _ in cells(pairs, source_vocab, longest):
        table.add(found + 1)  # keys of a tally are positive
        total += len(found)
    keys = table.result()[0] - 1  # (N,)
    sources, t = keys // size, np.full(len(keys), 1 / size)

    def places() -> Iterator[tuple[NDArray[np.int32], Ints]]:
        for found, sizes in cells(pairs, source_vocab, longest):
            yield np.searchsorted(keys, found).astype(np.int32), sizes

    kept = list(places()) if total <= KEPT else None
    began = time.monotonic()
    for done in range(iterations):
        if budget is not None and done and budget.left < 1.5 * (time.monotonic() - began) / done:
            budget.reduce(f"{done} of {iterations} passes are made")
            break
        counts, nats = np.zeros(len(keys)), 0.0
        for at, sizes in places() if kept is None else kept:
            p = t[at]
            whole = np.add.reduceat(p, np.cumsum(sizes) - sizes)  # of each target word
            nats += float(np.log(whole / sizes).sum())
            counts += np.bincount(at, p / np.repeat(whole, sizes), minlength=len(keys))
        told(nats)
        t = counts / np.bincount(sources, counts)[sources]
    return Lexicon(size, source_vocab, torch.from_numpy(keys), torch.from_numpy(t))


def cells(pairs: Shard, source_vocab: int, longest: int) -> Iterator[tuple[Ints, Ints]]:
    """Every target word with NULL and every word of its source, some pairs at a time.

    Gives their keys, those of one target word side by side, NULL's first, and how many each target
    word has.
    """
    assert pairs.source is not None
    sides = (np.asarray(pairs.offsets), np.asarray(pairs.source.offsets))
    counts = np.stack([np.diff(offsets) - 2 for offsets in sides])
    kept = counts.max(axis=0) <= longest
    targets, sources = ((offsets[:-1] + 1)[kept] for offsets in sides)  # after `<S>`
    lengths, each = counts[:, kept]
    ends = np.cumsum(lengths * (each + 1))
    first = done = 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, done + CELLS, side="right")))
        part = slice(first, last)
        sizes = np.repeat(each[part] + 1, lengths[part])  # of each target word
        said = np.asarray(pairs.ids[spread(targets[part], lengths[part])]).astype(np.int64)
        begins = np.repeat(sources[part] - 1, lengths[part])  # where `<S>` is, NULL is meant
        words = np.asarray(pairs.source.ids[spread(begins, sizes)]).astype(np.int64)
        words[np.cumsum(sizes) - sizes] = source_vocab
        yield words * pairs.vocab_size + np.repeat(said, sizes), sizes
        first, done = last, int(ends[last - 1])


def spread(begins: Ints, lengths: Ints) -> Ints:
    """The places of stretches that begin at (N,) places and have so many each, end to end."""
    shift = begins - (np.cumsum(lengths) - lengths)
    return np.repeat(shift, lengths) + np.arange(lengths.sum())
