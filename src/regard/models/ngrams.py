"""n-gram models: counting, Dirichlet priors and Kneser–Ney smoothing.

`NGrams` is one sparse table with the exact counts of all n-grams up to an order, for any alphabet.

The n-grams are the nodes of a tree. Nodes 0 … V - 1 are the V symbols. A longer n-gram is the child
of its first n - 1 symbols and has the code parent · V + last symbol. The n-gram at index i of the
sorted `codes` is node V + i, so the whole tree is one sorted array, shorter n-grams first: finding
a child is one binary search, and the children of a node are contiguous.

No n-gram crosses the border between two records. Counted is how often a symbol *follows*: `<S>`
starts each record and is never predicted, so it has children but the count 0.

Counting streams over the data. Few possible keys are counted in an array, many in a growing hash
table (with numba) or by sorting chunks and merging them (without). All give the same sorted keys
and counts, in memory proportional to the number of distinct keys.

A model is such a table and a rule that turns the counts into probabilities:

    P(x | c) = p(cx)                           if x was counted after the context c,
               floor(c) + weight(c) P(x | c')  if not, where c' is c without its first symbol.

Maximum likelihood has floor = weight = 0: a transition never counted is impossible, and one in the
data gives an infinite loss. Priors (`DirichletNGram`) and discounts (`KneserNey`) repair this.
Nothing of size V × V is ever stored.

`DirichletNGram`: the probabilities after a context c have the prior Dirichlet(1 + α p), so the
estimates are

    MAP:  P(x | c) = (n(cx) + α p(x)) / (N(c) + α),   mean:  (n(cx) + 1 + α p(x)) / (N(c) + K + α)

with K symbols that can follow. α → 0 makes MAP maximum likelihood, α → ∞ the prior. The prior's p
is uniform (`symmetric`), or the model of one order less, P(x | c') with c' the context without its
first symbol (`hierarchical`: MacKay & Peto 1995; for motifs as interpolated Markov models, Siebert
& Söding 2016). Each order has its own α. Unless given, it maximises the evidence

    Π_c B(n(c·) + a) / B(a),   B(a) = Π Γ(a_x) / Γ(Σ a_x),

the probability of the training data if each symbol is predicted by the same estimate from the
counts before it: a = α p for MAP, which is also the mean under Dirichlet(α p) (MacKay & Peto 1995),
and a = 1 + α p for the mean.

`KneserNey`: modified Kneser–Ney smoothing, interpolated (Kneser & Ney 1995; Chen & Goodman 1998,
section 3).

    P(x | c) = (a(cx) - D(a(cx))) / A(c) + γ(c) P(x | c'),   A(c) = Σ_x a(cx)

For the longest n-grams a is the count. For shorter ones a(g) is the number of different symbols
before g, since a shorter n-gram is only used where no longer one was found; n-grams that start with
`<S>` have nothing before them and keep their counts, as in SRILM and KenLM. The discounts D of the
counts 1, 2 and 3 or more are estimated, for each order, from the number of n-grams with the counts
1 to 4. Where this gives no valid discount (a small alphabet has no rare symbols) they are 0.5, 1
and 1.5, as in KenLM. γ(c) is the probability mass that the discounts leave. Below the unigrams is
the uniform distribution over all tokens but `<S>`. After a context never counted, P is that of the
shorter context.
"""

from __future__ import annotations

import dataclasses
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaincinv
from torch import Tensor

from regard.data.shards import Shard
from regard.kernels import has_numba
from regard.layers.cache import ContextWindow, DecodeState
from regard.layers.tap import Tap, tapped
from regard.models import Model, Presets, VariableBuffers, check_ranges
from regard.models.language_model import Constrain, LanguageModel
from regard.models.supervised import Budget, Log

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


@dataclass(frozen=True, kw_only=True)
class CountConfig:
    """A counting model without settings. `max_len` only limits how much is scored at once."""

    max_len: int = 256

    def __post_init__(self) -> None:
        if self.max_len < 1:
            raise ValueError(f"max_len must be at least 1, got {self.max_len}")


@dataclass(frozen=True, eq=False)
class BackoffTable:
    """Probabilities of n-grams and what to use for all others, in fp64.

    Entries are in the order of nodes; the first V are the symbols.
    """

    p: Tensor  # (V + N,) of the n-grams counted
    weight: Tensor  # (V + N,) of the shorter context, for symbols not counted after a node
    floor: Tensor  # (V + N,) added to each of these
    unseen: Tensor  # (order, 2) weight and floor after contexts never counted, by their length
    possible: Tensor  # (V,) the symbols that get the floor

    def terms(self, nodes: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Return weight and floor (N,) after contexts of `length` symbols, which may be UNSEEN or
        ABSENT.
        """
        counted, index = nodes >= 0, nodes.clamp_min(0)
        weight = torch.where(counted, self.weight[index], self.unseen[length, 0])
        floor = torch.where(counted, self.floor[index], self.unseen[length, 1])
        absent = nodes == ABSENT  # the shorter context is the longest there is
        return weight.masked_fill(absent, 1.0), floor.masked_fill(absent, 0.0)


class CountingModel(Model):
    """A model that is fitted by counting instead of gradient steps."""

    loop = "count"

    @abstractmethod
    def fit(
        self, train: Shard, valid: Shard | None, log: Log, budget: Budget | None = None
    ) -> None:
        """Fit to the training data, read as a stream, replacing any earlier fit.

        Settings left open are chosen, on `valid` if there is one, stored in `config` and logged.
        With a budget, work that does not fit into it is reduced.
        """


class TableModel(VariableBuffers, CountingModel, LanguageModel):
    """A table of n-gram counts with smoothing. All families store the same tensors."""

    variable = ("codes", "counts")
    supports_packing = True
    unigrams: Tensor
    codes: Tensor
    counts: Tensor
    start_id: Tensor

    def __init__(self, vocab_size: int, config: Any) -> None:
        super().__init__(vocab_size, config)
        table = empty_table(vocab_size, 1)
        self.register_buffer("unigrams", table.unigrams)  # (V,)
        self.register_buffer("codes", table.codes)  # (N,)
        self.register_buffer("counts", table.counts)  # (N,)
        self.register_buffer("start_id", torch.tensor([-1]))  # of `<S>`; -1: nothing counted
        self._backoff: tuple[Tensor, BackoffTable] | None = None  # cached, with the codes it is for

    @property
    @abstractmethod
    def order(self) -> int:
        """The number of symbols of the longest n-gram: one more than the model's context."""

    @abstractmethod
    def smooth(self, table: NGrams) -> BackoffTable:
        """Turn counts into probabilities."""

    def fit(
        self, train: Shard, valid: Shard | None, log: Log, budget: Budget | None = None
    ) -> None:
        self.set_table(count(train, self.order))

    def set_table(self, table: NGrams) -> None:
        """Store counts in the model's buffers."""
        self.unigrams, self.codes, self.counts = table.unigrams, table.codes, table.counts
        self.start_id = torch.tensor([table.start])

    @property
    def table(self) -> NGrams:
        """The counts."""
        return NGrams(self.order, int(self.start_id), self.unigrams, self.codes, self.counts)

    @property
    def backoff(self) -> BackoffTable:
        """The smoothed probabilities, computed at the first use."""
        cached = self._backoff
        if cached is None or cached[0] is not self.codes:  # replaced, or on another device
            cached = self._backoff = self.codes, self.smooth(self.table)
        return cached[1]

    def set_backoff(self, backoff: BackoffTable) -> None:
        """Use these probabilities in place of those of `smooth`."""
        self._backoff = self.codes, backoff

    def buffer_error(self) -> str:
        fits = len(self.codes) == len(self.counts) and bool((self.codes.diff() > 0).all())
        return "" if fits else "codes must be sorted and have as many counts"

    def log_rows(self, nodes: list[Tensor], size: int) -> Tensor:
        """Return log P(· | context), (N, V), computed in fp64 and rounded to fp32, for N = `size`
        contexts given as the nodes (N,) of their last 1, 2, … symbols.
        """
        backoff, v = self.backoff, self.vocab_size
        p = backoff.p[:v].repeat(size, 1)  # (N, V)
        for length, node in enumerate(nodes, start=1):
            weight, floor = backoff.terms(node, length)
            p.mul_(weight[:, None]).add_(floor[:, None] * backoff.possible)
            first = torch.searchsorted(self.codes, node.clamp_min(0) * v)  # (N,)
            children = torch.searchsorted(self.codes, (node.clamp_min(0) + 1) * v) - first
            children[node < 0] = 0
            rows = torch.repeat_interleave(torch.arange(size, device=node.device), children)
            offset = torch.arange(len(rows), device=node.device)
            offset -= torch.repeat_interleave(children.cumsum(0) - children, children)
            index = first[rows] + offset
            p[rows, self.codes[index] % v] = backoff.p[v + index]
        return p.log_().float()

    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        nodes = [node.flatten() for node in self.table.contexts(ids, segments)]
        logits = self.log_rows(nodes, ids.numel()).view(*ids.shape, self.vocab_size)
        return tapped(tap, "logits", logits)

    def score_targets(
        self, ids: Tensor, targets: Tensor, segments: Tensor | None, constrain: Constrain | None
    ) -> Tensor:
        nodes = [node.flatten() for node in self.table.contexts(ids, segments)]
        if constrain is None:
            *_, p = self.probabilities(nodes, targets.flatten())
            return p.log().float().view(targets.shape)

        def logits(rows: slice) -> Tensor:
            return self.log_rows([node[rows] for node in nodes], len(ids.flatten()[rows]))

        return self.score_in_chunks(logits, ids, targets, constrain)

    def probabilities(self, nodes: list[Tensor], symbols: Tensor) -> Iterator[Tensor]:
        """Yield P of (N,) symbols in fp64 after contexts of 0, 1, 2, … symbols, given as for
        `log_rows`.
        """
        backoff, table = self.backoff, self.table
        p = backoff.p[symbols]
        yield p
        for length, node in enumerate(nodes, start=1):
            weight, floor = backoff.terms(node, length)
            child = table.find(node, symbols)
            lower = floor * backoff.possible[symbols] + weight * p
            p = torch.where(child >= 0, backoff.p[child.clamp_min(0)], lower)
            yield p

    def init_state(self, batch: int, capacity: int) -> DecodeState:
        ids = torch.full((batch, self.order - 1), ABSENT, device=self.codes.device)
        return DecodeState([ContextWindow(ids)], batch, capacity)

    def step(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        state.check(ids.size(1))
        window = cast(ContextWindow, state.layers[0])
        window.push(ids, lengths)
        state.advance(lengths, ids.size(1))
        nodes = [node[:, -1] for node in self.table.contexts(window.ids)]
        return self.log_rows(nodes, len(ids))  # (B, V)


def uniform(table: NGrams) -> Tensor:
    """Return the uniform distribution (V,) over all tokens but `<S>`, which never follows."""
    p = torch.ones(table.vocab_size, dtype=torch.float64, device=table.codes.device)
    if table.start >= 0 and table.vocab_size > 1:
        p[table.start] = 0.0
    return p / p.sum()


def maximum_likelihood(table: NGrams, unigrams: Tensor) -> BackoffTable:
    """Return relative frequencies; `unigrams` (V,) are the probabilities without a context or in
    one never counted.
    """
    totals = table.totals(table.counts)
    p = table.counts / totals[table.parents].double()
    weight = (totals == 0).double()
    unseen = torch.tensor([[1.0, 0.0]] * table.order, dtype=torch.float64, device=unigrams.device)
    return BackoffTable(
        torch.cat([unigrams, p]), weight, torch.zeros_like(weight), unseen, unigrams > 0
    )


class Uniform(TableModel):
    """All tokens but `<S>` are equally probable: the baseline of every other model."""

    Config = CountConfig
    PRESETS: ClassVar[Presets] = {"exact": lambda n_layers, d_model: CountConfig()}
    order = 1

    def smooth(self, table: NGrams) -> BackoffTable:
        return maximum_likelihood(table, uniform(table))


class Unigram(Uniform):
    """Relative frequencies of symbols, without context."""

    def smooth(self, table: NGrams) -> BackoffTable:
        total = int(table.unigrams.sum())
        return maximum_likelihood(table, table.unigrams / total if total else uniform(table))


class Bigram(Uniform):
    """The first-order Markov chain, P(b | a) = n(a, b) / n(a); uniform after an a never counted."""

    order = 2

    @property
    def totals(self) -> Tensor:
        """(V,) how often each symbol was followed by another."""
        return self.table.totals(self.counts)[: self.vocab_size]


FALLBACK = (0.5, 1.0, 1.5)


@dataclass(frozen=True, kw_only=True)
class KneserNeyConfig(CountConfig):
    """An n-gram model with Kneser–Ney discounts."""

    order: int = 5  # symbols of the longest n-gram

    def __post_init__(self) -> None:
        CountConfig.__post_init__(self)
        check_ranges(self, order=64)


class KneserNey(TableModel):
    """An n-gram model whose counts are discounted in favour of shorter contexts."""

    Config = KneserNeyConfig
    PRESETS: ClassVar[Presets] = {"modified": lambda n_layers, d_model: KneserNeyConfig()}

    @property
    def order(self) -> int:
        return int(self.config.order)

    def smooth(self, table: NGrams) -> BackoffTable:
        size, base, suffixes = table.vocab_size, uniform(table), table.suffixes()
        adjusted, borders = adjust_counts(table, suffixes), table.borders()
        discount = torch.zeros_like(adjusted, dtype=torch.float64)
        for low, high in pairwise(borders):
            level = torch.tensor((0.0, *discounts(adjusted[low:high])), dtype=torch.float64)
            discount[low:high] = level.to(discount.device)[adjusted[low:high].clamp_max(3)]
        total = table.totals(adjusted[size:]).double()
        weight = torch.where(total > 0, table.totals(discount[size:]) / total, 1.0)
        counts, unused = adjusted[:size], discount[:size].sum()  # the mass of the discounts
        unigrams = base
        if counts.any():
            unigrams = (counts - discount[:size] + unused * base) / counts.sum()
        p = torch.cat([unigrams, (adjusted - discount)[size:] / total[table.parents]])
        for low, high in pairwise(borders[1:]):
            part = slice(low - size, high - size)
            p[low:high] += weight[table.parents[part]] * p[suffixes[part]]
        unseen = torch.tensor([[1.0, 0.0]] * table.order, dtype=torch.float64, device=p.device)
        return BackoffTable(p, weight, p.new_zeros(1).expand_as(p), unseen, base > 0)


def adjust_counts(table: NGrams, suffixes: Tensor) -> Tensor:
    """Return a(g) of every n-gram, (V + N,): its count, or the number of symbols before it."""
    counts = torch.cat([table.unigrams, table.counts])
    adjusted = torch.bincount(suffixes, minlength=len(counts))
    longest = table.borders()[table.order - 1]
    adjusted[longest:] = counts[longest:]
    initial = table.first_symbols() == table.start
    adjusted[initial] = counts[initial]
    return adjusted


def discounts(counts: Tensor) -> tuple[float, float, float]:
    """Return D1, D2 and D3+ for the counts (M,) of one order: Chen & Goodman, eq. 26."""
    one, two, three, four = (int((counts == n).sum()) for n in range(1, 5))
    if not (one and two and three):
        return FALLBACK
    y = one / (one + 2 * two)
    values = (1 - 2 * y * two / one, 2 - 3 * y * three / two, 3 - 4 * y * four / three)
    if not all(0 <= d < n for n, d in enumerate(values, start=1)):
        return FALLBACK
    return values


SLOWDOWN = 3.0  # counting n-grams of twice the length takes so many times as long
LONGEST = 16  # symbols of the longest n-grams tried when the order is open
LOGS = (-8.0, 16.0)  # log α: from practically no prior to practically the prior alone
SMALL = 8  # counts up to which Γ is a product
CACHED = 1 << 14  # numbers per block in the evidence, so that they stay in the cache
MIN_GAIN = 0.001 * math.log(2)  # nats per token that longer n-grams must gain


@dataclass(frozen=True, kw_only=True)
class DirichletNGramConfig(CountConfig):
    """An n-gram model with a Dirichlet prior."""

    order: int = 0  # symbols of the longest n-gram; 0 = chosen by held-out likelihood
    prior: Literal["hierarchical", "symmetric"] = "hierarchical"
    estimate: Literal["map", "mean"] = "map"
    alpha: float = -1.0  # concentration of the prior at every order; below 0 = chosen by evidence

    def __post_init__(self) -> None:
        CountConfig.__post_init__(self)
        check_ranges(self, least=0, order=64)
        if not math.isfinite(self.alpha):
            raise ValueError(f"alpha must be a number, got {self.alpha}")


class DirichletNGram(TableModel):
    """An n-gram model whose probabilities have Dirichlet priors."""

    Config = DirichletNGramConfig
    PRESETS: ClassVar[Presets] = {
        "hierarchical": lambda n_layers, d_model: DirichletNGramConfig(),
        "symmetric": lambda n_layers, d_model: DirichletNGramConfig(prior="symmetric"),
    }
    alphas: Tensor

    def __init__(self, vocab_size: int, config: DirichletNGramConfig) -> None:
        super().__init__(vocab_size, config)
        self.register_buffer("alphas", torch.zeros(self.order, dtype=torch.float64))

    @property
    def order(self) -> int:
        return int(self.config.order) or 1

    @property
    def ones(self) -> int:
        """The 1 of 1 + α p, which the mean adds to every count and MAP does not."""
        return int(self.config.estimate == "mean")

    def fit(
        self, train: Shard, valid: Shard | None, log: Log, budget: Budget | None = None
    ) -> None:
        if self.config.order:
            self.fit_table(count(train, self.order))
            return
        budget = budget or Budget(log)
        longest, best, seconds = 2, 2, 0.0
        while best == longest < LONGEST:
            if seconds and budget.left < SLOWDOWN * seconds:
                budget.reduce(f"orders above {longest} are not tried")
                break
            started = time.monotonic()
            longest *= 2
            budget.progress(f"orders up to {longest}")
            self.config = dataclasses.replace(self.config, order=longest)
            self.fit_table(count(train, longest))
            scores = list(self.held_out(valid) if valid else self.leave_one_out())
            best = 1 + int(np.argmax(np.array(scores) > max(scores) - MIN_GAIN))
            seconds = time.monotonic() - started
        table, alphas = self.table.truncate(best), self.alphas[:best]
        self.config = dataclasses.replace(self.config, order=best)
        self.set_table(table)
        self.alphas = alphas.clone()
        data = "of the validation part" if valid else "of the training data, each symbol left out"
        bits = ", ".join(f"{-score / math.log(2):.4f}" for score in scores)
        log(f"order {best} of 1 to {longest}, by the likelihood {data}: {bits} bits per token")

    def fit_table(self, table: NGrams) -> None:
        """Store a table and choose the concentrations of its priors."""
        self.set_table(table)
        alpha = float(self.config.alpha)
        levels = self.levels(
            lambda level: alpha if alpha >= 0 else best_concentration(level, self.ones)
        )
        self.alphas = torch.tensor([alpha for _, alpha, _ in levels], dtype=torch.float64)

    def levels(
        self, concentration: Callable[[NGramLevel], float] | None = None, *, left_out: bool = False
    ) -> Iterator[tuple[NGramLevel, float, Tensor]]:
        """Yield, order by order, the n-grams, the concentration of their prior (the stored one by
        default) and their probabilities.
        """
        table, p = self.table, self.alphas.new_empty(0)
        borders, suffixes, totals = table.borders(), table.suffixes(), table.totals(table.counts)
        base, size = uniform(table), table.vocab_size
        possible = int((base > 0).sum())
        for order in range(1, table.order + 1):
            if order == 1:
                contexts = table.unigrams.sum()[None]
                level = NGramLevel(
                    1, table.unigrams, contexts.expand(size), base, contexts, possible
                )
            else:
                part = slice(borders[order - 1] - size, borders[order] - size)
                codes = table.codes[part]
                hierarchical = self.config.prior == "hierarchical"
                level = NGramLevel(
                    order,
                    table.counts[part],
                    totals[codes // size],
                    p[suffixes[part]] if hierarchical else base[codes % size],
                    totals[borders[order - 2] : borders[order - 1]],
                    possible,
                )
            alpha = concentration(level) if concentration else float(self.alphas[order - 1])
            probabilities = level.estimate(alpha, self.ones, left_out)
            p = torch.cat([p, probabilities])
            yield level, alpha, probabilities

    def smooth(self, table: NGrams) -> BackoffTable:
        base, totals, borders = uniform(table), table.totals(table.counts), table.borders()
        weight, unseen = base.new_zeros(len(totals)), base.new_zeros(table.order, 2)
        floor = torch.zeros_like(weight)
        possible = int((base > 0).sum())
        for length in range(1, table.order):  # of contexts
            nodes = slice(borders[length - 1], borders[length])
            weight[nodes], floor[nodes] = self.backoff_terms(totals[nodes], length, possible)
            unseen[length] = torch.cat(self.backoff_terms(totals.new_zeros(1), length, possible))
        p = torch.cat([probabilities for _, _, probabilities in self.levels()])
        return BackoffTable(p, weight, floor, unseen, base > 0)

    def backoff_terms(self, totals: Tensor, length: int, possible: int) -> tuple[Tensor, Tensor]:
        """Return weight and floor (C,) after contexts of `length` symbols with these totals."""
        alpha = float(self.alphas[length])
        total = totals + alpha + self.ones * possible
        if self.config.prior == "hierarchical":
            weight = torch.where(total > 0, alpha / total, 1.0)
            return weight, torch.where(total > 0, self.ones / total, 0.0)
        floor = torch.where(total > 0, (self.ones + alpha / possible) / total, 1 / possible)
        return torch.zeros_like(floor), floor

    def held_out(self, shard: Shard) -> Iterator[float]:
        """Yield the mean log-likelihood of a shard for each order from 1 to the model's."""
        total, tokens = np.zeros(self.order), 0
        for chunk, starts, skip in read_chunks(shard, self.order, CHUNK):
            ids = torch.from_numpy(chunk.astype(np.int64))
            segments = torch.zeros_like(ids)
            segments[torch.from_numpy(starts)] = 1
            mask = torch.arange(1, len(ids)) >= skip
            mask &= segments[1:] == 0  # `<S>` is not predicted
            nodes = self.table.contexts(ids[None, :-1], segments.cumsum(0)[None, :-1])
            likelihoods = self.probabilities([node[0][mask] for node in nodes], ids[1:][mask])
            total += [float(p.log().sum()) for p in likelihoods]
            tokens += int(mask.sum())
        yield from total / max(1, tokens)

    def leave_one_out(self) -> Iterator[float]:
        """Yield the mean log-likelihood of the training data for each order, if every symbol is
        predicted from the counts of all others.
        """
        table = self.table
        initial, borders = table.first_symbols() == table.start, table.borders()
        shorter, tokens = 0.0, int(table.unigrams.sum())  # shorter: where the record starts
        for level, _, p in self.levels(left_out=True):
            logs = torch.where(level.counts > 0, level.counts * p.log(), 0.0)
            yield (shorter + float(logs.sum())) / max(1, tokens)
            at_start = initial[borders[level.order - 1] : borders[level.order]]
            shorter += float(logs[at_start].sum())

    def interval(
        self, context: Sequence[int], symbol: int, level: float = 0.95
    ) -> tuple[float, float]:
        """Return the equal-tailed credible interval of P(symbol | context)."""
        a, b = self.posterior(context, symbol)
        tail = (1 - level) / 2
        if not a:
            return 0.0, 0.0
        return float(betaincinv(a, b, tail)), float(betaincinv(a, b, 1 - tail))

    def posterior(self, context: Sequence[int], symbol: int) -> tuple[float, float]:
        """Return the a and b of Beta(a, b), the posterior of P(symbol | context): marginals of a
        Dirichlet distribution are Beta distributions. a = 0 for a symbol that never follows.
        """
        table, device = self.table, self.alphas.device
        symbol = int(symbol)  # ids of a shard are small unsigned integers, which index as masks
        if not 0 <= symbol < self.vocab_size:
            raise ValueError(f"symbol must be from 0 to {self.vocab_size - 1}, got {symbol}")
        x = torch.tensor([symbol], device=device)
        last = [int(i) for i in context[max(0, len(context) - self.order + 1) :]]
        ids = torch.tensor([last], dtype=torch.int64, device=device)
        nodes = [node[:, -1] for node in table.contexts(ids)[: len(last)]]
        base = uniform(table)
        if not base[symbol]:
            return 0.0, 1.0
        alpha = float(self.alphas[len(nodes)])
        *_, prior = [base[x], *self.probabilities(nodes[:-1], x)][: 1 + len(nodes)]
        if self.config.prior == "symmetric":
            prior = base[x]
        if nodes:
            child = int(table.find(nodes[-1], x))
            times = int(table.counts[child - self.vocab_size]) if child >= 0 else 0
            total = int(table.totals(table.counts)[nodes[-1]]) if int(nodes[-1]) >= 0 else 0
        else:
            times, total = int(table.unigrams[symbol]), int(table.unigrams.sum())
        a = 1 + alpha * float(prior) + times
        return a, int((base > 0).sum()) + alpha + total - a


@dataclass(frozen=True, eq=False)
class NGramLevel:
    """The n-grams of one order."""

    order: int
    counts: Tensor  # (M,)
    totals: Tensor  # (M,) of their contexts
    prior: Tensor  # (M,) their prior probabilities
    contexts: Tensor  # (C,) totals of all contexts
    possible: int  # symbols that can follow

    def estimate(self, alpha: float, ones: int, left_out: bool) -> Tensor:
        """Return probabilities (M,); with `left_out`, each as if counted once less."""
        counts, totals = self.counts, self.totals
        if left_out:
            counts, totals = (counts - 1).clamp_min(0), (totals - 1).clamp_min(0)
        total = totals + alpha + ones * self.possible
        p = (counts + ones * (self.prior > 0) + alpha * self.prior) / total
        return torch.where(total > 0, p, self.prior)


def evidence(level: NGramLevel, ones: int) -> Callable[[float], float]:
    """Return the log-evidence of one order's counts as a function of α:
    Σ_c log B(n(c·) + a) / B(a) with a = ones + α p.

    Only n-grams that were counted contribute; contexts of equal totals are computed once.
    """
    mask = (level.counts > 0) & (level.prior > 0)
    counts, order = level.counts[mask].sort(descending=True)
    prior = level.prior[mask][order]
    prior_array = prior.cpu().numpy()
    above = [int((counts > j).sum()) for j in range(SMALL + 1)]
    frequent, larger = prior[: above[SMALL]], counts[: above[SMALL]].double()
    sizes, times = torch.unique(level.contexts[level.contexts > 0], return_counts=True)
    sizes = sizes.double()

    def value(alpha: float) -> float:
        mass = sizes.new_tensor(alpha + ones * level.possible)
        total = (times * (torch.lgamma(mass) - torch.lgamma(mass + sizes))).sum()
        for first in range(0, above[0], CACHED):  # Γ(a + n) / Γ(a) = a (a + 1) … (a + n - 1)
            a = ones + alpha * prior_array[first : first + CACHED]
            product = a.copy()
            for j in range(1, SMALL):
                larger_counts = max(0, above[j] - first)
                product[:larger_counts] *= a[:larger_counts] + j
            total += float(np.log(product).sum())
        for p, n in zip(frequent.split(CACHED), larger.split(CACHED), strict=True):
            a = ones + alpha * p
            total += (torch.lgamma(a + n) - torch.lgamma(a + SMALL)).sum()
        return float(total)

    return value


def best_concentration(level: NGramLevel, ones: int) -> float:
    """Return the α of greatest evidence: from a coarse grid of log α, by Brent's method."""
    from scipy.optimize import minimize_scalar  # takes half a second to import

    if not bool((level.counts > 0).any()):
        return 0.0
    log_evidence = evidence(level, ones)

    def loss(log_alpha: float) -> float:
        return -log_evidence(math.exp(log_alpha))

    grid = np.linspace(*LOGS, 9)
    best = int(np.argmin([loss(log_alpha) for log_alpha in grid]))
    bounds = grid[max(0, best - 1)], grid[min(8, best + 1)]
    # a tolerance of one percent of α makes no visible difference
    result = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-2})
    return math.exp(result.x)
