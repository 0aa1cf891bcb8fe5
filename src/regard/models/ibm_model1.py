"""Which word comes from which: IBM model 1 (Brown et al. 1993, section 4.1).

Each word of a target comes from one word of its source, or from NULL, all of them being equally
probable; t(f | e) is how probable f is then. Expectation–maximisation finds t: a pass shares every
f out among the words of its source in proportion to t, and what each e got of f, divided by all it
got, is the new t. No pass lowers the likelihood, which is concave in t: from equal t it climbs to
the highest there is. Markers are not words.

Words by their place: translators that count, whose words depend on the source, on the place in
the target and, through a bigram, on the word before.

Word for word: the table of IBM model 1 (`models.alignment`) as a translator, a floor.

Model 1 chooses how many words a target has, from how many its source has; which source word, or
NULL, each comes from, all equally probable; and the word, by t. It does not say where words stand,
nor what goes together. Here word i of the target comes from word j of the source with a weight of
decay ** |i - j|. NULL is at a distance of 1 from everywhere, and beyond the end of its source a
target stays at the last word; decay = 1 is model 1 itself. A source word never seen leaves its
weight to the others. This is mixed with a bigram of target words, so that nothing is impossible:

    P(f | d, i, source) = share · Σ_j w_ij t(f | e_j) + (1 - share) · P(f | d),  d the word before.

Whether a target ends before word i depends on i less the length of its source: it ends as often as
targets of the training data did that came so far.
"""

from __future__ import annotations

import dataclasses
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.shards import Shard
from regard.layers.attention import Tap
from regard.layers.cache import ContextWindow, DecodeState
from regard.layers.embeddings import Inputs
from regard.models.counts import CountConfig, CountingFit, Say
from regard.models.kneser_ney import KneserNey, KneserNeyConfig
from regard.models.language_model import CHUNK, IGNORE, Constrain
from regard.models.ngrams import ABSENT, Ints, VariableBuffers, tally
from regard.models.seq2seq import ConditionedLM, Seq2SeqModel
from regard.models.supervised import Budget

NULL = -1  # in place of a source position: from no word of the source
CELLS = 1 << 22  # pairs of positions worked on at once,
KEPT = 1 << 27  # and those whose places in the table are remembered: 512 MB


@dataclass(frozen=True, eq=False)
class TranslationTable:
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
) -> TranslationTable:
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
    return TranslationTable(size, source_vocab, torch.from_numpy(keys), torch.from_numpy(t))


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


class PositionalTranslator(VariableBuffers, Seq2SeqModel, CountingFit):
    """What it has counted of places, and a bigram of targets."""

    def __init__(self, vocab_size: int, config: Any) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        self.bigram = KneserNey(vocab_size, KneserNeyConfig(order=2))

    def after(self, ids: Tensor) -> Tensor:
        """(B, T, V) the bigram's P of all words after ids (B, T), in fp64."""
        nodes = [node.flatten() for node in self.bigram.table.contexts(ids)]
        logs = self.bigram.log_rows(nodes, ids.numel())
        return logs.double().exp_().view(*ids.shape, self.vocab_size)


class ConditionedPositional(ConditionedLM):
    """Such a translator that has read its sources."""

    translator: PositionalTranslator

    def __init__(self, translator: PositionalTranslator, source: Inputs) -> None:
        super().__init__(translator)
        self.translator = translator
        self.read(source)

    def read(self, source: Inputs, *, tap: Tap | None = None) -> None:
        """See Given."""
        self.sources, self.device = len(source.ids), source.ids.device

    @abstractmethod
    def rows(self, ids: Tensor, places: Tensor) -> Tensor:
        """(B·W, T, V) log P of all words after ids (B·W, T), at places (B, T) of their targets."""

    def places(self, ids: Tensor) -> Tensor:
        """(B, T): the places that follow (B·W, T) ids, the first after `<S>`."""
        return torch.arange(ids.size(1), device=ids.device).expand(self.sources, -1)

    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """See LanguageModel."""
        alone(segments)
        logits = self.rows(ids, self.places(ids))
        if tap is not None:
            tap("logits", logits)
        return logits

    def score(
        self,
        ids: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        *,
        constrain: Constrain | None = None,
    ) -> Tensor:
        """See LanguageModel."""
        alone(segments)
        width = max(1, CHUNK // (len(ids) * self.vocab_size))
        columns = (ids, self.places(ids), targets.clamp_min(0))
        parts = []
        for i, place, target in zip(*(x.split(width, 1) for x in columns), strict=True):
            logs = self.rows(i, place).flatten(0, 1)
            if constrain is not None:
                logs = constrain(logs, i.flatten()).log_softmax(-1)
            parts.append(logs.gather(1, target.reshape(-1, 1)).view(i.shape))
        return torch.where(targets == IGNORE, 0.0, torch.cat(parts, dim=1))

    def start(self, batch: int, capacity: int) -> DecodeState:
        """See LanguageModel."""
        empty = torch.full((batch, 1), ABSENT, device=self.device)
        return DecodeState([ContextWindow(empty)], batch, capacity)

    def extend(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        """See LanguageModel."""
        state.check(ids.size(1))
        memory = state.layers[0]
        assert isinstance(memory, ContextWindow)
        memory.push(ids, lengths)
        state.advance(lengths, ids.size(1))
        beams, seen = len(ids) // self.sources, state.length
        if isinstance(seen, int):
            at = torch.full((self.sources, 1), seen - 1, device=ids.device)
            return self.rows(memory.ids, at)[:, 0]  # (B·W, V)
        each = seen.view(-1, beams)  # (B, W)
        if bool((each == each[:, :1]).all()):  # as beams have
            return self.rows(memory.ids, each[:, :1] - 1)[:, 0]
        parts = [self.rows(memory.ids[w::beams], each[:, w, None] - 1) for w in range(beams)]
        return torch.cat(parts, dim=1).flatten(0, 1)


def alone(segments: Tensor | None) -> None:
    """Refuse rows that targets share."""
    if segments is not None:
        raise ValueError("a translator by places reads one pair to a row; use length buckets")


def repeated(x: Tensor, rows: int) -> Tensor:
    """What is true of B sources, for `rows` targets: B·W, the W of a source side by side."""
    return x if len(x) == rows else x.repeat_interleave(rows // len(x), 0)


DECAYS = tuple(n / 10 for n in range(1, 11))  # tried
USUAL = (0.4, 0.6)  # decay and share where nothing can choose: those of English to German
ROUNDS = 30  # of estimating the share
RARE = 1e-9  # targets of every length, counted beside those that were seen
RECORDS = 256  # measured at once


@dataclass(frozen=True, kw_only=True)
class IBM1Config(CountConfig):
    """How the table is found and read."""

    iterations: int = 10  # passes of expectation–maximisation
    decay: float = 0.0  # of the weight of a place with its distance; 0 = by held-out likelihood
    share: float = 0.0  # of the table, the rest being the bigram's; 0 = by held-out likelihood
    source_vocab: int = 0  # where sources have a vocabulary of their own; 0: the targets'

    def __post_init__(self) -> None:
        CountConfig.__post_init__(self)
        if not 1 <= self.iterations <= 10_000:
            raise ValueError(f"iterations must be from 1 to 10000, got {self.iterations}")
        if not 0 <= self.decay <= 1:
            raise ValueError(f"decay must be from 0 (chosen) to 1, got {self.decay}")
        if not 0 <= self.share < 1:
            raise ValueError(f"share must be at least 0 (chosen) and below 1, got {self.share}")
        if not 0 <= self.source_vocab < 1 << 24:
            raise ValueError(f"source_vocab must be from 0 to {1 << 24}, got {self.source_vocab}")


class IBM1Translator(PositionalTranslator):
    """IBM model 1's table and a bigram."""

    Config = IBM1Config
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "exact": lambda n_layers, d_model: IBM1Config()
    }
    grown = ("keys", "t")
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
        self, train: Shard, valid: Shard | None, say: Say, budget: Budget | None = None
    ) -> None:
        """See Counting. Decay and share, where open, become part of the configuration."""
        if train.source is None:
            raise ValueError("a translator is fitted to pairs, but the shard has no source")
        self.bigram.fit(train, valid, say)
        size, config = self.lexicon.source_vocab, self.config
        passes: list[float] = []
        budget = budget or Budget(say)
        found = estimate(
            train,
            size,
            config.iterations,
            longest=config.max_len,
            told=passes.append,
            budget=budget,
        )
        self.keys, self.t = found.keys, found.t
        self.ends, self.end_id = endings(train, config.max_len), torch.tensor([int(train.ids[-1])])
        decay, share = config.decay or USUAL[0], config.share or USUAL[1]
        if valid is not None and valid.records:
            decay, share = self.choose(valid, budget)
            say(
                f"{len(self.keys):,} pairs of words; decay {decay:g} and share {share:.3f} of the "
                "table, by the likelihood of the validation part"
            )
        self.config = dataclasses.replace(config, decay=decay, share=share, iterations=len(passes))

    def choose(self, valid: Shard, budget: Budget | None = None) -> tuple[float, float]:
        """The decay and share, of those not given, under which held-out pairs are most probable."""
        asked = self.config
        if valid.tokens == 2 * valid.records:  # no words
            return asked.decay or USUAL[0], asked.share or USUAL[1]
        tried: list[tuple[float, float, float]] = []
        decays, began = (asked.decay,) if asked.decay else DECAYS, time.monotonic()
        for decay in decays:
            if tried and budget and budget.left < (time.monotonic() - began) / len(tried):
                budget.reduce(f"{len(tried)} of {len(decays)} decays are tried")
                break
            parts = [self.parts(source, targets, decay) for source, targets in batches(valid)]
            lexical, plain = (torch.cat(side) for side in zip(*parts, strict=True))
            share = asked.share or USUAL[1]
            for _ in range(0 if asked.share else ROUNDS):  # Jelinek & Mercer 1980
                one = share * lexical
                share = float((one / (one + (1 - share) * plain)).mean())
            share = min(max(share, 0.001), 0.999)  # neither is ever sure
            nats = (share * lexical + (1 - share) * plain).log().sum()
            tried.append((float(nats), decay, share))
        return max(tried)[1:]

    def parts(self, source: Inputs, targets: Tensor, decay: float) -> tuple[Tensor, Tensor]:
        """What table and bigram say of the words of targets (B, T), IGNORE where there is none."""
        given = ConditionedIBM1(self, source)
        start = torch.full_like(targets[:, :1], int(self.bigram.start_id))
        ids = torch.cat((start, targets[:, :-1]), dim=1)
        wanted, words = targets.clamp_min(0), (targets != IGNORE) & (targets != self.end_id)
        lexical = given.lexical(given.weights(given.places(targets), decay), wanted)
        return lexical[words], self.plain(ids, wanted)[words]

    def plain(self, ids: Tensor, words: Tensor) -> Tensor:
        """The bigram's P of words (B, T) after ids (B, T), if it is not `<E>`."""
        nodes = [node.flatten() for node in self.bigram.table.contexts(ids)]
        *_, p = self.bigram.probabilities(nodes, words.flatten())
        *_, end = self.bigram.probabilities(nodes, self.end_id.expand(words.numel()))
        return (p / (1 - end)).view(words.shape)

    def condition(self, source: Inputs) -> ConditionedLM:
        """See Translator."""
        return ConditionedIBM1(self, source)

    def wrong(self) -> str:
        """See Grown."""
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
    """The table's words for some sources, and the bigram."""

    translator: IBM1Translator

    def read(self, source: Inputs, *, tap: Tap | None = None) -> None:
        """See Given."""
        super().read(source)
        lexicon = self.translator.lexicon
        real = source.segments > 0  # (B, S)
        null = torch.full_like(source.ids[:, :1], lexicon.source_vocab)
        self.words = torch.cat((null, source.ids), dim=1)  # (B, 1 + S)
        self.size = (real.sum(1, keepdim=True) - 1).clamp_min(0)  # (B, 1) words, without `<E>`
        self.begin, many = lexicon.translations(self.words)
        columns = torch.arange(many.size(1), device=many.device)
        self.many = many * (columns <= self.size)
        self._entries: tuple[Tensor, ...] | None = None

    @property
    def share(self) -> float:
        """Of the table in the mixture; none while nothing was fitted."""
        return float(self.config.share or USUAL[1]) if len(self.translator.keys) else 0.0

    def weights(self, positions: Tensor, decay: float = 0.0) -> Tensor:
        """(B, T) target positions to (B, T, 1 + S): from which word each probably comes."""
        columns = torch.arange(-1, self.words.size(1) - 1, device=positions.device)
        at = torch.minimum(positions, (self.size - 1).clamp_min(0))
        distance = (at[..., None] - columns).abs()  # (B, T, 1 + S)
        distance[..., 0] = 1  # NULL
        weights = torch.pow(decay or self.config.decay or USUAL[0], distance.double())
        weights = weights * (self.many > 0)[:, None]
        return weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)

    def lexical(self, weights: Tensor, targets: Tensor) -> Tensor:
        """The table's P of targets (B·W, T)."""
        t = self.translator.lexicon.probability(
            repeated(self.words, len(targets))[:, None], targets[..., None]
        )  # (B·W, T, 1 + S)
        return (repeated(weights, len(targets)) * t).sum(-1)

    def lexical_rows(self, weights: Tensor) -> Tensor:
        """The table's P of all words, (B, T, V), from weights (B, T, 1 + S)."""
        row, column, words, t = self.entries()
        size = len(self.words)
        found = []
        for part in weights.split(max(1, CHUNK // max(len(t), size * self.vocab_size)), dim=1):
            width = part.size(1)
            places = torch.arange(width, device=row.device) + (row * width)[:, None]  # (M, T)
            p = part.new_zeros(size * width * self.vocab_size)
            p.scatter_add_(
                0,
                (places * self.vocab_size + words[:, None]).flatten(),
                (part[row, :, column] * t[:, None]).flatten(),
            )
            found.append(p.view(size, width, self.vocab_size))
        return torch.cat(found, dim=1)

    def entries(self) -> tuple[Tensor, ...]:
        """All translations of all words: (M,) rows and columns of `words`, targets and their t."""
        if self._entries is None:
            lexicon, many = self.translator.lexicon, self.many.flatten()
            cell = torch.repeat_interleave(many)  # (M,) b · (1 + S) + column
            place = (self.begin.flatten() - many.cumsum(0) + many)[cell]
            place += torch.arange(len(cell), device=cell.device)  # (M,) in the table
            columns, targets = self.words.size(1), lexicon.keys[place] % self.vocab_size
            self._entries = (cell // columns, cell % columns, targets, lexicon.t[place])
        return self._entries

    def rows(self, ids: Tensor, places: Tensor) -> Tensor:
        """See GivenByPlace."""
        p, last = self.translator.after(ids), self.translator.end_id  # (B·W, T, V)
        p.div_(1 - p[..., last]).mul_(1 - self.share)
        lexical = self.lexical_rows(self.weights(places))  # (B, T, V)
        p.add_(repeated(lexical, len(ids)), alpha=self.share)
        ends = repeated(self.ends(places), len(ids))[..., None]
        p.mul_(1 - ends)[..., last] = ends
        return p.log_().float()

    def ends(self, positions: Tensor) -> Tensor:
        """P that a target ends at positions (B, T) rather than go on."""
        most = self.translator.config.max_len
        return self.translator.ends[(positions - self.size).clamp(-most, most) + most]

    def score(
        self,
        ids: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        *,
        constrain: Constrain | None = None,
    ) -> Tensor:
        """See LanguageModel; without constraints only what is asked for is looked up."""
        if constrain is not None:
            return super().score(ids, targets, segments, constrain=constrain)
        alone(segments)
        wanted, at = targets.clamp_min(0), self.places(ids)
        lexical = self.lexical(self.weights(at), wanted)
        p = self.share * lexical + (1 - self.share) * self.translator.plain(ids, wanted)
        ends = repeated(self.ends(at), len(ids))
        logs = torch.where(wanted == self.translator.end_id, ends, (1 - ends) * p).log().float()
        return torch.where(targets == IGNORE, 0.0, logs)


def endings(pairs: Shard, most: int) -> Tensor:
    """(2 · most + 1,) P that a target ends with so many words more than its source as it has by
    then, from -most to most; the ends of the scale stand for all beyond.
    """
    assert pairs.source is not None
    more = np.diff(pairs.offsets) - np.diff(pairs.source.offsets)
    counts = np.bincount(more.clip(-most, most) + most, minlength=2 * most + 1) + RARE
    found = np.minimum(counts / counts[::-1].cumsum()[::-1], 1 - 1e-12)  # never for certain
    found[-1] = 0.5  # beyond all that was seen
    return torch.from_numpy(found)


def batches(pairs: Shard) -> Iterator[tuple[Inputs, Tensor]]:
    """Sources and their targets (B, T), `<E>` last, then IGNORE."""
    assert pairs.source is not None
    for first in range(0, pairs.records, RECORDS):
        records = np.arange(first, min(first + RECORDS, pairs.records))
        ids, targets = (rectangle(shard, records) for shard in (pairs.source, pairs))
        yield Inputs(ids.clamp_min(0), (ids != IGNORE).long()), targets


def rectangle(shard: Shard, records: Ints) -> Tensor:
    """The ids of records after `<S>`, (B, T), then IGNORE."""
    begin, end = shard.offsets[records] + 1, shard.offsets[records + 1]
    at = np.asarray(begin)[:, None] + np.arange(int((end - begin).max()))
    ids = np.asarray(shard.ids[np.minimum(at, shard.tokens - 1)]).astype(np.int64)
    return torch.from_numpy(np.where(at < np.asarray(end)[:, None], ids, IGNORE))
