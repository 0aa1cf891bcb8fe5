"""IBM model 1: which source word each target word comes from (Brown et al. 1993, section 4.1).

Each word of a target comes from one word of its source, or from NULL, all being equally probable;
t(f | e) is the probability of f given that it comes from e. Expectation–maximisation fits t: each
pass distributes every f over the words of its source in proportion to t, and the share of f in all
that e got is the new t. No pass lowers the likelihood, which is concave in t: from uniform t it
converges to the maximum. Markers are not words.

As a translation model, a baseline. Model 1 has no word order, so here word i of the target comes
from word j of the source with a weight of decay ** |i - j|. NULL has the distance 1 from every
position, and beyond the end of its source a target stays at the last word; decay = 1 is model 1
itself. An unknown source word leaves its weight to the others. A mixture with a bigram of target
words makes every word possible:

    P(f | d, i, source) = share · Σ_j w_ij t(f | e_j) + (1 - share) · P(f | d),  d the word before.

Whether a target ends before word i depends on i minus the length of its source: it ends as often as
the targets of the training data did.
"""

from __future__ import annotations

import dataclasses
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.shards import Shard
from regard.layers.cache import ContextWindow, DecodeState
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap, tapped
from regard.models import Presets, VariableBuffers, check_ranges
from regard.models.language_model import CHUNK, IGNORE, Constrain
from regard.models.ngrams import (
    ABSENT,
    CountConfig,
    CountingModel,
    Ints,
    KneserNey,
    KneserNeyConfig,
    make_counter,
)
from regard.models.seq2seq import ConditionedLM, Seq2SeqModel
from regard.models.supervised import Budget, Log

NULL = -1  # instead of a source position: from no word of the source
CELLS = 1 << 22  # pairs of a source and a target word processed at once
CACHED = 1 << 27  # pairs up to which their indices in the table are stored: 512 MB
DECAYS = tuple(n / 10 for n in range(1, 11))  # tried
DEFAULTS = (0.4, 0.6)  # decay and share without validation data: those of English to German
ROUNDS = 30  # of estimating the share
RARE = 1e-9  # added to the number of targets of every length
RECORDS = 256  # pairs scored at once


@dataclass(frozen=True, eq=False)
class TranslationTable:
    """t(target | source) of all words that occur in one pair; 0 for all others."""

    vocab_size: int  # of targets
    source_vocab: int  # also the id of NULL
    keys: Tensor  # (N,) source · vocab_size + target, sorted
    t: Tensor  # (N,) fp64; sums to one for each source

    def probability(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Return t of words, given as tensors that broadcast."""
        keys = sources * self.vocab_size + targets
        if not len(self.keys):
            return torch.zeros_like(keys, dtype=self.t.dtype)
        index = torch.searchsorted(self.keys, keys).clamp_max_(len(self.keys) - 1)
        return self.t[index].where(self.keys[index] == keys, 0.0)

    def translations(self, sources: Tensor) -> tuple[Tensor, Tensor]:
        """Return where in the table the targets of each source word start, and their number."""
        first = torch.searchsorted(self.keys, sources * self.vocab_size)
        end = torch.searchsorted(self.keys, (sources + 1) * self.vocab_size)
        return first, end - first

    def links(self, source: Sequence[int], target: Sequence[int]) -> list[int]:
        """Return for each target position the most probable source position, or NULL.

        The first of equals wins, and any word before NULL; a target word that never occurred with
        one of the source words is linked to NULL.
        """
        if not source:
            return [NULL] * len(target)
        words = torch.tensor([self.source_vocab, *source])
        p = self.probability(words, torch.tensor(target).view(-1, 1))  # (T, 1 + S)
        best, positions = p[:, 1:].max(dim=1)
        linked = (best >= p[:, 0]) & (best > 0)
        return torch.where(linked, positions, NULL).tolist()


def fit_table(
    pairs: Shard,
    source_vocab: int,
    iterations: int,
    *,
    longest: int = 1 << 12,
    on_pass: Callable[[float], object] = bool,
    budget: Budget | None = None,
) -> TranslationTable:
    """Return the table after so many passes over the pairs of at most `longest` words each.

    `on_pass` gets the log-likelihood before each pass in nats: the sum over all target words f of
    log(Σ_j t(f | e_j) / (S + 1)). Passes that do not fit into the budget are skipped, except the
    first.
    """
    size, total = pairs.vocab_size, 0
    counter = make_counter((source_vocab + 1) * size + 1)
    for cell_keys, _ in word_pairs(pairs, source_vocab, longest):
        counter.add(cell_keys + 1)  # a counter takes positive keys
        total += len(cell_keys)
    keys = counter.result()[0] - 1  # (N,)
    sources, t = keys // size, np.full(len(keys), 1 / size)

    def indices() -> Iterator[tuple[NDArray[np.int32], Ints]]:
        for cell_keys, sizes in word_pairs(pairs, source_vocab, longest):
            yield np.searchsorted(keys, cell_keys).astype(np.int32), sizes

    cached = list(indices()) if total <= CACHED else None
    started = time.monotonic()
    for done in range(iterations):
        if budget is not None and done and budget.left < 1.5 * (time.monotonic() - started) / done:
            budget.reduce(f"{done} of {iterations} passes are made")
            break
        counts, nats = np.zeros(len(keys)), 0.0
        for index, sizes in indices() if cached is None else cached:
            p = t[index]
            totals = np.add.reduceat(p, np.cumsum(sizes) - sizes)  # of each target word
            nats += float(np.log(totals / sizes).sum())
            counts += np.bincount(index, p / np.repeat(totals, sizes), minlength=len(keys))
        on_pass(nats)
        t = counts / np.bincount(sources, counts)[sources]
    return TranslationTable(size, source_vocab, torch.from_numpy(keys), torch.from_numpy(t))


def word_pairs(pairs: Shard, source_vocab: int, longest: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield the keys of every target word with NULL and with each word of its source.

    The keys of one target word are contiguous, NULL's first; their number is yielded with them.
    """
    assert pairs.source is not None
    offsets = np.stack([pairs.offsets, pairs.source.offsets])
    counts = np.diff(offsets) - 2  # (2, R) words
    mask = counts.max(axis=0) <= longest
    targets, sources = offsets[:, :-1][:, mask] + 1  # after `<S>`
    target_lengths, source_lengths = counts[:, mask]
    ends = np.cumsum(target_lengths * (source_lengths + 1))
    first = done = 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, done + CELLS, side="right")))
        part = slice(first, last)
        lengths = target_lengths[part]
        sizes = np.repeat(source_lengths[part] + 1, lengths)  # of each target word
        target_ids = np.asarray(pairs.ids[expand_ranges(targets[part], lengths)]).astype(np.int64)
        starts = np.repeat(sources[part] - 1, lengths)  # `<S>` stands for NULL
        source_ids = np.asarray(pairs.source.ids[expand_ranges(starts, sizes)]).astype(np.int64)
        source_ids[np.cumsum(sizes) - sizes] = source_vocab
        yield source_ids * pairs.vocab_size + np.repeat(target_ids, sizes), sizes
        first, done = last, int(ends[last - 1])


def expand_ranges(starts: Ints, lengths: Ints) -> Ints:
    """Return the indices of ranges with these starts and lengths (N,), concatenated."""
    shift = starts - (np.cumsum(lengths) - lengths)
    return np.repeat(shift, lengths) + np.arange(lengths.sum())


class PositionalTranslator(VariableBuffers, CountingModel, Seq2SeqModel):
    """A model that counts, whose words depend on the source, on the position in the target and,
    through a bigram, on the word before.
    """

    def __init__(self, vocab_size: int, config: Any) -> None:
        super().__init__(vocab_size, config)
        self.bigram = KneserNey(vocab_size, KneserNeyConfig(order=2))

    def bigram_probabilities(self, ids: Tensor) -> Tensor:
        """Return the bigram's P of all words after ids (B, T), in fp64: (B, T, V)."""
        nodes = [node.flatten() for node in self.bigram.table.contexts(ids)]
        logs = self.bigram.log_rows(nodes, ids.numel())
        return logs.double().exp_().view(*ids.shape, self.vocab_size)


class ConditionedPositional(ConditionedLM):
    """A positional translator conditioned on sources."""

    translator: PositionalTranslator

    def __init__(self, translator: PositionalTranslator, source: Inputs) -> None:
        super().__init__(translator)
        self.translator = translator
        self.set_source(source)

    def set_source(self, source: Inputs, *, tap: Tap | None = None) -> None:
        self.sources, self.device = len(source.ids), source.ids.device

    @abstractmethod
    def log_rows(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Return log P of all words after ids (B·W, T), at positions (B, T) of their targets:
        (B·W, T, V).
        """

    def positions(self, ids: Tensor) -> Tensor:
        """Return the positions (B, T) that ids (B·W, T) predict; 0 follows `<S>`."""
        return torch.arange(ids.size(1), device=ids.device).expand(self.sources, -1)

    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        refuse_packing(segments)
        logits = self.log_rows(ids, self.positions(ids))
        return tapped(tap, "logits", logits)

    def score_targets(
        self, ids: Tensor, targets: Tensor, segments: Tensor | None, constrain: Constrain | None
    ) -> Tensor:
        refuse_packing(segments)
        width = max(1, CHUNK // (len(ids) * self.vocab_size))
        columns = (ids, self.positions(ids), targets)
        scores = []
        for i, position, target in zip(*(x.split(width, 1) for x in columns), strict=True):
            logs = self.log_rows(i, position).flatten(0, 1)
            if constrain is not None:
                logs = constrain(logs, i.flatten()).log_softmax(-1)
            scores.append(logs.gather(1, target.reshape(-1, 1)).view(i.shape))
        return torch.cat(scores, dim=1)

    def init_state(self, batch: int, capacity: int) -> DecodeState:
        ids = torch.full((batch, 1), ABSENT, device=self.device)
        return DecodeState([ContextWindow(ids)], batch, capacity)

    def step(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        state.check(ids.size(1))
        window = cast(ContextWindow, state.layers[0])
        window.push(ids, lengths)
        state.advance(lengths, ids.size(1))
        beams = len(ids) // self.sources
        lengths = torch.as_tensor(state.length, device=ids.device).expand(len(ids))
        position = lengths.view(-1, beams) - 1  # (B, W)
        if bool((position == position[:, :1]).all()):  # as in beam search
            return self.log_rows(window.ids, position[:, :1])[:, 0]  # (B·W, V)
        rows = [self.log_rows(window.ids[w::beams], position[:, w, None]) for w in range(beams)]
        return torch.cat(rows, dim=1).flatten(0, 1)


def refuse_packing(segments: Tensor | None) -> None:
    """Raise ValueError for rows that targets share."""
    if segments is not None:
        raise ValueError("this translator reads one pair to a row, not packed ones")


def repeat_sources(x: Tensor, rows: int) -> Tensor:
    """Repeat rows of B sources for B·W targets, the W targets of a source being adjacent."""
    return x if len(x) == rows else x.repeat_interleave(rows // len(x), 0)


@dataclass(frozen=True, kw_only=True)
class IBM1Config(CountConfig):
    """How the table is fitted and used."""

    iterations: int = 10  # passes of expectation–maximisation
    decay: float = 0.0  # of a source word's weight with distance; 0 = by held-out likelihood
    share: float = 0.0  # of the table in the mixture with the bigram; 0 = by held-out likelihood
    source_vocab: int = 0  # size of the sources' vocabulary; 0: that of the targets

    def __post_init__(self) -> None:
        CountConfig.__post_init__(self)
        check_ranges(self, iterations=10_000)
        check_ranges(self, least=0, decay=1, source_vocab=1 << 24)
        if not 0 <= self.share < 1:
            raise ValueError(f"share must be at least 0 (chosen) and below 1, got {self.share}")


class IBM1Translator(PositionalTranslator):
    """IBM model 1's table and a bigram."""

    Config = IBM1Config
    PRESETS: ClassVar[Presets] = {"exact": lambda n_layers, d_model: IBM1Config()}
    variable = ("keys", "t")
    keys: Tensor
    t: Tensor
    ends: Tensor
    end_id: Tensor

    def __init__(self, vocab_size: int, config: IBM1Config) -> None:
        super().__init__(vocab_size, config)
        self.register_buffer("keys", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("t", torch.zeros(0, dtype=torch.float64))
        half = torch.full((2 * config.max_len + 1,), 0.5, dtype=torch.float64)
        self.register_buffer("ends", half)  # P(end) at i - S from -max_len to max_len
        self.register_buffer("end_id", torch.tensor([0]))  # of `<E>` among targets

    @property
    def lexicon(self) -> TranslationTable:
        """The table."""
        return TranslationTable(
            self.vocab_size, self.config.source_vocab or self.vocab_size, self.keys, self.t
        )

    def fit(
        self, train: Shard, valid: Shard | None, log: Log, budget: Budget | None = None
    ) -> None:
        if train.source is None:
            raise ValueError("a translator is fitted to pairs, but the shard has no source")
        self.bigram.fit(train, valid, log)
        config, budget = self.config, budget or Budget(log)
        nats: list[float] = []
        table = fit_table(
            train,
            self.lexicon.source_vocab,
            config.iterations,
            longest=config.max_len,
            on_pass=nats.append,
            budget=budget,
        )
        self.keys, self.t = table.keys, table.t
        self.ends = end_probabilities(train, config.max_len)
        self.end_id = torch.tensor([int(train.ids[-1])])
        decay, share = config.decay or DEFAULTS[0], config.share or DEFAULTS[1]
        if valid is not None and valid.records:
            decay, share = self.choose(valid, budget)
            log(
                f"{len(self.keys):,} pairs of words; decay {decay:g} and share {share:.3f} of the "
                "table, by the likelihood of the validation part"
            )
        self.config = dataclasses.replace(config, decay=decay, share=share, iterations=len(nats))

    def choose(self, valid: Shard, budget: Budget | None = None) -> tuple[float, float]:
        """Return the decay and share, unless given, that maximise the likelihood of held-out
        pairs.
        """
        config = self.config
        if valid.tokens == 2 * valid.records:  # no words
            return config.decay or DEFAULTS[0], config.share or DEFAULTS[1]
        results: list[tuple[float, float, float]] = []
        decays, started = (config.decay,) if config.decay else DECAYS, time.monotonic()
        for decay in decays:
            if results and budget and budget.left < (time.monotonic() - started) / len(results):
                budget.reduce(f"{len(results)} of {len(decays)} decays are tried")
                break
            parts = [self.mixture_parts(*pairs, decay) for pairs in read_pairs(valid)]
            lexical, bigram = (torch.cat(part) for part in zip(*parts, strict=True))
            share = config.share or DEFAULTS[1]
            for _ in range(0 if config.share else ROUNDS):  # Jelinek & Mercer 1980
                weighted = share * lexical
                share = float((weighted / (weighted + (1 - share) * bigram)).mean())
            share = min(max(share, 0.001), 0.999)
            nats = (share * lexical + (1 - share) * bigram).log().sum()
            results.append((float(nats), decay, share))
        return max(results)[1:]

    def mixture_parts(self, source: Inputs, targets: Tensor, decay: float) -> tuple[Tensor, Tensor]:
        """Return P of the words of targets (B, T), padded with IGNORE, by the table and by the
        bigram.
        """
        conditioned = ConditionedIBM1(self, source)
        start = torch.full_like(targets[:, :1], int(self.bigram.start_id))
        ids = torch.cat((start, targets[:, :-1]), dim=1)
        clamped, mask = targets.clamp_min(0), (targets != IGNORE) & (targets != self.end_id)
        weights = conditioned.weights(conditioned.positions(targets), decay)
        return conditioned.lexical(weights, clamped)[mask], self.word_bigram(ids, clamped)[mask]

    def word_bigram(self, ids: Tensor, words: Tensor) -> Tensor:
        """Return the bigram's P of words (B, T) after ids (B, T), given that none is `<E>`."""
        nodes = [node.flatten() for node in self.bigram.table.contexts(ids)]
        *_, p = self.bigram.probabilities(nodes, words.flatten())
        *_, end = self.bigram.probabilities(nodes, self.end_id.expand(words.numel()))
        return (p / (1 - end)).view(words.shape)

    def condition(self, source: Inputs) -> ConditionedLM:
        return ConditionedIBM1(self, source)

    def buffer_error(self) -> str:
        last = (self.lexicon.source_vocab + 1) * self.vocab_size
        if len(self.keys) != len(self.t) or not bool((self.keys.diff() > 0).all()):
            return "keys must be sorted and have as many t"
        if len(self.keys) and not (int(self.keys[0]) >= 0 and int(self.keys[-1]) < last):
            return f"keys must lie in [0, {last})"
        if not 0 <= int(self.end_id) < self.vocab_size or not bool(
            ((self.ends > 0) & (self.ends < 1)).all()
        ):
            return "end_id must be a token, and ends probabilities between 0 and 1"
        return ""


class ConditionedIBM1(ConditionedPositional):
    """The table, conditioned on sources and mixed with the bigram."""

    translator: IBM1Translator

    def set_source(self, source: Inputs, *, tap: Tap | None = None) -> None:
        super().set_source(source)
        lexicon = self.translator.lexicon
        mask = source.segments > 0  # (B, S)
        null = torch.full_like(source.ids[:, :1], lexicon.source_vocab)
        self.words = torch.cat((null, source.ids), dim=1)  # (B, 1 + S)
        self.lengths = (mask.sum(1, keepdim=True) - 1).clamp_min(0)  # (B, 1) words, without `<E>`
        self.first, counts = lexicon.translations(self.words)
        columns = torch.arange(counts.size(1), device=counts.device)
        self.counts = counts * (columns <= self.lengths)  # (B, 1 + S) translations
        self._entries: tuple[Tensor, ...] | None = None

    @property
    def share(self) -> float:
        """The share of the table in the mixture; 0 before the model is fitted."""
        return float(self.config.share or DEFAULTS[1]) if len(self.translator.keys) else 0.0

    def weights(self, positions: Tensor, decay: float = 0.0) -> Tensor:
        """Return the probability of each source word, or NULL, for target positions (B, T):
        (B, T, 1 + S).
        """
        columns = torch.arange(-1, self.words.size(1) - 1, device=positions.device)
        aligned = torch.minimum(positions, (self.lengths - 1).clamp_min(0))
        distance = (aligned[..., None] - columns).abs()  # (B, T, 1 + S)
        distance[..., 0] = 1  # NULL
        weights = torch.pow(decay or self.config.decay or DEFAULTS[0], distance.double())
        weights = weights * (self.counts > 0)[:, None]
        return weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)

    def lexical(self, weights: Tensor, targets: Tensor) -> Tensor:
        """Return the table's P of targets (B·W, T)."""
        words = repeat_sources(self.words, len(targets))[:, None]
        t = self.translator.lexicon.probability(words, targets[..., None])  # (B·W, T, 1 + S)
        return (repeat_sources(weights, len(targets)) * t).sum(-1)

    def lexical_rows(self, weights: Tensor) -> Tensor:
        """Return the table's P of all words, (B, T, V), from weights (B, T, 1 + S)."""
        row, column, words, t = self.entries()
        size, rows = len(self.words), []
        for part in weights.split(max(1, CHUNK // max(len(t), size * self.vocab_size)), dim=1):
            width = part.size(1)
            cells = torch.arange(width, device=row.device) + (row * width)[:, None]  # (M, T)
            p = part.new_zeros(size * width * self.vocab_size)
            p.scatter_add_(
                0,
                (cells * self.vocab_size + words[:, None]).flatten(),
                (part[row, :, column] * t[:, None]).flatten(),
            )
            rows.append(p.view(size, width, self.vocab_size))
        return torch.cat(rows, dim=1)

    def entries(self) -> tuple[Tensor, ...]:
        """Return all translations of all words: (M,) rows and columns of `words`, targets and
        their t.
        """
        if self._entries is None:
            lexicon, counts = self.translator.lexicon, self.counts.flatten()
            cell = torch.repeat_interleave(counts)  # (M,) b · (1 + S) + column
            index = (self.first.flatten() - counts.cumsum(0) + counts)[cell]
            index += torch.arange(len(cell), device=cell.device)  # (M,) in the table
            columns, targets = self.words.size(1), lexicon.keys[index] % self.vocab_size
            self._entries = (cell // columns, cell % columns, targets, lexicon.t[index])
        return self._entries

    def log_rows(self, ids: Tensor, positions: Tensor) -> Tensor:
        p, end_id = self.translator.bigram_probabilities(ids), self.translator.end_id
        p.div_(1 - p[..., end_id]).mul_(1 - self.share)  # (B·W, T, V)
        lexical = self.lexical_rows(self.weights(positions))  # (B, T, V)
        p.add_(repeat_sources(lexical, len(ids)), alpha=self.share)
        ends = repeat_sources(self.ends(positions), len(ids))[..., None]
        p.mul_(1 - ends)[..., end_id] = ends
        return p.log_().float()

    def ends(self, positions: Tensor) -> Tensor:
        """Return P that a target ends at positions (B, T), if it got so far."""
        most = self.translator.config.max_len
        return self.translator.ends[(positions - self.lengths).clamp(-most, most) + most]

    def score_targets(
        self, ids: Tensor, targets: Tensor, segments: Tensor | None, constrain: Constrain | None
    ) -> Tensor:
        """Without constraints, look up only the targets."""
        if constrain is not None:
            return super().score_targets(ids, targets, segments, constrain)
        refuse_packing(segments)
        positions = self.positions(ids)
        lexical = self.lexical(self.weights(positions), targets)
        p = self.share * lexical + (1 - self.share) * self.translator.word_bigram(ids, targets)
        ends = repeat_sources(self.ends(positions), len(ids))
        return torch.where(targets == self.translator.end_id, ends, (1 - ends) * p).log().float()


def end_probabilities(pairs: Shard, most: int) -> Tensor:
    """Return P that a target ends if it has d words more than its source and got so far, for d from
    -most to most, which stand for all beyond: (2 · most + 1,).
    """
    assert pairs.source is not None
    more = np.diff(pairs.offsets) - np.diff(pairs.source.offsets)
    counts = np.bincount(more.clip(-most, most) + most, minlength=2 * most + 1) + RARE
    p = np.minimum(counts / counts[::-1].cumsum()[::-1], 1 - 1e-12)  # never certain
    p[-1] = 0.5  # beyond all that occurred
    return torch.from_numpy(p)


def read_pairs(pairs: Shard) -> Iterator[tuple[Inputs, Tensor]]:
    """Yield sources and their targets (B, T), `<E>` last, then IGNORE."""
    assert pairs.source is not None
    for first in range(0, pairs.records, RECORDS):
        records = np.arange(first, min(first + RECORDS, pairs.records))
        ids, targets = (pad_records(shard, records) for shard in (pairs.source, pairs))
        yield Inputs(ids.clamp_min(0), (ids != IGNORE).long()), targets


def pad_records(shard: Shard, records: Ints) -> Tensor:
    """Return the ids of records after `<S>`, (B, T), then IGNORE."""
    first, end = shard.offsets[records] + 1, shard.offsets[records + 1]
    index = np.asarray(first)[:, None] + np.arange(int((end - first).max()))
    ids = np.asarray(shard.ids[np.minimum(index, shard.tokens - 1)]).astype(np.int64)
    return torch.from_numpy(np.where(index < np.asarray(end)[:, None], ids, IGNORE))
