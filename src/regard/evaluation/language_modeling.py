"""The loss of language models: bits per raw symbol, whatever the tokenizer, with 95% intervals.

The unit is the raw symbol plus one `<E>` per record; `<S>` is never predicted. Running text is one
stream in which every symbol is scored once. A symbol of probability 0 makes the loss infinite, and
is counted.

How well a model predicts masked tokens: nats per masked token, and accuracy.

The masks are those of validation (`data.batching.Masked`), the same for every model of the same
tokens, so that two are compared in pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data import Progress, no_progress
from regard.data.batching import Masked, windows
from regard.data.shards import Shard
from regard.decoding.engine import device_of, gpu_lock
from regard.errors import UserError
from regard.evaluation import Report, estimate_metrics, register_metric
from regard.evaluation.bootstrap import (
    BootstrapEstimate,
    CountedSums,
    Floats,
    digest,
    resample_sums,
)
from regard.evaluation.eval_data import shard_of
from regard.evaluation.predictions import BATCH_POSITIONS, Predictions, register_report
from regard.layers.embeddings import Inputs
from regard.models.encoder import MaskedLM
from regard.models.language_model import Constrain, LanguageModel
from regard.models.seq2seq import Seq2SeqModel
from regard.tokenizers import Tokenizer

BATCH_TOKENS = 8192  # positions scored at once,
GPU_BATCH_TOKENS = 65536  # and on a GPU, which small batches would leave idle


class MeanLoss(NamedTuple):
    """A loss per symbol or per target, and its standard error over the records."""

    value: float
    error: float | None  # None: a single record has no standard error

    def to_json(self) -> dict[str, float]:
        if self.error is None or not math.isfinite(self.error):
            return {}
        return {"standard_error": self.error}


class Stopped(Exception):
    """Raised inside an evaluation that was asked to stop."""


class Processes(Protocol):
    """The processes that share an evaluation (training.distributed.ProcessGroup)."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        ...


@dataclass(frozen=True)
class SingleProcess:
    """One process that does all the work."""

    rank: int = 0
    size: int = 1

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor


@torch.inference_mode()
def log_probs(
    model: LanguageModel | Seq2SeqModel,
    shard: Shard,
    tokenizer: Tokenizer,
    *,
    stride: int = 0,
    constrain: Constrain | None = None,
    stop: Callable[[], object] = bool,
    world: Processes | None = None,
    progress: Progress = no_progress,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the natural log-probability of every token of `shard.ids`, and which were scored.

    `<S>` is never scored. Running text and long records go through windows of the model's max_len
    that advance by `stride` (0: half of it). `stop` is called between batches; if it returns a true
    value, Stopped is raised. The processes of `world` take batches in turn, and each returns all
    values. Sources longer than max_len are cut, as in translation.
    """
    world, max_len = world or SingleProcess(), int(model.config.max_len)
    values, scored = np.zeros(shard.tokens), np.zeros(shard.tokens, dtype=bool)
    device = next((t.device for t in model.state_dict().values()), torch.device("cpu"))
    cut_sources = shard.source is None or shard.source.cuttable
    batches = windows(
        shard,
        tokenizer,
        max_len=max_len,
        stride=stride or max(1, max_len // 2),
        batch_tokens=max(GPU_BATCH_TOKENS if device.type == "cuda" else BATCH_TOKENS, max_len),
        supports_packing=model.supports_packing,
    )
    was_training = model.training
    model.eval()
    done = 0
    try:
        for i, batch in enumerate(batches):
            if i % world.size == 0 and stop():
                raise Stopped
            targets = batch.positions >= 0
            positions = batch.positions[targets].numpy()
            scored[positions] = True
            done += len(positions)
            progress("evaluating", done, shard.tokens, "tokens")
            if i % world.size != world.rank:
                continue
            with gpu_lock(device):
                source = batch.source
                if source is not None:
                    source = (_cut_source(source, max_len) if cut_sources else source).to(device)
                segments = None if batch.segments is None else batch.segments.to(device)
                language_model = model.condition(source)  # type: ignore[arg-type]  # None: no pairs
                inputs = batch.ids.to(device), batch.targets.to(device), segments
                scores = language_model.score(*inputs, constrain=constrain).cpu()
            values[positions] = scores[targets].double().numpy()
    finally:
        model.train(was_training)
    world.sum(torch.from_numpy(values))  # in place; all but one process add 0 to a value
    return values, scored


def _cut_source(source: Inputs, max_len: int) -> Inputs:
    """Cut a source of more than `max_len` tokens, which is alone in its batch; keep its `<E>`."""
    length = int(source.segments.count_nonzero())
    if len(source.ids) > 1 or length <= max_len or int(source.segments.max()) > 1:
        return source
    positions = torch.tensor([*range(max_len - 1), length - 1])
    return Inputs(source.ids[:, positions], source.segments[:, positions])


def mean_loss(losses: NDArray[np.float64], counts: NDArray[np.float64]) -> MeanLoss:
    """Return the sum of (U,) losses over the sum of (U,) counts, with the standard error of a ratio
    (Cochran 1977, section 2.11).
    """
    total = max(1.0, float(counts.sum()))
    value, units = float(losses.sum()) / total, len(losses)
    if units < 2 or not math.isfinite(value):
        return MeanLoss(value, None)
    residuals = losses - value * counts
    variance = units / (units - 1) * float(residuals @ residuals)
    return MeanLoss(value, math.sqrt(variance) / total)


def symbol_loss(
    values: NDArray[np.float64], scored: NDArray[np.bool_], shard: Shard, tokenizer: Tokenizer
) -> MeanLoss:
    """Return the negative log-likelihood per raw symbol, `<E>` being one; infinite if a symbol has
    probability 0. The standard error is over records, or over blocks of running text.
    """
    symbols = np.where(scored, tokenizer.symbols[np.asarray(shard.ids)], 0).astype(np.float64)
    nats = np.where(scored, -values, 0.0)
    starts = np.asarray(shard.offsets[:-1])
    return mean_loss(np.add.reduceat(nats, starts), np.add.reduceat(symbols, starts))


def truncate_shard(shard: Shard, tokens: int) -> Shard:
    """Return about the first `tokens` of a shard: whole records, one at least, or cut text."""
    if tokens >= shard.tokens:
        return shard
    if shard.is_text:
        tokens = max(2, tokens)
        records = int(np.searchsorted(shard.offsets, tokens))
        return _truncate(shard, np.append(shard.offsets[:records], tokens))
    records = max(1, int(np.searchsorted(shard.offsets, tokens, side="right")) - 1)
    records = max(1, records // shard.views) * shard.views
    return _truncate(shard, np.asarray(shard.offsets[: records + 1]))


def _truncate(shard: Shard, offsets: NDArray[np.int64]) -> Shard:
    """Cut a shard and its source after the last of these offsets, without copying."""
    size, records, source, targets = int(offsets[-1]), len(offsets) - 1, shard.source, shard.targets
    if targets is not None:
        targets = targets[: size if shard.aligned else records]
    if source is not None:
        source = _truncate(source, np.asarray(source.offsets[: records + 1]))
    return replace(
        shard,
        ids=shard.ids[:size],
        offsets=offsets,
        records=records,
        tokens=size,
        symbols=0,
        bytes=0,
        source=source,
        targets=targets,
    )


BLOCK = 1000  # symbols of running text that are resampled together
RECORDS_AT_ONCE = 1024  # of a file that is scored


@dataclass(frozen=True, eq=False)
class TokenLosses(Report):
    """Nats and what was scored in each unit: a record, or a block of running text."""

    ranking = ("bits_per_symbol",)

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


@register_metric("tokens", "bits_per_symbol", title="bits per symbol", lower_is_better=True)
def bits_per_symbol(losses: TokenLosses) -> BootstrapEstimate:
    return losses.per_symbol.convert(to_bits)


@register_metric("tokens", "nats_per_symbol", title="nats per symbol", lower_is_better=True)
def nats_per_symbol(losses: TokenLosses) -> BootstrapEstimate:
    return losses.per_symbol


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
    progress: Progress = no_progress,
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
    values, scored = log_probs(
        model, shard, tokenizer, stride=stride, constrain=constrain, progress=progress
    )
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


@register_metric("masked", "nats_per_token", title="nats per masked token", lower_is_better=True)
def nats_per_masked_token(sums: CountedSums) -> BootstrapEstimate:
    return sums.mean(0, "no token is masked")


@register_metric("masked", "accuracy", title="accuracy")
def masked_accuracy(sums: CountedSums) -> BootstrapEstimate:
    return sums.mean(1, "no token is masked")


@dataclass(frozen=True, eq=False)
class MaskedLMReport(Report):
    """How well masked tokens are predicted."""

    ranking = ("nats_per_token",)

    estimates: dict[str, BootstrapEstimate]


@register_report("masked")
def report_masked_tokens(predictions: Predictions) -> Report:
    sums = CountedSums(predictions.scores, digest(predictions.truths))
    return MaskedLMReport(estimate_metrics("masked", sums))


Measure = Callable[[Any, Shard, Tokenizer], Predictions]
MASKED_MEASURES: dict[type, Measure] = {}


def register_masked_measure(model: type) -> Callable[[Measure], Measure]:
    """Register the function that measures how well models of a class fill in what is masked."""

    def register(measure: Measure) -> Measure:
        MASKED_MEASURES[model] = measure
        return measure

    return register


def measure_masked(model: Any, shard: Shard, tokenizer: Tokenizer) -> Predictions:
    """Return how well a model fills in masked parts of the records of a shard."""
    import_module("regard.evaluation.masked_series")
    cls = next(cls for cls in type(model).__mro__ if cls in MASKED_MEASURES)
    return MASKED_MEASURES[cls](model, shard, tokenizer)


@register_masked_measure(MaskedLM)
@torch.inference_mode()
def measure_masked_lm(model: MaskedLM, shard: Shard, tokenizer: Tokenizer) -> Predictions:
    """Predict the masked tokens of a shard; the `scores` (U, 3) are the sums of nats, correct
    predictions and masked tokens of each chunk that was read.
    """
    masked, device = Masked(shard, tokenizer, int(model.config.max_len)), device_of(model)
    sums = np.zeros((len(masked.sizes), 3))
    for batch in masked.batches(BATCH_POSITIONS):
        assert batch.segments is not None
        is_masked = batch.targets >= 0  # (B, T)
        truths = batch.targets[is_masked]  # (N,)
        source = Inputs(batch.ids, batch.segments).to(device)
        positions = is_masked.flatten().nonzero().squeeze(1)
        log_probs = (
            model(source, positions=positions.to(device)).float().log_softmax(-1).cpu()
        )  # (N, V)
        nats = -log_probs.gather(1, truths[:, None])[:, 0].double().numpy()
        hits = (log_probs.argmax(-1) == truths).double().numpy()
        chunks = batch.items[is_masked.nonzero()[:, 0].numpy()]
        np.add.at(sums, chunks, np.stack([nats, hits, np.ones_like(nats)], axis=1))
    return Predictions("masked", sums, np.asarray(shard.ids), np.ones(len(sums), np.int64))
