"""The loss of language models: bits per raw symbol, whatever the tokenizer, with 95% intervals.

The unit is the raw symbol plus one `<E>` per record; `<S>` is never predicted. Running text is one
stream in which every symbol is scored once. A symbol of probability 0 makes the loss infinite, and
is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.shards import Shard
from regard.errors import UserError
from regard.evaluation.bootstrap import BootstrapEstimate, Floats, digest, resample_sums
from regard.evaluation.eval_data import shard_of
from regard.evaluation.metrics import Report, estimate_metrics, register_metric
from regard.evaluation.scoring import log_probs
from regard.models.language_model import Constrain, LanguageModel
from regard.models.seq2seq import Seq2SeqModel
from regard.tokenizers import Tokenizer

BLOCK = 1000  # symbols of running text that are resampled together
RECORDS_AT_ONCE = 1024  # of a file that is scored


@dataclass(frozen=True, eq=False)
class TokenLosses(Report):
    """Nats and what was scored in each unit: a record, or a block of running text."""

    ranking = ("nats_per_symbol",)

    nats: Floats
    symbols: Floats
    bytes: Floats
    tokens: Floats
    impossible: int  # tokens of probability 0
    unknown: int  # tokens that stand for unknown symbols
    records: int

    @cached_property
    def estimates(self) -> dict[str, BootstrapEstimate]:
        return estimate_metrics("tokens", self)

    @cached_property
    def data(self) -> str:
        return digest(self.symbols)

    @cached_property
    def resampled_nats(self) -> Floats:
        return resample_sums(self.nats)

    def nats_per(self, counts: Floats) -> BootstrapEstimate:
        """Return the estimate of nats per one of these counts (U,)."""
        value = math.inf if self.impossible else float(self.nats.sum() / counts.sum())
        samples = self.resampled_nats / np.maximum(resample_sums(counts), 1e-300)
        return BootstrapEstimate(
            value, samples, self.data, impossible=self.impossible, lower_is_better=True
        )

    @cached_property
    def per_symbol(self) -> BootstrapEstimate:
        return self.nats_per(self.symbols)

    @cached_property
    def per_token(self) -> BootstrapEstimate:
        return self.nats_per(self.tokens)


def to_bits(nats: float) -> float:
    return nats * (1 / math.log(2))


def to_perplexity(nats: float) -> float:
    return math.inf if math.isinf(nats) else math.exp(min(nats, 700.0))


@register_metric("tokens", "nats_per_symbol", title="nats per symbol", lower_is_better=True)
def nats_per_symbol(losses: TokenLosses) -> BootstrapEstimate:
    return losses.per_symbol


@register_metric("tokens", "bits_per_symbol", title="bits", lower_is_better=True)
def bits_per_symbol(losses: TokenLosses) -> BootstrapEstimate:
    return losses.per_symbol.convert(to_bits)


@register_metric("tokens", "perplexity", title="perplexity", lower_is_better=True)
def perplexity(losses: TokenLosses) -> BootstrapEstimate:
    return losses.per_symbol.convert(to_perplexity)


@register_metric("tokens", "nats_per_token", title="nats per token", lower_is_better=True)
def nats_per_token(losses: TokenLosses) -> BootstrapEstimate:
    return losses.per_token


@register_metric("tokens", "perplexity_per_token", title="token perplexity", lower_is_better=True)
def perplexity_per_token(losses: TokenLosses) -> BootstrapEstimate:
    return losses.per_token.convert(to_perplexity)


@register_metric("tokens", "bits_per_byte", title="bits per byte", lower_is_better=True)
def bits_per_byte(losses: TokenLosses) -> BootstrapEstimate | None:
    if losses.unknown or not losses.bytes.sum():  # the bytes of unknown symbols are not known
        return None
    return losses.nats_per(losses.bytes).convert(to_bits)


def mean_losses(seeds: Sequence[TokenLosses]) -> TokenLosses:
    """Average the losses of models with different seeds, unit by unit; what is impossible for one
    model is impossible.
    """
    nats = np.mean([losses.nats for losses in seeds], axis=0)
    return replace(seeds[0], nats=nats, impossible=max(losses.impossible for losses in seeds))


def measure(
    model: LanguageModel | Seq2SeqModel,
    shard: Shard,
    tokenizer: Tokenizer,
    *,
    stride: int = 0,
    constrain: Constrain | None = None,
) -> TokenLosses:
    """Score a shard and sum by unit."""
    if not shard.vocab_size == tokenizer.vocab_size <= model.vocab_size:
        raise UserError(
            f"the model has {model.vocab_size} tokens, the data {shard.vocab_size}: "
            "made by another tokenizer"
        )
    if not 0 <= stride <= model.config.max_len:
        raise UserError(
            f"--stride must be from 1 to the model's max_len {model.config.max_len}, got {stride}"
        )
    values, scored = log_probs(model, shard, tokenizer, stride=stride, constrain=constrain)
    ids = np.asarray(shard.ids)
    symbols = np.where(scored, tokenizer.symbols[ids], 0)
    nats = np.where(scored, -values, 0.0)
    impossible = ~np.isfinite(nats)
    nats[impossible] = 0.0
    has_unknown = tokenizer.unk != tokenizer.end  # some vocabularies have one token for both

    def sum_records(values: NDArray[Any]) -> Floats:
        return np.add.reduceat(values.astype(np.float64), np.asarray(shard.offsets[:-1]))

    sum_units = sum_records if shard.has_records else BlockUnits(symbols)
    return TokenLosses(
        nats=sum_units(nats),
        symbols=sum_units(symbols),
        bytes=sum_units(np.where(scored, count_bytes(shard, tokenizer), 0)),
        tokens=sum_units(scored),
        impossible=int(np.count_nonzero(impossible)),
        unknown=int(np.count_nonzero(ids[scored] == tokenizer.unk)) if has_unknown else 0,
        records=shard.records,
    )


def count_bytes(shard: Shard, tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Return the bytes of raw text of every token, without the prefix that encoding adds."""
    ids = np.asarray(shard.ids)
    counts: NDArray[np.int64] = tokenizer.byte_counts[ids]
    firsts = np.asarray(shard.offsets[:-1]) + 1
    # a block from the middle of a text begins without `<S>` and has no prefix
    firsts = firsts[(ids[firsts] != tokenizer.end) & (ids[firsts - 1] == tokenizer.start)]
    counts[firsts] -= len(tokenizer.prefix.encode())
    return counts


class BlockUnits:
    """Sums over blocks of BLOCK symbols, the same symbols whatever the tokenizer.

    A token of several symbols across a border is divided between the blocks; one of no symbol (a
    later byte of a character) belongs to the symbol before it. A short last block joins the one
    before.
    """

    def __init__(self, symbols: NDArray[np.int64]) -> None:
        ends = np.cumsum(symbols)
        self.last = np.flatnonzero(np.diff(ends, append=ends[-1] + 1))  # of each run of equal ends
        self.ends = np.concatenate([[0], ends[self.last]])
        starts = np.arange(max(1, int(ends[-1]) // BLOCK)) * BLOCK
        self.borders = np.append(starts, ends[-1])

    def __call__(self, values: NDArray[Any]) -> Floats:
        """Sum (tokens,) to (blocks,)."""
        sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)[self.last]])
        return np.diff(np.interp(self.borders, self.ends, sums))


@dataclass(frozen=True)
class ScoredRecord:
    """A record, its tokens (without `<S>`, with `<E>`) and their natural log-probabilities."""

    text: str
    tokens: list[str]
    log_probs: list[float]

    @property
    def total(self) -> float:
        """The log-probability of the record in nats."""
        return float(sum(self.log_probs))

    def to_json(self) -> dict[str, Any]:
        """Return an entry of `regard score --json`; what is impossible is null."""
        finite = [x if np.isfinite(x) else None for x in self.log_probs]
        total = None if None in finite else self.total
        return {"tokens": self.tokens, "log_probs": finite, "total": total}


def score(
    model: LanguageModel | Seq2SeqModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    constrain: Constrain | None = None,
    sources: Shard | None = None,
) -> list[ScoredRecord]:
    """Score texts as records, or as the targets of `sources`."""
    if not texts:
        return []
    shard = shard_of(texts, tokenizer)
    shard = shard if sources is None else shard.paired(sources)
    values, _ = log_probs(model, shard, tokenizer, constrain=constrain)
    records = []
    for i, text in enumerate(texts):
        span = slice(int(shard.offsets[i]) + 1, int(shard.offsets[i + 1]))
        tokens = [tokenizer.text(int(token)) for token in shard.ids[span]]
        records.append(ScoredRecord(text, tokens, values[span].tolist()))
    return records
