"""What a language model costs: bits per raw symbol, whatever the tokenizer, with 95% intervals.

The unit is the raw symbol plus one `<E>` per record; `<S>` is never predicted. Running text is one
stream in which every symbol is scored once. A symbol the model holds impossible makes the figure
infinite, and is counted.

Records and what each of their symbols cost, in order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.shards import Shard
from regard.errors import UserError
from regard.evaluation.bootstrap import paired_interval, ratio_interval
from regard.evaluation.eval_data import shard_of
from regard.models.language_model import Constrain, LanguageModel
from regard.models.seq2seq import Seq2SeqModel
from regard.tokenizers import Tokenizer
from regard.training.validation import log_probs

BLOCK = 1000  # symbols of running text that are resampled together


@dataclass(frozen=True)
class Metric:
    """One number with its 95% interval; infinite when `impossible` symbols occurred."""

    value: float
    low: float
    high: float
    impossible: int = 0
    digits: int = 4  # shown after the point
    of: str = ""  # the class it is of, where it is of one class
    target: str = ""  # the target it is of, where there are several

    def to_json(self) -> dict[str, Any]:
        """As DESIGN's documents have it: never NaN or Infinity."""
        named = {"class": self.of} if self.of else {}
        if not math.isfinite(self.value):
            return {"value": None, "infinite": True, "impossible": self.impossible, **named}
        return {"value": self.value, "low": self.low, "high": self.high, **named}

    def scaled(self, factor: float) -> Metric:
        """The same figure in another unit."""
        return Metric(self.value * factor, self.low * factor, self.high * factor, self.impossible)

    def negative(self) -> Metric:
        """The same of what is better when it is more, as a cost."""
        return Metric(-self.value, -self.high, -self.low, self.impossible, self.digits)

    def exponential(self) -> Metric:
        """e to the figure: perplexity from nats."""
        low, value, high = (math.exp(min(x, 700.0)) for x in (self.low, self.value, self.high))
        if math.isinf(self.value):
            value = low = high = math.inf
        return Metric(value, low, high, self.impossible)

    def __str__(self) -> str:
        if not math.isfinite(self.value):
            return f"infinite ({self.impossible:,} impossible)"
        value, low, high = (f"{x:.{self.digits}f}" for x in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"


def by_target(
    found: Mapping[str, Metric],
) -> tuple[dict[str, Metric], dict[str, dict[str, Metric]]]:
    """The figures of all targets together by name, and those of each target by target and name."""
    shared = {name: figure for name, figure in found.items() if not figure.target}
    each: dict[str, dict[str, Metric]] = {}
    for name, figure in found.items():
        if figure.target:
            each.setdefault(figure.target, {})[plain_name(name, figure.target)] = figure
    return shared, each


def target_name(name: str, target: str) -> str:
    """What the figure of one target is called among those of several."""
    return f"{name} ({target})"


def plain_name(name: str, target: str) -> str:
    """The name without the target: `target_name` undone."""
    return name.removesuffix(f" ({target})")


def title(name: str, figure: Metric) -> str:
    """A figure's name to read, with the class that it is of."""
    words = name.replace("_", " ") if not figure.target else name
    return f"{words} ({figure.of})" if figure.of else words


def to_document(found: Mapping[str, Metric]) -> dict[str, Any]:
    """Figures for JSON, by name; those of one of several targets under `targets`, by target."""
    shared, each = by_target(found)
    document: dict[str, Any] = {name: figure.to_json() for name, figure in shared.items()}
    if each:
        document["targets"] = {
            target: {name: figure.to_json() for name, figure in figures.items()}
            for target, figures in each.items()
        }
    return document


@dataclass(frozen=True, eq=False)
class TokenLosses:
    """Per unit of a shard: nats spent, raw symbols, bytes and tokens scored, impossible tokens."""

    nats: NDArray[np.float64]
    symbols: NDArray[np.float64]
    bytes: NDArray[np.float64]
    tokens: NDArray[np.float64]
    impossible: int
    unknown: int
    records: int


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
    tells = tokenizer.unk != tokenizer.end  # some vocabularies have one token for both
    nats[impossible] = 0.0
    add = RecordUnits(shard.offsets) if shard.kind == "records" else BlockUnits(symbols)
    return TokenLosses(
        nats=add(nats),
        symbols=add(symbols),
        bytes=add(np.where(scored, bytes_of(shard, tokenizer), 0)),
        tokens=add(scored),
        impossible=int(np.count_nonzero(impossible)),
        unknown=int(np.count_nonzero(ids[scored] == tokenizer.unk)) if tells else 0,
        records=shard.records,
    )


def bytes_of(shard: Shard, tokenizer: Tokenizer) -> NDArray[np.int64]:
    """The bytes of raw text behind every token, without what encoding put before each text."""
    ids = np.asarray(shard.ids)
    counts: NDArray[np.int64] = tokenizer.byte_counts[ids]
    firsts = np.asarray(shard.offsets[:-1]) + 1
    # a block out of the middle of a text begins without `<S>`, and nothing was put before it
    firsts = firsts[(ids[firsts] != tokenizer.end) & (ids[firsts - 1] == tokenizer.start)]
    counts[firsts] -= len(tokenizer.prefix.encode())
    return counts


class RecordUnits:
    """Sums over the tokens of each record."""

    def __init__(self, offsets: NDArray[np.int64]) -> None:
        self.begins = np.asarray(offsets[:-1])

    def __call__(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """(tokens,) to (records,)."""
        return np.add.reduceat(values.astype(np.float64), self.begins)


class BlockUnits:
    """Sums over blocks of BLOCK symbols, the same symbols whatever the tokenizer.

    A token that stands for several symbols across a border is shared out between the blocks; one
    that stands for none (a later byte of a character) goes with the symbol before it. A short last
    block joins the one before.
    """

    def __init__(self, symbols: NDArray[np.int64]) -> None:
        ends = np.cumsum(symbols)
        self.last = np.flatnonzero(np.diff(ends, append=ends[-1] + 1))  # of each run of equal ends
        self.ends = np.concatenate([[0], ends[self.last]])
        whole = np.arange(max(1, int(ends[-1]) // BLOCK)) * BLOCK
        self.borders = np.append(whole, ends[-1])

    def __call__(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """(tokens,) to (blocks,)."""
        sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)[self.last]])
        return np.diff(np.interp(self.borders, self.ends, sums))


def metrics_of(measured: TokenLosses) -> dict[str, Metric]:
    """The metrics of one model, by name."""
    m = measured
    per_symbol = _figure(m, m.symbols)
    per_token = _figure(m, m.tokens)
    found = {
        "nats_per_symbol": per_symbol,
        "bits_per_symbol": per_symbol.scaled(1 / math.log(2)),
        "perplexity": per_symbol.exponential(),
        "nats_per_token": per_token,
        "perplexity_per_token": per_token.exponential(),
    }
    if m.bytes.sum() and not m.unknown:  # what an unknown token stood for is not known
        found["bits_per_byte"] = _figure(m, m.bytes).scaled(1 / math.log(2))
    return found


def _figure(m: TokenLosses, denominators: NDArray[np.float64]) -> Metric:
    if m.impossible:
        return Metric(math.inf, math.inf, math.inf, m.impossible)
    return Metric(*ratio_interval(m.nats, denominators))


def difference(ours: TokenLosses, theirs: TokenLosses) -> Metric:
    """Nats per symbol, ours minus theirs, in pairs over the same units; infinite if one is."""
    if len(ours.nats) != len(theirs.nats) or not np.array_equal(ours.symbols, theirs.symbols):
        raise UserError(
            "the two runs do not score the same symbols, so they cannot be compared in pairs"
        )
    if ours.impossible or theirs.impossible:
        value = math.nan if ours.impossible and theirs.impossible else math.inf
        value = value if ours.impossible else -math.inf
        return Metric(value, value, value, ours.impossible + theirs.impossible)
    return Metric(*paired_interval(ours.nats, theirs.nats, ours.symbols))


def verdict(gap: Metric) -> str:
    """What a difference of costs says about ours, in words."""
    if math.isnan(gap.value):
        return "both hold some of the data impossible"
    return (
        "better" if gap.high < 0 else "worse" if gap.low > 0 else "no difference that 95% supports"
    )


AT_ONCE = 1024  # records of a file scored together


@dataclass(frozen=True)
class ScoredRecord:
    """A record, its tokens (without `<S>`, with `<E>`) and their natural log-probabilities."""

    text: str
    tokens: list[str]
    log_probs: list[float]

    @property
    def total(self) -> float:
        """The log-probability of the whole record in nats."""
        return float(sum(self.log_probs))

    def to_json(self) -> dict[str, Any]:
        """An entry of `regard score --json`; what is impossible is null."""
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
    """Score texts as records; those of a translator answer `sources`."""
    if not texts:
        return []
    shard = shard_of(texts, tokenizer)
    shard = shard if sources is None else shard.paired(sources)
    values, _ = log_probs(model, shard, tokenizer, constrain=constrain)
    found = []
    for i, text in enumerate(texts):
        span = slice(int(shard.offsets[i]) + 1, int(shard.offsets[i + 1]))
        names = [tokenizer.text(int(t)) for t in shard.ids[span]]
        found.append(ScoredRecord(text, names, values[span].tolist()))
    return found
